"""A rename changes nothing but names: the same decisions as without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random

import pytest

from mirab.model.accounts import Budget, Budgets, child_path
from mirab.model.events import BudgetsChanged, Event
from mirab.model.plans import Plan
from mirab.model.trace import Trace
from mirab.model.units import MINUTE, AccountPath
from mirab.model.workloads import Arrival
from mirab.sim.engine import replay
from tests.worlds import PERIOD, draw_world


class Actions:
    """What was decided, without the words for it, since these name accounts."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        told = [
            (type(action), [getattr(action, field.name) for field in fields(action) if field.name != "reason"])
            for action in plan.actions
        ]
        self.seen.append((plan.at, told, plan.holds, plan.wake_at))


def renamed(budgets: Budgets) -> Budgets:
    """Every account under a name that sorts as before."""

    def walk(parent: str, siblings: tuple[Budget, ...]) -> tuple[Budget, ...]:
        return tuple(
            replace(each, name=f"{each.name}-1", formerly=(child_path(parent, each.name),),
                    children=walk(child_path(parent, each.name), each.children))
            for each in siblings
        )  # fmt: skip

    return Budgets(walk("", budgets.roots))


def under_new_names(arrival: Arrival, at: int) -> Arrival:
    workload = arrival.workload
    if workload.submitted_at < at:
        return arrival
    account = "/".join(f"{name}-1" for name in workload.account.split("/"))
    return replace(arrival, workload=replace(workload, account=AccountPath(account)))


def decisions(trace: Trace, policy: object, budgets: Budgets, at: int) -> list[tuple[object, ...]]:
    seen = Actions()
    changed = replace(trace, budget_changes=[BudgetsChanged(at, budgets, "manager", "new names")])
    replay(changed, policy, journals=[seen])  # type: ignore[arg-type]
    return seen.seen


@pytest.mark.parametrize("base", ["budget", "fair-tree", "quota"])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_a_rename_decides_nothing(seed: int, base: str) -> None:
    """Work that comes later may be sent in under the old names or under the new ones."""
    chance = Random(f"{seed} {base}")
    world = draw_world(chance, base=base, decisions=False)
    at = chance.randrange(0, PERIOD, MINUTE)
    budgets = world.trace.budgets
    plain = decisions(world.trace, world.policy, budgets, at)
    assert decisions(world.trace, world.policy, renamed(budgets), at) == plain
    later = replace(world.trace, arrivals=[under_new_names(each, at) for each in world.trace.arrivals])
    assert decisions(later, world.policy, renamed(budgets), at) == plain
