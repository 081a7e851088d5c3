"""When will it start: the scheduler itself, run forward many times from a state as it is.

Each run forward draws how long everything that runs or will run takes, and what comes in meanwhile, from the recent
past (`mirab.study.history`). A quantile over the runs is a statement about the start: half of them start by p50, nine
of ten by p90. How far that can be trusted is measured: `mirab.study.calibration`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.plans import Plan, Start
from mirab.model.units import DAY, HOUR, MINUTE, Duration, Instant, WorkloadId
from mirab.model.workloads import Workload
from mirab.sim.backend import SimClock
from mirab.sim.engine import drive
from mirab.study.future import Draws, Future
from mirab.study.history import REMEMBERED, WHERE, History

RUNS = 50
"""Runs forward; more tell p90 more exactly, and cost as much more."""
HORIZON: Duration = 2 * DAY
"""Nobody is told about later."""
BLOCK: Duration = 6 * HOUR
"""Arrivals come in stretches of about so long as they came on some day of the past, at the same time of day."""
MATERIAL: Duration = 5 * MINUTE
"""A difference of two forecasts below this is none."""
SURELY: Duration = 2 * MINUTE
"""Who starts within this in nine of ten runs hangs on nothing worth naming."""


@dataclass(frozen=True, slots=True)
class Forward:
    """One run forward: who started when (decided), how far it went, and whose history it drew from."""

    starts: dict[WorkloadId, Instant]
    reached: Instant
    sources: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a workload will start.

    Attributes:
        at: the instant from which it was looked forward.
        p50, p90: by then it has started in half, in nine of ten of the runs; None = they did not go so far.
        after_50, after_90: surely not before; where p50 or p90 is None this is what is known of it.
        runs: how many; started: in how many it did within them.
        bound: the contract's own word, where there is one: it starts by then, and earlier if others end earlier.
        alone_p50: the same as p50 if nothing new came in; None = later, or not asked.
        assumption: what the answer hangs on most: ``contract``, ``arrivals``, ``run-lengths`` or ``none``.
    """

    workload: WorkloadId
    at: Instant
    p50: Instant | None
    p90: Instant | None
    after_50: Instant
    after_90: Instant
    runs: int
    started: int
    bound: Instant | None = None
    alone_p50: Instant | None = None
    assumption: str = "run-lengths"


class _Enough(Exception):  # noqa: N818  # no error: it leaves `drive`
    """All that was asked about has started, or the time for it is over."""


class _Watch:
    """A journal that notes first starts and leaves the drive when nobody is left to start."""

    def __init__(self, targets: Sequence[WorkloadId], stop: Callable[[], bool]) -> None:
        self.starts: dict[WorkloadId, Instant] = {}
        self._left = dict.fromkeys(targets)
        self._stop = stop

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Start) and action.workload_id in self._left:
                del self._left[action.workload_id]
                self.starts[action.workload_id] = plan.at
        if not self._left or self._stop():
            raise _Enough


def forward(
    state: State,
    history: History,
    targets: Sequence[WorkloadId],
    seed: str,
    *,
    at: Instant | None = None,
    arrivals: bool = True,
    horizon: Duration = HORIZON,
    stop: Callable[[], bool] = lambda: False,
) -> Forward:
    """Run the scheduler forward once. The state is used up.

    Args:
        targets: workloads that wait in it.
        at: the instant to begin at; None = that of the state.
        seed: the same one draws the same run times, whether or not anything comes in.
        arrivals: whether new work comes in.
        stop: asked after each decision; True = leave it at that.
    """
    begun = state.now if at is None else max(at, state.now)
    clock = SimClock(begun)
    coming = arriving(history, Random(seed), begun, horizon) if arrivals else iter(())
    world = Future(state, clock, history, Draws(seed), coming, frozenset(targets))
    watch = _Watch(targets, stop)
    cadence = state.policy.cadence
    try:
        drive(state, clock, world, watch, cadence=cadence, first=begun + cadence, until=begun + horizon)
        reached = begun + horizon
    except _Enough:
        reached = clock.now()
    return Forward(watch.starts, reached, world.sources)


def arriving(history: History, chance: Random, now: Instant, horizon: Duration) -> Iterator[Workload]:
    """What may come in: stretches of the past, each moved by whole days where the past has whole days.

    Stretches last `BLOCK` on the average (Politis and Romano's stationary bootstrap, 1994), so that bursts stay bursts.
    """
    past = list(history.arrivals)
    if not past or history.began_at is None:
        return
    span = known_past(history, now)
    times = [each.submitted_at for each in past]
    number, at = 0, now
    while at < now + horizon:
        until = min(at + span, at + max(MINUTE, round(chance.expovariate(1 / BLOCK))), now + horizon)
        shift = _shift(chance, at - now, until - now, span)
        for place in range(bisect_left(times, at - shift), bisect_left(times, until - shift)):
            number += 1
            came = past[place]
            yield replace(came, id=WorkloadId(f"~{number:08}"), submitted_at=came.submitted_at + shift)
        at = until


def known_past(history: History, now: Instant) -> Duration:
    """How much of the past arrivals are known of, and drawn from."""
    return max(MINUTE, min(now - (now if history.began_at is None else history.began_at), REMEMBERED))


def _shift(chance: Random, begin: Duration, end: Duration, span: Duration) -> Duration:
    """How far back to look for what comes from `begin` to `end` from now, where `span` of the past is known."""
    nearest, farthest = -(-end // DAY), (span + begin) // DAY
    if nearest <= farthest:
        return chance.randint(nearest, farthest) * DAY
    return chance.randint(end, max(end, span + begin))


def forecast(
    runs: Sequence[Forward],
    workload: WorkloadId,
    at: Instant,
    bound: Instant | None = None,
    alone: Sequence[Forward] = (),
) -> Forecast:
    """What the runs forward say about one workload.

    Args:
        at: the instant from which they looked.
        bound: the latest instant of the start that the contract names.
        alone: runs with the same seeds into which nothing new came.
    """
    starts = _started(runs, workload)
    known = sorted(each.starts.get(workload, each.reached) for each in runs)
    p50, p90 = (_quantile(starts, len(runs), percent) for percent in (50, 90))
    after_50, after_90 = (_quantile(known, len(runs), percent) or at for percent in (50, 90))
    alone_p50 = _quantile(_started(alone, workload), len(alone), 50)
    assumption = _assumption(at, p50, p90, bound, alone_p50, bool(alone))
    return Forecast(workload, at, p50, p90, after_50, after_90, len(runs), len(starts), bound, alone_p50, assumption)


def _started(runs: Sequence[Forward], workload: WorkloadId) -> list[Instant]:
    return sorted(each.starts[workload] for each in runs if workload in each.starts)


def shares_of_sources(runs: Sequence[Forward]) -> dict[str, float]:
    """From whose history run times were drawn: parts of all draws, by `history.WHERE`."""
    sources: dict[str, int] = {}
    for each in runs:
        for where, count in each.sources.items():
            sources[where] = sources.get(where, 0) + count
    total = sum(sources.values())
    return {where: round(sources[where] / total, 4) for where in WHERE if where in sources}


def bound_of(state: State, workload: WorkloadId) -> Instant | None:
    """The latest instant of the start that the contract names: nodes are held for it, or runs are leaving for it.

    None where none is known, also when that instant has passed: whatever keeps it then gave no time.
    """
    hold = state.holds.get(workload)
    if hold is not None and hold.until > state.now:
        return hold.until
    leaving = [state.runs[run].stop_by for run in state.victims.get(workload, ()) if run in state.runs]
    known = [until for until in leaving if until is not None and until > state.now]
    return max(known, default=None)


def _quantile(ascending: Sequence[Instant], runs: int, percent: int) -> Instant | None:
    """The rank that leaves as many future starts above it as it promises: of n runs, (n + 1) x percent, rounded up."""
    rank = min(-(-(runs + 1) * percent // 100), runs)
    return ascending[rank - 1] if 0 < rank <= len(ascending) else None


def _assumption(at: Instant, p50: Instant | None, p90: Instant | None, bound: Instant | None,
                alone_p50: Instant | None, asked: bool) -> str:  # fmt: skip
    """What the answer hangs on most."""
    if bound is not None:
        return "contract"
    if p50 is not None and p90 is not None and p90 - at <= SURELY:
        return "none"
    if asked and alone_p50 is not None and (p50 is None or p50 - alone_p50 > max(MATERIAL, (p50 - at) // 3)):
        return "arrivals"
    return "run-lengths"
