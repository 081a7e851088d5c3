"""Whoever shows bad tokens too often is not looked up for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from time import monotonic

ORIGINS_KEPT = 10_000


class FailureLimit:
    """A bucket of failures for each origin: `burst` at once, then one each `refill` seconds."""

    def __init__(self, burst: int = 20, refill: float = 3.0, clock: Callable[[], float] = monotonic) -> None:
        self._burst, self._refill, self._clock = burst, refill, clock
        self._lock = Lock()
        self._full_again: OrderedDict[str, float] = OrderedDict()

    def wait(self, origin: str) -> float:
        """Seconds until the origin may fail once more; 0 = now."""
        with self._lock:
            behind = self._full_again.get(origin, 0.0) - self._clock()
        return max(0.0, behind - (self._burst - 1) * self._refill)

    def failed(self, origin: str) -> None:
        with self._lock:
            now = self._clock()
            self._full_again[origin] = max(now, self._full_again.pop(origin, now)) + self._refill
            while len(self._full_again) > ORIGINS_KEPT:
                self._full_again.popitem(last=False)
