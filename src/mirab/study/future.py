"""An engine for one possible future of a state: what runs goes on, and how long, what comes and who gives up is drawn.

The scheduler is the real one; only lengths, arrivals and patience are guessed. What is modelled and what is not:
`docs/decisions/0013-forecasts.md`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

from mirab.core.nodes import Health
from mirab.core.runs import Run
from mirab.core.state import State
from mirab.model.events import Event, NodeUp, Outcome, RunEnded, RunStarted, WorkloadCancelled, WorkloadSubmitted
from mirab.model.plans import Action, Cancel, Preempt, Repair, Start
from mirab.model.resources import Allocation
from mirab.model.units import Duration, Instant, NodeName, RunId, WorkloadId
from mirab.model.workloads import Workload
from mirab.sim.attempts import Attempt, exit_delay
from mirab.sim.backend import SimClock
from mirab.sim.ranks import RANK
from mirab.study.history import History

OUT = (Health.REPAIR, Health.DOWN)


@dataclass(frozen=True, slots=True)
class Draws:
    """The chances of one future: the same thing gets the same chance whatever else happens in it."""

    seed: str

    def of(self, what: str, name: str) -> float:
        """A number from 0 to 1."""
        drawn = blake2b(f"{self.seed}/{what}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn) / 2**64


class Future:
    """Implements `World` for `drive`. Quiet facts (starts) are told with the next decision and cause none.

    Attributes:
        sources: how many run times were drawn from whose history (`history.WHERE`).

    Args:
        state: as it is; the future begins at the clock's instant, and the state is to be driven by it alone.
        coming: what will be submitted, in order of time.
        patient: workloads that never give up: those that are asked about.
    """

    def __init__(self, state: State, clock: SimClock, history: History, draws: Draws, coming: Iterable[Workload],
                 patient: Container[WorkloadId]) -> None:  # fmt: skip
        self.sources: dict[str, int] = {}
        self._state = state
        self._clock = clock
        self._history = history
        self._draws = draws
        self._patient = patient
        self._coming = iter(coming)
        self._heap: list[tuple[Instant, int, str, int, Any]] = []
        self._quiet: list[Event] = []
        self._attempts: dict[RunId, Attempt] = {}
        self._saved: dict[WorkloadId, Duration] = {}
        self._serial = 0
        for run in state.runs.values():
            self._go_on(run)
        for pending in state.pending.values():
            self._lose_patience(pending.workload)
        for (number, index), node in state.troubled.items():
            if node.health in OUT:
                self._mend(state.cluster.pools[number].nodes[index], node.since)
        self._await_arrival()

    # --- the port ---------------------------------------------------------------------------------------------------
    def observe(self) -> Iterator[Event]:
        now, heap = self._clock.now(), self._heap
        quiet, self._quiet = self._quiet, []
        yield from quiet
        while heap and heap[0][0] <= now:
            at, _, _, serial, what = heappop(heap)
            fact = self._ended(what, at) if isinstance(what, Attempt) and what.ticket == serial else what
            if isinstance(fact, WorkloadSubmitted):
                self._lose_patience(fact.workload)
                self._await_arrival()
            elif isinstance(fact, WorkloadCancelled) and not self._still_new(fact.workload_id):
                continue
            if not isinstance(fact, Attempt):
                yield fact

    def submit(self, action: Action) -> None:
        now = self._clock.now()
        match action:
            case Start():
                self._start(action, now)
            case Preempt():
                self._stop(action.run_id, action.grace, now, Outcome.PREEMPTED)
            case Cancel():
                self._stop(action.run_id, action.grace, now, Outcome.REQUEUED if action.requeue else Outcome.CANCELLED)
            case Repair():
                self._mend(action.node, now)

    def next_due(self) -> Instant | None:
        heap = self._heap
        while heap:
            at, _, _, serial, what = heap[0]
            if not isinstance(what, Attempt) or what.ticket == serial:
                return at
            heappop(heap)
        return None

    def exhausted(self) -> bool:
        """There is always more to come: a forecast ends when it knows enough."""
        return False

    # --- runs -------------------------------------------------------------------------------------------------------
    def _go_on(self, run: Run) -> None:
        """A run of the state: how much longer it takes, given how long it has run."""
        now = self._clock.now()
        if run.suspended_at is not None:
            return
        self._saved[run.workload.id] = self._history.saved(run.workload.id)
        since = now if run.started_at is None else run.started_at
        attempt = self._begin(run.id, run.workload, run.allocation, run.min_runtime, since, now)
        if run.started_at is None:
            self._quiet.append(RunStarted(now, run.id, checkpoints_vouched=True))
        if run.stop_by is not None:
            attempt.told = True
            self._end(attempt, self._gone_at(run, now), _outcome_of(run))

    def _gone_at(self, run: Run, now: Instant) -> Instant:
        """When a run that was told to stop is gone: half of them use their whole grace, as in the simulator."""
        assert run.stop_by is not None
        left = max(0, run.stop_by - now)
        chance = self._draws.of("exit", run.id)
        return now + (left if chance >= 0.5 else round(left * 2 * chance))

    def _start(self, action: Start, now: Instant) -> None:
        run = self._state.runs[action.run_id]
        self._quiet.append(RunStarted(now, run.id, checkpoints_vouched=True))
        self._begin(run.id, run.workload, run.allocation, action.min_runtime, now, now)

    def _begin(self, run_id: RunId, workload: Workload, given: Allocation, minimum: Duration, since: Instant,
               now: Instant) -> Attempt:  # fmt: skip
        saved = self._saved.setdefault(workload.id, 0)
        restart = workload.restart if self._state.runs[run_id].attempt > 1 else 0
        attempt = Attempt(run_id, workload, given, since, saved, restart, workload.checkpoint, minimum)
        done = saved + max(0, now - since - restart)
        work, where = self._history.run_time(workload, self._draws.of("run", workload.id), done)
        self.sources[where] = self.sources.get(where, 0) + 1
        attempt.foresee_end(work, workload.shape.time_limit)
        self._end(attempt, max(now + 1, attempt.ends_at), attempt.outcome)
        self._attempts[run_id] = attempt
        return attempt

    def _stop(self, run_id: RunId, grace: Duration, now: Instant, outcome: Outcome) -> None:
        attempt = self._attempts.get(run_id)
        if attempt is None or attempt.told:
            return
        attempt.told = True
        gone_at = now + exit_delay(run_id, grace)
        if gone_at < attempt.ends_at:
            self._end(attempt, gone_at, outcome)

    def _end(self, attempt: Attempt, at: Instant, outcome: Outcome) -> None:
        attempt.ends_at, attempt.outcome = at, outcome
        attempt.ticket = self._push(at, RANK[RunEnded], attempt.run_id, attempt)

    def _ended(self, attempt: Attempt, at: Instant) -> RunEnded:
        del self._attempts[attempt.run_id]
        lost = 0
        if attempt.outcome is not Outcome.COMPLETED:
            saved, lost = attempt.saved_and_lost(at)
            self._saved[attempt.workload.id] = max(saved, self._saved[attempt.workload.id])
        return RunEnded(at, attempt.run_id, attempt.outcome, lost)

    # --- people and nodes -------------------------------------------------------------------------------------------
    def _await_arrival(self) -> None:
        workload = next(self._coming, None)
        if workload is not None:
            fact = WorkloadSubmitted(workload.submitted_at, workload)
            self._push(fact.at, RANK[WorkloadSubmitted], workload.id, fact)

    def _lose_patience(self, workload: Workload) -> None:
        """When its user gives up, if anybody does."""
        if workload.id in self._patient:
            return
        waited = self._clock.now() - workload.submitted_at
        span = self._history.patience.draw(self._draws.of("patience", workload.id), waited)
        if span is not None:
            at = max(self._clock.now(), workload.submitted_at + round(span))
            self._push(at, RANK[WorkloadCancelled], workload.id, WorkloadCancelled(at, workload.id))

    def _still_new(self, workload: WorkloadId) -> bool:
        pending = self._state.pending.get(workload)
        return pending is not None and pending.attempt == 1

    def _mend(self, node: NodeName, since: Instant) -> None:
        now = self._clock.now()
        span = self._history.repair_time(self._draws.of("repair", node), now - since)
        self._push(max(now, since + span), RANK[NodeUp], node, NodeUp(max(now, since + span), node))

    def _push(self, at: Instant, rank: int, key: str, what: object) -> int:
        self._serial += 1
        heappush(self._heap, (at, rank, key, self._serial, what))
        return self._serial


def _outcome_of(run: Run) -> Outcome:
    """How a run that is stopping will end."""
    if run.cancelled:
        return Outcome.CANCELLED
    return Outcome.REQUEUED if run.recalled else Outcome.PREEMPTED
