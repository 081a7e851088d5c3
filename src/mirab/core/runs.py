"""A run and its contract: what protects it, until when, and what stopping it would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mypy_extensions import mypyc_attr

from mirab.model.resources import Allocation
from mirab.model.units import FOREVER, Charge, ChargeRate, Duration, Instant, NodeMask, RunId, WorkloadId
from mirab.model.workloads import Workload

if TYPE_CHECKING:
    from mirab.core.queues import User
    from mirab.core.shares import Account


IN_VAIN_MOST = 5
"""So many runs of work that never saves are stopped for colleagues before it gets its turn."""


class InVain(NamedTuple):
    """Runs that came to nothing: how many, and how long they ran in all."""

    times: int
    span: Duration


NOTHING_IN_VAIN = InVain(0, 0)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Run:
    """One attempt, from the decision to start it until its GPUs are free.

    Attributes:
        pool, mask, nodes, width: its `allocation` taken apart, since it is asked for most; `nodes`: how many.
        grace, time_limit: those of its shape.
        rate: what it charges its account, in milli-units (0: prepaid by a reservation, or uncharged).
        charged_since: its account is charged for it from then on, if it is: no end that is told late lies before.
        requested_at: when it was decided; started_at: when it really ran (None: still starting, and protected).
        protected_until: the end of its minimum; `FOREVER` while that is not known.
        committed_until: its commitment counts up to here.
        stop_by: when it should be gone after its notice; None = nobody told it to stop.
        guest_until: it runs on nodes held for another, and was told that it may be sent away from then on.
        excused_until: the engine refused to stop it; it is not asked again before.
        beneficiary: the workload it was stopped for.
        cancelled: its user wants it no more; it is not put back into the queue.
        recalled: its user wants it stopped and put back into the queue.
        adopted: the engine started it by itself, where and as it liked.
        loose: its minimum is over or it never had one, and it is not stopping: it may be somebody's victim.
        stuck: it did not stop in time; a human was called.
        for_colleague: it was told to stop for work of its own account.
        vain: earlier runs of its workload that were stopped for colleagues and came to nothing.
    """

    __slots__ = (
        "account", "adopted", "allocation", "attempt", "beneficiary", "cancelled", "charged", "charged_since",
        "checkpoint_at", "committed_until", "excused_until", "for_colleague", "grace", "guest_until", "id", "loose",
        "mask", "min_runtime", "nodes", "pool", "protected_until", "rate", "recalled", "requested_at", "reservation",
        "slots", "started_at", "stop_by", "stuck", "suspended_at", "time_limit", "user", "vain", "vouched", "width",
        "workload",
    )  # fmt: skip

    def __init__(self, run_id: RunId, workload: Workload, attempt: int, user: User, allocation: Allocation,
                 rate: ChargeRate, min_runtime: Duration, now: Instant) -> None:  # fmt: skip
        self.id = run_id
        self.workload = workload
        self.attempt = attempt
        self.user = user
        self.account: Account = user.account
        self.allocation = allocation
        self.pool, self.mask, self.width = allocation.pool, allocation.mask, allocation.slots_per_node
        self.nodes = self.mask.bit_count()
        self.slots = self.nodes * self.width
        self.grace, self.time_limit = workload.shape.grace, workload.shape.time_limit
        self.rate = rate
        self.min_runtime = min_runtime
        self.charged = rate > 0
        self.requested_at = self.charged_since = now
        self.started_at: Instant | None = None
        self.protected_until: Instant = FOREVER
        self.committed_until: Instant = 0
        self.stop_by: Instant | None = None
        self.excused_until: Instant = 0
        self.guest_until: Instant = 0
        self.beneficiary: WorkloadId | None = None
        self.stuck = self.loose = False
        self.adopted = False
        self.cancelled = False
        self.recalled = False
        self.suspended_at: Instant | None = None
        self.for_colleague = False
        self.vain = NOTHING_IN_VAIN
        self.checkpoint_at: Instant | None = None
        self.vouched = False
        self.reservation: str | None = None

    def __repr__(self) -> str:
        return f"Run({self.id})"

    def is_on(self, place: tuple[int, int]) -> bool:
        """Whether it has a part on a node, given as (pool, number in the pool)."""
        return self.pool == place[0] and bool(self.mask >> place[1] & 1)

    def count(self, part: NodeMask) -> int:
        """How many nodes a part of its own has; those of the whole are known."""
        return self.nodes if part == self.mask else part.bit_count()

    @property
    def stopping(self) -> bool:
        return self.stop_by is not None

    @property
    def unprotected_at(self) -> Instant:
        """When it may be told to stop; while it is starting the earliest instant that this can be."""
        if self.started_at is None:
            return self.requested_at + self.min_runtime
        return max(self.protected_until, self.excused_until)

    def overdue_at(self, start_timeout: Duration, stop_timeout: Duration) -> Instant:
        """When what it was told to do should long have happened; `FOREVER` = it was told nothing."""
        if self.stop_by is not None:
            return self.stop_by + stop_timeout
        if self.started_at is not None:
            return FOREVER
        return max(self.requested_at + start_timeout, self.excused_until)

    def limit_at(self) -> Instant:
        """When its time limit ends it; `FOREVER` = no limit known."""
        if self.time_limit is None:
            return FOREVER
        return (self.requested_at if self.started_at is None else self.started_at) + self.time_limit

    def safe_at(self, now: Instant) -> Instant:
        """The last instant whose work is known to be kept: a confirmed checkpoint, or the end of the minimum.

        Where the engine vouches for the declared interval, checkpoints are at each multiple of it, counted from when
        the run makes progress.
        """
        if self.started_at is None:
            return now
        safe = self.started_at if self.checkpoint_at is None else self.checkpoint_at
        every = self.workload.checkpoint
        if self.vouched and every:
            begun = self.started_at + (self.workload.restart if self.attempt > 1 else 0)
            if now > begun:
                safe = max(safe, begun + (now - begun) // every * every)
        if self.charged and self.protected_until <= now:
            safe = max(safe, self.protected_until)
        return safe

    def has_its_turn(self, now: Instant) -> bool:
        """Whether others of its account have to leave it for now: it has been stopped in vain for them too often, and
        has not yet run for as long as all those runs together.
        """
        if self.vain.times < IN_VAIN_MOST or self.started_at is None:
            return False
        return now < self.started_at + self.vain.span

    def vain_if_ended(self, now: Instant) -> InVain:
        """`vain` of the run after this one, if this one ends now.

        Work that saves gets on from run to run, since the end of its minimum is a checkpoint: nothing is in vain.
        """
        saves = self.workload.checkpoint > 0 or self.checkpoint_at is not None
        if not self.for_colleague or self.started_at is None or saves:
            return self.vain
        return InVain(self.vain.times + 1, self.vain.span + now - self.started_at)

    def loss(self, now: Instant, claimed_loss_cap: Duration) -> Charge:
        """Slot-milliseconds that stopping it now would waste: work since `safe_at`, at most the cap, and its restart.

        Nothing, if it is stopping anyway.
        """
        if self.stop_by is not None:
            return 0
        return (min(now - self.safe_at(now), claimed_loss_cap) + self.workload.restart) * self.slots

    def unsaved(self, now: Instant) -> Charge:
        """Slot-milliseconds since `safe_at` that would be kept if it were stopped right after its next checkpoint.

        Nothing for a run that is stopping anyway, that never checkpoints, or of which the checkpoint is overdue:
        waiting would save nothing.
        """
        since = now - self.safe_at(now)
        if self.stop_by is not None or since >= self.workload.checkpoint:
            return 0
        return since * self.slots

    def ripe_at(self, now: Instant, checkpoint_grace: Duration) -> Instant:
        """When it has just checkpointed: now, or the instant of its next checkpoint.

        Ripe are a run that never checkpoints, one within `checkpoint_grace` after a checkpoint, and one whose
        checkpoint is overdue: so nobody waits longer than one interval.
        """
        every = self.workload.checkpoint
        if not every or self.stop_by is not None:
            return now
        safe = self.safe_at(now)
        if now - safe <= checkpoint_grace or now - safe >= every:
            return now
        return safe + every
