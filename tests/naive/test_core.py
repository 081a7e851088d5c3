"""Meters, ratios and the order of the core equal a slow recomputation, at every decision of random replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.core.ordering import Key, by_ratio, queue_key
from mirab.core.queues import Queue
from mirab.core.shares import Account
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.accounts import Budget, Budgets, ledger_of
from mirab.model.events import BudgetsChanged, Event
from mirab.model.plans import Plan
from mirab.model.policy import POLICIES
from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, AccountPath, UserName, WorkloadId
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.sim.engine import replay
from tests.examples import examples
from tests.naive import ledger
from tests.naive.history import Cycle, History, told
from tests.naive.order import in_order
from tests.study.histories import ONE_POOL, TREES, TWO_POOLS

FOREST = (
    *TREES,
    Budgets(
        (
            Budget("red", WHOLE // 2, pool_shares=(("new", WHOLE // 4),)),
            Budget(
                "lab",
                WHOLE // 2,
                (Budget("a", WHOLE // 4), Budget("b", WHOLE // 2)),
                pool_shares=(("new", WHOLE // 2),),
            ),
        )
    ),
    Budgets(
        (
            Budget("red", WHOLE // 5, pool_shares=(("old", WHOLE),)),
            Budget(
                "lab",
                WHOLE // 2,
                (Budget("a", WHOLE // 2, pool_shares=(("new", WHOLE // 4),)), Budget("b", WHOLE // 4)),
            ),
        )
    ),
)

POLICY = replace(POLICIES["budget"], window=20 * HOUR, min_runtime_cap=3 * HOUR, cadence=0)
ACCOUNTS = ("red", "lab/a", "lab/b", "lab")


def random_trace(random: Random, count: int, trees: Sequence[Budgets] = TREES) -> Trace:
    """Too much work for a few nodes, over a day and a half, with sick nodes and budgets that change."""
    arrivals = []
    at = 0
    cluster = TWO_POOLS if trees is FOREST else random.choice([ONE_POOL, TWO_POOLS])
    for number in range(count):
        at += random.choice([0, 1, 10 * MINUTE, 2 * HOUR, 5 * HOUR])
        shape = Shape(random.randint(1, 3), random.choice([1, 2, 4]), time_limit=random.choice([None, 4 * HOUR]),
                      min_runtime=random.choice([0, 1000, 20 * MINUTE, 3 * HOUR]),
                      gpu_types=random.choice([(), (), ("a100",), ("b300",)]) if trees is FOREST else ())  # fmt: skip
        workload = Workload(WorkloadId(f"w{number}"), at, AccountPath(random.choice(ACCOUNTS)),
                            UserName(random.choice("uv")), shape, checkpoint=random.choice([0, 30 * MINUTE]),
                            priority=random.choice([0, 1]),
                            deadline_at=random.choice([None, None, at + 9 * HOUR]))  # fmt: skip
        arrivals.append(Arrival(workload, random.choice([MINUTE, 2 * HOUR, 9 * HOUR]), random.choice([None, 8 * HOUR])))
    troubles = [
        NodeTrouble(
            random.randrange(max(1, at)), random.choice(["o0", "o1"]), random.choice(["degraded", "down"]), HOUR
        )
        for _ in range(random.randint(0, 2))
    ]
    changes = [BudgetsChanged(random.randrange(max(1, at)), random.choice(trees)) for _ in range(random.randint(0, 2))]
    first = trees[-1] if trees is FOREST and random.random() < 0.4 else trees[0]
    return Trace(tuple(arrivals), cluster, first, troubles=sorted(troubles, key=lambda each: each.at),
                 budget_changes=sorted(changes, key=lambda each: each.at), ends_at=2 * DAY)  # fmt: skip


class Comparing:
    """A journal that compares the state with the history before each decision is taken in."""

    def __init__(self, trace: Trace, every: int) -> None:
        self.trace = trace
        self.every = every
        self.cycles: list[Cycle] = []
        self.state: State | None = None
        self.compared = 0

    def attach(self, state: State) -> None:
        self.state = state

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        if len(self.cycles) % self.every == 0:
            history = told(self.trace, [*self.cycles, (facts, Plan(plan.at, 0))])
            assert self.state is not None
            same_accounts(self.state, history, plan.at)
            same_order(self.state, history, plan.at)
            self.compared += 1
        self.cycles.append((list(facts), plan))


def same_accounts(state: State, history: History, now: int) -> None:
    """U to the milli-unit-millisecond that par is rounded down to; E and K exactly; the ratio to its rounding."""
    for path, account in state.accounts.items():
        if not state.ledgers[ledger_of(path)].in_force:
            continue
        expected = ledger.usage(history, path, now, POLICY.window)
        assert abs(account.used(now) - expected) <= 1, (path, now)
        assert account.promised(now) // WHOLE == ledger.entitlement(history, path, now, POLICY.window) // 1
        assert account.committed(now) == ledger.commitment(history, path, now), (path, now)
        ratio = ledger.ratio(history, path, now, POLICY)
        assert account.ratio(now) == ratio or abs(Fraction(account.ratio(now)) - Fraction(ratio)) < Fraction(1, 10**9)


def same_order(state: State, history: History, now: int) -> None:
    """The heads of the queues stand in the order in which the naive order has them, and so does every queue."""
    expected = in_order(history, now, POLICY)
    trial = Trial(state, now)
    lines = {leaf: line for leaf in state.accounts.values() if leaf.leaf and (line := line_of(trial, leaf))}
    heads, found = [], 0
    for leaf in sorted(lines, key=lambda leaf: by_ratio(trial, leaf)):
        queues = [queue for _, queue in lines[leaf]]
        for queue in queues:
            entries = [pending.workload.id for pending in queue.entries]
            assert entries == [each for each in expected if each in entries]
            heads.append(entries[0])
            found += len(entries)
        first = next(each for each in expected if state.pending[WorkloadId(each)].queue in queues)
        assert state.first_waiting(leaf.path, now) == first
    assert heads == [each for each in expected if each in heads]
    assert found == len(expected)


def line_of(trial: Trial, leaf: Account) -> list[tuple[Key, Queue]]:
    """The charged queues of a leaf with their keys, in order."""
    queues = [queue for user in leaf.users.values() for queue in user.queues.values() if queue.info.charged]
    return sorted(((queue_key(trial, queue), queue) for queue in queues), key=lambda entry: entry[0])


@settings(max_examples=examples(12), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(3, 12))
def test_every_decision_stands_on_the_same_numbers(random: Random, count: int) -> None:
    trace = random_trace(random, count)
    comparing = Comparing(trace, every=5)
    replay(trace, POLICY, journals=[comparing], attach=comparing.attach, until=3 * DAY)
    assert comparing.compared


@settings(max_examples=examples(12), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(3, 12))
def test_every_decision_stands_on_the_same_numbers_in_every_ledger(random: Random, count: int) -> None:
    """Pools get trees of their own and lose them while work runs on them."""
    trace = random_trace(random, count, FOREST)
    comparing = Comparing(trace, every=5)
    replay(trace, POLICY, journals=[comparing], attach=comparing.attach, until=3 * DAY)
    assert comparing.compared
