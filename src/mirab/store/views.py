"""Jobs as people see them, folded from facts and plans: pure, so that anyone can prove what is stored by folding again.

The fold follows `core/facts.py` and `core/intentions.py`: what the state ignores, it ignores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mirab.model import events, plans
from mirab.model.events import REQUEUED, Event, Outcome, goes_back
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.records import JobRow, JobSpec, JobState, RunRow
from mirab.model.resources import Allocation, Cluster, nodes_of
from mirab.model.units import FOREVER, Duration, Instant, NodeName, RunId, WorkloadId, attempt_of, workload_of
from mirab.model.workloads import Workload

CANCEL, REQUEUE = "cancel", "requeue"

ENDS: dict[Outcome, JobState] = {
    Outcome.COMPLETED: JobState.COMPLETED,
    Outcome.FAILED: JobState.FAILED,
    Outcome.PREEMPTED: JobState.PREEMPTED,
    Outcome.NODE_FAIL: JobState.NODE_FAIL,
    Outcome.CANCELLED: JobState.CANCELLED,
    Outcome.TIMEOUT: JobState.TIMEOUT,
    Outcome.LAUNCH_FAILED: JobState.FAILED,
    Outcome.REQUEUED: JobState.CANCELLED,
}
"""How a job is called whose last run ended so."""


@dataclass(slots=True)
class Entry:
    """A job that has not ended, and what its row does not show.

    Attributes:
        wish: what its user wants of the present run: ``cancel``, ``requeue`` or "".
        minimum: the contract in force of the present run.
        protected_before: until when it was protected when the engine suspended it.
        run: the present run; None = it waits.
    """

    row: JobRow
    resume: bool
    wish: str = ""
    minimum: Duration = 0
    suspended_at: Instant | None = None
    protected_before: Instant | None = None
    run: RunRow | None = None


@dataclass(slots=True)
class Changes:
    """What one record changes.

    Attributes:
        new: jobs that were not there before, in the order of their submission.
        changed: jobs that were.
        runs: attempts that are new (True) or were there before (False).
        placements: node, workload and attempt of each new run.
        mentions: workloads and nodes that the record speaks of.
        cluster, policy: what holds from now on, where the record changes it.
    """

    new: dict[WorkloadId, Entry] = field(default_factory=dict)
    changed: dict[WorkloadId, Entry] = field(default_factory=dict)
    runs: dict[RunId, tuple[RunRow, bool]] = field(default_factory=dict)
    placements: list[tuple[NodeName, WorkloadId, int]] = field(default_factory=list)
    mentions: dict[str, None] = field(default_factory=dict)
    cluster: Cluster | None = None
    policy: Policy | None = None


class JobBook:
    """Every job that has not ended, kept in step with the journal.

    `now` runs as the state's does: the latest instant that a fact or a plan has named.
    """

    def __init__(self, cluster: Cluster, policy: Policy, now: Instant = 0, entries: Iterable[Entry] = ()) -> None:
        self.cluster = cluster
        self.policy = policy
        self.now = now
        self.entries = {entry.row.id: entry for entry in entries}
        self.changes = Changes()

    def fold(self, facts: Sequence[Event], plan: Plan, specs: Mapping[WorkloadId, JobSpec] | None = None) -> Changes:
        """Take in one record; `specs`: those of the jobs that it submits. Returns what has changed."""
        changes = self.changes = Changes()
        for fact in facts:
            self.now = max(self.now, fact.at)
            mention_fact(changes.mentions, fact)
            if isinstance(fact, events.WorkloadSubmitted):
                self._submitted(fact.workload, (specs or {}).get(fact.workload.id))
            elif (handler := FACTS.get(type(fact))) is not None:
                handler(self, fact)
        self.now = max(self.now, plan.at)
        for action in plan.actions:
            mention_action(changes.mentions, action)
            intention = None if self.policy.observing else ACTIONS.get(type(action))
            if intention is not None:
                intention(self, action, plan.at)
        for change in (*plan.holds, *plan.waiting):
            changes.mentions[change.workload_id] = None
        return changes

    # --- finding and changing ---------------------------------------------------------------------------------------
    def waiting(self, workload_id: WorkloadId) -> Entry | None:
        entry = self.entries.get(workload_id)
        return entry if entry is not None and entry.run is None else None

    def running(self, run_id: RunId) -> tuple[Entry, RunRow] | None:
        """The job whose present run this is."""
        entry = self.entries.get(workload_of(run_id))
        run = None if entry is None else entry.run
        return (entry, run) if entry is not None and run is not None and run.id == run_id else None

    def change(self, entry: Entry, **values: Any) -> None:
        entry.row = replace(entry.row, **values)
        self.touch(entry)

    def touch(self, entry: Entry) -> None:
        if entry.row.id not in self.changes.new:
            self.changes.changed[entry.row.id] = entry

    def change_run(self, entry: Entry, run: RunRow) -> None:
        entry.run = run
        _, new = self.changes.runs.get(run.id, (run, False))
        self.changes.runs[run.id] = (run, new)

    def end(self, entry: Entry, state: JobState, at: Instant, **values: Any) -> None:
        self.change(entry, state=state, ended_at=at, protected_until=None, held="", **values)
        del self.entries[entry.row.id]

    # --- the two that make something new ------------------------------------------------------------------------------
    def _submitted(self, workload: Workload, spec: JobSpec | None) -> None:
        if workload.id not in self.entries:
            entry = Entry(new_row(workload, spec), workload.resume)
            self.entries[workload.id] = entry
            self.changes.new[workload.id] = entry

    def start(self, entry: Entry, given: plans.Start | events.RunAdopted, at: Instant) -> None:
        """A new attempt on the nodes that a plan, or the engine by itself, has given to it."""
        names = self._names(given.allocation)
        attempt = attempt_of(given.run_id)
        run = RunRow(given.run_id, given.workload_id, attempt, names, given.allocation.slots, decided_at=at)
        entry.run, entry.minimum = run, given.min_runtime
        entry.wish, entry.suspended_at, entry.protected_before = "", None, None
        self.changes.runs[run.id] = (run, True)
        self.changes.placements += [(name, given.workload_id, attempt) for name in names]
        self.change(
            entry, state=JobState.RUNNING, attempt=attempt, node_names=names, started_at=None, protected_until=None
        )

    def begin(self, entry: Entry, run: RunRow, told: Instant, since: Instant) -> None:
        """It runs: the engine says since `told`, and its minimum counts from `since`."""
        lasting = not self.policy.contract or entry.minimum >= FOREVER
        self.change_run(entry, replace(run, started_at=told))
        self.change(entry, started_at=told, protected_until=None if lasting else since + entry.minimum)

    def _names(self, allocation: Allocation) -> tuple[NodeName, ...]:
        nodes = self.cluster.pools[allocation.pool].nodes
        return tuple([nodes[number] for number in nodes_of(allocation.mask)])


def new_row(workload: Workload, spec: JobSpec | None) -> JobRow:
    """The row of a job that has just been submitted; without a spec it is called by its label or id."""
    shape = workload.shape
    return JobRow(
        id=workload.id,
        name=spec.name if spec else workload.label or workload.id,
        user=workload.user,
        account=workload.account,
        state=JobState.PENDING,
        nodes=shape.nodes,
        gpus_per_node=shape.gpus_per_node,
        submitted_at=workload.submitted_at,
        cpus_per_node=shape.cpus_per_node,
        min_runtime=shape.min_runtime,
        time_limit=shape.time_limit,
        label=workload.label,
        held="submitted on hold" if workload.held else "",
        array_job=spec.array_job if spec else None,
        array_task=spec.array_task if spec else None,
        interactive=spec.interactive if spec else False,
    )


# --- facts ----------------------------------------------------------------------------------------------------------
def _cancelled(book: JobBook, fact: events.WorkloadCancelled) -> None:
    entry = book.entries.get(fact.workload_id)
    if entry is None:
        return
    if entry.run is None:
        book.end(entry, JobState.CANCELLED, fact.at)
    else:
        entry.wish = CANCEL
        book.touch(entry)


def _requeue_requested(book: JobBook, fact: events.RequeueRequested) -> None:
    entry = book.entries.get(fact.workload_id)
    if entry is not None and entry.run is not None and not entry.wish:
        entry.wish = REQUEUE
        book.touch(entry)


def _held(book: JobBook, fact: events.WorkloadHeld) -> None:
    entry = book.waiting(fact.workload_id)
    if entry is not None:
        book.change(entry, held=fact.why or "held")


def _released(book: JobBook, fact: events.WorkloadReleased) -> None:
    entry = book.waiting(fact.workload_id)
    if entry is not None and entry.row.held:
        book.change(entry, held="")


def _started(book: JobBook, fact: events.RunStarted) -> None:
    found = book.running(fact.run_id)
    if found is None or found[1].started_at is not None:
        return
    book.begin(*found, told=fact.at, since=book.now)


def _adopted(book: JobBook, fact: events.RunAdopted) -> None:
    entry = book.waiting(fact.workload_id)
    if entry is not None:
        book.start(entry, fact, fact.started_at)
        if entry.run is not None:
            book.begin(entry, entry.run, fact.started_at, fact.started_at)


def _checkpointed(book: JobBook, fact: events.RunCheckpointed) -> None:
    found = book.running(fact.run_id)
    if found is not None and found[1].started_at is not None:
        book.change(found[0], checkpoint_at=fact.at)


def _suspended(book: JobBook, fact: events.RunSuspended) -> None:
    found = book.running(fact.run_id)
    if found is not None and found[1].started_at is not None and found[0].suspended_at is None:
        entry = found[0]
        entry.suspended_at, entry.protected_before = book.now, entry.row.protected_until
        book.change(entry, protected_until=None)


def _continued(book: JobBook, fact: events.RunContinued) -> None:
    found = book.running(fact.run_id)
    if found is None or found[0].suspended_at is None:
        return
    entry = found[0]
    until = entry.protected_before
    if until is not None and entry.suspended_at is not None and until > entry.suspended_at:
        until = book.now + until - entry.suspended_at
    entry.suspended_at = entry.protected_before = None
    book.change(entry, protected_until=until)


def _ended(book: JobBook, fact: events.RunEnded) -> None:
    found = book.running(fact.run_id)
    if found is None:
        return
    entry, run = found
    ended = replace(run, ended_at=fact.at, outcome=fact.outcome.value, exit_code=fact.exit_code, lost=fact.lost)
    book.change_run(entry, ended)
    cancelled, recalled = entry.wish == CANCEL, entry.wish == REQUEUE
    tally = _tally(entry.row, fact)
    entry.run, entry.wish, entry.suspended_at, entry.protected_before = None, "", None, None
    if not cancelled and goes_back(fact.outcome, entry.resume or recalled):
        book.change(
            entry, state=JobState.PENDING, started_at=None, protected_until=None, node_names=(), held="", **tally
        )
    else:
        unwanted = cancelled and fact.outcome in REQUEUED
        book.end(entry, JobState.CANCELLED if unwanted else ENDS[fact.outcome], fact.at, **tally)


def _tally(row: JobRow, fact: events.RunEnded) -> dict[str, Any]:
    """How its end counts for the job."""
    return {
        "exit_code": fact.exit_code,
        "preemptions": row.preemptions + (fact.outcome is Outcome.PREEMPTED),
        "node_failures": row.node_failures + (fact.outcome is Outcome.NODE_FAIL),
        "lost": row.lost + (_estimated_loss(row, fact) if fact.lost is None else fact.lost),
    }


def _estimated_loss(row: JobRow, fact: events.RunEnded) -> Duration:
    """Running time since the last checkpoint, where the engine did not measure it and the work goes on elsewhere."""
    if fact.outcome not in REQUEUED or row.started_at is None:
        return 0
    return max(0, fact.at - max(row.started_at, row.checkpoint_at or 0))


def _refused(book: JobBook, fact: events.ActionRefused) -> None:
    found = book.running(fact.run_id)
    if found is None:
        return
    entry, run = found
    if fact.action == "start" and run.started_at is None:
        _ended(book, events.RunEnded(fact.at, fact.run_id, Outcome.LAUNCH_FAILED, 0))
    elif fact.action == "preempt" and entry.row.state is JobState.COMPLETING:
        book.change(entry, state=JobState.RUNNING)


def _cluster_changed(book: JobBook, fact: events.ClusterChanged) -> None:
    book.cluster = book.changes.cluster = fact.cluster


def _policy_changed(book: JobBook, fact: events.PolicyChanged) -> None:
    book.policy = book.changes.policy = fact.policy


FACTS: dict[type[Any], Callable[[JobBook, Any], None]] = {
    events.WorkloadCancelled: _cancelled,
    events.WorkloadHeld: _held,
    events.WorkloadReleased: _released,
    events.RequeueRequested: _requeue_requested,
    events.RunStarted: _started,
    events.RunAdopted: _adopted,
    events.RunCheckpointed: _checkpointed,
    events.RunSuspended: _suspended,
    events.RunContinued: _continued,
    events.RunEnded: _ended,
    events.ActionRefused: _refused,
    events.ClusterChanged: _cluster_changed,
    events.PolicyChanged: _policy_changed,
}


# --- intentions -----------------------------------------------------------------------------------------------------
def _start(book: JobBook, action: plans.Start, at: Instant) -> None:
    entry = book.waiting(action.workload_id)
    if entry is not None:
        book.start(entry, action, at)


def _stop(book: JobBook, action: plans.Preempt | plans.Cancel, at: Instant) -> None:
    found = book.running(action.run_id)
    if found is not None:
        book.change(found[0], state=JobState.COMPLETING)


def _reject(book: JobBook, action: plans.Reject, at: Instant) -> None:
    entry = book.waiting(action.workload_id)
    if entry is not None:
        book.end(entry, JobState.REJECTED, at)


ACTIONS: dict[type[Any], Callable[[JobBook, Any, Instant], None]] = {
    plans.Start: _start,
    plans.Preempt: _stop,
    plans.Cancel: _stop,
    plans.Reject: _reject,
}


# --- what a record speaks of ----------------------------------------------------------------------------------------
def mention_fact(mentions: dict[str, None], fact: Event) -> None:
    if isinstance(fact, events.WorkloadSubmitted):
        mentions[fact.workload.id] = None
    elif (workload_id := getattr(fact, "workload_id", None)) is not None:
        mentions[workload_id] = None
    elif (run_id := getattr(fact, "run_id", None)) is not None:
        mentions[workload_of(run_id)] = None
    elif (node := getattr(fact, "node", None)) is not None:
        mentions[node] = None


def mention_action(mentions: dict[str, None], action: plans.Action) -> None:
    if (workload_id := getattr(action, "workload_id", None)) is not None:
        mentions[workload_id] = None
    elif (run_id := getattr(action, "run_id", None)) is not None:
        mentions[workload_of(run_id)] = None
    if (node := getattr(action, "node", None)) is not None:
        mentions[node] = None
    beneficiary = getattr(getattr(action, "reason", None), "beneficiary", None)
    if beneficiary is not None:
        mentions[beneficiary] = None
