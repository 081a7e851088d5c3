"""The clock of the live service: Unix milliseconds that never go back, whatever happens to the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import structlog

from mirab.model.units import SECOND, Duration, Instant

SLEW = 200
"""A clock that is off is brought back by one part in so many: half a per cent faster or slower than real time."""
STEP: Duration = 2 * SECOND
"""A larger difference appears only if somebody sets the wall clock, and is worth a line in the log."""
READINGS = 20
"""So often at most both clocks are read, until nothing kept the thread between the two."""

log = structlog.get_logger("mirab.clock")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """Milliseconds since boot, those in which the machine slept included: nobody can set it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


class LiveClock:
    """Instants that pass like real time, and are those of the wall clock unless somebody sets it.

    Contracts are promises in real time, so a step of the wall clock must neither end a minimum early nor let it last.
    While the service runs the step is followed by `SLEW` only; at the next start a step forward is followed at once.
    A wall clock before the last recorded instant (`floor`) is waited for in the same way.
    """

    def __init__(
        self, floor: Instant = 0, wall: Callable[[], int] = wall_ms, elapsed: Callable[[], int] = elapsed_ms
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._lock = Lock()
        self._seen, there = self._both()
        self._instant = max(floor, there)
        self._rest = 0
        self._told: Duration = 0
        self._tell(self.offset())

    def now(self) -> Instant:
        """The present instant; never before one that was given already."""
        with self._lock:
            seen, there = self._both()
            passed = max(0, seen - self._seen)
            self._seen = max(seen, self._seen)
            off = there - (self._instant + passed)
            self._instant += passed + self._correction(off, passed)
            now = self._instant
        self._tell(off)
        return now

    def offset(self) -> Duration:
        """How far the wall clock is ahead (negative: behind)."""
        return self._wall() - self._instant

    def _both(self) -> tuple[int, int]:
        """Milliseconds since boot and of the wall, as of one instant: a busy machine may keep the thread in between.

        Where it cannot be told more exactly, the wall is the earlier: no promise ends before its time.
        """
        closest: tuple[int, int, int] | None = None
        for _ in range(READINGS):
            before, there, after = self._elapsed(), self._wall(), self._elapsed()
            if closest is None or after - before < closest[0]:
                closest = after - before, after, there
            if closest[0] <= 1:
                break
        assert closest is not None
        return closest[1:]

    def _correction(self, off: Duration, passed: Duration) -> Duration:
        """What this step gains or loses: at most one part in `SLEW` of the time that has passed, rounded fairly."""
        most, self._rest = divmod(passed + self._rest, SLEW)
        return max(-most, min(most, off))

    def _tell(self, off: Duration) -> None:
        if abs(off - self._told) < STEP:
            return
        self._told = off
        if abs(off) < STEP:
            log.info("clock.agrees", offset_s=off / SECOND)
        else:
            log.warning(
                "clock.stepped",
                offset_s=off / SECOND,
                hint="the wall clock was set; mirab's time goes on evenly and follows slowly, so that no minimum is "
                "cut short" + ("; restart mirab to follow at once" if off > 0 else ""),
            )
