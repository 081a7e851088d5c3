"""Was the contract kept? Recomputed from facts and actions by code that shares nothing with the scheduler's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mypy_extensions import mypyc_attr

from mirab.model.accounts import Budgets, covers
from mirab.model.events import (
    BudgetsChanged,
    ExemptionGranted,
    ExemptionRevoked,
    Outcome,
    PolicyChanged,
    RunContinued,
    RunEnded,
    RunStarted,
    RunSuspended,
    WorkloadSubmitted,
    goes_back,
)
from mirab.model.plans import Preempt, Start
from mirab.model.policy import Exemption, Policy
from mirab.model.reasons import DrainedFrom, PreemptedFor, StartTimedOut
from mirab.model.units import AccountPath, Duration, Instant, RunId, WorkloadId
from mirab.model.workloads import Workload

KEPT = 100
"""Violations whose story is kept; the others are only counted."""


class Violation(NamedTuple):
    """A run that was stopped although its contract said no.

    `ran` of `promised` milliseconds had passed, suspensions left out.
    """

    at: Instant
    run_id: RunId
    ran: Duration
    promised: Duration
    why: str


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
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


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class ContractAudit:
    """Counts stops that the contract forbids, one a run, whatever their cause.

    A run is promised its declared minimum, cut to the policy's cap and to those of the budgets of its account and above
    it, or to the longest that an exemption of its account allows when it starts (and to `surplus_minimum_cap` where the
    policy has one: then at least what its start said).
    Nothing but its own end and the failure of its hardware may stop it before it has run so long; a run that is still
    starting may be given up only because it did not start in time.
    """

    def __init__(self, policy: Policy, budgets: Budgets) -> None:
        self._policy = policy
        self._budgets = budgets
        self._heirs = budgets.heirs()
        self._caps: dict[AccountPath, Duration] = {}
        self._workloads: dict[WorkloadId, Workload] = {}
        self._promises: dict[RunId, _Promise] = {}
        self._exemptions: dict[str, Exemption] = {}
        self.count = 0
        self.violations: list[Violation] = []

    def hearers(self) -> dict[type, Callable[[Any], None]]:
        """Which facts it has to be told, and by which function, in the order of time."""
        return {
            WorkloadSubmitted: self._submitted,
            ExemptionGranted: self._granted,
            ExemptionRevoked: self._revoked,
            BudgetsChanged: self._divided,
            PolicyChanged: self._policy_changed,
            RunStarted: self._started,
            RunSuspended: self._suspended,
            RunContinued: self._continued,
            RunEnded: self._ended,
        }

    def start(self, action: Start, now: Instant) -> None:
        """The plan made at `now` starts a run."""
        workload = self._workloads.get(action.workload_id)
        if workload is not None:
            promised = self.promised(workload, action.min_runtime, now)
            self._promises[action.run_id] = _Promise(workload, promised)

    def preempt(self, action: Preempt, now: Instant) -> None:
        """The plan made at `now` tells a run to stop."""
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
        elif isinstance(action.reason, DrainedFrom) and self._paused(str(action.reason.node), now):
            self._violated(promise, action.run_id, now, "stopped by a drain that was paused")

    def cap(self, workload: Workload, now: Instant) -> Duration:
        """The longest minimum of anybody's work that may stand beside it: by the policy, or longer by exemption."""
        return self._lifted(self._policy.min_runtime_cap, workload, now)

    def _lifted(self, cap: Duration, workload: Workload, now: Instant) -> Duration:
        if self._exemptions:
            cap = max([cap, *(each.cap for each in self._in_force("longer-minimum", workload, now))])
        return cap

    def _allowed(self, workload: Workload, now: Instant) -> Duration:
        """The longest minimum that the workload may have now."""
        cap = self._caps.get(workload.account)
        if cap is None:
            cap = self._caps[workload.account] = self._usual_cap(workload.account)
        return self._lifted(cap, workload, now)

    def _usual_cap(self, account: AccountPath) -> Duration:
        names = self._heirs.get(account, account).split("/")
        line = [self._budgets.find("/".join(names[: depth + 1])) for depth in range(len(names))]
        caps = [each.min_runtime_cap for each in line if each is not None and each.min_runtime_cap is not None]
        return min([self._policy.min_runtime_cap, *caps])

    def promised(self, workload: Workload, said: Duration, now: Instant) -> Duration:
        """The minimum that a run of the workload which starts now can count on; `said`: what its start says."""
        allowed = min(workload.shape.min_runtime, self._allowed(workload, now))
        least = self._policy.surplus_minimum_cap
        return allowed if least is None else max(min(allowed, least), min(allowed, said))

    def _in_force(self, kind: str, workload: Workload, now: Instant) -> list[Exemption]:
        return [
            each
            for each in self._exemptions.values()
            if each.kind == kind and each.begin <= now < each.end and covers(each.account, workload.account)
        ]

    def _paused(self, node: str, now: Instant) -> bool:
        pauses = [each for each in self._exemptions.values() if each.kind == "drain-pause" and each.node == node]
        return any(each.begin <= now < each.end for each in pauses)

    def _submitted(self, fact: WorkloadSubmitted) -> None:
        self._workloads[fact.workload.id] = fact.workload

    def _granted(self, fact: ExemptionGranted) -> None:
        self._exemptions[fact.exemption.id] = fact.exemption

    def _revoked(self, fact: ExemptionRevoked) -> None:
        self._exemptions.pop(fact.exemption_id, None)

    def _divided(self, fact: BudgetsChanged) -> None:
        self._budgets, self._heirs = fact.budgets, fact.budgets.heirs(self._heirs)
        self._caps.clear()

    def _policy_changed(self, fact: PolicyChanged) -> None:
        self._policy = fact.policy
        self._caps.clear()

    def _started(self, fact: RunStarted) -> None:
        promise = self._promises.get(fact.run_id)
        if promise is not None and promise.started_at is None:
            promise.started_at = fact.at

    def _suspended(self, fact: RunSuspended) -> None:
        promise = self._promises.get(fact.run_id)
        if promise is not None and promise.suspended_at is None:
            promise.suspended_at = fact.at

    def _continued(self, fact: RunContinued) -> None:
        promise = self._promises.get(fact.run_id)
        if promise is not None and promise.suspended_at is not None:
            promise.stood_still += fact.at - promise.suspended_at
            promise.suspended_at = None

    def _ended(self, fact: RunEnded) -> None:
        promise = self._promises.pop(fact.run_id, None)
        if promise is None:
            return
        if fact.outcome is Outcome.PREEMPTED and not promise.asked:
            self._violated(promise, fact.run_id, fact.at, "stopped without having been told to")
        if not goes_back(fact.outcome, promise.workload.resume):
            self._workloads.pop(promise.workload.id, None)

    def _violated(self, promise: _Promise, run_id: RunId, now: Instant, why: str) -> None:
        if promise.violated:
            return
        promise.violated = True
        self.count += 1
        if len(self.violations) < KEPT:
            self.violations.append(Violation(now, run_id, promise.ran(now), promise.minimum, why))
