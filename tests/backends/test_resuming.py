"""State that survives attempts, the check that proves it, and work that says that it is safe."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

from mirab.backends.local import rundir
from mirab.model.events import Outcome, RunCheckpointed, RunStarted
from mirab.model.units import RunId
from tests.backends.rig import Rig, wait_for

COUNTS = 'cd "$MIRAB_STATE_DIR"; echo "$MIRAB_ATTEMPT" >> attempts; cat attempts'


def test_a_later_attempt_finds_what_an_earlier_one_has_left(rig: Rig) -> None:
    rig.run("1", "sh", "-c", COUNTS)
    rig.run("1", "sh", "-c", COUNTS, attempt=2)
    assert rig.output("1") == "1\n1\n2\n"


def test_the_check_runs_in_the_state_folder_before_a_resumed_attempt_only(rig: Rig) -> None:
    check = 'test "$PWD" = "$MIRAB_STATE_DIR" && test -e attempts && echo "checked, $MIRAB_RESUMED"'
    rig.run("1", "sh", "-c", COUNTS, verify_resume=check)
    assert rig.run("1", "sh", "-c", COUNTS, verify_resume=check, attempt=2).outcome is Outcome.COMPLETED
    assert rig.output("1") == "1\nchecked, 1\n1\n2\n"


def test_what_does_not_restore_fails_and_is_left_as_it_is(rig: Rig) -> None:
    rig.run("1", "sh", "-c", COUNTS)
    end = rig.run("1", "sh", "-c", COUNTS, verify_resume="echo broken; exit 9", attempt=2)
    assert (end.outcome, end.exit_code, end.lost) == (Outcome.FAILED, 9, 0)
    assert not rig.facts_of(RunStarted, "1.2"), "its minimum has not begun"
    assert (rig.backend.state_dir(rig.starts[RunId("1.2")].workload_id) / "attempts").read_text() == "1\n"
    assert "what was saved does not restore: 'echo broken; exit 9' ended with exit code 9" in rig.output("1")


def test_a_run_is_stopped_during_its_check_like_any_other(rig: Rig) -> None:
    run_id = rig.start("1", "true", verify_resume="echo checking; sleep 1000", attempt=2)
    rig.says("1", "checking")
    rig.preempt(run_id)
    assert rig.ended(run_id).outcome is Outcome.PREEMPTED


def test_mirab_checkpoint_from_inside(rig: Rig) -> None:
    """The command itself, in the run's own environment: no server, no token."""
    program = f"sleep 0.1; {sys.executable} -m mirab checkpoint; sleep 100"
    run_id = rig.start("1", "sh", "-c", program, environment=(("PYTHONPATH", os.pathsep.join(sys.path)),))
    safe = rig.fact(RunCheckpointed, run_id)
    assert rig.started(run_id).at < safe.at
    assert "is safe" in rig.says("1", "safe")


def test_a_checkpoint_is_told_at_once_when_it_is_rung_for(rig: Rig) -> None:
    """Two of them within one heartbeat, each a fact."""
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    directory = rig.backend.folders.run(run_id)
    for count in (1, 2):
        now = time.time_ns()  # finer than the kernel's own stamp, which may be the same for both
        os.utime(os.path.join(directory, rundir.CHECKPOINT), ns=(now, now))
        rundir.ring(os.path.join(directory, rundir.BELL))
        wait_for(partial(told, rig, run_id, count), f"checkpoint {count}")


def told(rig: Rig, run_id: RunId, count: int) -> bool:
    return len(rig.facts_of(RunCheckpointed, run_id)) == count


def test_a_checkpoint_of_the_future_is_one_of_now(rig: Rig) -> None:
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    directory = rig.backend.folders.run(run_id)
    os.utime(os.path.join(directory, rundir.CHECKPOINT), (4e9, 4e9))
    rundir.ring(os.path.join(directory, rundir.BELL))
    assert rig.fact(RunCheckpointed, run_id).at <= rundir.now_ms()


def test_many_rings_are_no_trouble(rig: Rig) -> None:
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    bell = os.path.join(rig.backend.folders.run(run_id), rundir.BELL)
    for _ in range(3000):
        rundir.ring(bell, b"x" * 200)
    rig.cancel(run_id)
    assert rig.ended(run_id).outcome is Outcome.CANCELLED


def test_nobody_listens_is_no_error(rig: Rig) -> None:
    assert not rundir.ring(str(rig.root / "no-bell"))
    assert not rundir.ring(str(rig.root / "no-folder/no-bell"))


def test_the_shim_needs_no_site_packages_and_nothing_of_the_service() -> None:
    """What it imports is what each run pays for."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(rundir.__file__))))
    names = "import sys; sys.path.insert(0, sys.argv[1]); import mirab.backends.local.shim; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", names, source], capture_output=True, text=True, check=True
    )
    heavy_ones = "typing dataclasses pathlib inspect subprocess threading logging traceback mirab.model"
    for heavy in heavy_ones.split():
        assert f"'{heavy}'" not in loaded.stdout
