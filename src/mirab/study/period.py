"""Which instants the measures are about: the period, its midnights, and the steps of the pictures."""

from __future__ import annotations

from dataclasses import dataclass

from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, Duration, Instant

POINTS_MAX = 750
"""Most steps in a series: enough for a picture as wide as a laptop's screen."""

STEPS: tuple[Duration, ...] = (
    MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
)  # fmt: skip

FIRST_MIDNIGHT = 3
"""Owed and delivered are compared from the third midnight on: before, a window holds too little to judge by."""


@dataclass(frozen=True, slots=True)
class Period:
    """The measured stretch of a replay, cut where something has to be noted.

    Attributes:
        step: length of a step of the series; the last one may be shorter.
        windows: (begin, end) of each trailing window that owed and delivered are compared over.
        marks: the ends of all windows and steps, and the begins of windows: each instant at which totals are noted.
    """

    starts_at: Instant
    ends_at: Instant
    step: Duration
    windows: tuple[tuple[Instant, Instant], ...]
    steps: tuple[Instant, ...]
    marks: tuple[Instant, ...]

    @property
    def length(self) -> Duration:
        return self.ends_at - self.starts_at


def period_of(trace: Trace, policy: Policy) -> Period:
    """The period that the trace names, with windows of the policy's length.

    Raises:
        ValueError: the trace ends before it starts.
    """
    starts, ends = trace.starts_at, trace.ends_at
    if ends < starts:
        raise ValueError(f"{trace.name}: the measured period ends ({ends} ms) before it starts ({starts} ms)")
    step = step_for(ends - starts)
    steps = (*range(starts + step, ends, step), ends)
    windows = tuple((max(starts, midnight - policy.window), midnight) for midnight in midnights(starts, ends))
    marks = sorted({*steps, *(instant for window in windows for instant in window)})
    return Period(starts, ends, step, windows, steps, tuple(marks))


def midnights(starts: Instant, ends: Instant) -> tuple[Instant, ...]:
    """Days counted from the start, from the third on; the end alone if the log is shorter than that."""
    return tuple(range(starts + FIRST_MIDNIGHT * DAY, ends + 1, DAY)) or (ends,)


def step_for(length: Duration) -> Duration:
    """The shortest of `STEPS` that cuts the length into at most `POINTS_MAX`; whole days beyond."""
    for step in STEPS:
        if length <= step * POINTS_MAX:
            return step
    return DAY * -(-length // (DAY * POINTS_MAX))
