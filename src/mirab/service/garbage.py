"""Python's garbage collector, kept from stopping everybody: it looks at the whole state only when that is due.

A full collection visits every object there is: half a second with 20,000 jobs waiting, every few seconds under load.
Nearly all of the state is long-lived and without cycles, so what has survived is put aside (`gc.freeze`, which costs
nothing) and looked at once an hour.
"""

from __future__ import annotations

import gc
from time import monotonic

PUT_ASIDE_EVERY = 5.0
LOOK_AT_ALL_EVERY = 3600.0
"""Seconds."""
YOUNG = 5_000
"""Objects made before the youngest are looked at; Python's own 700 is for small programs."""


class Garbage:
    """Called now and then by the one thread that knows when nobody waits."""

    def __init__(self) -> None:
        gc.set_threshold(YOUNG, 10, 10)
        self._looked_at = self._put_aside_at = 0.0
        self._look_at_all(monotonic())

    def tidy(self, quiet: bool) -> None:
        """Put aside what has survived; if nobody waits and an hour is over, look at everything."""
        now = monotonic()
        if now - self._looked_at >= LOOK_AT_ALL_EVERY and (quiet or now - self._looked_at >= 2 * LOOK_AT_ALL_EVERY):
            self._look_at_all(now)
        elif now - self._put_aside_at >= PUT_ASIDE_EVERY:
            gc.collect(1)
            gc.freeze()
            self._put_aside_at = now

    def _look_at_all(self, now: float) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._looked_at = self._put_aside_at = now
