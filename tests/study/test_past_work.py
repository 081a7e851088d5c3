"""The log that a what-if on the live service replays: who is in it, and who is left out and said so."""

from __future__ import annotations

from dataclasses import replace

from mirab.model.events import Event, Outcome, PolicyChanged, RunAdopted, RunEnded, WorkloadSubmitted
from mirab.model.plans import Plan, Reject
from mirab.model.policy import POLICIES, Policy
from mirab.model.reasons import UnknownAccount
from mirab.model.resources import Allocation, Cluster, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, AccountPath, Instant, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.study.pastwork import past_trace
from tests.study.scene import HALVES, pool

ENFORCING = POLICIES["budget"]
OBSERVING = replace(ENFORCING, mode="observe")
CLUSTER = Cluster("small", (pool(2, 8),))

Recorded = tuple[tuple[Event, ...], Plan]


def came(at: Instant, name: str, account: str = "red") -> WorkloadSubmitted:
    return WorkloadSubmitted(at, Workload(WorkloadId(name), at, AccountPath(account), UserName("ann"), Shape(1, 8)))


def refused(at: Instant, *facts: Event, names: tuple[str, ...]) -> Recorded:
    """A cycle of these facts in whose plan the workloads are refused."""
    reason = UnknownAccount(AccountPath("red"))
    return facts, Plan(at, 0, tuple(Reject(WorkloadId(name), reason) for name in names))


def ran(name: str, begin: Instant, end: Instant) -> list[Recorded]:
    """The engine ran it by itself."""
    run = RunId(f"{name}.1")
    adopted = RunAdopted(begin, run, WorkloadId(name), Allocation(0, 0b1, 8), begin, HOUR)
    return [((adopted,), Plan(begin, 0)), ((RunEnded(end, run, Outcome.COMPLETED),), Plan(end, 0))]


def log_of(records: list[Recorded], policy: Policy, begin: Instant = 0) -> Trace:
    return past_trace(records, CLUSTER, HALVES, begin, begin + DAY, policy)


def test_what_an_observer_would_have_refused_ran_all_the_same() -> None:
    records = [refused(HOUR, came(HOUR, "a"), names=("a",)), *ran("a", 2 * HOUR, 5 * HOUR)]
    (arrival,) = log_of(records, OBSERVING).arrivals
    assert (arrival.workload.id, arrival.run) == ("a", 3 * HOUR)
    assert not any("refused" in note for note in log_of(records, OBSERVING).notes)


def test_what_was_refused_is_left_out_and_counted() -> None:
    records = [refused(HOUR, came(HOUR, "a"), came(HOUR, "b"), names=("a",)), *ran("b", 2 * HOUR, 3 * HOUR)]
    trace = log_of(records, ENFORCING)
    assert [each.workload.id for each in trace.arrivals] == ["b"]
    assert trace.notes == ["Left out, as they were refused when they came: 1 workload."]


def test_only_refusals_of_the_period_are_counted() -> None:
    records = [refused(HOUR, came(HOUR, "a"), names=("a",)), refused(3 * DAY, came(3 * DAY, "b"), names=())]
    trace = log_of(records, ENFORCING, begin=2 * DAY)
    assert not any("refused" in note for note in trace.notes)


def test_from_the_day_on_that_mirab_enforces_a_refusal_is_one() -> None:
    records = [
        refused(HOUR, came(HOUR, "a"), names=("a",)),
        refused(2 * HOUR, PolicyChanged(2 * HOUR, ENFORCING), came(2 * HOUR, "b"), names=("b",)),
        *ran("a", 3 * HOUR, 4 * HOUR),
    ]
    assert [each.workload.id for each in log_of(records, OBSERVING).arrivals] == ["a"]


def test_accounts_without_a_budget_are_left_out_and_counted() -> None:
    trace = log_of([((came(HOUR, "a", "green"),), Plan(HOUR, 0)), *ran("a", 2 * HOUR, 3 * HOUR)], ENFORCING)
    assert not trace.arrivals
    assert trace.notes[-1] == "Left out, as the budgets of now do not name their account: 1 workload."
