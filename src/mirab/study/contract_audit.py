"""Was the contract kept? Recomputed from facts and actions by code that shares nothing with the scheduler's own."""

from __future__ import annotations

from dataclasses import dataclass

from mirab.model.events import (
    REQUEUED,
    Event,
    ExemptionGranted,
    ExemptionRevoked,
    Outcome,
    RunContinued,
    RunEnded,
    RunStarted,
    RunSuspended,
    WorkloadSubmitted,
)
from mirab.model.plans import Action, Preempt, Start
from mirab.model.policy import Exemption, Policy
from mirab.model.reasons import PreemptedFor, StartTimedOut
from mirab.model.units import Duration, Instant, RunId, WorkloadId
from mirab.model.workloads import Workload

KEPT = 100
"""Violations whose story is kept; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A run that was stopped although its contract said no.

    `ran` of `promised` milliseconds had passed, suspensions left out.
    """

    at: Instant
    run_id: RunId
    ran: Duration
    promised: Duration
    why: str


class _Promise:
    """What one run was promised, and how long it has run."""

    __slots__ = ("asked", "minimum", "started_at", "stood_still", "suspended_at", "violated", "workload")

    def __init__(self, workload: Workload, minimum: Duration) -> None:
        self.workload = workload
        self.minimum = minimum
        self.started_at: Instant | None = None
        self.suspended_at: Instant | None = None
        self.stood_still: Duration = 0
        self.asked = False
        self.violated = False

    def ran(self, now: Instant) -> Duration:
        """Running time up to `now`: none before the run runs, none while the engine suspends it."""
        if self.started_at is None:
            return 0
        until = now if self.suspended_at is None else self.suspended_at
        return until - self.started_at - self.stood_still


class ContractAudit:
    """Counts stops that the contract forbids, one a run, whatever their cause.

    A run is promised its declared minimum, cut to the policy's cap or to the longest that an exemption of its account
    allows when it starts (and to `surplus_minimum_cap` where the policy has one: then at least what its start said).
    Nothing but its own end and the failure of its hardware may stop it before it has run so long; a run that is still
    starting may be given up only because it did not start in time.
    """

    HEARS = (WorkloadSubmitted, RunStarted, RunSuspended, RunContinued, RunEnded, ExemptionGranted, ExemptionRevoked)

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._workloads: dict[WorkloadId, Workload] = {}
        self._promises: dict[RunId, _Promise] = {}
        self._exemptions: dict[str, Exemption] = {}
        self.count = 0
        self.violations: list[Violation] = []

    def hear(self, fact: Event) -> None:
        """Take in one fact, in the order of time."""
        if isinstance(fact, WorkloadSubmitted):
            self._workloads[fact.workload.id] = fact.workload
        elif isinstance(fact, ExemptionGranted):
            self._exemptions[fact.exemption.id] = fact.exemption
        elif isinstance(fact, ExemptionRevoked):
            self._exemptions.pop(fact.exemption_id, None)
        elif isinstance(fact, RunEnded):
            self._ended(fact)
        elif isinstance(fact, RunStarted | RunSuspended | RunContinued):
            self._clock(fact)

    def see(self, action: Action, now: Instant) -> None:
        """Take in one action of the plan made at `now`."""
        if isinstance(action, Start):
            workload = self._workloads.get(action.workload_id)
            if workload is not None:
                promised = self.promised(workload, action.min_runtime, now)
                self._promises[action.run_id] = _Promise(workload, promised)
        elif isinstance(action, Preempt):
            self._asked(action, now)

    def cap(self, workload: Workload, now: Instant) -> Duration:
        """The longest minimum that the workload may have now: the policy's cap, or a longer one by exemption."""
        longer = [each.cap for each in self._in_force("longer-minimum", workload, now)]
        return max([self._policy.min_runtime_cap, *longer])

    def promised(self, workload: Workload, said: Duration, now: Instant) -> Duration:
        """The minimum that a run of the workload which starts now can count on; `said`: what its start says."""
        allowed = min(workload.shape.min_runtime, self.cap(workload, now))
        least = self._policy.surplus_minimum_cap
        return allowed if least is None else max(min(allowed, least), min(allowed, said))

    def _in_force(self, kind: str, workload: Workload, now: Instant) -> list[Exemption]:
        path = f"{workload.account}/"
        return [
            each
            for each in self._exemptions.values()
            if each.kind == kind and each.begin <= now < each.end and path.startswith(f"{each.account}/")
        ]

    def _clock(self, fact: RunStarted | RunSuspended | RunContinued) -> None:
        promise = self._promises.get(fact.run_id)
        if promise is None:
            return
        if isinstance(fact, RunStarted):
            promise.started_at = fact.at
        elif isinstance(fact, RunSuspended):
            promise.suspended_at = fact.at
        elif promise.suspended_at is not None:
            promise.stood_still += fact.at - promise.suspended_at
            promise.suspended_at = None

    def _asked(self, action: Preempt, now: Instant) -> None:
        promise = self._promises.get(action.run_id)
        if promise is None:
            return
        promise.asked = True
        if promise.started_at is None and isinstance(action.reason, StartTimedOut):
            return
        if promise.ran(now) < promise.minimum:
            self._violated(promise, action.run_id, now, f"stopped early: {type(action.reason).__name__}")
        elif isinstance(action.reason, PreemptedFor) and self._in_force("guaranteed", promise.workload, now):
            self._violated(promise, action.run_id, now, "stopped although guaranteed")

    def _ended(self, fact: RunEnded) -> None:
        promise = self._promises.pop(fact.run_id, None)
        if promise is None:
            return
        if fact.outcome is Outcome.PREEMPTED and not promise.asked:
            self._violated(promise, fact.run_id, fact.at, "stopped without having been told to")
        if fact.outcome not in REQUEUED or not promise.workload.resume:
            self._workloads.pop(promise.workload.id, None)

    def _violated(self, promise: _Promise, run_id: RunId, now: Instant, why: str) -> None:
        if promise.violated:
            return
        promise.violated = True
        self.count += 1
        if len(self.violations) < KEPT:
            self.violations.append(Violation(now, run_id, promise.ran(now), promise.minimum, why))
