"""Window and half-life are two knobs: turning one leaves what the other measures as it was. (Line 37.)"""

from __future__ import annotations

from dataclasses import replace

from mirab.core.shares import Account
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Outcome, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Plan, Start
from mirab.model.policy import POLICIES, Policy
from mirab.model.reasons import InOrder
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import HOUR, UNIT, WHOLE, AccountPath, Duration, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload

RED = AccountPath("red")


def red_after_an_hour(policy: Policy, idle: Duration) -> Account:
    """Red ran 8 GPUs for an hour, ten hours after the beginning, and has been idle since."""
    cluster = Cluster("c", (Pool("n", (NodeName("n0"),), 8),))
    state = State(cluster, Budgets((Budget("red", WHOLE),)), policy)
    begin, run_id = 10 * HOUR, RunId("w.1")
    workload = Workload(WorkloadId("w"), begin, RED, UserName("ana"), Shape(1, 8, min_runtime=HOUR))
    state.fold(WorkloadSubmitted(begin, workload))
    start = Start(run_id, workload.id, Allocation(0, 1, 8), HOUR, InOrder(RED, 0.0, True))
    state.commit(Plan(begin, state.folded, (start,)))
    state.fold(RunStarted(begin, run_id))
    state.fold(RunEnded(begin + HOUR, run_id, Outcome.COMPLETED))
    state.advance(begin + HOUR + idle)
    return state.accounts[RED]


def used(policy: Policy, idle: Duration) -> int:
    """GPU-milliseconds of usage, `idle` after the run."""
    return red_after_an_hour(policy, idle).used(11 * HOUR + idle) // UNIT


def test_the_window_forgets_at_its_edge_and_not_before() -> None:
    for window, idle, left in ((5 * HOUR, 4 * HOUR, 8), (5 * HOUR, 5 * HOUR, 0), (7 * HOUR, 5 * HOUR, 8)):
        policy = replace(POLICIES["budget"], window=window, half_life=None)
        assert used(policy, idle) == left * HOUR, (window, idle)


def test_the_window_of_entitlement_does_not_depend_on_the_half_life() -> None:
    for half_life in (None, HOUR, 24 * HOUR):
        policy = replace(POLICIES["fair-tree"], window=5 * HOUR, half_life=half_life)
        account = red_after_an_hour(policy, 2 * HOUR)
        assert account.promised(13 * HOUR) // WHOLE == 8 * 5 * HOUR * UNIT, half_life


def test_the_half_life_halves_whatever_the_window() -> None:
    """Decay goes by steps of five minutes, so half is met within what one step decays."""
    kept = set()
    for window in (5 * HOUR, 9 * HOUR):
        policy = replace(POLICIES["fair-tree"], window=window, half_life=2 * HOUR)
        before, after = used(policy, 0), used(policy, 2 * HOUR)
        assert abs(after / before - 0.5) < 0.02
        kept.add((before, after))
    assert len(kept) == 1
