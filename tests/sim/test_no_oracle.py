"""What only the future knows changes no decision before it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mirab.model.events import Event, RunEnded
from mirab.model.plans import Plan
from mirab.model.policy import POLICIES
from mirab.model.trace import Trace
from mirab.model.units import HOUR, Instant
from mirab.model.workloads import Arrival
from mirab.sim.engine import replay
from mirab.sim.synthetic import SynthOptions, synthesize


class Past:
    """Plans and facts up to an instant, and which workloads had ended by then."""

    def __init__(self, until: Instant) -> None:
        self.until = until
        self.told: list[tuple[Sequence[Event], Plan]] = []
        self.over: set[str] = set()

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        if plan.at < self.until:
            self.told.append((tuple(facts), plan))
            self.over.update(fact.run_id.split(".")[0] for fact in facts if isinstance(fact, RunEnded))


def another_future(world: Trace, past: Past) -> Trace:
    """Runs that had not ended run much longer; what had not been submitted never is; no hardware fails any more."""

    def changed(arrival: Arrival) -> Arrival:
        known = arrival.workload.id in past.over
        return arrival if known else replace(arrival, run=arrival.run + 100 * HOUR)

    arrivals = [changed(found) for found in world.arrivals if found.workload.submitted_at < past.until]
    return replace(world, arrivals=arrivals, troubles=[found for found in world.troubles if found.at < past.until])


@pytest.mark.parametrize("policy", ["budget", "priority", "fair-tree"])
def test_another_future_leaves_the_past_as_it_was(policy: str) -> None:
    world = synthesize(SynthOptions(nodes=8, workloads=300, users=40, load=2.0))
    middle = world.arrivals[150].workload.submitted_at
    first, second = Past(middle), Past(middle)
    replay(world, POLICIES[policy], journals=[first])
    other = another_future(world, first)
    assert other != world
    replay(other, POLICIES[policy], journals=[second], until=middle)
    assert len(first.told) > 100
    assert first.told == second.told
