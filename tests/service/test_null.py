"""The engine without machines: runs begin at once, end after their time, and stop when they are told to."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from mirab.backends.null import USUAL, NullBackend, run_time
from mirab.model.events import Event, NodeUp, Outcome, RunEnded, RunStarted
from mirab.model.plans import Cancel, Preempt, Repair, Start
from mirab.model.reasons import DrainedFrom, InOrder
from mirab.model.records import JobSpec
from mirab.model.resources import Allocation
from mirab.model.units import AccountPath, NodeName, RunId, WorkloadId


@dataclass
class Bench:
    now: int = 1_000
    woken: int = 0
    engine: NullBackend = field(init=False)

    def __post_init__(self) -> None:
        spec = JobSpec(WorkloadId("1"), "x", ("sleep", "2.5"))
        self.engine = NullBackend(lambda _: spec, lambda: self.now, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def at(self, now: int) -> list[Event]:
        self.now = now
        return self.engine.observe()


def start() -> Start:
    reason = InOrder(AccountPath("red"), 0.0, True)
    return Start(RunId("1.1"), WorkloadId("1"), Allocation(0, 1, 1), 0, reason)


def preempt() -> Preempt:
    return Preempt(RunId("1.1"), 500, DrainedFrom(NodeName("n0"), ""))


def test_a_run_begins_at_once_and_ends_after_its_time() -> None:
    bench = Bench()
    bench.engine.submit(start())
    bench.engine.submit(start())
    assert bench.woken
    assert bench.at(1_001) == [RunStarted(1_000, RunId("1.1"))]
    assert bench.engine.next_due() == 3_500
    assert bench.at(3_499) == []
    assert bench.at(4_000) == [RunEnded(3_500, RunId("1.1"), Outcome.COMPLETED, None, 0)]
    assert bench.engine.next_due() is None


def test_it_stops_when_it_is_told_to_and_only_once() -> None:
    bench = Bench()
    bench.engine.submit(start())
    bench.engine.submit(preempt())
    bench.engine.submit(preempt())
    ended = [fact for fact in bench.at(9_000) if isinstance(fact, RunEnded)]
    assert ended == [RunEnded(1_500, RunId("1.1"), Outcome.PREEMPTED, None, 143)]


@pytest.mark.parametrize(("requeue", "outcome"), [(False, Outcome.CANCELLED), (True, Outcome.REQUEUED)])
def test_a_cancel_ends_as_it_was_asked(requeue: bool, outcome: Outcome) -> None:
    bench = Bench()
    bench.engine.submit(start())
    bench.engine.submit(Cancel(RunId("1.1"), 0, requeue))
    assert [fact.outcome for fact in bench.at(9_000) if isinstance(fact, RunEnded)] == [outcome]


def test_what_the_state_believes_in_runs_again_after_a_restart() -> None:
    bench = Bench()
    bench.engine.adopt({RunId("1.1"): start()}, [RunId("1.1")])
    assert bench.at(1_000) == [RunStarted(1_000, RunId("1.1"))]


def test_a_node_is_repaired_at_once() -> None:
    bench = Bench()
    bench.engine.submit(Repair(NodeName("n0")))
    assert bench.at(1_000) == [NodeUp(1_000, NodeName("n0"))]


@pytest.mark.parametrize(
    ("argv", "lasts"),
    [(("sleep", "1"), 1_000), (("sleep", "0"), 1), (("sleep", "inf"), USUAL), (("sleep", "x"), USUAL), ((), USUAL)],
)
def test_how_long_a_run_lasts(argv: tuple[str, ...], lasts: int) -> None:
    assert run_time(JobSpec(WorkloadId("1"), "x", argv)) == lasts


def test_it_has_no_output() -> None:
    engine = Bench().engine
    assert engine.output_path(WorkloadId("1")) is None
    assert engine.utilization() == {}
