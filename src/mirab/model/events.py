"""Facts, past tense, frozen. State changes only by folding one of these or an action of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from mirab.model.accounts import Budgets
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Allocation, Cluster
from mirab.model.units import Duration, Instant, NodeName, RunId, WorkloadId
from mirab.model.workloads import Workload


class Outcome(Enum):
    """How a run ended, in Slurm's words."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    REQUEUED = "REQUEUED"


REQUEUED = (Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.LAUNCH_FAILED, Outcome.REQUEUED)
"""Outcomes after which a workload that wants to resume goes back to the queue."""
ALWAYS_REQUEUED = (Outcome.LAUNCH_FAILED, Outcome.REQUEUED)
"""Outcomes after which any workload does: it never ran, or its user asked for it."""


def goes_back(outcome: Outcome, resume: bool) -> bool:
    """Whether the workload of a run that ended so queues again: it wants to resume, never ran, or was asked to."""
    if outcome is Outcome.COMPLETED:
        return False
    return outcome in ALWAYS_REQUEUED or (outcome in REQUEUED and resume)


@dataclass(frozen=True, slots=True)
class WorkloadSubmitted:
    at: Instant
    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadCancelled:
    """Its user gave up or cancelled it. A running attempt is told to stop, and ends by its own `RunEnded`."""

    at: Instant
    workload_id: WorkloadId
    by: str = "user"


@dataclass(frozen=True, slots=True)
class WorkloadHeld:
    """Its user (or an unmet dependency) keeps it out of the queue."""

    at: Instant
    workload_id: WorkloadId
    why: str


@dataclass(frozen=True, slots=True)
class WorkloadReleased:
    at: Instant
    workload_id: WorkloadId


@dataclass(frozen=True, slots=True)
class RequeueRequested:
    """Its user wants the running attempt stopped, whatever its minimum, and the workload back in the queue."""

    at: Instant
    workload_id: WorkloadId
    by: str = "user"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run is really running: the clock of its minimum starts here.

    `checkpoints_vouched`: the engine vouches that it checkpoints at its declared interval and at the end of its
    minimum, so that no `RunCheckpointed` need be sent for each.
    """

    at: Instant
    run_id: RunId
    checkpoints_vouched: bool = False


@dataclass(frozen=True, slots=True)
class RunAdopted:
    """The engine runs an attempt that no plan started: it has a scheduler of its own, or ran it before mirab came.

    `min_runtime`: the contract it has; `FOREVER` = it is not ours to stop. What the engine has given away twice counts
    once.
    """

    at: Instant
    run_id: RunId
    workload_id: WorkloadId
    allocation: Allocation
    started_at: Instant
    min_runtime: Duration


@dataclass(frozen=True, slots=True)
class RunCheckpointed:
    at: Instant
    run_id: RunId


@dataclass(frozen=True, slots=True)
class RunSuspended:
    """The engine itself suspended it: the clock of its minimum stands still until `RunContinued`."""

    at: Instant
    run_id: RunId


@dataclass(frozen=True, slots=True)
class RunContinued:
    at: Instant
    run_id: RunId


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run has stopped and its GPUs are free.

    `lost`: running time of this attempt that has to be repeated, as the engine measured it; None = not known.
    """

    at: Instant
    run_id: RunId
    outcome: Outcome
    lost: Duration | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class NodeDegraded:
    at: Instant
    node: NodeName
    cause: str = ""


@dataclass(frozen=True, slots=True)
class NodeDown:
    """The node is dead. Its runs end by their own `RunEnded(NODE_FAIL)` at the same instant."""

    at: Instant
    node: NodeName
    cause: str = ""


@dataclass(frozen=True, slots=True)
class NodeUp:
    """Healthy again: repaired, resumed by an operator, or never really sick."""

    at: Instant
    node: NodeName


@dataclass(frozen=True, slots=True)
class ActionRefused:
    """The engine would not do it: the run did not start, or could not be stopped."""

    at: Instant
    run_id: RunId
    action: str
    """``start`` or ``preempt``."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class BudgetsChanged:
    at: Instant
    budgets: Budgets
    author: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Another policy holds from now on. Its half life is the old one's: a ledger cannot change how it forgets."""

    at: Instant
    policy: Policy
    author: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """The cluster has grown: more nodes at the end of a pool, more pools at the end, other weights or racks.

    What was there keeps its place (`extends` says whether it does); a node that leaves is a `NodeDown`.
    """

    at: Instant
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class ReservationApproved:
    at: Instant
    reservation: Reservation


@dataclass(frozen=True, slots=True)
class ReservationCancelled:
    at: Instant
    reservation_id: str


@dataclass(frozen=True, slots=True)
class ExemptionGranted:
    at: Instant
    exemption: Exemption


@dataclass(frozen=True, slots=True)
class ExemptionRevoked:
    at: Instant
    exemption_id: str


Event: TypeAlias = (
    WorkloadSubmitted
    | WorkloadCancelled
    | WorkloadHeld
    | WorkloadReleased
    | RequeueRequested
    | RunStarted
    | RunAdopted
    | RunCheckpointed
    | RunSuspended
    | RunContinued
    | RunEnded
    | NodeDegraded
    | NodeDown
    | NodeUp
    | ActionRefused
    | BudgetsChanged
    | PolicyChanged
    | ClusterChanged
    | ReservationApproved
    | ReservationCancelled
    | ExemptionGranted
    | ExemptionRevoked
)
