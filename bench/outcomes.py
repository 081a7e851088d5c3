"""What people get out of a replay, counted from facts alone: work that lasts, waits, and time to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mirab.model.events import Event, Outcome, RunEnded, RunStarted, WorkloadCancelled, WorkloadSubmitted
from mirab.model.plans import Plan, Start
from mirab.model.units import AccountPath, Duration, Instant, RunId, WorkloadId
from mirab.model.workloads import Workload

ORIGIN_MARK = "~"
"""What an adversary makes of a workload is called `ORIGIN~PART`; it is counted as the origin."""
RESUBMITTED_MARK = "~again"


@dataclass(slots=True)
class _Story:
    """One thing that somebody wanted, perhaps cut into parts."""

    account: AccountPath
    submitted_at: Instant
    gpus: int
    parts: int = 0
    parts_done: int = 0
    first_start: Instant | None = None
    done_at: Instant | None = None
    gave_up_at: Instant | None = None


@dataclass(slots=True)
class _Attempt:
    work: Workload
    slots: int
    restart: Duration
    started_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Got:
    """What a group of accounts got within the log's period. GPU amounts in GPU-hours, times in seconds."""

    useful: float
    lost: float
    done: int
    wait_mean: float
    wait_p50: float
    wait_p90: float


@dataclass(slots=True)
class Outcomes:
    """A journal that follows each workload to its end. `period`: what runs later is not counted as useful."""

    period: Instant
    stories: dict[WorkloadId, _Story] = field(default_factory=dict)
    useful: dict[AccountPath, int] = field(default_factory=dict)
    lost: dict[AccountPath, int] = field(default_factory=dict)
    _works: dict[WorkloadId, Workload] = field(default_factory=dict)
    _attempts: dict[RunId, _Attempt] = field(default_factory=dict)
    _ended_at: Instant = 0

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        for fact in facts:
            handler = _FACTS.get(type(fact))
            if handler is not None:
                handler(self, fact)
        for action in plan.actions:
            if isinstance(action, Start):
                work = self._works[action.workload_id]
                restart = work.restart if action.resumed or _is_resubmission(work) else 0
                self._attempts[action.run_id] = _Attempt(work, action.allocation.slots, restart)
        self._ended_at = plan.at

    def got(self, belongs: Callable[[AccountPath], bool]) -> Got:
        """For the accounts that belong: waits over all submissions; who gave up, or waits still, counts with that."""
        stories = [story for story in self.stories.values() if belongs(story.account)]
        waits = sorted(self._wait(story) for story in stories) or [0]
        return Got(
            useful=sum(amount for path, amount in self.useful.items() if belongs(path)) / 3_600_000,
            lost=sum(amount for path, amount in self.lost.items() if belongs(path)) / 3_600_000,
            done=sum(story.done_at is not None and story.done_at <= self.period for story in stories),
            wait_mean=sum(waits) / len(waits) / 1000,
            wait_p50=waits[len(waits) // 2] / 1000,
            wait_p90=waits[len(waits) * 9 // 10] / 1000,
        )

    def turnarounds(self, belongs: Callable[[AccountPath], bool]) -> dict[WorkloadId, Duration]:
        """From submission to the end, of what was done."""
        return {
            origin: story.done_at - story.submitted_at
            for origin, story in self.stories.items()
            if story.done_at is not None and belongs(story.account)
        }

    def _wait(self, story: _Story) -> Duration:
        for instant in (story.first_start, story.gave_up_at):
            if instant is not None:
                return instant - story.submitted_at
        return self._ended_at - story.submitted_at

    # --- facts ---
    def _submitted(self, fact: WorkloadSubmitted) -> None:
        work = fact.workload
        origin = origin_of(work.id)
        story = self.stories.get(origin)
        if story is None:
            story = self.stories[origin] = _Story(work.account, work.submitted_at, work.shape.gpus)
        story.parts += 1
        self._works[work.id] = work

    def _cancelled(self, fact: WorkloadCancelled) -> None:
        self.stories[origin_of(fact.workload_id)].gave_up_at = fact.at

    def _started(self, fact: RunStarted) -> None:
        attempt = self._attempts[fact.run_id]
        attempt.started_at = fact.at
        story = self.stories[origin_of(attempt.work.id)]
        if story.first_start is None:
            story.first_start = fact.at

    def _ended(self, fact: RunEnded) -> None:
        attempt = self._attempts.pop(fact.run_id)
        if attempt.started_at is None:
            return
        story = self.stories[origin_of(attempt.work.id)]
        lost = fact.lost or 0
        useful_until = min(fact.at - lost, self.period)
        useful = max(0, useful_until - attempt.started_at - attempt.restart)
        wasted = min(fact.at, self.period) - attempt.started_at - useful
        self.useful[story.account] = self.useful.get(story.account, 0) + useful * attempt.slots
        self.lost[story.account] = self.lost.get(story.account, 0) + max(0, wasted) * attempt.slots
        if fact.outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL) and not attempt.work.resume:
            story.parts -= 1
        if fact.outcome in (Outcome.COMPLETED, Outcome.TIMEOUT, Outcome.FAILED):
            story.parts_done += 1
            if story.parts_done == story.parts:
                story.done_at = fact.at


def origin_of(workload_id: WorkloadId) -> WorkloadId:
    return WorkloadId(workload_id.partition(ORIGIN_MARK)[0])


def _is_resubmission(work: Workload) -> bool:
    """A workload that was preempted and handed in again as a new one, with what it had saved."""
    return RESUBMITTED_MARK in work.id


_FACTS: dict[type[Event], Callable[..., None]] = {
    WorkloadSubmitted: Outcomes._submitted,
    WorkloadCancelled: Outcomes._cancelled,
    RunStarted: Outcomes._started,
    RunEnded: Outcomes._ended,
}
