"""Small random worlds: cluster, budgets, policy, work and hardware trouble, all drawn from one source of chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from mirab.model.accounts import Budget, Budgets, child_path, parent_of, sorted_shares
from mirab.model.changesets import applied
from mirab.model.events import BudgetsChanged
from mirab.model.policy import DRAIN_PAUSE, EXEMPTIONS, POLICIES, Exemption, Policy, Reservation
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import (
    HOUR,
    MINUTE,
    SECOND,
    WHOLE,
    AccountPath,
    Duration,
    Instant,
    NodeName,
    UserName,
    WorkloadId,
)
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.study import budgetedits as edits

MINIMUMS: tuple[Duration, ...] = (
    0,
    0,
    1 * SECOND,
    10 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    1 * HOUR,
    1 * HOUR,
    2 * HOUR,
    4 * HOUR,
    20 * HOUR,
)
PERIOD: Duration = 10 * HOUR
"""Everything arrives within this time."""


@dataclass(frozen=True, slots=True)
class World:
    trace: Trace
    policy: Policy


def draw_world(
    chance: Random, *, base: str = "budget", most: int = 50, troubles: int = 4, decisions: bool = True
) -> World:
    """A world of at most `most` workloads and `troubles` sick nodes; `decisions`: people decide things on the way."""
    cluster = draw_cluster(chance)
    budgets = with_pool_shares(with_caps(draw_budgets(chance)), cluster)
    leaves = budgets.leaves()
    arrivals = [draw_arrival(chance, number, leaves, cluster) for number in range(chance.randint(1, most))]
    arrivals.sort(key=lambda arrival: (arrival.workload.submitted_at, arrival.workload.id))
    trace = Trace(
        arrivals,
        cluster,
        budgets,
        [draw_trouble(chance, cluster) for _ in range(chance.randint(0, troubles))],
        name="a random world",
        ends_at=2 * PERIOD,
    )
    return World(with_human_decisions(chance, trace) if decisions else trace, draw_policy(chance, base))


def with_human_decisions(chance: Random, trace: Trace) -> Trace:
    """The same with, perhaps, a new tree of budgets, an exception and a reservation on the way."""
    at = chance.randrange(0, PERIOD, MINUTE)
    changes = [BudgetsChanged(at, draw_budgets(chance), "manager", "a review")] if chance.random() < 0.3 else []
    changes = draw_successions(Random(at), trace.budgets, changes)
    changes = [
        replace(change, budgets=with_pool_shares(with_caps(change.budgets), trace.cluster)) for change in changes
    ]
    exemptions = [draw_exemption(chance, trace.budgets)] if chance.random() < 0.3 else []
    reservations = [draw_reservation(chance, trace, 10 * HOUR)] if chance.random() < 0.2 else []
    exemptions += [draw_pause(chance, trace)] if trace.troubles and chance.random() < 0.3 else []
    return replace(trace, budget_changes=changes, exemptions=exemptions, reservations=reservations)


def with_caps(budgets: Budgets) -> Budgets:
    """The same, now and then with caps on some accounts; which ones depends on the tree alone."""
    chance = Random(repr(budgets))

    def capped(budget: Budget) -> Budget:
        children = tuple(map(capped, budget.children))
        return replace(
            budget,
            children=children,
            gpus_max=chance.choice((None, None, 4, 8, 16)),
            gang_gpus_max=chance.choice((None, None, None, 8, 16)),
            min_runtime_cap=chance.choice((None, None, 20 * MINUTE, 2 * HOUR)),
        )

    return Budgets(tuple(map(capped, budgets.roots))) if chance.random() < 0.4 else budgets


def with_pool_shares(budgets: Budgets, cluster: Cluster) -> Budgets:
    """The same, now and then with shares of single pools; which ones depends on the tree and the cluster alone."""
    chance = Random(repr((budgets, cluster)))
    named = [pool.name for pool in cluster.pools if chance.random() < 0.6]

    def shared(siblings: tuple[Budget, ...], often: float) -> tuple[Budget, ...]:
        shares: list[dict[str, int]] = [{} for _ in siblings]
        for pool in named if chance.random() < often else ():
            left = WHOLE
            for own in shares:
                if chance.random() < 0.7:
                    own[pool] = chance.choice((0, left // 4, left // 2, left))
                    left -= own[pool]
        return tuple(
            replace(budget, children=shared(budget.children, 0.4), pool_shares=sorted_shares(own))
            for budget, own in zip(siblings, shares, strict=True)
        )

    return Budgets(shared(budgets.roots, 0.9)) if named and chance.random() < 0.4 else budgets


def draw_successions(chance: Random, budgets: Budgets, changes: list[BudgetsChanged]) -> list[BudgetsChanged]:
    """Instead of another tree, perhaps: accounts that are renamed, merged, divided or closed, one after the other."""
    if not changes or chance.random() < 0.4:
        return changes
    instants = sorted({changes[0].at, *(chance.randrange(0, PERIOD, MINUTE) for _ in range(chance.randint(0, 3)))})
    found = []
    for number, at in enumerate(instants):
        budgets = draw_succession(chance, budgets, f"x{number}")
        found.append(BudgetsChanged(at, budgets, "manager", "a reorganisation"))
    return found


def draw_succession(chance: Random, budgets: Budgets, fresh: str) -> Budgets:
    path = chance.choice([path for path, _, _ in budgets.walk()])
    siblings = [budget.name for budget in budgets.children_of(parent_of(path)) or ()]
    other = child_path(parent_of(path), chance.choice(siblings))
    kind = chance.choice(("rename", "rename", "merge", "merge", "divide", "close"))
    if kind == "merge" and other != path:
        return applied(
            budgets, edits.merged(budgets, [path, other], chance.choice((other, child_path(parent_of(path), fresh))))
        )
    if kind == "divide" and path in budgets.leaves() and not budgets.closed_since(path):
        return applied(budgets, edits.split(budgets, path, [Budget(fresh, WHOLE // 2)]))
    if kind == "close":
        return applied(budgets, edits.closed(budgets, path, "2026-03-01"))
    return applied(budgets, edits.renamed(budgets, path, fresh))


def draw_cluster(chance: Random) -> Cluster:
    pools = []
    for number in range(chance.choice((1, 1, 2))):
        count = chance.randint(1, 6)
        name = "nm"[number]
        half = count // 2
        domains = ((1 << half) - 1, ((1 << count) - 1) ^ ((1 << half) - 1)) if half and chance.random() < 0.3 else ()
        pools.append(
            Pool(
                name,
                tuple(NodeName(f"{name}{node}") for node in range(count)),
                chance.choice((1, 2, 4, 8)),
                ("H100", "B300")[number],
                weight=(1000, 2000)[number],
                domains=domains,
            )
        )
    return Cluster("random", tuple(pools))


def draw_budgets(chance: Random) -> Budgets:
    """Three teams, one of them divided further, one perhaps promised nothing, something perhaps unassigned."""
    first = chance.choice((0, 10, 30, 50)) * WHOLE // 100
    second = chance.choice((5, 20, 50)) * WHOLE // 100
    inner = chance.choice((20, 50)) * WHOLE // 100
    parts = (
        Budget("p", chance.choice((50, 100)) * WHOLE // 100),
        Budget("q", inner, save_for_gangs=chance.random() < 0.2),
    )
    third = 0 if chance.random() < 0.5 else WHOLE - first - second
    return Budgets((Budget("red", first), Budget("blue", second, parts[:1] if chance.random() < 0.5 else ()),
                    Budget("green", third)))  # fmt: skip


def draw_policy(chance: Random, base: str = "budget") -> Policy:
    return replace(
        POLICIES[base],
        window=chance.choice((1, 10, 168)) * HOUR,
        margin=chance.choice((0, 100, 300)),
        headroom=chance.choice((0, 10, 200)),
        review=chance.choice((1, 10)) * HOUR,
        holds_max=chance.choice((1, 8)) if base == "budget" else POLICIES[base].holds_max,
        drains_max=chance.choice((1, 8)),
        preemptions_max=chance.choice((1, 4, 256)),
        surplus_minimum_cap=chance.choice((None, None, 30 * MINUTE)),
    )


def draw_arrival(chance: Random, number: int, leaves: list[AccountPath], cluster: Cluster) -> Arrival:
    pool = chance.choice(cluster.pools)
    widest, most = pool.gpus_per_node, len(pool.nodes)
    too_large = chance.random() < 0.03
    account = chance.choice(leaves)
    shape = Shape(
        9 if too_large else chance.choice((1, 1, 1, min(2, most), min(2, most), min(3, most), most)),
        chance.choice((1, 1, widest, widest, max(1, widest // 2))),
        gpu_types=(pool.gpu_type,) if chance.random() < 0.15 else (),
        min_runtime=chance.choice(MINIMUMS),
        time_limit=chance.choice((None, None, None, 3 * HOUR)),
        grace=chance.choice((0, 10 * SECOND, 5 * MINUTE, 1 * HOUR)),
    )
    workload = Workload(
        WorkloadId(f"w{number:02}"),
        chance.choice((0, 0, chance.randrange(0, PERIOD, MINUTE))),
        account,
        UserName(chance.choice(("ana", "bob"))),
        shape,
        checkpoint=chance.choice((0, 10 * MINUTE, HOUR)),
        restart=chance.choice((0, 5 * MINUTE)),
        resume=chance.random() < 0.9,
        priority=chance.choice((0, 1, 1, 2)),
        preemptible=chance.random() < 0.7,
        deadline_at=chance.choice((None, None, 12 * HOUR)),
    )
    return Arrival(
        workload,
        chance.choice((1 * SECOND, 10 * MINUTE, HOUR, 3 * HOUR, chance.randrange(MINUTE, 6 * HOUR, SECOND))),
        cancel_after=chance.choice((None, None, None, 2 * HOUR)),
    )


def draw_trouble(chance: Random, cluster: Cluster) -> NodeTrouble:
    node = chance.choice([node for pool in cluster.pools for node in pool.nodes])
    return NodeTrouble(
        chance.randrange(0, PERIOD, MINUTE),
        node,
        chance.choice(("degraded", "degraded", "down")),
        chance.choice((10 * MINUTE, 3 * HOUR)),
        stuck=chance.random() < 0.2,
    )


def draw_exemption(chance: Random, budgets: Budgets) -> Exemption:
    begin = chance.randrange(0, PERIOD, MINUTE)
    account = chance.choice(budgets.leaves())
    unassigned = WHOLE - sum(budget.share for budget in budgets.roots)
    kind = chance.choice(("longer-minimum", "guaranteed", "extra-share") if unassigned else EXEMPTIONS[:2])
    return Exemption("x", kind, account, begin, begin + chance.choice((1, 6)) * HOUR, "owner", "approver", "a deadline",
                     cap=24 * HOUR, share=unassigned // 2)  # fmt: skip


def draw_pause(chance: Random, trace: Trace) -> Exemption:
    """A drain that is paused, from about the time at which the node fell sick."""
    trouble = chance.choice(trace.troubles)
    begin = max(0, trouble.at + chance.choice((-1, 0, 1)) * HOUR)
    end = begin + chance.choice((1, 6)) * HOUR
    return Exemption("p", DRAIN_PAUSE, chance.choice(trace.budgets.leaves()), begin, end, "owner", "approver",
                     "a deadline", node=trouble.node)  # fmt: skip


def draw_reservation(chance: Random, trace: Trace, begin: Instant) -> Reservation:
    """One that fits the empty first pool."""
    pool = trace.cluster.pools[0]
    return Reservation("r", chance.choice(trace.budgets.leaves()), chance.randint(1, len(pool.nodes)),
                       pool.gpus_per_node, begin, begin + chance.choice((1, 4)) * HOUR, "owner", "approver", "a demo",
                       pool.name)  # fmt: skip
