"""Which function takes in which fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirab.core import adoption, changes, folding, portfolio
from mirab.model import events

if TYPE_CHECKING:
    from mirab.core.state import State

FACTS: dict[type[Any], Callable[[State, Any], None]] = {
    events.WorkloadSubmitted: folding.submitted,
    events.WorkloadCancelled: folding.cancelled,
    events.WorkloadHeld: folding.held,
    events.WorkloadReleased: folding.released,
    events.RequeueRequested: folding.requeue_requested,
    events.RunStarted: folding.run_started,
    events.RunAdopted: adoption.run_adopted,
    events.RunCheckpointed: folding.checkpointed,
    events.RunSuspended: folding.suspended,
    events.RunContinued: folding.continued,
    events.RunEnded: folding.run_ended,
    events.ActionRefused: folding.refused,
    events.NodeDegraded: folding.degraded,
    events.NodeDown: folding.down,
    events.NodeUp: folding.up,
    events.BudgetsChanged: portfolio.budgets_changed,
    events.PolicyChanged: changes.policy_changed,
    events.ClusterChanged: changes.cluster_changed,
    events.ReservationApproved: portfolio.reservation_approved,
    events.ReservationCancelled: portfolio.reservation_cancelled,
    events.ExemptionGranted: portfolio.exemption_granted,
    events.ExemptionRevoked: portfolio.exemption_revoked,
}
