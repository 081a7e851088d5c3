"""The measures of a replay, taken while it runs: a journal that counts instead of keeping.

Nothing is sampled but ratios and starvation, no fact is kept, and every amount is an integer until it is reported.
What each number means: docs/reference/measures.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mypy_extensions import mypyc_attr

from mirab.model.events import (
    REQUEUED,
    ActionRefused,
    BudgetsChanged,
    Event,
    ExemptionGranted,
    ExemptionRevoked,
    NodeDegraded,
    NodeDown,
    NodeUp,
    Outcome,
    ReservationApproved,
    ReservationCancelled,
    RunCheckpointed,
    RunEnded,
    RunStarted,
    WorkloadCancelled,
    WorkloadHeld,
    WorkloadReleased,
    WorkloadSubmitted,
    goes_back,
)
from mirab.model.plans import Action, CallHuman, Plan, Preempt, Reject, Repair, Start
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import FOREVER, Duration, Instant
from mirab.study import figures
from mirab.study.bycontract import ByContract
from mirab.study.causes import cause_of
from mirab.study.contract_audit import ContractAudit
from mirab.study.period import period_of
from mirab.study.repairs import Repairs, Watch
from mirab.study.series import Series
from mirab.study.starvation import Books, Starvation
from mirab.study.subjects import Attempt, Job
from mirab.study.waits import Waits
from mirab.study.whereabouts import Whereabouts


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Measures:
    """Implements the Journal port: hand it to a replay, then ask for `report`.

    Integrals, preemptions and repairs are those of the trace's period; what happens while the replay drains out after
    it is left out of them. Waits, deadlines and the audit of the contract are about every submission. Facts about
    workloads and runs that it has not seen begin are passed over.
    """

    def __init__(self, trace: Trace, policy: Policy) -> None:
        self.trace, self.policy = trace, policy
        self.period = period_of(trace, policy)
        self.where = Whereabouts(trace)
        self.usage, self.ledger = self.where.usage, self.where.ledger
        self.series = Series(self.period)
        self.audit = ContractAudit(policy, trace.budgets)
        self.repairs = Repairs()
        self.starvation = Starvation()
        self.waits, self.first_progress, self.by_contract = Waits(), Waits(), ByContract()
        self.preemptions: dict[str, int] = {}
        self.lost = 0
        self.rejected = 0
        self.deadlines = self.deadlines_met = 0
        self.first_at: Instant | None = None
        self.last_end: Instant = trace.starts_at
        self.now: Instant = min(0, trace.starts_at)
        self.jobs, self.runs = self.where.jobs, self.where.runs
        self._books: Books | None = None
        self._marks = list(reversed(self.period.marks))
        self._steps = list(reversed(self.period.steps))
        self._next: Instant = self._next_stop()
        self._hearers = self._wire()

    def attach(self, state: Books) -> None:
        """The State whose ratios and queue heads are sampled; without it those two are absent from the report."""
        self._books = state

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """Count one cycle of the loop."""
        for fact in facts:
            hearers = self._hearers.get(type(fact))
            if hearers:
                if fact.at > self.now:
                    self._advance(fact.at)
                for hear in hearers:
                    hear(fact)
        if plan.at > self.now:
            self._advance(plan.at)
        for action in plan.actions:
            self._see(action, plan.at)
        if plan.holds:
            self.where.change_holds(plan.holds)
            self._next = self._next_stop()
        if self._books is not None:
            self._sample(self._books, plan.at)

    def report(self, performance: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON report. May be asked at any time, for what has been seen so far."""
        return figures.report(self, performance)

    # --- time ------------------------------------------------------------------------------------------------------
    @property
    def in_period(self) -> bool:
        """Whether what happens now belongs to the measured period."""
        return self.period.starts_at <= self.now <= self.period.ends_at

    def _advance(self, now: Instant) -> None:
        self.now = now
        while now >= self._next:
            self._stop_at(self._next)
            self._next = self._next_stop()
        ends_at = self.period.ends_at
        self._pass(now if now < ends_at else ends_at)

    def _pass(self, now: Instant) -> None:
        """Let measured time pass up to `now`."""
        span = now - self.where.clock
        if span > 0:
            self.usage.accrue(span)
            self.where.clock = now

    def _next_stop(self) -> Instant:
        turn = self.ledger.next_turn
        return min(self._marks[-1] if self._marks else FOREVER, FOREVER if turn is None else turn)

    def _stop_at(self, instant: Instant) -> None:
        """A step or a window begins or ends here, or shares change by themselves."""
        self._pass(min(instant, self.period.ends_at))
        if self._marks and self._marks[-1] == instant:
            self._marks.pop()
            self.ledger.mark(self.where.clock)
        if self._steps and self._steps[-1] == instant:
            self._steps.pop()
            self.series.note(self.usage, self.lost, sum(self.preemptions.values()))
        turn = self.ledger.next_turn
        if turn is not None and turn <= instant:
            self.where.turn(instant)

    def _sample(self, books: Books, now: Instant) -> None:
        if self.series.ratios_missing:
            for path in self.ledger.leaves:
                account = books.accounts.get(path)
                self.series.note_ratio(path, account.ratio(now) if account is not None else None)
            self.series.ratios_missing = False
        if self.starvation.due(now):
            waiting = [path for path, leaf in self.ledger.leaves.items() if leaf.pending_rate]
            self.starvation.sample(books, waiting, now)

    # --- facts -----------------------------------------------------------------------------------------------------
    def _wire(self) -> dict[type, list[Callable[[Any], None]]]:
        """Fact -> who wants to hear of it."""
        hearers: dict[type, list[Callable[[Any], None]]] = {
            WorkloadSubmitted: [self._submitted],
            WorkloadCancelled: [self._cancelled],
            WorkloadHeld: [self._held],
            WorkloadReleased: [self._released],
            RunStarted: [self._started],
            RunCheckpointed: [self._checkpointed],
            RunEnded: [self._ended],
            NodeDegraded: [self._degraded],
            NodeDown: [self._died],
            NodeUp: [self._healthy],
            ActionRefused: [self._refused],
            BudgetsChanged: [lambda fact: self.where.set_budgets(fact.budgets)],
            ReservationApproved: [self._reserved],
            ReservationCancelled: [lambda fact: self.where.cancel_reservation(fact.reservation_id)],
            ExemptionGranted: [self._exempted],
            ExemptionRevoked: [self._revoked],
        }
        for kind, hear in self.audit.hearers().items():
            hearers.setdefault(kind, []).append(hear)
        return hearers

    def _submitted(self, fact: WorkloadSubmitted) -> None:
        workload = fact.workload
        job = self.where.add(workload)
        if self.first_at is None:
            self.first_at = workload.submitted_at
        if workload.deadline_at is not None:
            self.deadlines += 1
        if not workload.held:
            self.where.join(job)

    def _held(self, fact: WorkloadHeld) -> None:
        job = self.jobs.get(fact.workload_id)
        if job is not None and job.held_since is None:
            job.held_since = fact.at
            self.where.leave(job)

    def _released(self, fact: WorkloadReleased) -> None:
        job = self.jobs.get(fact.workload_id)
        if job is not None and job.held_since is not None:
            if not job.started:
                job.set_aside += fact.at - job.held_since
            job.held_since = None
            if job.run is None:
                self.where.join(job)

    def _cancelled(self, fact: WorkloadCancelled) -> None:
        job = self.jobs.get(fact.workload_id)
        if job is None:
            return
        job.cancelled = True
        if job.run is None:
            self.where.leave(job, gave_up=True)
            self._finish(job, fact.at)

    def _started(self, fact: RunStarted) -> None:
        run = self.runs.get(fact.run_id)
        if run is None or run.started_at is not None:
            return
        job = run.job
        run.running(fact.at, vouched=fact.checkpoints_vouched)
        self.where.charge(run, 1)
        if not job.started:
            self._count_wait(job, fact.at, reached=True)
        if run.restart:
            self._repeat(run, run.restart, preempted=job.after_preemption)

    def _checkpointed(self, fact: RunCheckpointed) -> None:
        run = self.runs.get(fact.run_id)
        if run is not None:
            run.saved_at = fact.at
            self._count_progress(run.job, fact.at)

    def _ended(self, fact: RunEnded) -> None:
        run = self.runs.get(fact.run_id)
        if run is None:
            return
        job = run.job
        for watch in run.watches:
            if self.is_overdue(run, watch, fact.at):
                self.repairs.overdue(watch.serial)
        saved_at = run.progress_at(fact.at)
        if saved_at is not None:
            self._count_progress(job, saved_at)
        stopped = fact.outcome in REQUEUED
        if stopped:
            self._lose(run, fact)
        self.last_end = max(self.last_end, fact.at)
        self.where.free(run)
        if run.started_at is not None:
            job.after_preemption = fact.outcome is Outcome.PREEMPTED
        if goes_back(fact.outcome, job.workload.resume) and not job.cancelled:
            self.where.join(job)
        else:
            self._finish(job, fact.at, completed=fact.outcome is Outcome.COMPLETED, progress=not stopped)

    def _refused(self, fact: ActionRefused) -> None:
        run = self.runs.get(fact.run_id)
        if run is not None and fact.action == "start":
            self.where.free(run)
            if run.job.cancelled:
                self._finish(run.job, fact.at)
            else:
                self.where.join(run.job)

    def _exempted(self, fact: ExemptionGranted) -> None:
        self.where.grant(fact.exemption)
        self.repairs.exempted(fact.exemption)
        self._next = self._next_stop()

    def _revoked(self, fact: ExemptionRevoked) -> None:
        self.where.revoke(fact.exemption_id)
        self.repairs.revoked(fact.exemption_id, fact.at)

    def _reserved(self, fact: ReservationApproved) -> None:
        self.where.reservations[fact.reservation.id] = fact.reservation

    # --- nodes -----------------------------------------------------------------------------------------------------
    def _degraded(self, fact: NodeDegraded) -> None:
        self.where.set_health(fact.node, up=False)
        if not self.in_period:
            return
        serial = self.repairs.fell_sick(fact.node)
        if serial is None:
            return
        for run in self.where.on_node(fact.node):
            run.watches.append(Watch(serial, fact.node, fact.at))

    def _died(self, fact: NodeDown) -> None:
        self.where.set_health(fact.node, up=False)
        if self.in_period:
            self.repairs.died(fact.node)

    def _healthy(self, fact: NodeUp) -> None:
        self.where.set_health(fact.node, up=True)
        void = self.repairs.healthy(fact.node)
        if void is not None:
            for run in self.runs.values():
                run.watches = [watch for watch in run.watches if watch.serial != void]

    def is_overdue(self, run: Attempt, watch: Watch, now: Instant) -> bool:
        """Whether cap and grace are over since the hardware event, and grace since a pause of the drain ended."""
        workload = run.job.workload
        leaves = min(workload.shape.grace, self.policy.grace_max) + self.policy.cadence
        due = watch.due(run.started_at, self.audit.cap(workload, self.now) + leaves)
        return now > max(due, self.repairs.paused_until(watch.node, due) + leaves)

    # --- actions ---------------------------------------------------------------------------------------------------
    def _see(self, action: Action, now: Instant) -> None:
        if isinstance(action, Start):
            self._start(action, now)
            self.audit.start(action, now)
        elif isinstance(action, Preempt):
            run = self.runs.get(action.run_id)
            if run is not None:
                run.cause = cause_of(action.reason, self.policy)
            self.audit.preempt(action, now)
        elif isinstance(action, Repair):
            self.repairs.taken(action.node)
        elif isinstance(action, CallHuman):
            self.repairs.called(action.node)
        elif isinstance(action, Reject):
            job = self.jobs.pop(action.workload_id, None)
            if job is not None:
                self.where.leave(job)
                self.rejected += 1

    def _start(self, action: Start, now: Instant) -> None:
        job = self.jobs.get(action.workload_id)
        if job is not None and job.run is None:
            self.where.start(job, action)
            self.starvation.started(job.leaf.path, action.workload_id, now)

    # --- counts ----------------------------------------------------------------------------------------------------
    def _finish(self, job: Job, now: Instant, *, completed: bool = False, progress: bool = False) -> None:
        """Nothing more will happen to it."""
        del self.jobs[job.workload.id]
        if not job.started:
            self._count_wait(job, now, reached=False)
        self._count_progress(job, now, reached=progress)
        deadline = job.workload.deadline_at
        if completed and deadline is not None and now <= deadline:
            self.deadlines_met += 1

    def _count_wait(self, job: Job, now: Instant, *, reached: bool) -> None:
        job.started = True
        waited = job.waited(now)
        self.waits.add(job.kind, waited, reached=reached)
        self.by_contract.add(job, waited, reached=reached)
        job.leaf.waits.append(waited)
        job.leaf.asked.append(job.workload.submitted_at)

    def _count_progress(self, job: Job, now: Instant, *, reached: bool = True) -> None:
        if not job.progressed:
            job.progressed = True
            self.first_progress.add(job.kind, job.waited(now), reached=reached)

    def _repeat(self, run: Attempt, span: Duration, *, preempted: bool) -> None:
        """Work of `span` has to be done again, because of a preemption or because hardware failed."""
        if not span or not self.in_period:
            return
        leaf = run.job.leaf
        if run.job.ask.charged:
            leaf.repeated += span * run.rate
        if preempted:
            leaf.lost += span * run.slots
            self.lost += span * run.slots

    def _lose(self, run: Attempt, fact: RunEnded) -> None:
        """A run was cut short: what it had not saved, and what of its restart it did not even get through."""
        ran = 0 if run.started_at is None else fact.at - run.started_at
        lost = ran if run.saved_at is None else fact.at - run.saved_at
        if fact.lost is not None:
            lost = fact.lost
        preempted = fact.outcome is Outcome.PREEMPTED
        if fact.outcome is Outcome.NODE_FAIL:
            self._credit(run, min(lost, ran))
        else:
            self._repeat(run, min(lost, ran - run.restart), preempted=preempted)
        if preempted and self.in_period:
            cause = run.cause or "unasked"
            self.preemptions[cause] = self.preemptions.get(cause, 0) + 1
            run.job.leaf.preempted += 1

    def _credit(self, run: Attempt, span: Duration) -> None:
        """What hardware destroyed is not charged: the account gets it back, so it was not delivered either."""
        if run.job.ask.charged and self.in_period:
            run.job.leaf.charged -= span * run.rate
