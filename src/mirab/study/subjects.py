"""The workloads and runs that the measures follow: only those that are in the system now."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mirab.model.plans import Start
from mirab.model.reasons import Reserved
from mirab.model.units import ChargeRate, Duration, Instant, RunId
from mirab.model.workloads import Workload
from mirab.study.demand import Ask, class_of
from mirab.study.owed import Leaf, ScaledCharge
from mirab.study.repairs import Watch


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Job:
    """A workload between its submission and its end.

    Attributes:
        rate, slots: what it wants now: those of the preferred pool while it waits, of the real one while it runs.
        waiting: it waits in the queue and could start (neither held by its user nor too large for the cluster).
        set_aside: how long its user held it back before its first start; that is not waiting.
        unmet_before: the leaf's `unmet` when it began to wait.
        after_preemption: its last run was preempted, so that the restart of the next is a cost of preemption.
    """

    __slots__ = (
        "after_preemption", "ask", "attempts", "cancelled", "held_since", "kind", "leaf", "progressed", "rate", "run",
        "set_aside", "slots", "started", "unmet_before", "waiting", "workload",
    )  # fmt: skip

    def __init__(self, workload: Workload, ask: Ask, leaf: Leaf) -> None:
        self.workload = workload
        self.ask = ask
        self.leaf = leaf
        self.kind = class_of(workload, ask)
        self.rate: ChargeRate = ask.rate
        self.slots = ask.waiting_slots
        self.waiting = False
        self.run: Attempt | None = None
        self.started = False
        self.progressed = False
        self.cancelled = False
        self.attempts = 0
        self.after_preemption = False
        self.held_since: Instant | None = workload.submitted_at if workload.held else None
        self.set_aside: Duration = 0
        self.unmet_before: ScaledCharge = 0

    def waited(self, now: Instant) -> Duration:
        """Since its submission, without the time that its user held it back."""
        aside = self.set_aside + (now - self.held_since if self.held_since is not None else 0)
        return max(0, now - self.workload.submitted_at - aside)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Attempt:
    """A run between the decision to start it and its end.

    Attributes:
        rate: its charge; none inside a reservation, which is charged as a whole.
        slots: counted slots (see `counted_pools`).
        saves_at: first confirmed checkpoint, by what its engine vouches for; None = not before its end.
        saved_at: last checkpoint that was reported.
        restart: time at its begin in which it makes no progress.
    """

    __slots__ = (
        "cause", "id", "job", "minimum", "pool", "rate", "restart", "saved_at", "saves_at", "slots", "start",
        "started_at", "watches",
    )  # fmt: skip

    def __init__(self, job: Job, start: Start) -> None:
        pool = start.allocation.pool
        self.id: RunId = start.run_id
        self.job = job
        self.start = start
        self.pool = pool
        prepaid = isinstance(start.reason, Reserved)
        self.rate: ChargeRate = 0 if prepaid else job.ask.rates.get(pool, 0)
        self.slots = job.ask.slots.get(pool, 0)
        self.minimum = start.min_runtime
        self.started_at: Instant | None = None
        self.saves_at: Instant | None = None
        self.saved_at: Instant | None = None
        self.restart: Duration = 0
        self.cause: str | None = None
        self.watches: list[Watch] = []

    def running(self, now: Instant, *, vouched: bool) -> None:
        """It runs: work out when it first saves, if the engine vouches that it does.

        That is an interval after its restart, or the end of its minimum if that comes first. Work that never
        checkpoints saves nothing, whatever its minimum.
        """
        self.started_at = now
        workload = self.job.workload
        self.restart = workload.restart if self.start.resumed else 0
        if vouched and workload.checkpoint:
            first = self.restart + workload.checkpoint
            self.saves_at = now + (min(first, self.minimum) if self.restart < self.minimum else first)

    def progress_at(self, now: Instant) -> Instant | None:
        """When it first saved, if it had by `now`."""
        known = [at for at in (self.saves_at, self.saved_at) if at is not None and at <= now]
        return min(known, default=None)
