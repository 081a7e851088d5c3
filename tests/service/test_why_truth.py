"""What `why` names is true: a blocker taken away in a copy changes the decision; without any, the job starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mirab.core.state import State
from mirab.model.accounts import Budget
from mirab.model.events import (
    BudgetsChanged,
    Event,
    NodeUp,
    Outcome,
    ReservationCancelled,
    RunEnded,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from mirab.model.units import MINUTE, WorkloadId
from mirab.service.desk.rehearsal import rehearsed
from mirab.service.evidence import Blocker
from mirab.service.snapshot import freeze, thaw
from mirab.service.views.rehearsals import ask_anew
from mirab.service.views.why import blockers_of, look
from tests.driven import driven
from tests.worlds import PERIOD, draw_world

NAMES_ITS_WAY = ("BehindOwn", "BlockedBehind", "HoldTaken", "SavingUp")
"""Reasons that name the jobs (or the reservation) that are in the way."""
CAPPED = ("GangTooLarge", "AtCap")
CAPS = ("gpus_max", "gang_gpus_max")
"""Reasons that name a cap of a budget, and the budget's own fields for it."""
RESERVED = "reservation:"


def states(worlds: int, first: int) -> Iterator[tuple[int, State]]:
    """Random worlds, each stopped at a random instant at which somebody waits, and all asked why at that instant."""
    for seed in range(first, first + worlds):
        chance = Random(seed)
        world = draw_world(chance)
        state = driven(world.trace, world.policy, until=chance.randrange(PERIOD // 10, PERIOD)).state
        for queue in {pending.queue: None for pending in state.pending.values() if pending.queue is not None}:
            ask_anew(state, queue)
        rehearsed(state, state.now + world.policy.cadence, WorkloadId(""), ())
        if state.pending:
            yield seed, state


def facts_that_remove(state: State, blocker: Blocker, workload: str) -> list[Event]:
    """What has to happen for the blocker to be gone, as its sentence says: who is named goes, or there is room for it,
    which those that go before it do not take.
    """
    now = state.now
    if blocker.reason["type"] in NAMES_ITS_WAY and blocker.removes:
        return [gone(state, each) for each in blocker.removes] + [
            RunEnded(now, run.id, Outcome.CANCELLED, 0)
            for run in state.runs.values()
            if run.workload.id in blocker.removes
        ]
    if blocker.reason["type"] in CAPPED:
        return [*uncapped(state), *alone(state, workload)]
    return alone(state, workload)


def uncapped(state: State) -> list[Event]:
    """The budgets allow as much as anybody asks for."""

    def free(budget: Budget) -> Budget:
        lifted = {name: None for name in CAPS if getattr(budget, name, None) is not None}
        return replace(budget, children=tuple(map(free, budget.children)), **lifted)  # type: ignore[arg-type]

    budgets = replace(state.budgets, roots=tuple(map(free, state.budgets.roots)))
    return [BudgetsChanged(state.now, budgets)] if budgets != state.budgets else []


def gone(state: State, name: str) -> Event:
    """A job or a reservation that is in the way is cancelled."""
    if name.startswith(RESERVED):
        return ReservationCancelled(state.now, name.removeprefix(RESERVED))
    return WorkloadCancelled(state.now, WorkloadId(name))


def everything_free(state: State) -> list[Event]:
    """All runs end, and all nodes are well."""
    ended: list[Event] = [RunEnded(state.now, run, Outcome.COMPLETED, 0) for run in state.runs]
    mended = [NodeUp(state.now, state.cluster.pools[pool].nodes[node]) for pool, node in state.troubled]
    return [*ended, *mended]


def alone(state: State, workload: str) -> list[Event]:
    """The same, nobody else wants anything, and nothing is reserved."""
    others = [WorkloadCancelled(state.now, each) for each in (*state.pending, *state.held) if each != workload]
    reserved = [ReservationCancelled(state.now, each) for each in state.reservations]
    return [*others, *everything_free(state), *reserved]


def decided(frozen: bytes, now: int, workload: str, facts: list[Event]) -> dict[str, Any]:
    state = thaw(frozen)
    pending = state.pending.get(workload)
    if pending is not None and pending.queue is not None:
        ask_anew(state, pending.queue)
    return rehearsed(state, now, WorkloadId(workload), facts)


def check(seed: int, state: State, told: Counter[str]) -> None:
    frozen, now = freeze(state), state.now + state.policy.cadence
    for workload in state.pending:
        seen = look(state, workload, state.now)
        assert seen is not None
        named = list(blockers_of(seen))
        for blocker in named:
            if not blocker.reason:
                continue
            told[blocker.reason["type"]] += 1
            about = blocker.about or workload
            after = decided(frozen, now, about, facts_that_remove(state, blocker, about))
            assert after["decision"] == "start" or after["reason"] != blocker.reason, (seed, workload, blocker, after)
        everything = [*uncapped(state), *alone(state, workload)]
        after = decided(frozen, now, workload, everything)
        if after["decision"] == "wait" and after["reason"].get("type") == "HeadroomKept":
            after = decided(frozen, now, f"{workload}~", [*everything, *with_a_minimum(state, workload)])
        assert after["decision"] == "start", (seed, workload, named, after)


def with_a_minimum(state: State, workload: str) -> list[Event]:
    """What the sentence about headroom advises."""
    old = state.pending[WorkloadId(workload)].workload
    new = replace(old, id=WorkloadId(f"{workload}~"), shape=old.shape._replace(min_runtime=15 * MINUTE))
    return [WorkloadCancelled(state.now, old.id), WorkloadSubmitted(state.now, new)]


def test_each_blocker_that_is_named_is_one() -> None:
    told: Counter[str] = Counter()
    for seed, state in states(40, 1_000):
        check(seed, state, told)
    assert told["NoFreeGpus"] and told["BehindOwn"]


@pytest.mark.slow
def test_each_blocker_that_is_named_is_one_in_hundreds_of_states() -> None:
    told: Counter[str] = Counter()
    count = 0
    for seed, state in states(600, 5_000):
        check(seed, state, told)
        count += 1
    assert count > 200
    assert len(told) >= 8, told
