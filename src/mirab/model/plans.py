"""What the scheduler decided: actions for the engine, holds, and who waits for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mirab.model.reasons import Reason, StartReason, StopReason, WaitReason
from mirab.model.resources import Allocation, Shape
from mirab.model.units import AccountPath, Duration, Instant, NodeMask, NodeName, RunId, UserName, WorkloadId


@dataclass(frozen=True, slots=True)
class Start:
    """Start this attempt on these nodes. `min_runtime` is the contract in force (after cap and exceptions)."""

    run_id: RunId
    workload_id: WorkloadId
    allocation: Allocation
    min_runtime: Duration
    reason: StartReason
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """Give notice now, stop after `grace`."""

    run_id: RunId
    grace: Duration
    reason: StopReason


@dataclass(frozen=True, slots=True)
class Cancel:
    """Its user (or who may do so) wants the run gone: notice now, stop after `grace`, whatever its minimum.

    `requeue`: the workload then goes back to the queue, else it is over.
    """

    run_id: RunId
    grace: Duration
    requeue: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing new starts on the node; what runs there is stopped at `stop_at`, when all minimums are over.

    `stop_at` None: the policy waits for the runs to end by themselves, or for a human.
    """

    node: NodeName
    stop_at: Instant | None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """The node is empty: take it to repair."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class Resume:
    """The drain is undone: the node is healthy and takes work again."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class CallHuman:
    """A run does not stop, or a node does not empty: the one thing that needs a person."""

    node: NodeName
    run_id: RunId
    why: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The workload can never run as asked."""

    workload_id: WorkloadId
    reason: Reason


@dataclass(frozen=True, slots=True)
class Hold:
    """Nodes kept for a blocked workload until `until`, the instant by which each is claimable.

    `claim`: its time has come: the runs still on them are stopped, and nothing else may start there.
    `victims`: how many were stopped for a claim.
    `spared`: runs on them that may not be preempted for it; they end by their own time limits before `until`.
    """

    workload_id: WorkloadId
    pool: int
    mask: NodeMask
    slots_per_node: int
    until: Instant
    granted_at: Instant
    claim: bool = False
    spared: tuple[RunId, ...] = ()
    victims: int = 0
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class HoldReleased:
    workload_id: WorkloadId
    why: str
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a workload waits: the head of one queue (same account, user and shape). All behind it wait for it too.

    `again_at`: when to look again although nothing happened.
    """

    account: AccountPath
    user: UserName
    shape: Shape
    workload_id: WorkloadId
    reason: WaitReason
    again_at: Instant


Action: TypeAlias = Start | Preempt | Cancel | Drain | Repair | Resume | CallHuman | Reject
HoldChange: TypeAlias = Hold | HoldReleased


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision, made at `at` on the state after `based_on` folded facts and actions.

    Attributes:
        holds: holds granted, moved, turned into claims, and released by this decision.
        waiting: reasons that are new or have changed.
        surveyed: it asked for all that waits whose runs might be stopped, not only for what is new or has room.
        wake_at: when to decide again if nothing happens; None = only a fact can change anything. Always after `at`.
    """

    at: Instant
    based_on: int
    actions: tuple[Action, ...] = ()
    holds: tuple[HoldChange, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    wake_at: Instant | None = None
    surveyed: bool = False
