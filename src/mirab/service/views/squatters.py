"""Runs that hold GPUs without a sign of progress for longer than they said they would.

A sign of progress is a confirmed checkpoint: `mirab checkpoint` from inside, or the declared file touched. Output is
none, since a loop that prints is not progress. Who declares neither `--progress` nor `--checkpoint` is never flagged:
there is nothing to hold them to. Such a run is charged like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import structlog

from mirab.core.runs import Run
from mirab.core.state import State
from mirab.model.events import Event, RunContinued, RunEnded, RunStarted
from mirab.model.plans import Plan
from mirab.model.units import HOUR, SECOND, Duration, Instant, RunId, WorkloadId, workload_of
from mirab.service.forms.machines import Squatter
from mirab.service.views.moments import iso
from mirab.study.formats import span

if TYPE_CHECKING:
    from mirab.service.live import Live

Activity: TypeAlias = Callable[[RunId], float | None]
"""Mean GPU activity of a run from 0 to 1; None = no source tells."""

log = structlog.get_logger("mirab.progress")


@dataclass(frozen=True, slots=True)
class Silence:
    """A run without a sign of progress. `since`: the last one, or its start; `interval`: what it declared."""

    run_id: RunId
    workload: WorkloadId
    user: str
    account: str
    gpus: int
    since: Instant
    interval: Duration
    checkpoints: bool
    """Whether it has ever shown one in this attempt."""
    interactive: bool = False

    def silent(self, now: Instant) -> Duration:
        return now - self.since

    def flag(self, now: Instant) -> str:
        """The sentence for its owner."""
        shown = "no checkpoint" if not self.checkpoints else "no further checkpoint"
        return (
            f"holds {self.gpus} GPU{'' if self.gpus == 1 else 's'} and has shown {shown} for "
            f"{span(self.silent(now) / SECOND)}; it declared one at least every {span(self.interval / SECOND)}"
        )


class Watch:
    """Which runs declared an interval, and which of them are silent for longer now.

    It hears each cycle, and lets one happen when the next run is due to be flagged, so that `on_flag` (a log line, and
    whoever else listens) comes then and not when somebody looks.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._lock = Lock()
        self._declared: dict[WorkloadId, tuple[Duration, bool]] = {}
        self._due: list[tuple[Instant, RunId]] = []
        self._told: dict[RunId, Instant] = {}
        self.on_flag: list[Callable[[Silence], None]] = [_logged]
        with live.reading() as state:
            for run in list(state.runs.values()):
                self._declare(run.workload.id)
                self._put(run)
            live.subscribe(self._hear)
        live.add_timer(self._timer)

    def _declare(self, workload: WorkloadId) -> None:
        if workload in self._declared:
            return
        spec = self._live.store.spec(workload)
        if spec is not None and spec.progress_interval:
            with self._lock:
                self._declared[workload] = spec.progress_interval, spec.interactive

    def _put(self, run: Run) -> None:
        declared = self._declared.get(run.workload.id)
        if declared is not None and run.started_at is not None:
            heappush(self._due, (_last_sign(run) + declared[0], run.id))

    def _hear(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """In the decider's thread, when nobody else changes the state."""
        state = self._live.state
        for fact in facts:
            if isinstance(fact, RunStarted):
                self._declare(workload_of(fact.run_id))
                self._resumed(state, fact.run_id)
            elif isinstance(fact, RunContinued):
                self._resumed(state, fact.run_id)
            elif isinstance(fact, RunEnded):
                self._told.pop(fact.run_id, None)
                if workload_of(fact.run_id) not in state.running:
                    with self._lock:
                        self._declared.pop(workload_of(fact.run_id), None)
        self._flag_until(state, max(plan.at, state.now))

    def _resumed(self, state: State, run_id: RunId) -> None:
        run = state.runs.get(run_id)
        if run is not None:
            self._put(run)

    def _flag_until(self, state: State, now: Instant) -> None:
        while self._due and self._due[0][0] <= now:
            _, run_id = heappop(self._due)
            run = state.runs.get(run_id)
            silence = None if run is None else self._silence(state, run)
            if run is None or silence is None:
                continue
            if silence.silent(now) < silence.interval:
                self._put(run)
                continue
            if self._told.get(run_id) != silence.since:
                self._told[run_id] = silence.since
                for listener in self.on_flag:
                    listener(silence)
            heappush(self._due, (now + silence.interval, run_id))

    def _timer(self) -> Instant | None:
        return self._due[0][0] if self._due else None

    # --- read -------------------------------------------------------------------------------------------------------
    def silences(self, state: State, now: Instant, only: Sequence[WorkloadId] | None = None) -> list[Silence]:
        """The runs that are silent for longer than they declared, the worst first."""
        with self._lock:
            declared = list(self._declared) if only is None else [each for each in only if each in self._declared]
        running = (state.running.get(workload) for workload in declared)
        found = [silence for run in running if run is not None and (silence := self._silence(state, run)) is not None]
        late = [each for each in found if each.silent(now) >= each.interval]
        return sorted(late, key=lambda each: (-each.silent(now) * each.gpus, each.run_id))

    def _silence(self, state: State, run: Run) -> Silence | None:
        """How it stands; None = it declared nothing, holds no GPU, or does not really run."""
        declared = self._declared.get(run.workload.id)
        gpus = run.allocation.slots if state.cluster.pools[run.allocation.pool].gpus_per_node else 0
        if declared is None or not gpus or run.started_at is None or run.suspended_at is not None:
            return None
        return Silence(
            run.id, run.workload.id, run.workload.user, run.workload.account, gpus, _last_sign(run), declared[0],
            run.checkpoint_at is not None, declared[1],
        )  # fmt: skip


def _last_sign(run: Run) -> Instant:
    return max(chain((run.started_at or run.requested_at,), filter(None, (run.checkpoint_at,))))


def _logged(silence: Silence) -> None:
    log.warning(
        "run.no_progress", run=silence.run_id, user=silence.user, account=silence.account, gpus=silence.gpus,
        interval_s=silence.interval / SECOND,
    )  # fmt: skip


def told(silence: Silence, now: Instant, activity: Activity) -> Squatter:
    """A line of the report."""
    return Squatter(
        job=silence.workload,
        run=silence.run_id,
        user=silence.user,
        account=silence.account,
        gpus=silence.gpus,
        since=iso(silence.since),
        silent_s=silence.silent(now) / SECOND,
        gpu_hours=round(silence.gpus * silence.silent(now) / HOUR, 3),
        activity=activity(silence.run_id),
        interactive=silence.interactive,
        flag=silence.flag(now),
    )
