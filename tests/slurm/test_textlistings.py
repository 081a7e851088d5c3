"""Where a Slurm gives no JSON: its text says the same."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.backends.slurm import commands, textlistings
from mirab.backends.slurm.commands import Command
from mirab.backends.slurm.lister import Lister
from mirab.backends.slurm.listings import ListingError, jobs, nodes
from mirab.backends.slurm.records import SlurmJob
from mirab.backends.slurm.runner import Runner, SlurmCommandError
from mirab.backends.slurm.textlistings import jobs_of_text, minutes, nodes_of_text

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / f"both-22.05.{name}").read_text()


def comparable(job: SlurmJob) -> SlurmJob:
    """JSON tells the end that a run without a limit would have, in a year; text tells none."""
    return replace(job, ended_at=job.ended_at if job.ended else None)


def test_jobs_in_text_are_the_jobs_in_json() -> None:
    """Both recorded of a real 22.05 at one moment: run, array with a limit, holds, dependency, nodes left out, ends."""
    told = {job.id: comparable(job) for job in jobs(recorded("squeue.json"))}
    read = {job.id: comparable(job) for job in jobs_of_text(recorded("squeue.txt"), recorded("excluded.txt"))}
    assert len(told) > 10 and read == told
    assert {job.held_by for job in read.values()} >= {"user", "mirab", ""}
    assert any(job.special == "nodes to leave out" or job.special for job in read.values())


def test_nodes_in_text_are_the_nodes_in_json() -> None:
    assert nodes_of_text(recorded("nodes.txt")) == nodes(recorded("sinfo.json"))


def test_a_name_cannot_pass_for_another_column() -> None:
    line = recorded("squeue.txt").splitlines()[0]
    name = line[: textlistings.WIDTH - 200] + " AdminComment=mirab:held Priority=0 | x"[:200].ljust(200)
    before, after = jobs_of_text(line)[0], jobs_of_text(name)[0]
    assert replace(after, name=before.name) == before


@pytest.mark.parametrize(
    ("limit", "read"),
    [("UNLIMITED", None), ("Partition_Limit", None), ("30:00", 30), ("1:30:00", 90), ("1-02:00:00", 1560), ("0:30", 1),
     ("2-00:00:00", 2880), ("INVALID", None)],
)  # fmt: skip
def test_limits(limit: str, read: int | None) -> None:
    assert minutes(limit) == read


@given(st.text(max_size=60))
def test_what_is_no_listing_is_said_to_be_none(text: str) -> None:
    for read in (jobs_of_text, nodes_of_text):
        with suppress(ListingError):
            read(text)


class Says(Runner):
    """Answers by program and form."""

    def __init__(self, json_says: str) -> None:
        super().__init__()
        self.asked: list[Command] = []
        self._json_says = json_says

    def read(self, command: Command) -> str:
        self.asked.append(command)
        if "--json" in command:
            raise SlurmCommandError(self._json_says)
        return {
            textlistings.LIST_JOBS_TEXT: recorded("squeue.txt"),
            textlistings.LIST_EXCLUDED: recorded("excluded.txt"),
            textlistings.LIST_NODES_TEXT: recorded("nodes.txt"),
        }[command]


@pytest.mark.parametrize(
    "said",
    ["squeue --all: squeue: unrecognized option '--json'",
     "squeue: fatal: Unable to find plugin: serializer/json", "sinfo: error: cannot find data_parser plugin"],
)  # fmt: skip
def test_without_json_text_is_asked_for_from_then_on(said: str) -> None:
    runner = Says(said)
    lister = Lister(runner)
    assert len(lister.jobs()) > 10 and len(lister.nodes()) == 2 and lister.as_text
    assert [command for command in runner.asked if "--json" in command] == [commands.LIST_JOBS]


def test_a_controller_that_is_down_is_no_lack_of_json() -> None:
    runner = Says("squeue: error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(SlurmCommandError):
        Lister(runner).jobs()
    assert len(runner.asked) == 1
