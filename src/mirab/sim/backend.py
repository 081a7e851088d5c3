"""The pretend engine: holds what only the future knows, and tells it as facts when their time has come.

What is modelled and what is not: `docs/decisions/0003-what-the-simulator-models.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop

from mypy_extensions import mypyc_attr

from mirab.model.events import (
    ActionRefused,
    Event,
    NodeDegraded,
    NodeDown,
    NodeUp,
    Outcome,
    RunEnded,
    RunStarted,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from mirab.model.plans import Action, CallHuman, Cancel, Drain, Preempt, Reject, Repair, Resume, Start
from mirab.model.resources import Allocation
from mirab.model.trace import Trace
from mirab.model.units import HOUR, Duration, Instant, NodeName, RunId, WorkloadId
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.sim.agenda import Agenda, Entry
from mirab.sim.attempts import Attempt, exit_delay
from mirab.sim.hardware import Hardware
from mirab.sim.ranks import CANCELLED, ENDED, MENDED, STARTED, STRUCK, SUBMITTED, VISITED


@dataclass(frozen=True, slots=True)
class SimOptions:
    """How the pretend world behaves where a log does not say.

    Attributes:
        start_delay: from the decision to start a run until it runs.
        human_delay: from the call until a human has freed the node.
        kill_at_limit: end an attempt at its time limit although the log says that the job ran longer.
    """

    start_delay: Duration = 0
    human_delay: Duration = 4 * HOUR
    kill_at_limit: bool = False


class SimClock:
    """Time as the engine sets it. It never goes back."""

    __slots__ = ("_now",)

    def __init__(self, now: Instant = 0) -> None:
        self._now = now

    def now(self) -> Instant:
        return self._now

    def jump(self, instant: Instant) -> None:
        """Raises ValueError: the instant has passed."""
        if instant < self._now:
            raise ValueError(f"the clock stands at {self._now} ms and cannot go back to {instant} ms")
        self._now = instant


@mypyc_attr(allow_interpreted_subclasses=True)
class SimBackend(Agenda):
    """Implements `Backend` on a trace. Facts come out in the order (instant, `RANK` of their kind, id).

    Facts of starts that need no time are quiet: they are handed out by the next `observe`, and `next_due` does not
    count them.
    """

    def __init__(self, trace: Trace, clock: SimClock, options: SimOptions = SimOptions()) -> None:
        super().__init__(trace)
        self._clock = clock
        self._options = options
        self._hardware = Hardware(trace.cluster)
        self._hardware.check(trace.troubles)
        self._attempts: dict[RunId, Attempt] = {}
        self._known: set[RunId] = set()
        self._kept: dict[WorkloadId, Duration] = {}
        self._called: set[tuple[NodeName, RunId]] = set()
        self._by_hand: dict[NodeName, bool] = {}
        self._quiet: list[Event] = []
        self._observed_at: Instant = clock.now()
        self._handlers = {
            MENDED: self._on_mended,
            STRUCK: self._on_struck,
            VISITED: self._on_visited,
            STARTED: self._on_started,
            ENDED: self._on_ended,
            CANCELLED: self._on_cancelled,
            SUBMITTED: self._on_submitted,
        }

    # --- the port ---------------------------------------------------------------------------------------------------
    def observe(self) -> list[Event]:
        """The facts up to now that have not been told yet, in order."""
        now = self._observed_at = self._clock.now()
        facts, self._quiet = self._quiet, []
        if len(facts) > 1:
            facts.sort(key=_run_of)
        heap, handlers = self._heap, self._handlers
        while heap and heap[0][0] <= now:
            entry = heappop(heap)
            handler = handlers.get(entry[1])
            if handler is None:
                facts.append(entry[4])
            else:
                handler(entry, facts)
        return facts

    def submit(self, action: Action) -> None:
        self.accept(action, self._clock.now())

    def accept(self, action: Action, at: Instant) -> None:
        """The action reaches the engine at `at`."""
        match action:
            case Start():
                self._start(action, at)
            case Preempt():
                self._stop(action.run_id, action.grace, at, Outcome.PREEMPTED)
            case Cancel():
                outcome = Outcome.REQUEUED if action.requeue else Outcome.CANCELLED
                self._stop(action.run_id, action.grace, at, outcome)
            case Repair():
                self._repair(action.node, at)
            case CallHuman():
                self._call(action, at)
            case Drain():
                self._by_hand[action.node] = action.stop_at is None
            case Resume():
                self._by_hand.pop(action.node, None)
            case Reject():
                self._kept.setdefault(action.workload_id, 0)

    # --- what the engine asks ---------------------------------------------------------------------------------------
    def next_due(self) -> Instant | None:
        """The instant of the next fact that is worth a decision; None = nothing will ever happen by itself."""
        heap = self._heap
        while heap:
            if not self._stale(heap[0]):
                return heap[0][0]
            heappop(heap)
        return None

    # --- what faults do ---------------------------------------------------------------------------------------------
    def strike(self, trouble: NodeTrouble) -> None:
        """Let a trouble happen that the trace does not hold.

        Raises:
            ValueError: the cluster has no such node.
        """
        self._hardware.check((trouble,))
        self._push(trouble.at, STRUCK, trouble.node, trouble)

    def recover(self, node: NodeName, at: Instant) -> None:
        """Health returns by itself to a degraded node whose repair has not begun; else nothing happens."""
        if not self._hardware.healthy(node) and self._hardware.ends_repair(node) is None:
            self._hardware.mend(node)
            self._tell(NodeUp(at, node), node)

    def kill(self, run_id: RunId, at: Instant) -> None:
        """The run dies as if its node had failed."""
        attempt = self._attempts.get(run_id)
        if attempt is not None and attempt.ends_at > at:
            self._end(attempt, at, Outcome.NODE_FAIL)

    # --- actions ----------------------------------------------------------------------------------------------------
    def _start(self, action: Start, at: Instant) -> None:
        run_id = action.run_id
        if run_id in self._known:
            return
        self._known.add(run_id)
        if not self._hardware.usable(action.allocation):
            self._tell(ActionRefused(at, run_id, "start", "a node is out of service"), run_id)
            return
        arrival = self._arrivals[action.workload_id]
        attempt = self._attempt(action, arrival, at + self._options.start_delay)
        self._attempts[run_id] = attempt
        attempt.ticket = self._push(attempt.ends_at, ENDED, run_id, attempt)
        if attempt.started_at == self._observed_at:
            self._quiet.append(_started(attempt))
        else:
            self._push(attempt.started_at, STARTED, run_id, attempt)

    def _attempt(self, action: Start, arrival: Arrival, started_at: Instant) -> Attempt:
        workload = arrival.workload
        again = action.workload_id in self._kept
        attempt = Attempt(
            action.run_id,
            workload,
            action.allocation,
            started_at,
            began_with=self._kept.setdefault(action.workload_id, 0),
            restart=workload.restart if again else 0,
            interval=arrival.saves_every,
            minimum=action.min_runtime,
        )
        attempt.foresee_end(arrival.run, workload.shape.time_limit if self._options.kill_at_limit else None)
        return attempt

    def _stop(self, run_id: RunId, grace: Duration, at: Instant, outcome: Outcome) -> None:
        attempt = self._attempts.get(run_id)
        if attempt is None:
            self._deny(run_id, at)
            return
        if attempt.told:
            return
        attempt.told = True
        if self._hardware.ignores_stops(attempt.allocation):
            return
        if attempt.started_at > at:
            self._end(attempt, at, Outcome.LAUNCH_FAILED)
            return
        gone_at = at + exit_delay(run_id, grace)
        if gone_at < attempt.ends_at:
            self._end(attempt, gone_at, outcome)

    def _deny(self, run_id: RunId, at: Instant) -> None:
        """A stop for a run that never came: it counts as a failed launch, and a late start of it is ignored."""
        if run_id not in self._known:
            self._known.add(run_id)
            self._tell(RunEnded(at, run_id, Outcome.LAUNCH_FAILED, 0), run_id)

    def _repair(self, node: NodeName, at: Instant) -> None:
        """A healthy node is back at once. What still runs on a sick one (it should be empty) dies with the reboot."""
        self._by_hand.pop(node, None)
        up_at = self._hardware.begin_repair(node, at)
        if up_at is not None:
            self._fail_runs_on(node, at)
            self._push(up_at, MENDED, node, None)
        elif self._hardware.healthy(node):
            self._tell(NodeUp(at, node), node)

    def _call(self, action: CallHuman, at: Instant) -> None:
        if (action.node, action.run_id) not in self._called:
            self._called.add((action.node, action.run_id))
            self._push(at + self._options.human_delay, VISITED, action.node, action)

    # --- entries of the heap, as their time comes -------------------------------------------------------------------
    def _on_submitted(self, entry: Entry, facts: list[Event]) -> None:
        arrival: Arrival = entry[4]
        workload = arrival.workload
        facts.append(WorkloadSubmitted(entry[0], workload))
        if arrival.cancel_after is not None:
            self._push(entry[0] + arrival.cancel_after, CANCELLED, workload.id, None)
        self._left -= 1
        self._await_next()

    def _on_cancelled(self, entry: Entry, facts: list[Event]) -> None:
        if entry[2] not in self._kept:
            facts.append(WorkloadCancelled(entry[0], WorkloadId(entry[2])))

    def _on_started(self, entry: Entry, facts: list[Event]) -> None:
        if not self._stale(entry):
            facts.append(_started(entry[4]))

    def _on_ended(self, entry: Entry, facts: list[Event]) -> None:
        attempt = entry[4]
        if not isinstance(attempt, Attempt):
            facts.append(attempt)
            return
        if attempt.ticket != entry[3]:
            return
        del self._attempts[attempt.run_id]
        lost = 0
        if attempt.outcome is not Outcome.COMPLETED:
            saved, lost = attempt.saved_and_lost(entry[0])
            workload_id = attempt.workload.id
            self._kept[workload_id] = max(saved, self._kept[workload_id])
        facts.append(RunEnded(entry[0], attempt.run_id, attempt.outcome, lost))

    def _on_struck(self, entry: Entry, facts: list[Event]) -> None:
        trouble: NodeTrouble = entry[4]
        kind = self._hardware.strike(trouble)
        if kind == "degraded":
            self._tell(NodeDegraded(trouble.at, NodeName(trouble.node), "hardware"), trouble.node)
        elif kind == "down":
            self._fail_runs_on(NodeName(trouble.node), trouble.at)
            self._tell(NodeDown(trouble.at, NodeName(trouble.node), "hardware"), trouble.node)
        up_at = self._hardware.ends_repair(trouble.node)
        if up_at is not None:
            self._push(up_at, MENDED, trouble.node, None)

    def _on_mended(self, entry: Entry, facts: list[Event]) -> None:
        at, node = entry[0], NodeName(entry[2])
        if self._hardware.ends_repair(node) == at:
            self._hardware.mend(node)
            self._tell(NodeUp(at, node), node)

    def _on_visited(self, entry: Entry, facts: list[Event]) -> None:
        """The human stops the run called for, and those there that were told to stop.

        Where the policy has told nobody to stop and waits for the node to empty, the human empties it. A run that the
        human does not find counts as a failed launch.
        """
        call: CallHuman = entry[4]
        self._called.discard((call.node, call.run_id))
        self._hardware.listen(call.node)
        self._deny(call.run_id, entry[0])
        for attempt in self._running_on(call.node):
            if attempt.told or attempt.run_id == call.run_id or self._by_hand.get(call.node):
                self.kill(attempt.run_id, entry[0])

    # --- small parts ------------------------------------------------------------------------------------------------
    def _end(self, attempt: Attempt, at: Instant, outcome: Outcome) -> None:
        attempt.ends_at, attempt.outcome = at, outcome
        attempt.ticket = self._push(at, ENDED, attempt.run_id, attempt)

    def _stale(self, entry: Entry) -> bool:
        rank = entry[1]
        if rank == ENDED:
            return isinstance(entry[4], Attempt) and entry[4].ticket != entry[3]
        if rank == CANCELLED:
            return entry[2] in self._kept
        return rank == STARTED and entry[4].ends_at < entry[0]

    def _running_on(self, node: NodeName) -> Iterator[Attempt]:
        number, bit = self._hardware.place(node)
        for attempt in list(self._attempts.values()):
            if _touches(attempt.allocation, number, bit):
                yield attempt

    def _fail_runs_on(self, node: NodeName, at: Instant) -> None:
        """A run that completes at this very instant has completed."""
        for attempt in self._running_on(node):
            self.kill(attempt.run_id, at)


def _touches(allocation: Allocation, pool: int, bit: int) -> bool:
    return allocation.pool == pool and bool(allocation.mask & bit)


def _started(attempt: Attempt) -> RunStarted:
    return RunStarted(attempt.started_at, attempt.run_id, _vouched(attempt.workload, attempt.interval))


def _vouched(workload: Workload, interval: Duration) -> bool:
    return workload.checkpoint == interval


def _run_of(fact: Event) -> RunId:
    assert isinstance(fact, RunStarted)
    return fact.run_id
