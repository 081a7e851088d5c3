"""Accounts that asked for at least their share nearly all the time, and whether they got it.

An idle account that got little is nobody's fault. One with *sustained demand* that got less than its share is what a
gate before a rollout asks about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mirab.model.units import Instant
from mirab.study.owed import Leaf, delivered, ratio, seconds

SUSTAINED = Fraction(80, 100)
"""Demand is sustained over a window in which it was at least the share for so much of the time."""


@dataclass(frozen=True, slots=True)
class Sustained:
    """The windows in which a leaf's demand was sustained.

    Attributes:
        windows: how many.
        lowest: the least delivered part of what it was owed in any of them; `lowest_at`: the end of that window.
    """

    windows: int
    lowest: float | None = None
    lowest_at: Instant | None = None

    def part(self) -> dict[str, Any]:
        """The `sustained` part of an account in the report."""
        return {"windows": self.windows, "lowest": self.lowest, "lowest_at_s": seconds(self.lowest_at)}


def sustained(leaf: Leaf, windows: Iterable[tuple[Instant, Instant]]) -> Sustained:
    """How a leaf fared where its demand was sustained; a leaf that is owed nothing has no such window."""
    count = 0
    lowest: float | None = None
    lowest_at: Instant | None = None
    for begin, end in windows:
        got = leaf.between(begin, end)
        part = ratio(delivered(got), got.owed)
        if part is None or got.full_time * SUSTAINED.denominator < (end - begin) * SUSTAINED.numerator:
            continue
        count += 1
        if lowest is None or part < lowest:
            lowest, lowest_at = part, end
    return Sustained(count, lowest, lowest_at)


def sustained_metrics(found: Sequence[Sustained]) -> dict[str, Any]:
    """How many leaves had sustained demand in some window, and the least that any of them got."""
    known = [each.lowest for each in found if each.lowest is not None]
    return {"sustained_accounts": len(known), "sustained_worst": min(known, default=None)}
