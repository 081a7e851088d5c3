"""The total order of facts: instant, then rank of the kind, then id."""

from __future__ import annotations

from mirab.model.events import (
    ActionRefused,
    BudgetsChanged,
    Event,
    ExemptionGranted,
    ExemptionRevoked,
    NodeDegraded,
    NodeDown,
    NodeUp,
    ReservationApproved,
    ReservationCancelled,
    RunCheckpointed,
    RunContinued,
    RunEnded,
    RunStarted,
    RunSuspended,
    WorkloadCancelled,
    WorkloadHeld,
    WorkloadReleased,
    WorkloadSubmitted,
)

MENDED, STRUCK, VISITED, STARTED, ENDED, SUBMITTED, CANCELLED = 0, 1, 2, 3, 6, 14, 17

RANK: dict[type[Event], int] = {
    RunStarted: STARTED,
    RunContinued: 4,
    RunCheckpointed: 5,
    RunEnded: ENDED,
    RunSuspended: 7,
    ActionRefused: 8,
    NodeUp: 9,
    NodeDown: 10,
    NodeDegraded: 11,
    BudgetsChanged: 12,
    ExemptionRevoked: 13,
    ExemptionGranted: 13,
    ReservationCancelled: 13,
    ReservationApproved: 13,
    WorkloadSubmitted: SUBMITTED,
    WorkloadReleased: 15,
    WorkloadHeld: 16,
    WorkloadCancelled: CANCELLED,
}
"""Order of facts of one instant: runs begin and end, then nodes, then budgets, then what people ask for.

So GPUs are free before somebody wants them, a node comes back before it fails again, and a budget is in force before
the work that is paid from it. Ranks 0 to 2 are the simulator's own: a repair ends, hardware fails, a human arrives;
they come first and put their facts behind themselves at the same instant.
"""
