"""What the past says about how long work runs, how long people wait for it, and what comes in: learned from a journal.

Only facts and plans are read, so a replay and a live service learn the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirab.model import events as facts_of
from mirab.model.events import Event, Outcome, goes_back
from mirab.model.plans import Plan, Reject, Repair
from mirab.model.resources import Cluster
from mirab.model.units import (
    DAY,
    HOUR,
    SECOND,
    Duration,
    Instant,
    NodeName,
    RunId,
    UserName,
    WorkloadId,
    attempt_of,
    workload_of,
)
from mirab.model.workloads import Workload
from mirab.study.demand import Asks, class_of
from mirab.study.lifetimes import Lifetimes

ENOUGH = 12
"""So many ends of a user's own work of a class, and it speaks for itself; with fewer the class does, then all."""
REMEMBERED: Duration = 7 * DAY
"""How far back arrivals are remembered."""
ARRIVALS_MOST = 50_000
REPAIR_USUAL: Duration = 4 * HOUR
"""A repair while none has been seen."""
WHERE = ("user", "class", "all", "nothing")
"""Whose history a run time came from, the nearest first."""

Key = tuple[str, str]
"""(user or "", class or "")."""


@dataclass(slots=True)
class _Job:
    """A workload that has not ended. `saved`: running time of earlier attempts that need not be repeated."""

    workload: Workload
    kind: str
    saved: Duration = 0
    attempt: int = 0
    started_at: Instant | None = None
    waits: bool = True


class History:
    """A journal that remembers what forecasts need: what was done, whoever decided it.

    Run times are kept twice: as parts of the time limit for work that has one, and in milliseconds. People who ask for
    more time use more of it, so the part says more than the span.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._asks = Asks(cluster)
        self._jobs: dict[WorkloadId, _Job] = {}
        self._parts: dict[Key, Lifetimes] = {}
        self._spans: dict[Key, Lifetimes] = {}
        self.patience = Lifetimes()
        self.repairs = Lifetimes()
        self._repairing: dict[NodeName, Instant] = {}
        self.arrivals: deque[Workload] = deque(maxlen=ARRIVALS_MOST)
        self.began_at: Instant | None = None
        self.now: Instant = 0

    # --- learn ------------------------------------------------------------------------------------------------------
    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """One record of the journal."""
        if self.began_at is None:
            self.began_at = facts[0].at if facts else plan.at
        for fact in facts:
            learn = _LEARN.get(type(fact))
            if learn is not None:
                learn(self, fact)
        for action in plan.actions:
            self._hear(action, plan.at)
        self.now = plan.at
        while self.arrivals and self.arrivals[0].submitted_at < plan.at - REMEMBERED:
            self.arrivals.popleft()

    def _hear(self, action: object, at: Instant) -> None:
        if isinstance(action, Reject):
            self._jobs.pop(action.workload_id, None)
        elif isinstance(action, Repair):
            self._repairing.setdefault(action.node, at)

    def _submitted(self, fact: facts_of.WorkloadSubmitted) -> None:
        workload = fact.workload
        self._jobs[workload.id] = _Job(workload, self.kind_of(workload))
        self.arrivals.append(workload)

    def _cancelled(self, fact: facts_of.WorkloadCancelled) -> None:
        job = self._jobs.get(fact.workload_id)
        if job is not None and job.started_at is None:
            del self._jobs[fact.workload_id]
            if job.waits:
                self.patience.add(fact.at - job.workload.submitted_at)

    def _run_started(self, fact: facts_of.RunStarted) -> None:
        self._begins(workload_of(fact.run_id), fact.run_id, fact.at)

    def _run_adopted(self, fact: facts_of.RunAdopted) -> None:
        self._begins(fact.workload_id, fact.run_id, fact.started_at)

    def _begins(self, workload: WorkloadId, run_id: RunId, at: Instant) -> None:
        job = self._jobs.get(workload)
        if job is None:
            return
        job.started_at, job.attempt = at, attempt_of(run_id)
        if job.waits:
            job.waits = False
            self.patience.add(max(0, at - job.workload.submitted_at), ended=False)

    def _run_ended(self, fact: facts_of.RunEnded) -> None:
        job = self._jobs.get(workload_of(fact.run_id))
        if job is None:
            return
        if job.started_at is not None:
            job.saved += self._worked(job, fact.at) - (fact.lost or 0)
            job.started_at = None
        if goes_back(fact.outcome, job.workload.resume):
            return
        del self._jobs[job.workload.id]
        if fact.outcome is not Outcome.LAUNCH_FAILED:
            self._learn_run(job, job.saved + (fact.lost or 0))

    def _worked(self, job: _Job, now: Instant) -> Duration:
        """Progress of the present attempt, saved or not."""
        assert job.started_at is not None
        restart = job.workload.restart if job.attempt > 1 else 0
        return max(0, now - job.started_at - restart)

    def _learn_run(self, job: _Job, span: Duration) -> None:
        workload = job.workload
        limit = workload.shape.time_limit
        for key in _keys(workload.user, job.kind):
            if limit:
                self._parts.setdefault(key, Lifetimes()).add(span / limit)
            self._spans.setdefault(key, Lifetimes()).add(span)

    def _node_down(self, fact: facts_of.NodeDown) -> None:
        self._repairing.setdefault(fact.node, fact.at)

    def _node_up(self, fact: facts_of.NodeUp) -> None:
        since = self._repairing.pop(fact.node, None)
        if since is not None:
            self.repairs.add(fact.at - since)

    # --- tell -------------------------------------------------------------------------------------------------------
    def kind_of(self, workload: Workload) -> str:
        """Its class, as in the report."""
        return class_of(workload, self._asks.of(workload.shape))

    def saved(self, workload: WorkloadId) -> Duration:
        """Work of earlier attempts that need not be repeated."""
        job = self._jobs.get(workload)
        return 0 if job is None else job.saved

    def run_time(self, workload: Workload, chance: float, past: Duration = 0) -> tuple[Duration, str]:
        """How long it will run in all, given that it has run for `past`, and whose history says so (`WHERE`).

        `chance`: 0 to 1, from the shortest to the longest. The time limit is a bound.
        """
        limit = workload.shape.time_limit
        books, scale = (self._parts, limit) if limit else (self._spans, 1)
        for where, key in zip(WHERE, _keys(workload.user, self.kind_of(workload)), strict=False):
            book = books.get(key)
            if book is not None and len(book) >= ENOUGH:
                drawn = book.draw(chance, past / scale)
                if drawn is not None:
                    return _bounded(round(drawn * scale), past, limit), where
        guess = limit * chance if limit else max(workload.shape.min_runtime, HOUR) * 2 * chance
        return _bounded(max(past + round((1 + chance) * SECOND), round(guess)), past, limit), WHERE[-1]

    def repair_time(self, chance: float, past: Duration = 0) -> Duration:
        drawn = self.repairs.draw(chance, past)
        return round(drawn) if drawn is not None else max(past + HOUR, REPAIR_USUAL)

    def ready(self) -> None:
        """Work out beforehand what all draws need, so that copies of this process need not each."""
        for book in (self.patience, self.repairs, *self._parts.values(), *self._spans.values()):
            book.ready()


def _keys(user: UserName, kind: str) -> tuple[Key, Key, Key]:
    return (user, kind), ("", kind), ("", "")


def _bounded(span: Duration, past: Duration, limit: Duration | None) -> Duration:
    span = max(span, past + 1)
    return span if limit is None else min(span, max(limit, past + 1))


_LEARN: dict[type, Callable[[History, Any], None]] = {
    facts_of.WorkloadSubmitted: History._submitted,
    facts_of.WorkloadCancelled: History._cancelled,
    facts_of.RunStarted: History._run_started,
    facts_of.RunAdopted: History._run_adopted,
    facts_of.RunEnded: History._run_ended,
    facts_of.NodeDown: History._node_down,
    facts_of.NodeUp: History._node_up,
}
