"""What mirab advised while it only observed, beside what the engine's own scheduler did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mirab.model.events import Event, RunAdopted, RunEnded, WorkloadCancelled, WorkloadHeld, WorkloadSubmitted
from mirab.model.plans import Plan, Preempt, Start
from mirab.model.resources import Allocation
from mirab.model.units import SECOND, Duration, Instant, RunId, WorkloadId

SAME: Duration = 15 * SECOND
"""Starts so near each other are the same decision: the one looks every few seconds, the other takes its time."""
AGREED, LATER, NEVER, UNADVISED = "same", "later", "never", "unadvised"


@dataclass(frozen=True, slots=True)
class Difference:
    """One start that mirab advised or the engine made.

    Attributes:
        advised_at, advised: when mirab would have started it first, and where; None = it would not have.
        started_at, given: when and where the engine did; None = it has not.
    """

    workload_id: WorkloadId
    advised_at: Instant | None = None
    advised: Allocation | None = None
    started_at: Instant | None = None
    given: Allocation | None = None

    @property
    def kind(self) -> str:
        if self.advised_at is None:
            return UNADVISED
        if self.started_at is None:
            return NEVER
        return AGREED if self.started_at - self.advised_at <= SAME else LATER

    @property
    def elsewhere(self) -> bool:
        """Whether both started it, on other nodes."""
        both = self.advised is not None and self.given is not None
        return both and (self.advised.pool, self.advised.mask) != (self.given.pool, self.given.mask)  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class Stop:
    """A run that mirab would have stopped; `ended_at` None = it runs on."""

    run_id: RunId
    advised_at: Instant
    ended_at: Instant | None = None


def compared(records: Iterable[tuple[Sequence[Event], Plan]]) -> tuple[list[Difference], list[Stop]]:
    """The starts and stops of the records of an observing service, in the order in which they were first spoken of.

    What ran when it was first seen is left out: nobody was asked about it.
    """
    starts: list[Difference] = []
    stops: dict[RunId, Stop] = {}
    waiting: dict[WorkloadId, Difference] = {}
    for facts, plan in records:
        starts += _happened(facts, waiting, stops)
        for action in plan.actions:
            if isinstance(action, Start) and action.workload_id not in waiting:
                waiting[action.workload_id] = Difference(action.workload_id, plan.at, action.allocation)
            elif isinstance(action, Preempt):
                stops.setdefault(action.run_id, Stop(action.run_id, plan.at))
    return [*starts, *waiting.values()], list(stops.values())


def _happened(
    facts: Sequence[Event], waiting: dict[WorkloadId, Difference], stops: dict[RunId, Stop]
) -> Iterator[Difference]:
    new = {fact.workload.id for fact in facts if isinstance(fact, WorkloadSubmitted)}
    for fact in facts:
        if isinstance(fact, RunAdopted) and fact.workload_id not in new:
            advice = waiting.pop(fact.workload_id, None) or Difference(fact.workload_id)
            yield replace(advice, started_at=fact.started_at, given=fact.allocation)
        elif isinstance(fact, RunEnded) and fact.run_id in stops and stops[fact.run_id].ended_at is None:
            stops[fact.run_id] = replace(stops[fact.run_id], ended_at=fact.at)
        elif isinstance(fact, WorkloadCancelled | WorkloadHeld):
            waiting.pop(fact.workload_id, None)
