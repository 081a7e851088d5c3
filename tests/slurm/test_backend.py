"""The thread that lists, with programs that answer as told."""

from __future__ import annotations

from pathlib import Path

from mirab.backends.slurm.backend import SlurmBackend
from mirab.backends.slurm.commands import GLANCE, Command
from mirab.backends.slurm.listings import nodes
from mirab.backends.slurm.places import cluster_of
from mirab.backends.slurm.runner import Runner, SlurmCommandError
from tests.slurm.test_tracker import T0, kinds, tracker

RECORDED = Path(__file__).parent / "recorded"


class Answers(Runner):
    """Recorded ones; `silent`: of nodes none, as when the controller had no time for it."""

    silent = True

    def read(self, command: Command) -> str:
        if command == GLANCE:
            return "1 RUNNING\n"
        if self.silent and command[0] == "sinfo":
            raise SlurmCommandError(f"{command[0]} did not answer within 30 s")
        return (RECORDED / f"{command[0]}-22.05.json").read_text() if command[0] != "sacct" else ""

    def write(self, commands: object) -> list[str]:
        raise AssertionError("nothing is to be written")


def test_a_first_look_that_failed_makes_no_node_dead() -> None:
    """A storm found it: a glance after it took all that no listing had shown yet for gone."""
    answers = Answers()
    cluster = cluster_of(nodes((RECORDED / "sinfo-22.05.json").read_text()), "slurm")
    backend = SlurmBackend(answers, cluster, tracker(left="left to Slurm").rules, lambda: T0)
    backend._look()
    backend._glance()
    assert backend.trouble and not backend.observe()
    answers.silent = False
    backend.errands.tidy = lambda listed: None  # type: ignore[method-assign]
    backend._glance()
    told = kinds(backend.observe())
    assert "WorkloadSubmitted" in told and "NodeDown" not in told and not backend.trouble
