"""What people ask for, and what a log says would have happened to it."""

from __future__ import annotations

from dataclasses import dataclass

from mirab.model.resources import Shape
from mirab.model.units import AccountPath, Duration, Instant, UserName, WorkloadId


@dataclass(frozen=True, slots=True)
class Workload:
    """One request, as the scheduler may know it. All or nothing: `shape.nodes` nodes at once.

    Attributes:
        checkpoint: declared interval between checkpoints, 0 = never.
        restart: declared time that a resumed run needs before it makes progress again.
        resume: a preempted run goes back to the queue (else it ends as PREEMPTED).
        priority: rank within its own user, and the rank of policy ``priority`` (LOW 0, NORMAL 1, HIGH 2).
        preemptible: what the run declares under policy ``priority``; the contract replaces it elsewhere.
    """

    id: WorkloadId
    submitted_at: Instant
    account: AccountPath
    user: UserName
    shape: Shape
    label: str = ""
    checkpoint: Duration = 0
    restart: Duration = 0
    resume: bool = True
    priority: int = 1
    preemptible: bool = True
    deadline_at: Instant | None = None
    held: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row of a log: the workload, and what only the future knows. Never enters State.

    Attributes:
        run: work to be done, in milliseconds of running.
        cancel_after: the user gives up if it has not started by then; None = never.
        checkpoint: the interval at which it really checkpoints, where that differs from what it declares.
    """

    workload: Workload
    run: Duration
    cancel_after: Duration | None = None
    checkpoint: Duration | None = None

    @property
    def saves_every(self) -> Duration:
        return self.workload.checkpoint if self.checkpoint is None else self.checkpoint


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """A hardware event of a log: the node degrades (drain it) or goes down (it is dead), and its repair takes a time.

    `stuck`: what runs there does not stop when told.
    """

    at: Instant
    node: str
    kind: str
    """``degraded`` or ``down``."""
    repair: Duration
    stuck: bool = False
