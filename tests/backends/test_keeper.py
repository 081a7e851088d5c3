"""What depends on instants in the process that keeps a run, by clocks of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirab.backends.local import keeper as keeping
from mirab.backends.local import processes, rundir
from mirab.backends.local.keeper import SHUTDOWN_S, Keeper
from tests.backends.rig import Rig


class Clocks:
    """Of the wall, in milliseconds, and that which only goes on, in seconds. `jumps`: spent after the next readings."""

    def __init__(self) -> None:
        self.ms, self.jumps = 1_000.2, list[float]()

    def pass_(self, ms: float) -> None:
        self.ms += ms

    def monotonic(self) -> float:
        seen = self.ms / 1_000
        if self.jumps:
            self.pass_(self.jumps.pop())
        return seen

    def wall(self) -> int:
        return int(self.ms)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=made.monotonic))
    monkeypatch.setattr(rundir, "now_ms", made.wall)
    return made


@pytest.fixture
def keeper(tmp_path: Path, clocks: Clocks) -> Iterator[Keeper]:
    rig = Rig(tmp_path / "root")
    start = rig.decide("1", "sleep", "100")
    directory = rig.backend.folders.run(start.run_id)
    yield Keeper(directory, rig.backend.launcher.spec_for(start, directory))
    rig.backend.close()


def killed_by_sigterm(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has got it, nobody has said why, and nothing of it is left."""
    ends = iter([{7: 15}])
    monkeypatch.setattr(processes, "reap", lambda: next(ends, {}))
    monkeypatch.setattr(processes, "no_child_left", lambda: True)
    keeper.launch, keeper.up, keeper.started_at = SimpleNamespace(pid=7), True, keeper.now()  # type: ignore[assignment]
    keeper.turn()
    assert keeper.launch is not None, "a shutdown of the machine may have been meant"


def test_a_shutdown_that_reaches_the_run_first_is_heard_of_in_time(
    keeper: Keeper, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_by_sigterm(keeper, monkeypatch)
    clocks.pass_(SHUTDOWN_S * 900)
    keeper.machine_goes_down()
    keeper.turn()
    clocks.pass_(SHUTDOWN_S * 200)
    keeper.turn()
    assert keeper.launch is None
    assert keeper.last_word(keeper.now())["outcome"] == "NODE_FAIL"


def test_without_a_shutdown_a_run_that_was_told_to_go_has_failed(
    keeper: Keeper, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_by_sigterm(keeper, monkeypatch)
    clocks.pass_(SHUTDOWN_S * 1_100)
    keeper.turn()
    assert keeper.launch is None
    word = keeper.last_word(keeper.now())
    assert (word["outcome"], word["exit_code"]) == ("FAILED", 143)


def test_its_instants_are_never_ahead_of_the_wall_clock(keeper: Keeper, clocks: Clocks) -> None:
    for _ in range(50):
        clocks.pass_(0.3)
        assert clocks.wall() - 1 <= keeper.now() <= clocks.wall()


def test_clocks_between_whose_readings_the_machine_was_busy_are_read_again(clocks: Clocks) -> None:
    clocks.jumps = [0.0, 3_000.0]
    wall, mono = keeping.both_clocks()
    assert (wall, mono) == (clocks.wall(), clocks.monotonic())
