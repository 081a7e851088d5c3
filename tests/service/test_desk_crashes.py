"""Whatever the instant of a crash, before or after a record: the same commands lead to the same end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirab.model.events import Outcome
from mirab.model.units import MINUTE
from mirab.service.desk.book import Book
from mirab.service.desk.errors import DeskError
from mirab.service.desk.holding import read
from tests.live.postgres import PostgresServer
from tests.service.house import ADA, OPS, Bench, CrashError, form, nodes

COMMANDS = (
    "submit", "submit", "array", "array", "after", "after", "after", "held", "hold", "release", "release", "cancel",
    "end", "end", "end", "end", "spoil", "break", "mend", "drain", "wait",
)  # fmt: skip
OUTCOMES = (Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED, Outcome.NODE_FAIL, Outcome.TIMEOUT)


class Story:
    """A list of commands, told to a bench; where it crashes, the command is given again as a client would."""

    def __init__(self, bench: Bench, seed: int, crash: Callable[[], int | None]) -> None:
        self.bench = bench
        self.random = Random(seed)
        self.crash = crash
        self.crashes = 0
        self.jobs: list[str] = []
        self.numbers: dict[str, int] = {}

    def tell(self, steps: int) -> None:
        for step in range(steps):
            getattr(self, f"_{self.random.choice(COMMANDS)}")(step)
            self.rest()

    def finish(self) -> None:
        """Let everything end that can."""
        self.bench.engine.unlaunchable.clear()
        for _ in range(300):
            running = sorted(self.bench.engine.running, key=self._place)
            if not running:
                return
            self.bench.engine.end(self.bench.engine.running[running[0]].workload_id)
            self.rest()
        raise AssertionError("it never ends")

    def told(self) -> dict[str, tuple[str, str]]:
        """Each job by its place in the story: how it stands, and what keeps it back."""
        found = {}
        for name, state in self.bench.states().items():
            held = self.bench.row(name).held
            found[self._told(name)] = state, type(read(held)).__name__ if held else ""
        return found

    def _told(self, name: str) -> str:
        job, _, task = name.partition("_")
        return f"{self.numbers[job]}_{task}" if task else str(self.numbers[job])

    def _place(self, run_id: str) -> tuple[int, int]:
        job, _, task = run_id.partition(".")[0].partition("_")
        return self.numbers[job], int(task or 0)

    # --- crashes ----------------------------------------------------------------------------------------------------
    def arm(self) -> None:
        store = self.bench.store
        if store.fuse is None:
            store.fuse, store.after = self.crash(), self.random_crash()

    def random_crash(self) -> bool:
        return bool(self.crashes % 2)

    def rest(self) -> None:
        while True:
            self.arm()
            try:
                self.bench.settle()
                return
            except CrashError:
                self.dead()

    def dead(self) -> None:
        self.crashes += 1
        self.bench.crash()

    def give(self, command: Callable[[], object], again: bool = False) -> None:
        """A command; `again`: it may be given twice, like a submission with a key."""
        self.arm()
        try:
            command()
        except DeskError:
            return
        except CrashError:
            recorded = self.bench.store.after
            self.dead()
            if again or not recorded:
                self.rest()
                self.give(command, again)

    # --- commands ---------------------------------------------------------------------------------------------------
    def _new(self, step: int, **fields: Any) -> None:
        def command() -> None:
            reply = self.bench.desk.submit(ADA, form(**fields), f"key {step}")
            self.numbers[reply.job] = step
            if reply.job not in self.jobs:
                self.jobs.append(reply.job)

        self.give(command, again=True)

    def _some(self) -> str:
        return self.random.choice(self.jobs) if self.jobs else "1"

    def _submit(self, step: int) -> None:
        self._new(step)

    def _array(self, step: int) -> None:
        self._new(step, array=self.random.choice(("0-4%2", "1,3,5%1", "0-2")), dependency=self._perhaps())

    def _after(self, step: int) -> None:
        self._new(step, dependency=f"{self.random.choice(('afterok', 'afterany', 'afternotok'))}:{self._some()}")

    def _perhaps(self) -> str:
        return f"afterany:{self._some()}" if self.jobs and self.random.random() < 0.3 else ""

    def _held(self, step: int) -> None:
        self._new(step, hold=True, dependency=self._perhaps())

    def _hold(self, step: int) -> None:
        who, job = self.random.choice((ADA, OPS)), self._some()
        self.give(lambda: self.bench.desk.hold(who, [job]))

    def _release(self, step: int) -> None:
        job = self._some()
        self.give(lambda: self.bench.desk.release(OPS, [job]))

    def _cancel(self, step: int) -> None:
        job = self._some()
        self.give(lambda: self.bench.desk.cancel(ADA, [job]))

    def _end(self, step: int) -> None:
        running = sorted(self.bench.engine.running, key=self._place)
        if running:
            run, outcome = self.random.choice(running), self.random.choice(OUTCOMES)
            self.bench.engine.end(self.bench.engine.running[run].workload_id, outcome)

    def _spoil(self, step: int) -> None:
        running = sorted(self.bench.engine.running, key=self._place)
        if running:
            self.bench.engine.end(self.bench.engine.running[running[0]].workload_id, Outcome.FAILED)

    def _break(self, step: int) -> None:
        if self.jobs:
            self.bench.engine.unlaunchable.add(self._some())

    def _mend(self, step: int) -> None:
        self.bench.engine.unlaunchable.clear()

    def _drain(self, step: int) -> None:
        node = self.random.choice(("n0", "n1"))
        self.give(lambda: self.bench.desk.node_drain(OPS, node, "test"))

    def _wait(self, step: int) -> None:
        self.bench.engine.at += self.random.choice((1, 10)) * MINUTE


def told(
    folder: Path, seed: int, steps: int, crash: Callable[[], int | None], url: str = ""
) -> tuple[dict[str, tuple[str, str]], int]:
    folder.mkdir()
    bench = Bench(folder, cluster=nodes(24), url=url)
    story = Story(bench, seed, crash)
    story.tell(steps)
    story.finish()
    found = story.told()
    check_book(bench)
    bench.close()
    return found, story.crashes


def check_book(bench: Bench) -> None:
    """What is kept in memory is what a restart would make of the state and the store."""
    kept, fresh = bench.desk._jobs._office.book, Book(bench.store)  # type: ignore[arg-type]
    fresh.load(bench.state)
    for array, tasks in kept.arrays.items():
        assert all(task in tasks.live for task in fresh.arrays[array].live) if array in fresh.arrays else True
    waiting = {job for job, dependencies in kept.after.items() if dependencies and job in bench.state.held}
    assert waiting == set(fresh.after)


def pairs(seeds: range) -> list[Any]:
    return [pytest.param(seed, id=str(seed)) for seed in seeds]


def compare(tmp_path: Path, seed: int, steps: int, most: int, url: str = "") -> int:
    chance = Random(seed)
    plain, none = told(tmp_path / "plain", seed, steps, lambda: None)
    crashed, crashes = told(tmp_path / "crashed", seed, steps, lambda: chance.randint(0, most), url)
    assert none == 0
    assert crashed == plain, f"seed {seed}"
    return crashes


@pytest.mark.parametrize("seed", pairs(range(3)))
def test_a_crash_at_any_instant_changes_nothing(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 25, 4) > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", pairs(range(100, 105)))
def test_crashes_at_every_turn_change_nothing(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed, 45, 2) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", pairs(range(200, 201)))
def test_on_postgresql_too(tmp_path: Path, seed: int, postgres_server: PostgresServer) -> None:
    assert compare(tmp_path, seed, 30, 2, postgres_server.new_database()) > 6
