"""Commands about jobs that are there, and who may give them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mirab.model.events import Outcome
from mirab.model.records import Grant
from mirab.service.auth.principal import Principal
from mirab.service.desk.errors import DeskError
from mirab.service.desk.holding import read
from tests.service.house import ADA, BOB, EVE, MIA, OPS, ROOT, Bench, form

KEN = Principal("ken", (Grant("researcher", "vision/video"),))


def held_by(bench: Bench, job: str) -> str:
    return type(read(bench.row(job).held)).__name__


@contextmanager
def fails(kind: str, says: str) -> Iterator[None]:
    with pytest.raises(DeskError, match=says) as caught:
        yield
    assert caught.value.kind == kind


# --- cancel ---------------------------------------------------------------------------------------------------------
def test_cancel_ends_a_job_whatever_it_does(bench: Bench) -> None:
    bench.submit(gpus_per_node=4, nodes=2, min_runtime="8h")
    bench.submit()
    bench.submit(hold=True)
    rows = bench.desk.cancel(ADA, ["1", "2", "3"], "wrong data")
    assert [row.state.value for row in rows] == ["COMPLETING", "CANCELLED", "CANCELLED"]
    bench.settle()
    assert set(bench.states().values()) == {"CANCELLED"}
    entries = bench.audit(action="job.cancel")
    assert {(entry.who, entry.target, entry.why) for entry in entries} == {
        ("ada", job, "wrong data") for job in ("1", "2", "3")
    }
    assert bench.desk.cancel(ADA, ["1"])[0].state.value == "CANCELLED", "once more is no fault"
    assert len(bench.audit(action="job.cancel")) == 3


def test_the_audit_log_tells_what_a_job_was_and_what_it_is_now(bench: Bench) -> None:
    bench.submit(nodes=2, gpus_per_node=4, min_runtime="8h")
    bench.submit()
    for command, job in (("hold", "2"), ("release", "2"), ("requeue", "1"), ("cancel", "2")):
        getattr(bench.desk, command)(ADA, [job])
    told = {entry.action: (entry.before, entry.after) for entry in bench.audit()}
    assert told["job.hold"] == ("it waits in the queue", "it is held: ada holds it back")
    assert told["job.release"] == ("it is held", "it waits in the queue")
    assert told["job.requeue"][1] == "its run is stopped, and it queues again"
    assert told["job.cancel"] == ("it waits in the queue", "it is cancelled")
    assert all(before and after for action, (before, after) in told.items() if action != "job.submit")


def test_nobody_cancels_what_is_not_theirs(bench: Bench) -> None:
    bench.submit()
    for other in (EVE, BOB, KEN):
        with fails("denied", "job 1 is ada's, of vision/video"):
            bench.desk.cancel(other, ["1"])
    assert bench.states() == {"1": "RUNNING"}
    bench.desk.cancel(MIA, ["1"])
    bench.submit()
    bench.desk.cancel(OPS, ["2"])
    bench.settle()
    assert set(bench.states().values()) == {"CANCELLED"}


def test_one_job_of_another_in_the_list_and_nothing_is_done(bench: Bench) -> None:
    bench.submit()
    bench.submit(EVE, account="llm")
    with fails("denied", "job 2 is eve's"):
        bench.desk.cancel(ADA, ["1", "2"])
    assert set(bench.states().values()) == {"RUNNING"}


def test_a_job_that_is_not_there(bench: Bench) -> None:
    for call in (bench.desk.cancel, bench.desk.hold, bench.desk.release, bench.desk.requeue):
        with fails("not-found", "there is no job 7"):
            call(ADA, ["7"])
    with fails("invalid", "is not the id of a job"):
        bench.desk.cancel(ADA, ["../../etc/passwd"])
    with fails("invalid", "at least one"):
        bench.desk.cancel(ADA, [])


# --- hold and release -----------------------------------------------------------------------------------------------
def test_what_its_user_holds_waits_until_released(bench: Bench) -> None:
    bench.submit(nodes=2, gpus_per_node=4)
    bench.submit()
    bench.desk.hold(ADA, ["2"])
    assert held_by(bench, "2") == "HeldByUser"
    bench.end("1")
    assert bench.states()["2"] == "PENDING"
    bench.desk.release(ADA, ["2"])
    bench.settle()
    assert bench.states()["2"] == "RUNNING"
    assert bench.row("2").held == ""


def test_only_an_operator_releases_what_an_operator_holds(bench: Bench) -> None:
    bench.submit(hold=True)
    bench.desk.hold(OPS, ["1"], "fills the disk")
    assert read(bench.row("1").held) == read('{"type":"HeldByOperator","operator":"ops","because":"fills the disk"}')
    for other in (ADA, MIA):
        with fails("denied", "operators only: operator ops holds it back: fills the disk"):
            bench.desk.release(other, ["1"])
    bench.desk.hold(ADA, ["1"])
    assert held_by(bench, "1") == "HeldByOperator", "the user's own hold does not weaken it"
    bench.desk.release(OPS, ["1"])
    bench.settle()
    assert bench.states() == {"1": "RUNNING"}


def test_a_managers_hold_can_be_released_by_the_user(bench: Bench) -> None:
    bench.submit(hold=True)
    bench.desk.release(MIA, ["1"])
    bench.submit(nodes=2, gpus_per_node=4)
    bench.desk.hold(MIA, ["2"])
    assert held_by(bench, "2") == "HeldByUser"
    bench.desk.release(ADA, ["2"])


def test_what_runs_or_has_ended_cannot_be_held(bench: Bench) -> None:
    bench.submit()
    with fails("conflict", "it is running; `mirab requeue`"):
        bench.desk.hold(ADA, ["1"])
    bench.end("1")
    with fails("conflict", r"it has ended \(COMPLETED\)"):
        bench.desk.hold(ADA, ["1"])
    with fails("conflict", r"is not held: it has ended"):
        bench.desk.release(ADA, ["1"])


def test_what_waits_for_others_goes_on_by_itself(bench: Bench) -> None:
    bench.submit()
    bench.submit(dependency="afterany:1")
    with fails("conflict", "goes on by itself: it waits for other jobs"):
        bench.desk.release(ADA, ["2"])
    bench.submit(array="0-1%1")
    with fails("conflict", "goes on by itself: its array lets 1 task"):
        bench.desk.release(ADA, ["3_1"])


def test_of_several_those_are_done_that_can_be(bench: Bench) -> None:
    bench.submit()
    bench.submit(nodes=2, gpus_per_node=4)
    assert [row.id for row in bench.desk.hold(ADA, ["1", "2"])] == ["2"]


# --- requeue --------------------------------------------------------------------------------------------------------
def test_requeue_stops_the_attempt_and_queues_it_again(bench: Bench) -> None:
    bench.submit(min_runtime="8h", resume=False)
    bench.desk.requeue(ADA, ["1"], "new image")
    bench.settle()
    row = bench.row("1")
    assert (row.state.value, row.attempt, row.preemptions) == ("RUNNING", 2, 0)
    assert [run.outcome for run in bench.store.runs("1")] == ["REQUEUED", ""]


def test_only_what_runs_can_be_requeued(bench: Bench) -> None:
    bench.submit(hold=True)
    with fails("conflict", "it is held, and only a running one can"):
        bench.desk.requeue(ADA, ["1"])
    bench.submit()
    bench.end("2")
    with fails("conflict", "submit it again"):
        bench.desk.requeue(ADA, ["2"])


# --- checkpoint -----------------------------------------------------------------------------------------------------
def test_a_checkpoint_is_noted_with_its_instant(bench: Bench) -> None:
    bench.submit()
    bench.wait(60_000)
    bench.desk.checkpoint(ADA, "1")
    assert bench.row("1").checkpoint_at == bench.engine.at
    bench.wait(60_000)
    bench.desk.checkpoint(ADA, "1.1")
    assert bench.row("1").checkpoint_at == bench.engine.at


def test_a_late_word_of_an_earlier_attempt_counts_for_nothing(bench: Bench) -> None:
    bench.submit()
    bench.desk.requeue(ADA, ["1"])
    bench.settle()
    with fails("conflict", "run 1.1 is over: job 1 is at its attempt 2"):
        bench.desk.checkpoint(ADA, "1.1")
    with fails("denied", "may checkpoint it"):
        bench.desk.checkpoint(MIA, "1")
    bench.end("1")
    with fails("conflict", "has nothing to save"):
        bench.desk.checkpoint(ADA, "1")


# --- launches -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("crash", [False, True])
def test_three_failed_launches_in_a_row_hold_the_job(bench: Bench, crash: bool) -> None:
    bench.engine.unlaunchable.add("1")
    bench.desk.submit(ADA, form())
    for _ in range(30):
        bench.cycle()
        if crash:
            bench.crash()
    row = bench.row("1")
    assert (row.attempt, row.state.value) == (3, "PENDING")
    assert read(row.held) == read('{"type":"LaunchesFailed","failures":3}')


def test_a_release_forgives_and_the_count_begins_anew_also_after_a_crash(bench: Bench) -> None:
    bench.engine.unlaunchable.add("1")
    bench.submit()
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4)
    bench.desk.release(ADA, ["1"])
    bench.crash()
    bench.settle()
    assert bench.row("1").held == "", "it waits for room, and what failed before is forgiven"
    bench.end("2")
    assert (bench.row("1").attempt, held_by(bench, "1")) == (6, "LaunchesFailed")
    bench.engine.unlaunchable.clear()
    bench.desk.release(ADA, ["1"])
    bench.settle()
    assert bench.states()["1"] == "RUNNING"


def test_failures_that_are_not_in_a_row_do_not_hold(bench: Bench) -> None:
    bench.engine.unlaunchable.add("1")
    bench.desk.submit(ADA, form())
    bench.cycle()
    bench.engine.unlaunchable.clear()
    bench.settle()
    assert (bench.row("1").attempt, bench.states()) == (3, {"1": "RUNNING"})
    bench.engine.unlaunchable.add("1")
    bench.engine.end("1", Outcome.NODE_FAIL)
    bench.settle()
    assert (bench.row("1").attempt, held_by(bench, "1")) == (6, "LaunchesFailed")


def test_an_admin_may_do_everything(bench: Bench) -> None:
    bench.submit()
    bench.desk.checkpoint(ROOT, "1")
    bench.desk.requeue(ROOT, ["1"])
    bench.desk.cancel(ROOT, ["1"])
    bench.settle()
    assert bench.states() == {"1": "CANCELLED"}
