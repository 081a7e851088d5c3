"""The service is killed at every step; shims are killed; the machine restarts. Nothing twice, nothing lost."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mirab.backends.local import burial, rundir
from mirab.backends.local.launching import spawn
from mirab.backends.local.leftovers import living
from mirab.backends.local.watching import shim_pidfd
from mirab.model.events import Outcome, RunCheckpointed, RunEnded, RunStarted
from mirab.model.plans import Start
from mirab.model.units import RunId
from tests.backends.rig import Rig, alive, shim_by_hand, wait_for
from tests.backends.test_stopping import escaping, pids

ONCE = ("sh", "-c", "echo ran >> log; sleep 0.2")


def ran(rig: Rig) -> str:
    return (rig.root / "log").read_text()


# --- the service --------------------------------------------------------------------------------


def test_runs_go_on_and_are_found_again(rig: Rig) -> None:
    run_id = rig.start("1", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 4")
    start = rig.started(run_id)
    pid = rig.shim_pid(run_id)
    rig.restart()
    assert rig.started(run_id) == start, "told again with its true instant, for a service that had not recorded it"
    assert rig.shim_pid(run_id) == pid
    (rig.root / "go").touch()
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 4)


def test_what_ended_meanwhile_is_told_with_its_true_instants(rig: Rig) -> None:
    run_id = rig.start("1", "sh", "-c", "sleep 0.5; touch model.pt; sleep 0.2; exit 4", checkpoint_file="model.pt")
    rig.started(run_id)
    rig.backend.close()
    word = rig.last_word(run_id)
    rig.restart()
    end = rig.ended(run_id)
    assert (end.at, end.exit_code) == (word["ended_at"], 4)
    assert rig.fact(RunCheckpointed, run_id).at == word["checkpoint_at"] < end.at
    assert end.lost == end.at - word["checkpoint_at"]


def nothing_done(_rig: Rig, _start: Start) -> None:
    """Killed between record and apply."""


def half_a_folder(rig: Rig, start: Start) -> None:
    os.makedirs(rig.backend.folders.run(start.run_id))


def a_folder_without_its_spec(rig: Rig, start: Start) -> None:
    half_a_folder(rig, start)
    rundir.reserve(os.path.join(rig.backend.folders.run(start.run_id), rundir.EXIT))
    Path(rig.backend.folders.run(start.run_id), "spec.json.new").write_text('{"half')


def a_folder_without_a_shim(rig: Rig, start: Start) -> None:
    rig.backend.launcher.spec_for(start, rig.backend.folders.run(start.run_id))


def a_shim_nobody_knows_of(rig: Rig, start: Start) -> None:
    a_folder_without_a_shim(rig, start)
    spawn(rig.backend.folders.run(start.run_id))


def a_shim_that_has_the_run(rig: Rig, start: Start) -> None:
    a_shim_nobody_knows_of(rig, start)
    rig.shim_pid(start.run_id)


def all_of_it(rig: Rig, start: Start) -> None:
    a_shim_nobody_knows_of(rig, start)
    rig.last_word(start.run_id)


@pytest.mark.parametrize(
    "done",
    [
        nothing_done,
        half_a_folder,
        a_folder_without_its_spec,
        a_folder_without_a_shim,
        a_shim_nobody_knows_of,
        a_shim_that_has_the_run,
        all_of_it,
    ],
)
def test_a_service_killed_at_any_step_of_a_start(rig: Rig, done: Callable[[Rig, Start], None]) -> None:
    """It comes back, and submits again what has no outcome: one run, one end."""
    start = rig.decide("1", *ONCE)
    done(rig, start)
    rig.restart()
    rig.backend.submit(start)
    assert rig.ended(start.run_id).outcome is Outcome.COMPLETED
    assert ran(rig) == "ran\n"


def test_of_many_shims_one_acts(rig: Rig) -> None:
    start = rig.decide("1", *ONCE)
    directory = rig.backend.folders.run(start.run_id)
    rig.backend.launcher.spec_for(start, directory)
    shims = [spawn(directory) for _ in range(6)]
    assert [shim.wait(60) for shim in shims] == [0] * 6
    rig.backend.submit(start)
    assert rig.ended(start.run_id).outcome is Outcome.COMPLETED
    with shim_by_hand(directory) as late:
        assert late.wait(60) == 0
    assert ran(rig) == "ran\n"


def test_gpus_stay_with_their_runs_over_a_restart(rig: Rig) -> None:
    first = rig.start("1", "sleep", "100", gpus=3)
    rig.started(first)
    rig.restart()
    rig.start("2", "sh", "-c", "echo got $CUDA_VISIBLE_DEVICES", gpus=5)
    assert "got 3,4,5,6,7" in rig.says("2", "got")


def test_an_end_told_again_gives_back_no_gpu_that_another_run_has(rig: Rig) -> None:
    rig.run("1", "true", gpus=8)
    second = rig.start("2", "sleep", "100", gpus=8)
    rig.started(second)
    rig.restart()
    rig.ended(RunId("1.1"))
    assert rig.backend.gpus.free[rig.cluster.pools[0].nodes[0]] == []


def test_what_nobody_expects_is_stopped_and_said(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The journal has lost its end: the GPUs of such a run would be given twice."""
    run_id = rig.start("1", *escaping())
    wait_for(lambda: len(pids(rig, "1")) == 4, "four processes")
    with caplog.at_level(logging.ERROR):
        rig.restart(expected=[])
    assert "1.1" in caplog.text
    rig.last_word(run_id)
    assert not [pid for pid in pids(rig, "1") if alive(pid)]
    wait_for(lambda: not rig.backend.gpus.given, "its GPUs")
    assert not rig.look()


def test_a_folder_that_nobody_expects_and_no_shim_has_never_begins(rig: Rig) -> None:
    start = rig.decide("1", *ONCE)
    directory = rig.backend.folders.run(start.run_id)
    rig.backend.launcher.spec_for(start, directory)
    rig.restart(expected=[])
    assert rig.last_word(start.run_id)["outcome"] == "LAUNCH_FAILED"
    with shim_by_hand(directory):
        pass
    assert not (rig.root / "log").exists()


def test_a_run_that_had_started_and_has_no_folder_is_lost(rig: Rig) -> None:
    rig.decide("1", *ONCE)
    rig.restart(started=["1.1"])
    assert rig.ended(RunId("1.1")).outcome is Outcome.NODE_FAIL
    assert not (rig.root / "log").exists()


def test_what_has_said_its_last_word_goes_on_no_more_although_its_shim_is_still_there(rig: Rig) -> None:
    run_id = rig.start("1", "sleep", "100")
    rig.started(run_id)
    assert list(living(rig.root)) == [(run_id, rig.shim_pid(run_id))]
    Path(rig.backend.folders.run(run_id), rundir.EXIT).write_text("{}")
    assert list(living(rig.root)) == []


# --- the shim --------------------------------------------------------------------------------


def test_a_killed_shim_takes_all_of_its_run_with_it(rig: Rig) -> None:
    keeps_its_environment = escaping()[2].replace("os.environ.clear()", "")
    run_id = rig.start("1", sys.executable, "-c", keeps_its_environment)
    wait_for(lambda: len(pids(rig, "1")) == 4, "four processes")
    os.kill(rig.shim_pid(run_id), signal.SIGKILL)
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code) == (Outcome.NODE_FAIL, None)
    assert end.lost == end.at - rig.started(run_id).at
    assert not [pid for pid in pids(rig, "1") if alive(pid)]
    assert not rig.backend.gpus.given


def test_a_shim_killed_while_the_service_was_down(rig: Rig) -> None:
    run_id = rig.start("1", "sleep", "1000")
    start = rig.started(run_id)
    rig.backend.close()
    os.kill(rig.shim_pid(run_id), signal.SIGKILL)
    rig.restart()
    assert rig.started(run_id) == start
    assert rig.ended(run_id).outcome is Outcome.NODE_FAIL


def test_a_run_that_was_told_to_stop_keeps_the_name_of_that_end(rig: Rig) -> None:
    run_id = rig.start("1", *escaping())
    wait_for(lambda: len(pids(rig, "1")) == 4, "four processes")
    rig.cancel(run_id, grace=600_000)
    rig.says("1", "asked to stop")
    os.kill(rig.shim_pid(run_id), signal.SIGKILL)
    assert rig.ended(run_id).outcome is Outcome.CANCELLED


def test_a_pid_that_another_process_has_got_since_is_no_shim(rig: Rig) -> None:
    run_id = rig.start("1", "sleep", "1000")
    rig.started(run_id)
    directory = rig.backend.folders.run(run_id)
    own = rig.file(run_id, rundir.SHIM)
    rundir.write_json(f"{directory}/{rundir.SHIM}", {**own, "pid": os.getpid()})
    assert shim_pidfd(directory) is None
    rundir.write_json(f"{directory}/{rundir.SHIM}", {**own, "boot": "another"})
    assert shim_pidfd(directory) is None
    rundir.write_json(f"{directory}/{rundir.SHIM}", own)
    pidfd = shim_pidfd(directory)
    assert pidfd is not None
    os.close(pidfd)


# --- the machine --------------------------------------------------------------------------------


def test_after_a_restart_of_the_machine_runs_are_lost_with_the_node(rig: Rig) -> None:
    """As of their last sign of life: from then on their GPUs were nobody's."""
    run_id = rig.start("1", "sleep", "1000")
    start = rig.started(run_id)
    rig.backend.close()
    directory = rig.backend.folders.run(run_id)
    os.kill(rig.shim_pid(run_id), signal.SIGKILL)
    wait_for(lambda: shim_pidfd(directory) is None, "end of the shim")
    own = rig.file(run_id, rundir.SHIM)
    rundir.write_json(f"{directory}/{rundir.SHIM}", {**own, "boot": "the one before"})
    wait_for(lambda: rundir.now_ms() >= start.at + 7, "the seventh millisecond")
    os.utime(f"{directory}/{rundir.HEARTBEAT}", ns=((start.at + 7) * 1_000_000,) * 2)
    rig.restart()
    end = rig.ended(run_id)
    assert (end.outcome, end.at, end.lost) == (Outcome.NODE_FAIL, start.at + 7, 7)


def test_the_last_word_for_the_dead_is_said_once(rig: Rig) -> None:
    run_id = rig.start("1", "true")
    rig.ended(run_id)
    word = rig.last_word(run_id)
    directory = rig.backend.folders.run(run_id)
    wait_for(lambda: burial.bury(directory, rig.file(run_id, rundir.SPEC), "again"), "the lock")
    assert rig.last_word(run_id) == word


def test_every_fact_once_in_the_life_of_a_service(rig: Rig) -> None:
    run_id = rig.start("1", "sh", "-c", "sleep 0.3")
    rig.ended(run_id)
    rig.backend._do(rig.backend._scan)
    wait_for(lambda: not rig.backend.worker.todo, "the scan")
    assert [type(fact) for fact in rig.look()] == [RunStarted, RunEnded]
