"""Notice, grace, and the end of every process of a run, however it tries to get away."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from mirab.backends.local import endings, rundir
from mirab.model.events import ActionRefused, Outcome, RunCheckpointed
from mirab.model.units import RunId
from tests.backends.rig import Rig, alive, wait_for

SAVES = """
import os, signal, sys, time
def save(*_):
    open(os.environ["MIRAB_STATE_DIR"] + "/saved", "w").write("all of it")
    sys.exit({code})
signal.signal(signal.{signal}, save)
print("ready", flush=True)
time.sleep(100)
"""
ESCAPES = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for depth in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.environ.clear()
        print("pid", os.getpid(), flush=True)
        time.sleep(1000)
print("pid", os.getpid(), flush=True)
{last}
"""


def escaping(last: str = "time.sleep(1000)") -> tuple[str, str, str]:
    return sys.executable, "-c", ESCAPES.format(last=last)


def pids(rig: Rig, workload: str) -> list[int]:
    return [int(line.split()[1]) for line in rig.output(workload).splitlines() if line.startswith("pid ")]


# --- what an end is called ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "code", "finished", "called"),
    [
        ("", 0, False, "COMPLETED"),
        ("", 1, True, "FAILED"),
        ("PREEMPTED", 0, False, "PREEMPTED"),
        ("PREEMPTED", 0, True, "COMPLETED"),
        ("PREEMPTED", 143, True, "PREEMPTED"),
        ("TIMEOUT", 0, False, "TIMEOUT"),
        ("CANCELLED", 1, False, "CANCELLED"),
    ],
)
def test_what_an_end_is_called(wish: str, code: int, finished: bool, called: str) -> None:
    assert endings.outcome(wish, code, finished) == called


def test_a_later_wish_counts_only_if_it_is_stronger() -> None:
    assert endings.stronger("PREEMPTED", "CANCELLED") == "CANCELLED"
    assert endings.stronger("CANCELLED", "PREEMPTED") == "CANCELLED"
    assert endings.stronger("TIMEOUT", "PREEMPTED") == "TIMEOUT"


def test_a_notice_of_ones_own_comes_before_the_limit_the_plain_one_at_it() -> None:
    assert endings.limit_instants(100, 30, custom=True) == (70, 100)
    assert endings.limit_instants(100, 90, custom=True) == (50, 100)
    assert endings.limit_instants(100, 30, custom=False) == (100, 130)


# --- preempt and cancel --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 7])
def test_a_run_gets_the_notice_of_its_choice_and_may_save(rig: Rig, code: int) -> None:
    run_id = rig.start(
        "1", sys.executable, "-c", SAVES.format(signal="SIGUSR1", code=code), signal="USR1", grace=60_000
    )
    rig.says("1", "ready")
    rig.preempt(run_id, grace=60_000)
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code) == (Outcome.PREEMPTED, code)
    assert (rig.backend.state_dir(rig.starts[run_id].workload_id) / "saved").read_text() == "all of it"
    assert "asked to stop (PREEMPTED)" in rig.output("1")


def test_children_may_go_on_saving_when_the_shell_has_died_of_the_notice(rig: Rig) -> None:
    """A batch script without a trap dies of USR1 at once; the program it started is what saves."""
    program = SAVES.format(signal="SIGUSR1", code=0).replace("open(", "time.sleep(0.5); open(")
    run_id = rig.start("1", program, script=f'#!/bin/sh\n{sys.executable} -c "$1"\ntrue\n', signal="USR1")
    rig.says("1", "ready")
    rig.preempt(run_id, grace=60_000)
    assert rig.ended(run_id).outcome is Outcome.PREEMPTED
    assert (rig.backend.state_dir(rig.starts[run_id].workload_id) / "saved").exists()


def test_what_ignores_its_notice_is_killed_after_the_grace_with_all_that_it_started(rig: Rig) -> None:
    run_id = rig.start("1", *escaping())
    wait_for(lambda: len(pids(rig, "1")) == 4, "four processes")
    begun = time.monotonic()
    rig.preempt(run_id, grace=400)
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code) == (Outcome.PREEMPTED, 137)
    assert time.monotonic() - begun >= 0.4
    assert not [pid for pid in pids(rig, "1") if alive(pid)]


def test_what_a_run_leaves_behind_is_killed_when_it_ends(rig: Rig) -> None:
    when_all_are_there = "while open('/proc/self/fd/1').read().count('pid') < 4: time.sleep(0.01)\nsys.exit(5)"
    run_id = rig.start("1", *escaping(when_all_are_there))
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 5)
    assert len(pids(rig, "1")) == 4 and not [pid for pid in pids(rig, "1") if alive(pid)]


def test_a_grace_of_nothing(rig: Rig) -> None:
    run_id = rig.start("1", *escaping())
    wait_for(lambda: len(pids(rig, "1")) == 4, "four processes")
    rig.preempt(run_id, grace=0)
    assert rig.ended(run_id).exit_code == 137


@pytest.mark.parametrize(("requeue", "outcome"), [(False, Outcome.CANCELLED), (True, Outcome.REQUEUED)])
def test_cancelled_and_requeued(rig: Rig, requeue: bool, outcome: Outcome) -> None:
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    rig.cancel(run_id, requeue=requeue)
    assert rig.ended(run_id).outcome is outcome


def test_a_cancel_overtakes_a_preemption_and_its_grace(rig: Rig) -> None:
    run_id = rig.start("1", *escaping())
    wait_for(lambda: len(pids(rig, "1")) == 4, "four processes")
    rig.preempt(run_id, grace=600_000)
    rig.says("1", "asked to stop")
    rig.cancel(run_id, grace=100)
    rig.preempt(run_id, grace=600_000)
    assert rig.ended(run_id).outcome is Outcome.CANCELLED


def test_a_run_stopped_before_its_shim_is_there_never_begins(rig: Rig) -> None:
    start = rig.decide("1", "sh", "-c", "echo ran")
    directory = rig.backend.folders.run(start.run_id)
    rig.backend.launcher.spec_for(start, directory)
    rundir.write_json(f"{directory}/{rundir.STOP}", {"outcome": "PREEMPTED", "grace_ms": 0, "why": "early"})
    rig.backend.submit(start)
    assert rig.ended(start.run_id).outcome is Outcome.PREEMPTED
    assert rig.output("1") == ""


def test_a_run_that_says_that_it_has_finished_is_complete_whatever_was_asked(rig: Rig) -> None:
    program = SAVES.format(signal="SIGTERM", code=0).replace(
        "sys.exit", "open(os.environ['MIRAB_RUN_DIR'] + '/checkpoint', 'w').write('finished\\n'); sys.exit"
    )
    run_id = rig.start("1", sys.executable, "-c", program)
    rig.says("1", "ready")
    rig.preempt(run_id, grace=60_000)
    assert rig.ended(run_id).outcome is Outcome.COMPLETED
    assert rig.fact(RunCheckpointed, run_id)


def test_stopping_what_is_over_tells_its_end_again_and_what_never_was_is_refused(rig: Rig) -> None:
    rig.run("1", "true")
    rig.facts.clear()
    rig.preempt(RunId("1.1"))
    assert rig.ended(RunId("1.1")).outcome is Outcome.COMPLETED
    rig.preempt(RunId("9.1"))
    assert rig.fact(ActionRefused, "9.1").action == "preempt"


def test_a_stop_that_cannot_be_written_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rundir, "write_reserved", full)
        rig.preempt(run_id)
        assert rig.fact(ActionRefused, run_id).action == "preempt"


# --- time limit ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_time_limit_is_kept_without_the_service(rig: Rig) -> None:
    """The limit leaves a slow machine some seconds in which the program comes to ignore its notice."""
    run_id = rig.start("1", *escaping(), time_limit=4_000, grace=300)
    rig.started(run_id)
    rig.backend.close()
    word = rig.last_word(run_id)
    rig.restart()
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code, end.at) == (Outcome.TIMEOUT, 137, word["ended_at"])
    assert end.at - rig.started(run_id).at >= 4_300
    assert not [pid for pid in pids(rig, "1") if alive(pid)]


def test_a_run_within_its_limit_is_left_alone(rig: Rig) -> None:
    assert rig.run("1", "sh", "-c", "sleep 0.3", time_limit=60_000).outcome is Outcome.COMPLETED


@pytest.mark.slow
def test_a_notice_of_ones_own_comes_before_the_time_limit(rig: Rig) -> None:
    end = rig.run("1", "sh", "-c", "trap 'exit 0' USR1; sleep 1000 & wait", signal="USR1", time_limit=8_000,
                  grace=4_000)  # fmt: skip
    assert end.outcome is Outcome.TIMEOUT and end.exit_code == 0
    assert 4_000 <= end.at - rig.started(RunId("1.1")).at < 8_000


# --- the machine ---------------------------------------------------------------------------------------------------


def test_a_shim_that_is_told_to_go_takes_its_run_down_as_lost_with_the_node(rig: Rig) -> None:
    """What a shutdown of the machine does: SIGTERM for everybody."""
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    os.kill(rig.shim_pid(run_id), signal.SIGTERM)
    assert rig.ended(run_id).outcome is Outcome.NODE_FAIL


def test_a_run_that_a_shutdown_reaches_first_is_lost_with_the_node_too(rig: Rig) -> None:
    """The shim looks when both have been told; how long it waits for its own word, test_keeper says."""
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    shim, run = rig.shim_pid(run_id), rig.file(run_id, rundir.STATUS)["pid"]
    os.kill(shim, signal.SIGSTOP)
    try:
        os.kill(run, signal.SIGTERM)
        wait_for(lambda: not alive(run), "the end of the run")
        os.kill(shim, signal.SIGTERM)
    finally:
        os.kill(shim, signal.SIGCONT)
    assert rig.ended(run_id).outcome is Outcome.NODE_FAIL
