"""A disk that fills up, and a service that is killed again and again while jobs come in."""

from __future__ import annotations

import ctypes
import os
import random
import select
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirab.backends.local import rundir
from mirab.model.events import ActionRefused, Outcome, RunEnded
from mirab.model.units import RunId
from tests.backends.rig import Rig, wait_for

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if libc.mount(b"none", bytes(disk), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip("no right to mount a small file system")
    yield disk
    assert libc.umount2(bytes(disk), 2) == 0


def fill(disk: Path) -> None:
    with open(disk / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_hides_no_end_prevents_no_stop_and_starts_nothing(small_disk: Path) -> None:
    rig = Rig(small_disk / "root")
    rig.backend.adopt({})
    try:
        ends = rig.start("1", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 3", output="/dev/null")
        stopped = rig.start("2", "sleep", "1000", output="/dev/null")
        for run_id in (ends, stopped):
            rig.started(run_id)
        (rig.root / "go.new").touch()
        fill(small_disk)
        assert rig.fact(ActionRefused, rig.start("3", "true")).action == "start"
        (rig.root / "go.new").rename(rig.root / "go")
        rig.preempt(stopped)
        assert (rig.ended(ends).outcome, rig.ended(ends).exit_code) == (Outcome.FAILED, 3)
        assert rig.ended(stopped).outcome is Outcome.PREEMPTED
        (small_disk / "filler").unlink()
        assert rig.run("4", "true", output="/dev/null").outcome is Outcome.COMPLETED
    finally:
        rig.leave_nothing()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_twice_and_nothing_lost_in_a_storm_of_restarts(tmp_path: Path, seed: int) -> None:
    """The service goes at random instants, sometimes between record and apply; some runs are stopped.

    Every run that was decided has one end and ran at most once; every run that nobody disturbed ran exactly once and
    completed; no GPU is left given; usage is what the shims wrote.
    """
    chance = random.Random(seed)
    rig = Rig(tmp_path / "root", gpus=64, nodes=1)
    rig.backend.adopt({})
    disturbed: dict[RunId, str] = {}
    ended: dict[RunId, RunEnded] = {}
    try:
        for number in range(60):
            start = rig.decide(str(number), "sh", "-c", f"echo {number} >> log; sleep {chance.choice((0, 0.05, 0.4))}")
            if chance.random() < 0.9:
                rig.backend.submit(start)
            if chance.random() < 0.15:
                rig.preempt(start.run_id, grace=0)
                disturbed[start.run_id] = "told to stop"
            time.sleep(chance.random() * 0.05)
            if chance.random() < 0.2:
                take_in(rig, ended)
                rig.restart(expected=[run_id for run_id in rig.starts if run_id not in ended])
                for run_id in rig.starts:
                    if run_id not in ended:
                        rig.backend.submit(rig.starts[run_id])
        rig.restart(expected=[run_id for run_id in rig.starts if run_id not in ended])
        wait_for(lambda: len(take_in(rig, ended)) == 60, "an end of every run")
        log = (rig.root / "log").read_text().split()
        assert len(log) == len(set(log)), "none ran twice"
        for run_id, end in ended.items():
            if run_id not in disturbed:
                assert end.outcome is Outcome.COMPLETED, (run_id, end)
                assert run_id.split(".")[0] in log
        wait_for(lambda: not rig.backend.gpus.given, "all GPUs back")
        for record in rig.backend.usage_records():
            assert (record.ended_at, record.outcome) == (ended[record.run_id].at, ended[record.run_id].outcome.value)
    finally:
        rig.leave_nothing()


def take_in(rig: Rig, ended: dict[RunId, RunEnded]) -> dict[RunId, RunEnded]:
    """What a service that records every fact knows. A run that was refused a stop before it began is asked again."""
    for fact in rig.look():
        if isinstance(fact, RunEnded):
            known = ended.setdefault(fact.run_id, fact)
            assert known == fact, "an end that is told again is the same end"
    return ended


def test_a_shim_whose_folder_somebody_has_removed_goes_with_its_run(rig: Rig) -> None:
    """Nobody could be told of its end; nothing runs for ever for that."""
    run_id = rig.start("1", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    rig.started(run_id)
    pidfd = os.pidfd_open(rig.shim_pid(run_id))
    shutil.rmtree(rig.backend.folders.run(run_id))
    (rig.root / "go").touch()
    assert select.select([pidfd], [], [], 60)[0]
    os.close(pidfd)
    assert not os.path.exists(os.path.join(rig.backend.folders.run(run_id), rundir.EXIT))
