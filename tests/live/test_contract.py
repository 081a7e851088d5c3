"""The contract in real time, with real processes that tell themselves how they ended.

Three teams submit work of all minimums, change their minds, and a node is drained; the service is killed once. Whoever
was stopped before the end of its minimum was cancelled or requeued, by us. What the service calls an end is not asked:
a job says `done` when it has ended by itself, and the shim's own records say how long it ran.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirab.cli.client import new_key
from mirab.cli.exits import ConflictError
from mirab.cli.localservice import LocalService, begin, end
from mirab.store import open_store
from tests.live.test_serve import until

pytestmark = pytest.mark.slow
TEAMS = ("red", "blue", "green")
CLUSTER = """
cluster: {pools: {gpu: {nodes: [a, b], gpus_per_node: 4}}}
budgets: {red: {share: 50%}, blue: {share: 30%}, green: {share: 20%}}
policy:
  {window: 10m, margin: 0%, commitment_floor: 0, urgent_minimum: 1s, checkpoint_grace: 0, surplus_checkpoint_grace: 0}
"""
SCRIPT = """
trap "{told}" TERM
sleep {seconds} & wait $!
[ -z "$stopped" ] || sleep 30
echo done >> {marks}/$MIRAB_JOB_ID.$MIRAB_ATTEMPT
"""
"""Some heed their notice, the others are killed at the end of their grace."""
MINIMUMS = (0, 1, 2, 3)
STEPS = int(os.environ.get("MIRAB_TEST_CONTRACT_STEPS", "120"))
ENOUGH, LONGEST = 3, 3 * STEPS
"""A slow machine takes more steps until so many were stopped that had been promised a minimum."""


@dataclass
class Teams:
    """One service and those who use it. `minimums`: of each job, in seconds; `ours`: those that we stopped."""

    folder: Path
    chance: Random
    minimums: dict[str, int] = field(default_factory=dict)
    ours: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.marks = self.folder / "marks"
        self.marks.mkdir()
        (self.folder / "cluster.yaml").write_text(CLUSTER)
        self.service = self._begin()

    def _begin(self) -> LocalService:
        service = begin(self.folder / "state", "--cluster", str(self.folder / "cluster.yaml"))
        service.wait_until_ready()
        return service

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with self.service.client() as client:
            return client.send(method, path, body, key=new_key() if method == "POST" else "")

    def submit(self) -> None:
        minimum = self.chance.choice(MINIMUMS)
        seconds = self.chance.choice((0.5, 2, 4, 8))
        told = self.chance.choice(("exit 143", "stopped=1"))
        script = SCRIPT.format(told=told, seconds=seconds, marks=self.marks)
        body = {
            "account": self.chance.choice(TEAMS), "argv": ["/bin/sh", "-c", script], "cwd": str(self.marks),
            "output": "/dev/null", "gpus_per_node": self.chance.choice((1, 2, 4)), "min_runtime": f"{minimum}s",
            "grace": "1s", "environment": {"PATH": os.environ["PATH"]},
        }  # fmt: skip
        (number,) = self.ask("POST", "/jobs", body)["ids"]
        self.minimums[number] = minimum

    def meddle(self) -> None:
        number, verb = self.chance.choice(list(self.minimums)), self.chance.choice(("requeue", "cancel"))
        self.ours.add(number)
        with suppress(ConflictError):
            self.ask("POST", f"/jobs/{number}/{verb}", {})

    def drain(self) -> None:
        self.ask("POST", "/nodes/b/drain", {"why": "a new cable"})

    def resume(self) -> None:
        self.ask("POST", "/nodes/b/resume", {})

    def crash(self) -> None:
        self.service.kill()
        self.service = self._begin()

    def leave(self) -> None:
        """Nobody wants anything any more, and everything comes to its end."""
        self.ours |= {job["id"] for job in self.jobs() if job["state"] == "PENDING"}
        for number in self.ours:
            with suppress(ConflictError):
                self.ask("POST", f"/jobs/{number}/cancel", {})
        until(lambda: not any(job["state"] in ("PENDING", "RUNNING", "COMPLETING") for job in self.jobs()))

    def jobs(self) -> Sequence[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", "/jobs?limit=500")["jobs"]
        return found


def cut_short(teams: Teams) -> Iterator[str]:
    """Runs that did not have their minimum, did not end by themselves, and were not stopped by us."""
    store = open_store(f"sqlite:///{teams.folder}/state/mirab.db")
    try:
        for number, minimum in teams.minimums.items():
            for run in store.runs(number):
                if run.started_at is None or run.ended_at is None or number in teams.ours:
                    continue
                by_itself = (teams.marks / run.id).exists()
                if not by_itself and run.ended_at - run.started_at < minimum * 1_000:
                    yield f"{run.id} had {run.ended_at - run.started_at} ms of {minimum} s"
    finally:
        store.dispose()


def outcomes(teams: Teams) -> Counter[tuple[str, bool]]:
    """How often runs ended how, by whether they had been promised a minimum."""
    store = open_store(f"sqlite:///{teams.folder}/state/mirab.db")
    try:
        return Counter(
            (run.outcome, minimum > 0) for number, minimum in teams.minimums.items() for run in store.runs(number)
        )
    finally:
        store.dispose()


def test_no_run_is_stopped_before_its_minimum_but_by_its_own_end_or_by_us(tmp_path: Path) -> None:
    teams = Teams(tmp_path, Random(11))
    deeds = {STEPS // 4: teams.drain, STEPS // 2: teams.resume, STEPS * 2 // 3: teams.crash}
    try:
        for step in range(LONGEST):
            deeds.get(step, lambda: None)()
            teams.submit()
            if step and teams.chance.random() < 0.1:
                teams.meddle()
            time.sleep(teams.chance.random() * 0.4)
            if step >= STEPS and outcomes(teams)["PREEMPTED", True] >= ENOUGH:
                break
        teams.leave()
    finally:
        end(teams.service)
    print(outcomes(teams))
    assert list(cut_short(teams)) == []
    assert outcomes(teams)["PREEMPTED", True] >= ENOUGH, "minimums were at stake"
