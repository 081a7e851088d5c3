"""What holds in every world, however it was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.core.decide import decide
from mirab.core.state import State
from mirab.model.events import Event, Outcome, RunEnded
from mirab.model.plans import Plan
from mirab.model.trace import Trace
from mirab.model.units import HOUR, Instant, WorkloadId
from mirab.model.workloads import Arrival
from tests.audit import Audit
from tests.driven import Record, driven, rebuilt
from tests.examples import examples
from tests.properties.snapshot import snapshot
from tests.worlds import World, draw_world

chances = st.one_of(st.randoms(use_true_random=False), st.integers(0, 2**32).map(Random))
worlds = chances.map(draw_world)
BASELINES = ("fifo", "priority", "fair-tree", "quota")


@given(worlds)
@settings(max_examples=examples(150))
def test_the_rules_hold(world: World) -> None:
    """Capacity, whole gangs, minimums, beneficiaries, refusals and wake-ups, judged by the independent audit."""
    audit = Audit(world.trace.cluster, world.policy, world.trace.budgets)

    def look(state: State, facts: Sequence[Event], plan: Plan) -> None:
        audit.see(facts, plan)
        state.check()

    driven(world.trace, world.policy, look=look)


@pytest.mark.parametrize("base", BASELINES)
@given(chance=chances)
@settings(max_examples=examples(12))
def test_the_baselines_keep_the_common_rules(base: str, chance: Random) -> None:
    world = draw_world(chance, base=base)
    audit = Audit(world.trace.cluster, world.policy, world.trace.budgets)

    def look(state: State, facts: Sequence[Event], plan: Plan) -> None:
        audit.see(facts, plan)
        state.check()

    driven(world.trace, world.policy, look=look)


@given(worlds, st.integers(0, 1000))
def test_the_order_in_which_facts_of_one_instant_are_told_does_not_matter(world: World, seed: int) -> None:
    plain = driven(world.trace, world.policy)
    shuffled = driven(world.trace, world.policy, shuffle=Random(seed))
    _same_plans(plain, shuffled)


@given(worlds)
def test_deciding_changes_nothing_and_decides_the_same_again(world: World) -> None:
    def look(state: State, facts: Sequence[Event], plan: Plan) -> None:
        before = snapshot(state)
        assert decide(state, plan.at) == plan
        assert snapshot(state) == before

    driven(world.trace, world.policy, look=look, until=6 * HOUR)


@given(worlds, st.integers(1, 7))
def test_the_journal_replays_to_equal_plans(world: World, step: int) -> None:
    """After any decision a state rebuilt from the journal decides the next one in the same way."""
    record = driven(world.trace, world.policy)
    trace = world.trace
    for place in range(0, len(record.entries), step * 5):
        state = rebuilt(trace.cluster, trace.budgets, world.policy, record.entries[:place])
        facts, plan = record.entries[place]
        for fact in facts:
            state.fold(fact)
        state.advance(plan.at)
        state.check()
        assert decide(state, plan.at) == plan


@given(worlds, st.integers(0, 100), st.randoms(use_true_random=False))
def test_another_future_leaves_the_past_decisions_as_they_were(world: World, percent: int, chance: Random) -> None:
    """Run times, faults, arrivals and cancellations after an instant are changed: no decision up to it changes."""
    first = driven(world.trace, world.policy)
    instants = [plan.at for plan in first.plans]
    now = instants[(len(instants) - 1) * percent // 100]
    other = driven(_another_future(world.trace, first, now, chance), world.policy)
    past = [plan for plan in first.plans if plan.at <= now]
    assert [plan for plan in other.plans if plan.at <= now] == past


def _another_future(trace: Trace, record: Record, now: Instant, chance: Random) -> Trace:
    ended = {
        WorkloadId(fact.run_id.rpartition(".")[0])
        for facts, _ in record.entries
        for fact in facts
        if isinstance(fact, RunEnded) and fact.at <= now and fact.outcome is Outcome.COMPLETED
    }
    known = [arrival for arrival in trace.arrivals if arrival.workload.submitted_at <= now]
    later = replace(known[0].workload, id=WorkloadId("later"), submitted_at=now + chance.randint(1, HOUR))
    return replace(
        trace,
        arrivals=[
            *(arrival if arrival.workload.id in ended else _otherwise(arrival, now, chance) for arrival in known),
            Arrival(later, HOUR),
        ],
        troubles=[trouble for trouble in trace.troubles if trouble.at <= now],
        budget_changes=[change for change in trace.budget_changes if change.at <= now],
    )


def _otherwise(arrival: Arrival, now: Instant, chance: Random) -> Arrival:
    """Still unfinished at `now`: it takes longer than in the first world, and its user gives up at another time."""
    patience = arrival.cancel_after
    if patience is None or arrival.workload.submitted_at + patience > now:
        patience = chance.choice((None, now - arrival.workload.submitted_at + chance.randint(1, HOUR)))
    return replace(arrival, run=arrival.run + chance.randint(1, 5 * HOUR), cancel_after=patience)


def _same_plans(one: Record, other: Record) -> None:
    for mine, yours in zip(one.plans, other.plans, strict=True):
        assert mine.at == yours.at
        assert sorted(map(repr, mine.actions)) == sorted(map(repr, yours.actions))
        assert sorted(map(repr, mine.holds)) == sorted(map(repr, yours.holds))
        assert sorted(map(repr, mine.waiting)) == sorted(map(repr, yours.waiting))
        assert mine.wake_at == yours.wake_at
