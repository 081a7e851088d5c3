"""How long things last, learned from what has ended and from what has not ended yet."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

KEPT = 300
"""So many observations of a kind are remembered, the newest."""


class Lifetimes:
    """Spans of one kind, with those whose end nobody has seen; draws from what they say (Kaplan and Meier, 1958)."""

    __slots__ = ("_curve", "_seen")

    def __init__(self, seen: Iterable[tuple[float, bool]] = (), kept: int = KEPT) -> None:
        self._seen: deque[tuple[float, bool]] = deque(seen, maxlen=kept)
        self._curve: tuple[list[float], list[float]] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, span: float, ended: bool = True) -> None:
        """One observation; not `ended`: it lasted at least so long."""
        self._seen.append((span, ended))
        self._curve = None

    def draw(self, chance: float, past: float = 0.0) -> float | None:
        """A span above `past`, where a share `chance` (0 to 1) of those that lasted beyond `past` is shorter.

        None: what is known says nothing of it, because none was ever seen to end so late.
        """
        spans, survivals = self._curve or self.ready()
        first = bisect_right(spans, past)
        if first == len(spans):
            return None
        alive = survivals[first - 1] if first else 1.0
        wanted = alive * (1.0 - chance)
        low, high = first, len(spans)
        while low < high:
            middle = (low + high) // 2
            if survivals[middle] <= wanted:
                high = middle
            else:
                low = middle + 1
        return spans[low] if low < len(spans) else None

    def ready(self) -> tuple[list[float], list[float]]:
        """The spans that ended, ascending, and the share of all that lasts longer than each; worked out once."""
        if self._curve is not None:
            return self._curve
        at_risk, alive = len(self._seen), 1.0
        spans: list[float] = []
        survivals: list[float] = []
        for span, ended in sorted(self._seen, key=lambda each: (each[0], not each[1])):
            if ended:
                alive *= 1.0 - 1.0 / at_risk
                if spans and spans[-1] == span:
                    survivals[-1] = alive
                else:
                    spans.append(span)
                    survivals.append(alive)
            at_risk -= 1
        self._curve = spans, survivals
        return self._curve
