"""A ledger goes on when the policy changes and when the cluster grows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.codec import decode, encode
from mirab.model.events import ClusterChanged, Event, ExemptionGranted, PolicyChanged
from mirab.model.plans import Plan, Preempt, Reject, Start
from mirab.model.policy import Exemption, Policy, named
from mirab.model.resources import Cluster, Pool, Shape, extends
from mirab.model.units import DAY, HOUR, MINUTE, WEEK, WHOLE, AccountPath, Instant, NodeName, UserName, WorkloadId
from mirab.model.workloads import Workload
from tests.pretend import Conduct, HandClock, PretendEngine, Recorder

RED, BLUE = AccountPath("red"), AccountPath("blue")
BUDGETS = Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))


def pool(name: str, nodes: int, **other: object) -> Pool:
    return replace(Pool(name, tuple(NodeName(f"{name}{n}") for n in range(nodes)), 8, "H100"), **other)  # type: ignore[arg-type]


def workload(name: str, account: AccountPath, at: Instant, nodes: int = 1, minimum: int = HOUR) -> Workload:
    return Workload(WorkloadId(name), at, account, UserName("ana"), Shape(nodes, 8, min_runtime=minimum))


class World:
    def __init__(self, policy: Policy, nodes: int = 2) -> None:
        cluster = Cluster("c", (pool("n", nodes),))
        self.clock = HandClock()
        self.engine = PretendEngine(cluster, self.clock)
        self.state = State(cluster, BUDGETS, policy)
        self.journal = Recorder()

    def submit(self, *workloads: Workload) -> Plan:
        for each in workloads:
            self.engine.arrive(each, Conduct())
        return self.decide()

    def happen(self, fact: Event) -> Plan:
        self.engine.fact(fact)
        return self.decide()

    def decide(self, at: Instant | None = None) -> Plan:
        self.clock.instant = self.clock.instant if at is None else at
        plan = cycle(self.state, self.clock, self.engine, self.journal)
        self.state.check()
        return plan


def starts(plan: Plan) -> list[str]:
    return [action.workload_id for action in plan.actions if isinstance(action, Start)]


def test_new_nodes_take_work_at_once_and_count_from_now() -> None:
    world = World(Policy())
    assert starts(world.submit(*(workload(f"w{n}", RED, 0) for n in range(4)))) == ["w0", "w1"]
    world.decide(HOUR // 2)
    before = world.state.accounts[RED].used(HOUR // 2)
    grown = Cluster("c", (pool("n", 3), pool("big", 1, gpu_type="B300", weight=2000)))
    assert starts(world.happen(ClusterChanged(HOUR // 2, grown))) == ["w2", "w3"]
    assert world.state.accounts[RED].used(HOUR // 2) == before
    assert world.state.window.capacity.rate == 3 * 8 * 1000 + 8 * 2000


def test_what_never_fitted_is_taken_once_it_would_fit() -> None:
    world = World(Policy())
    assert isinstance(world.submit(workload("w", RED, 0, nodes=3)).actions[0], Reject)
    world.happen(ClusterChanged(0, Cluster("c", (pool("n", 3),))))
    assert starts(world.submit(workload("again", RED, 0, nodes=3))) == ["again"]


@pytest.mark.parametrize(
    ("grown", "said"),
    [
        (Cluster("c", ()), "pool n is missing"),
        (Cluster("c", (pool("m", 2),)), "pool n has become m"),
        (Cluster("c", (pool("n", 1),)), "lost or moved nodes"),
        (Cluster("c", (pool("n", 2, gpus_per_node=4),)), "have 4 slots, had 8"),
    ],
)
def test_what_does_not_extend_the_cluster_is_refused(grown: Cluster, said: str) -> None:
    world = World(Policy())
    assert said in extends(grown, world.state.cluster)
    with pytest.raises(ValueError, match=said):
        world.state.fold(ClusterChanged(0, grown))


def test_a_policy_under_which_runs_are_exposed_exposes_those_there_are() -> None:
    world = World(replace(Policy(), preemption="none"))
    world.submit(workload("r0", RED, 0), workload("r1", RED, 0))
    world.decide(3 * DAY)
    assert not starts(world.submit(workload("b", BLUE, 3 * DAY, minimum=10 * MINUTE)))
    plan = world.happen(PolicyChanged(3 * DAY, Policy()))
    assert [type(action) for action in plan.actions] == [Preempt]


def test_a_longer_window_grows_into_its_length() -> None:
    world = World(replace(Policy(), window=DAY))
    world.submit(workload("r", RED, 0))
    world.decide(2 * DAY)
    red = world.state.accounts[RED]
    day = red.used(2 * DAY)
    assert day == 8 * 1000 * DAY
    world.happen(PolicyChanged(2 * DAY, replace(Policy(), window=WEEK)))
    assert red.used(2 * DAY) == day, "nothing older comes back"
    world.decide(4 * DAY)
    assert red.used(4 * DAY) == 3 * day
    assert red.ratio(4 * DAY) == pytest.approx(1.0)
    world.decide(30 * DAY)
    assert red.used(30 * DAY) == 7 * day


def test_a_shorter_window_forgets_at_once() -> None:
    world = World(Policy())
    world.submit(workload("r", RED, 0))
    world.decide(10 * DAY)
    world.happen(PolicyChanged(10 * DAY, replace(Policy(), window=DAY)))
    assert world.state.accounts[RED].used(10 * DAY) == 8 * 1000 * DAY


def test_a_shorter_cap_cuts_what_waits_and_leaves_what_runs() -> None:
    world = World(Policy(), nodes=1)
    world.submit(workload("r", RED, 0, minimum=8 * HOUR), workload("b", BLUE, 0, minimum=8 * HOUR))
    running, waiting = sorted((next(iter(world.state.running)), next(iter(world.state.pending))))
    world.happen(PolicyChanged(0, replace(Policy(), min_runtime_cap=HOUR)))
    (run,) = world.state.runs.values()
    (pending,) = world.state.pending.values()
    assert run.min_runtime == 8 * HOUR
    assert pending.queue is not None and pending.queue.info.min_runtime == HOUR
    assert running != waiting


def test_a_ledger_cannot_change_how_it_forgets() -> None:
    with pytest.raises(ValueError, match="half life"):
        World(Policy()).state.fold(PolicyChanged(0, named("fair-tree")))


def test_both_facts_can_be_recorded() -> None:
    for fact in (PolicyChanged(5, Policy(), "ana", "trial"), ClusterChanged(5, Cluster("c", (pool("n", 2),)))):
        assert decode(encode(fact)) == fact


def test_a_longer_minimum_by_exception_reaches_all_that_wait_in_one_queue() -> None:
    """Found: a queue of several kept the contract that it was born with."""
    world = World(replace(Policy(), min_runtime_cap=HOUR), nodes=1)
    world.submit(workload("r", BLUE, 0), *(workload(f"w{n}", RED, 0, minimum=3 * HOUR) for n in range(3)))
    exemption = Exemption("x", "longer-minimum", RED, 0, DAY, cap=3 * HOUR, owner="o", approver="a", reason="r")
    world.happen(ExemptionGranted(0, exemption))
    minimums = {p.workload.id: p.queue.info.min_runtime for p in world.state.pending.values() if p.queue is not None}
    assert {minimums[WorkloadId(name)] for name in ("w1", "w2")} == {3 * HOUR}
