"""A reservation approved the cap and the grace ahead is met: at its beginning its nodes are there."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.model.events import RunEnded
from mirab.model.plans import Preempt, Start
from mirab.model.policy import Reservation
from mirab.model.reasons import ReservationBegins, Reserved
from mirab.model.resources import Allocation, Shape, nodes_of
from mirab.model.trace import Trace
from mirab.model.units import HOUR, Instant, RunId, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from tests.driven import Record, driven
from tests.examples import examples
from tests.worlds import draw_reservation, draw_world

BEGIN: Instant = 10 * HOUR


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(60))
def test_what_was_reserved_in_time_is_there(chance: Random) -> None:
    """Nothing but the reservation's own work and what stops within its grace is on its nodes from the beginning on."""
    world = draw_world(chance, troubles=0, decisions=False)
    reservation = draw_reservation(chance, world.trace, BEGIN)
    record = driven(_going_on(world.trace, reservation), world.policy, until=reservation.end - 1)
    assert BEGIN - world.policy.min_runtime_cap - world.policy.grace_max > 0
    held = record.state.reserved[reservation.id]
    assert held.mask.bit_count() == reservation.nodes
    free_at = BEGIN + world.policy.grace_max
    for node in nodes_of(held.mask):
        guests = _on_node(record, held.pool, node, free_at)
        assert not guests, f"node {node} is not clear at {free_at}: {guests}"


def _going_on(trace: Trace, reservation: Reservation) -> Trace:
    """With the reservation, and work that comes after it, so that the replay does not end before."""
    leaf = trace.budgets.leaves()[0]
    late = Workload(WorkloadId("late"), reservation.end, leaf, UserName("eve"), Shape(1, 1))
    return replace(trace, reservations=[reservation], arrivals=[*trace.arrivals, Arrival(late, HOUR)])


def _on_node(record: Record, pool: int, node: int, at: Instant) -> list[RunId]:
    """Charged runs that the reservation has not admitted and that are on the node at an instant."""
    found: dict[RunId, Allocation] = {}
    for facts, plan in record.entries:
        if plan.at > at:
            break
        for fact in facts:
            if isinstance(fact, RunEnded):
                found.pop(fact.run_id, None)
        for action in plan.actions:
            if isinstance(action, Start) and action.min_runtime and not isinstance(action.reason, Reserved):
                found[action.run_id] = action.allocation
    return [run_id for run_id, given in found.items() if given.pool == pool and given.mask >> node & 1]


def test_reservations_are_met_at_a_price() -> None:
    """Over some worlds, runs had to be stopped for it: the property above is not empty."""
    stopped = 0
    for seed in range(20):
        world = draw_world(Random(seed), troubles=0, decisions=False)
        reservation = draw_reservation(Random(seed), world.trace, BEGIN)
        record = driven(_going_on(world.trace, reservation), world.policy, until=reservation.end - 1)
        stopped += sum(
            isinstance(action, Preempt) and isinstance(action.reason, ReservationBegins)
            for plan in record.plans
            for action in plan.actions
        )
    assert stopped > 5
