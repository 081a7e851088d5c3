"""A gang that holds nodes starts by the instant that it was told, where no hardware fails and no limit is overrun.

Each step on the way (the notice, the stop that is seen, the start) may come a cadence late.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.model.events import WorkloadCancelled
from mirab.model.plans import Hold, Start
from mirab.model.units import HOUR, Instant, WorkloadId
from mirab.model.workloads import Arrival
from tests.driven import Record, driven
from tests.examples import examples
from tests.worlds import PERIOD, draw_world

chances = st.one_of(st.randoms(use_true_random=False), st.integers(0, 2**32).map(Random))


@given(chances)
@settings(max_examples=examples(150))
def test_holds_are_kept(chance: Random) -> None:
    world = draw_world(chance, troubles=0, decisions=False)
    trace = replace(world.trace, arrivals=[_without_limit(arrival) for arrival in world.trace.arrivals])
    end = 2 * PERIOD + 8 * HOUR
    record = driven(trace, world.policy, until=end)
    begun = _begun(record)
    for workload_id, (granted_at, until) in _first_promises(record).items():
        latest = until + 3 * world.policy.cadence
        if latest > end:
            continue
        started = begun.get(workload_id)
        late = f"{workload_id} was promised at {granted_at} to start by {until} and started at {started}"
        assert started is not None and started <= latest, late


def _without_limit(arrival: Arrival) -> Arrival:
    workload = arrival.workload
    return replace(arrival, workload=replace(workload, shape=workload.shape._replace(time_limit=None)))


def _first_promises(record: Record) -> dict[WorkloadId, tuple[Instant, Instant]]:
    """Holds (not the claims on nodes that are emptied at once), each with the instants of its grant and its promise.

    Only the first of a workload: a second one comes after it has run.
    """
    found: dict[WorkloadId, tuple[Instant, Instant]] = {}
    for plan in record.plans:
        for change in plan.holds:
            if isinstance(change, Hold) and not change.claim:
                found.setdefault(change.workload_id, (plan.at, change.until))
    return found


def _begun(record: Record) -> dict[WorkloadId, Instant]:
    """When each workload was started after its first promise, or given up by its user."""
    promised = _first_promises(record)
    begun: dict[WorkloadId, Instant] = {}
    for facts, plan in record.entries:
        for fact in facts:
            if isinstance(fact, WorkloadCancelled):
                begun.setdefault(fact.workload_id, fact.at)
        for action in plan.actions:
            promise = promised.get(action.workload_id) if isinstance(action, Start) else None
            if isinstance(action, Start) and promise is not None and plan.at >= promise[0]:
                begun.setdefault(action.workload_id, plan.at)
    return begun


def test_there_are_promises() -> None:
    made = 0
    for seed in range(20):
        world = draw_world(Random(seed), troubles=0, decisions=False)
        made += len(_first_promises(driven(world.trace, world.policy)))
    assert made > 5
