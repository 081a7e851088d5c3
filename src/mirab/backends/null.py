"""An engine without machines: runs begin at once and end after a time. For load tests, and to try a policy out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from threading import Lock

from mirab.model.events import Event, NodeUp, Outcome, RunEnded, RunStarted
from mirab.model.plans import Action, Cancel, Preempt, Repair, Start
from mirab.model.records import JobSpec
from mirab.model.units import MINUTE, SECOND, Duration, Instant, RunId, WorkloadId

USUAL: Duration = 10 * MINUTE

SpecOf = Callable[[WorkloadId], JobSpec | None]


def run_time(spec: JobSpec | None) -> Duration:
    """How long a run lasts: what ``sleep SECONDS`` asks for, else ten minutes."""
    if spec is not None and len(spec.argv) == 2 and spec.argv[0] == "sleep":
        try:
            return max(1, int(float(spec.argv[1]) * SECOND))
        except (ValueError, OverflowError):
            return USUAL
    return USUAL


class NullBackend:
    """Nothing is executed. A restart of the service begins every run anew."""

    def __init__(self, spec_of: SpecOf, clock: Callable[[], Instant], wake: Callable[[], None] = lambda: None) -> None:
        self._spec_of, self._clock, self._wake = spec_of, clock, wake
        self._lock = Lock()
        self._facts: list[Event] = []
        self._ends: list[tuple[Instant, int, RunId, Outcome, int]] = []
        self._counted = count()
        self._running: dict[RunId, None] = {}

    def adopt(self, expected: Mapping[RunId, Start], started: Iterable[RunId] = ()) -> None:
        """The runs that the state believes in run again."""
        for start in expected.values():
            self.submit(start)

    def observe(self) -> list[Event]:
        now = self._clock()
        with self._lock:
            facts, self._facts = self._facts, []
            while self._ends and self._ends[0][0] <= now:
                at, _, run_id, outcome, code = heappop(self._ends)
                if run_id in self._running:
                    del self._running[run_id]
                    facts.append(RunEnded(at, run_id, outcome, None, code))
        return facts

    def submit(self, action: Action) -> None:
        """Begin an action; a second time changes nothing."""
        now = self._clock()
        with self._lock:
            if isinstance(action, Start):
                self._start(action, now)
            elif isinstance(action, Preempt):
                self._end(now + min(action.grace, SECOND), action.run_id, Outcome.PREEMPTED, 143)
            elif isinstance(action, Cancel):
                outcome = Outcome.REQUEUED if action.requeue else Outcome.CANCELLED
                self._end(now + min(action.grace, SECOND), action.run_id, outcome, 143)
            elif isinstance(action, Repair):
                self._facts.append(NodeUp(now, action.node))
        self._wake()

    def _start(self, action: Start, now: Instant) -> None:
        if action.run_id in self._running:
            return
        self._running[action.run_id] = None
        self._facts.append(RunStarted(now, action.run_id))
        lasts = run_time(self._spec_of(action.workload_id))
        self._end(now + lasts, action.run_id, Outcome.COMPLETED, 0)

    def _end(self, at: Instant, run_id: RunId, outcome: Outcome, code: int) -> None:
        heappush(self._ends, (at, next(self._counted), run_id, outcome, code))

    def next_due(self) -> Instant | None:
        with self._lock:
            return self._ends[0][0] if self._ends else None

    def close(self) -> None:
        """Nothing to let go of."""

    def state_dir(self, workload_id: WorkloadId) -> Path:
        """No run ever sees it."""
        return Path("/nonexistent") / workload_id

    def output_path(self, workload_id: WorkloadId, attempt: int | None = None, stream: str = "out") -> Path | None:
        """There is no output."""
        return None

    def run_dir(self, workload_id: WorkloadId, attempt: int | None = None) -> Path | None:
        """There is no folder."""
        return None

    def utilization(self) -> dict[RunId, float]:
        """Nothing is measured."""
        return {}

    def prune(self, ended_before: Instant) -> int:
        """Nothing is kept."""
        return 0
