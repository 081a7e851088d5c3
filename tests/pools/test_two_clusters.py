"""A cluster whose two pools have trees of their own is two clusters with one door: the same decisions, side by side.

Nothing that couples them is drawn: no caps, no exceptions, all work names its type. What a decision looks at anew
depends on what has happened anywhere, so all three worlds decide at every instant of any, and look at everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets, ledger_path, sorted_shares
from mirab.model.codec import encode
from mirab.model.events import BudgetsChanged
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.resources import Cluster, Pool
from mirab.model.trace import Trace
from mirab.model.units import HOUR, WHOLE, AccountPath, Instant, NodeName
from mirab.sim.backend import SimBackend, SimClock
from tests.examples import examples
from tests.pretend import Recorder
from tests.worlds import (
    PERIOD,
    draw_arrival,
    draw_budgets,
    draw_policy,
    draw_successions,
    draw_trouble,
)

POOLS = ("n", "m")
UNTIL = PERIOD + 8 * HOUR


def draw_pools(chance: Random) -> Cluster:
    pools = []
    for name, kind, weight in (("n", "H100", 1000), ("m", "B300", 2000)):
        nodes = tuple(NodeName(f"{name}{number}") for number in range(chance.randint(1, 5)))
        pools.append(Pool(name, nodes, chance.choice((2, 4, 8)), kind, weight=weight))
    return Cluster("two", tuple(pools))


def with_pool_shares(chance: Random, budgets: Budgets) -> Budgets:
    """The same with shares of the second pool for some, at any level; at least one root has one."""

    def shared(siblings: tuple[Budget, ...], needed: bool) -> tuple[Budget, ...]:
        often = 0.6 if needed or chance.random() < 0.4 else 0.0
        named = [chance.random() < often for _ in siblings]
        named[0] = named[0] or needed
        parts = [chance.randint(0, 5) for _ in siblings]
        whole = max(1, sum(parts))
        return tuple(
            replace(
                budget,
                children=shared(budget.children, needed=False) if budget.children else (),
                pool_shares=sorted_shares({"m": WHOLE * part // whole}) if says else (),
            )
            for budget, says, part in zip(siblings, named, parts, strict=True)
        )

    return Budgets(shared(budgets.roots, needed=True))


@dataclass
class World:
    """One of the three: its engine, its state and when it wants to decide again."""

    state: State
    clock: SimClock
    engine: SimBackend
    journal: Recorder
    wake_at: Instant | None = None

    @staticmethod
    def of(trace: Trace, policy: Policy) -> World:
        clock = SimClock()
        return World(State(trace.cluster, trace.budgets, policy), clock, SimBackend(trace, clock), Recorder())

    def due(self) -> list[Instant]:
        return [at for at in (self.engine.next_due(), self.wake_at) if at is not None]

    def decide(self, at: Instant) -> Plan:
        self.clock.jump(at)
        self.state.version += 1
        self.state.claims += 1
        plan = cycle(self.state, self.clock, self.engine, self.journal)
        self.state.check()
        self.wake_at = plan.wake_at
        return plan


def part_of(trace: Trace, number: int) -> Trace:
    """The same log as the cluster of one pool alone would have it."""
    pool = trace.cluster.pools[number]
    here = [each for each in trace.arrivals if each.workload.shape.gpu_types == (pool.gpu_type,)]
    return replace(
        trace,
        arrivals=here,
        cluster=Cluster("part", (pool,)),
        budgets=tree_of(trace.budgets, number),
        troubles=[each for each in trace.troubles if each.node in pool.nodes],
        budget_changes=[replace(each, budgets=tree_of(each.budgets, number)) for each in trace.budget_changes],
    )


def tree_of(budgets: Budgets, number: int) -> Budgets:
    return budgets.ledgers(POOLS)[number].budgets


def draw_trace(chance: Random, most: int) -> Trace:
    cluster = draw_pools(chance)
    plain = draw_budgets(chance)
    arrivals = []
    for number in range(chance.randint(1, most)):
        arrival = draw_arrival(chance, number, plain.leaves(), cluster)
        kind = chance.choice(cluster.pools).gpu_type
        shape = arrival.workload.shape._replace(gpu_types=(kind,))
        arrivals.append(replace(arrival, workload=replace(arrival.workload, shape=shape)))
    arrivals.sort(key=lambda each: (each.workload.submitted_at, each.workload.id))
    at = chance.randrange(0, PERIOD, HOUR)
    changes = [BudgetsChanged(at, draw_budgets(chance))] if chance.random() < 0.6 else []
    changes = draw_successions(chance, plain, changes)
    return Trace(
        arrivals,
        cluster,
        with_pool_shares(chance, plain),
        sorted((draw_trouble(chance, cluster) for _ in range(chance.randint(0, 3))), key=lambda each: each.at),
        budget_changes=[replace(each, budgets=with_pool_shares(chance, each.budgets)) for each in changes],
        name="two pools",
        ends_at=2 * PERIOD,
    )


def said(trace: Trace, plan: Plan, number: int | None = None) -> list[Any]:
    """What a plan decides (in one pool), in words that are the same in both worlds."""
    pool_of = {node: place for place, pool in enumerate(trace.cluster.pools) for node in pool.nodes}
    kinds = {pool.gpu_type: place for place, pool in enumerate(trace.cluster.pools)}
    types = {str(each.workload.id): each.workload.shape.gpu_types[0] for each in trace.arrivals}
    found = []
    for each in (*plan.actions, *plan.holds, *plan.waiting):
        node = getattr(each, "node", None)
        name = getattr(each, "workload_id", None) or str(getattr(each, "run_id", "")).rpartition(".")[0]
        where = pool_of[node] if node is not None else kinds[types[name]]
        if number is None or where == number:
            found.append(_alike(encode(each)))
    return found


def _alike(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: 0 if key == "pool" else _alike(held) for key, held in data.items() if key != "next_at"}
    if isinstance(data, list):
        return [_alike(held) for held in data]
    return data.removeprefix("m:") if isinstance(data, str) else data


@pytest.mark.parametrize("base", ["budget", "budget", "fifo", "priority", "fair-tree", "quota", "strict"])
@given(chance=st.one_of(st.randoms(use_true_random=False), st.integers(0, 2**32).map(Random)))
@settings(max_examples=examples(15), deadline=None)
def test_two_pools_with_trees_of_their_own_are_two_clusters(base: str, chance: Random) -> None:
    policy = draw_policy(chance, "fifo" if base == "strict" else base)
    policy = replace(policy, drains_max=99, preemptions_max=999, holds_max=99, cadence=0)
    if base == "strict":
        policy = replace(policy, backfill="none", order=chance.choice(("fifo", "budget", "fair-tree")))
    play(draw_trace(chance, 40), policy)


def play(trace: Trace, policy: Policy) -> int:
    whole, *parts = (World.of(each, policy) for each in (trace, part_of(trace, 0), part_of(trace, 1)))
    decided = 0
    at: Instant | None = 0
    while at is not None and at <= UNTIL:
        plan = whole.decide(at)
        for number, part in enumerate(parts):
            alone = said(part_trace(trace, part), part.decide(at))
            together = said(trace, plan, number)
            assert together == alone, f"at {at} in pool {POOLS[number]}"
            same_accounts(whole.state, part.state, POOLS[number] if number else "", at)
            decided += len(alone)
        at = min((due for world in (whole, *parts) for due in world.due()), default=None)
    return decided


def part_trace(trace: Trace, part: World) -> Trace:
    return replace(trace, cluster=part.state.cluster)


def same_accounts(whole: State, part: State, ledger: str, now: Instant) -> None:
    """Used, promised and committed to the last milli-unit."""
    for path, account in part.accounts.items():
        other = whole.accounts[AccountPath(ledger_path(ledger, path))]
        assert other.weigh(now) == account.weigh(now), (path, now)
        assert (other.share, other.held, other.running) == (account.share, account.held, account.running)
        assert other.uncharged.between(now - HOUR, now) == account.uncharged.between(now - HOUR, now)


def test_the_property_means_something() -> None:
    """The worlds start, hold, stop and refuse: not only equal silence."""
    assert sum(play(draw_trace(Random(seed), 40), Policy()) for seed in range(12)) > 200
