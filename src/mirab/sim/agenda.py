"""What a trace says will happen, and what follows from it, in order of time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush
from typing import Any, TypeAlias

from mypy_extensions import mypyc_attr

from mirab.model.events import Event, ExemptionGranted, ReservationApproved
from mirab.model.trace import Trace
from mirab.model.units import Instant, WorkloadId
from mirab.model.workloads import Arrival
from mirab.sim.ranks import RANK, STRUCK, SUBMITTED

Entry: TypeAlias = tuple[Instant, int, str, int, Any]
"""An entry of the event heap: instant, rank, id, serial number, and what it is about."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Agenda:
    """A heap of what is to come: the troubles and the decisions of people at once, arrivals one after the other."""

    def __init__(self, trace: Trace) -> None:
        self._arrivals = _by_id(trace)
        self._coming = _in_order(trace)
        self._left = len(trace.arrivals)
        self._heap: list[Entry] = []
        self._serial = 0
        self._announce(trace)

    def exhausted(self) -> bool:
        """All arrivals have been told."""
        return not self._left

    def _announce(self, trace: Trace) -> None:
        self._await_next()
        for trouble in trace.troubles:
            self._push(trouble.at, STRUCK, trouble.node, trouble)
        for change in trace.budget_changes:
            self._tell(change, "")
        for reservation in trace.reservations:
            self._tell(ReservationApproved(0, reservation), reservation.id)
        for exemption in trace.exemptions:
            self._tell(ExemptionGranted(max(0, exemption.begin), exemption), exemption.id)

    def _await_next(self) -> None:
        arrival = next(self._coming, None)
        if arrival is not None:
            workload = arrival.workload
            self._push(workload.submitted_at, SUBMITTED, workload.id, arrival)

    def _push(self, at: Instant, rank: int, key: str, payload: object) -> int:
        self._serial += 1
        heappush(self._heap, (at, rank, key, self._serial, payload))
        return self._serial

    def _tell(self, fact: Event, key: str) -> None:
        self._push(fact.at, RANK[type(fact)], key, fact)


def _by_id(trace: Trace) -> dict[WorkloadId, Arrival]:
    arrivals = {arrival.workload.id: arrival for arrival in trace.arrivals}
    if len(arrivals) < len(trace.arrivals):
        seen: set[str] = set()
        for arrival in trace.arrivals:
            if arrival.workload.id in seen:
                raise ValueError(f"workload {arrival.workload.id} stands twice in {trace.name}: ids must differ")
            seen.add(arrival.workload.id)
    return arrivals


def _in_order(trace: Trace) -> Iterator[Arrival]:
    return iter(sorted(trace.arrivals, key=lambda arrival: (arrival.workload.submitted_at, arrival.workload.id)))
