"""Trees of budgets that nobody would draw by hand, and changes at the worst instant: no account loses anything."""

from __future__ import annotations

from random import Random

import pytest

from mirab.core.decide import decide
from mirab.core.intentions import hold_granted
from mirab.core.meter import Meter
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import BudgetsChanged, Event, Outcome, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Hold, Start
from mirab.model.policy import POLICIES
from mirab.model.resources import Cluster, Shape
from mirab.model.units import HOUR, MINUTE, WHOLE, AccountPath, Instant, UserName, WorkloadId
from mirab.model.workloads import Workload
from tests.properties.test_upheavals import pool

CLUSTER = Cluster("c", (pool("n", 4),))


def submitted(name: str, account: str, at: Instant, shape: Shape) -> WorkloadSubmitted:
    return WorkloadSubmitted(at, Workload(WorkloadId(name), at, AccountPath(account), UserName("ana"), shape))


def told(state: State, at: Instant, *facts: Event) -> list[str]:
    """What starts. Everything that was decided has happened at once."""
    for fact in facts:
        state.fold(fact)
    state.advance(at)
    plan = decide(state, at)
    state.commit(plan)
    started = [action for action in plan.actions if isinstance(action, Start)]
    for action in started:
        state.fold(RunStarted(at, action.run_id))
    state.check()
    return [action.workload_id for action in started]


def used(state: State) -> int:
    meters = [account.usage for account in state.accounts.values() if account.parent is None]
    return sum(meter.total(state.now) for meter in meters if isinstance(meter, Meter))


def test_a_child_of_the_same_name_takes_the_place_of_what_is_merged_into_its_parent() -> None:
    """a/b goes into a, and what was a/b/b is a/b from now on."""
    deep = Budget("a", WHOLE, (Budget("b", WHOLE, (Budget("b", WHOLE // 2), Budget("c", WHOLE // 2))),))
    state = State(CLUSTER, Budgets((deep,)), POLICIES["budget"])
    told(state, 0, *(submitted(f"w{path}", path, 0, Shape(1, 8, min_runtime=HOUR)) for path in ("a/b/b", "a/b/c")))
    state.advance(HOUR)
    before = used(state)
    flat = Budget("a", WHOLE, formerly=("a/b",))
    told(state, HOUR, BudgetsChanged(HOUR, Budgets((flat,))))
    assert used(state) == before > 0
    assert {run.workload.id: run.account.path for run in state.runs.values()} == {"wa/b/b": "a/b", "wa/b/c": "a/c"}
    assert "a/b/b" not in state.accounts


def drawn(chance: Random, known: list[str], parent: str = "", depth: int = 0) -> tuple[Budget, ...]:
    left, found = WHOLE, list[Budget]()
    for name in chance.sample("abcd", chance.randint(1, 3)):
        share = chance.randint(0, left)
        left -= share
        children = drawn(chance, known, f"{parent}/{name}".lstrip("/"), depth + 1) if depth < 2 else ()
        formerly = chance.sample(known, min(len(known), chance.randint(0, 2)))
        cap = chance.choice((None, None, 0, 2, 8))
        found.append(Budget(name, share, children if chance.random() < 0.5 else (), formerly=tuple(formerly),
                            closed=chance.choice(("", "", "", "2026-01-01")), gpus_max=cap))  # fmt: skip
    return tuple(found)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_any_tree_follows_any_other(seed: int) -> None:
    """Accounts are named as forerunners at random: of two, of none, of themselves, of what lies above or below."""
    chance = Random(seed)
    state = State(CLUSTER, Budgets(drawn(chance, [])), POLICIES["budget"])
    for step in range(20):
        at = step * 20 * MINUTE
        paths = [path for path in state.accounts if not path.endswith("*")]
        new = [submitted(f"w{step}-{n}", chance.choice(paths), at, Shape(1, chance.choice((1, 4)), min_runtime=HOUR))
               for n in range(3)]  # fmt: skip
        ended = [RunEnded(at, run.id, Outcome.COMPLETED) for run in state.runs.values() if chance.random() < 0.3]
        change = [BudgetsChanged(at, Budgets(drawn(chance, [*map(str, paths)]))) for _ in range(chance.randint(0, 2))]
        told(state, at, *new, *ended, *change)
        for path, account in state.accounts.items():
            assert account.path == path
            assert all(state.accounts[child.path] is child for child in account.children)
        for run in state.runs.values():
            assert state.accounts[run.account.path] is run.account and run.account.leaf
            assert run.account.users[run.user.name] is run.user


@pytest.mark.parametrize("renamed", [False, True])
def test_a_cap_on_the_minimum_is_new_for_those_behind_a_gang_with_held_nodes(renamed: bool) -> None:
    gang = Shape(4, 8, min_runtime=30 * MINUTE)
    state = State(CLUSTER, Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2))), POLICIES["budget"])
    told(state, 0, submitted("b", "blue", 0, Shape(3, 8, min_runtime=4 * HOUR)))
    told(state, 3 * HOUR, *(submitted(f"g{n}", "red", 3 * HOUR, gang) for n in range(2)))
    hold_granted(state, Hold(WorkloadId("g0"), 0, 0b1111, 8, 4 * HOUR, state.now), state.now)
    red = Budget("rot", WHOLE // 2, formerly=("red",)) if renamed else Budget("red", WHOLE // 2)
    capped = Budget(red.name, red.share, formerly=red.formerly, min_runtime_cap=MINUTE)
    state.fold(BudgetsChanged(200 * MINUTE, Budgets((capped, Budget("blue", WHOLE // 2)))))
    state.check()
    assert list(state.holds) == ["g0"]
    minimums = {pending.queue.info.min_runtime for pending in state.pending.values() if pending.queue is not None}
    assert minimums == {MINUTE}
