"""A clock turned by hand and an engine that does what it is told, for tests that drive the real `cycle`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mirab.model.events import (
    REQUEUED,
    ActionRefused,
    Event,
    NodeDown,
    NodeUp,
    Outcome,
    RequeueRequested,
    RunCheckpointed,
    RunContinued,
    RunEnded,
    RunStarted,
    RunSuspended,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from mirab.model.plans import Action, Cancel, Plan, Preempt, Repair, Start
from mirab.model.resources import Allocation, Cluster, nodes_of
from mirab.model.units import Duration, Instant, NodeName, RunId, WorkloadId
from mirab.model.workloads import Workload


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the pretended engine treats a workload: what only the future knows, and what goes wrong.

    Attributes:
        run: work to be done; None = until the test ends it.
        start_delay: between the order to start and the run really running.
        launch_fails: so many launches fail first.
        vouched: the engine vouches for checkpoints at the declared interval and at the end of the minimum.
    """

    run: Duration | None = None
    start_delay: Duration = 0
    never_starts: bool = False
    launch_fails: int = 0
    ignores_stop: bool = False
    refuses_stop: bool = False
    vouched: bool = True


class HandClock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.instant: Instant = 0

    def now(self) -> Instant:
        return self.instant


@dataclass(slots=True)
class Recorder:
    """A journal in memory."""

    entries: list[tuple[tuple[Event, ...], Plan]] = field(default_factory=list)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.entries.append((tuple(facts), plan))


@dataclass(slots=True)
class Attempt:
    """What the engine knows of a run that it has been told to start."""

    run_id: RunId
    workload: Workload
    allocation: Allocation
    min_runtime: Duration
    begun: Instant
    running_since: Instant | None = None
    suspended_at: Instant | None = None
    saved: Duration = 0
    stop_told: bool = False
    epoch: int = 0
    """Scheduled endings of an earlier epoch no longer hold."""


@dataclass(order=True, slots=True)
class _Due:
    at: Instant
    number: int
    event: Event = field(compare=False)
    epoch: int | None = field(compare=False, default=None)


class PretendEngine:
    """Runs end after their work, or when told; preempted ones stop after their grace; facts come in order of time."""

    def __init__(self, cluster: Cluster, clock: HandClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.conduct: dict[WorkloadId, Conduct] = {}
        self.workloads: dict[WorkloadId, Workload] = {}
        self.attempts: dict[RunId, Attempt] = {}
        self.done: dict[WorkloadId, Duration] = {}
        self.repairs: dict[NodeName, Duration] = {}
        self.launches: dict[WorkloadId, int] = {}
        self._due: list[_Due] = []
        self._number = 0

    # --- what the loop asks for
    def observe(self) -> Iterator[Event]:
        while self._due and self._due[0].at <= self.clock.now():
            due = heapq.heappop(self._due)
            if due.epoch is None or self._still(due):
                self._happen(due.event)
                yield due.event

    def submit(self, action: Action) -> None:
        if isinstance(action, Start):
            self._start(action)
        elif isinstance(action, Preempt):
            self._stop(action, Outcome.PREEMPTED)
        elif isinstance(action, Cancel):
            self._stop(action, Outcome.REQUEUED if action.requeue else Outcome.CANCELLED)
        elif isinstance(action, Repair) and action.node in self.repairs:
            self.fact(NodeUp(self.clock.now() + self.repairs.pop(action.node), action.node))

    # --- what the test makes happen
    def fact(self, event: Event, epoch: int | None = None) -> None:
        """Something that will be observed at its instant."""
        self._number += 1
        heapq.heappush(self._due, _Due(event.at, self._number, event, epoch))

    def arrive(self, workload: Workload, conduct: Conduct) -> None:
        self.conduct[workload.id] = conduct
        self.workloads[workload.id] = workload
        self.fact(WorkloadSubmitted(workload.submitted_at, workload))

    def cancel(self, workload_id: WorkloadId) -> None:
        self.fact(WorkloadCancelled(self.clock.now(), workload_id))

    def requeue(self, workload_id: WorkloadId) -> None:
        self.fact(RequeueRequested(self.clock.now(), workload_id))

    def end(self, run_id: RunId, outcome: Outcome) -> None:
        attempt = self.attempts[run_id]
        lost = self._lost(attempt, self.clock.now()) if outcome in REQUEUED else None
        self.fact(RunEnded(self.clock.now(), run_id, outcome, lost), attempt.epoch)

    def checkpoint(self, run_id: RunId) -> None:
        self.fact(RunCheckpointed(self.clock.now(), run_id))

    def suspend(self, run_id: RunId) -> None:
        attempt = self.attempts[run_id]
        attempt.suspended_at = self.clock.now()
        attempt.epoch += 1
        self.fact(RunSuspended(self.clock.now(), run_id))

    def resume(self, run_id: RunId) -> None:
        attempt, now = self.attempts[run_id], self.clock.now()
        assert attempt.suspended_at is not None and attempt.running_since is not None
        attempt.running_since += now - attempt.suspended_at
        attempt.suspended_at = None
        self.fact(RunContinued(now, run_id))
        self._schedule_end(attempt)

    def down(self, node: NodeName, cause: str) -> None:
        now = self.clock.now()
        self.fact(NodeDown(now, node, cause))
        for run_id in self.runs_on(node):
            attempt = self.attempts[run_id]
            self.fact(RunEnded(now, run_id, Outcome.NODE_FAIL, self._lost(attempt, now)), attempt.epoch)
        if node in self.repairs:
            self.fact(NodeUp(now + self.repairs.pop(node), node))

    def next_due(self) -> Instant | None:
        while self._due and self._due[0].epoch is not None and not self._still(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0].at if self._due else None

    def run_of(self, workload_id: WorkloadId) -> RunId | None:
        found = [run_id for run_id, attempt in self.attempts.items() if attempt.workload.id == workload_id]
        return found[0] if found else None

    def runs_on(self, node: NodeName) -> list[RunId]:
        return [run_id for run_id, attempt in self.attempts.items() if node in self.nodes_of(attempt.allocation)]

    def nodes_of(self, allocation: Allocation) -> list[NodeName]:
        return [self.cluster.pools[allocation.pool].nodes[number] for number in nodes_of(allocation.mask)]

    # --- inside
    def _start(self, action: Start) -> None:
        assert action.run_id not in self.attempts, f"{action.run_id} is started twice"
        now = self.clock.now()
        workload = self.workloads[action.workload_id]
        conduct = self.conduct[action.workload_id]
        self.attempts[action.run_id] = Attempt(action.run_id, workload, action.allocation, action.min_runtime, now)
        launch = self.launches[workload.id] = self.launches.get(workload.id, 0) + 1
        if launch <= conduct.launch_fails:
            self.fact(RunEnded(now, action.run_id, Outcome.LAUNCH_FAILED), 0)
        elif not conduct.never_starts:
            self.fact(RunStarted(now + conduct.start_delay, action.run_id, conduct.vouched), 0)

    def _stop(self, action: Preempt | Cancel, outcome: Outcome) -> None:
        attempt = self.attempts.get(action.run_id)
        if attempt is None:
            return
        assert not attempt.stop_told, f"{action.run_id} is told to stop twice"
        now, conduct = self.clock.now(), self.conduct[attempt.workload.id]
        if conduct.refuses_stop:
            self.fact(ActionRefused(now, action.run_id, "preempt", "the engine will not stop it"))
            return
        attempt.stop_told = True
        if not conduct.ignores_stop:
            stop = now + action.grace
            outcome = outcome if attempt.running_since is not None else Outcome.LAUNCH_FAILED
            self.fact(RunEnded(stop, action.run_id, outcome, self._lost(attempt, stop)), attempt.epoch)

    def _still(self, due: _Due) -> bool:
        run_id = getattr(due.event, "run_id", None)
        attempt = self.attempts.get(run_id) if run_id is not None else None
        return attempt is not None and attempt.epoch == due.epoch

    def _happen(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            attempt = self.attempts[event.run_id]
            attempt.running_since = event.at
            self._schedule_end(attempt)
        elif isinstance(event, RunCheckpointed):
            attempt = self.attempts[event.run_id]
            attempt.saved = self._ran(attempt, event.at)
        elif isinstance(event, RunEnded):
            attempt = self.attempts.pop(event.run_id)
            useful = self._ran(attempt, event.at) - self._restart(attempt.workload) - (event.lost or 0)
            self.done[attempt.workload.id] = self.done.get(attempt.workload.id, 0) + max(0, useful)

    def _schedule_end(self, attempt: Attempt) -> None:
        run = self.conduct[attempt.workload.id].run
        limit = attempt.workload.shape.time_limit
        assert attempt.running_since is not None
        ends: list[tuple[Instant, Outcome]] = []
        if run is not None:
            left = max(1, run - self.done.get(attempt.workload.id, 0))
            ends.append((attempt.running_since + self._restart(attempt.workload) + left, Outcome.COMPLETED))
        if limit is not None:
            ends.append((attempt.running_since + limit, Outcome.TIMEOUT))
        if ends:
            at, outcome = min(ends, key=lambda end: end[0])
            self.fact(RunEnded(at, attempt.run_id, outcome), attempt.epoch)

    def _restart(self, workload: Workload) -> Duration:
        return workload.restart if workload.id in self.done else 0

    def _ran(self, attempt: Attempt, at: Instant) -> Duration:
        if attempt.running_since is None:
            return 0
        until = at if attempt.suspended_at is None else attempt.suspended_at
        return max(0, until - attempt.running_since)

    def _lost(self, attempt: Attempt, at: Instant) -> Duration:
        """Running time to be repeated: what is newer than the last checkpoint (vouched ones at the interval and at
        the end of the minimum)."""
        ran, saved = self._ran(attempt, at), attempt.saved
        if self.conduct[attempt.workload.id].vouched:
            interval = attempt.workload.checkpoint
            saved = max(saved, ran // interval * interval if interval else 0)
            saved = max(saved, attempt.min_runtime if ran >= attempt.min_runtime else 0)
        return max(0, ran - saved)
