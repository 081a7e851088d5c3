"""The one division that decides whose turn it is."""

from __future__ import annotations

from random import Random

from mirab.core.shares import compared
from mirab.model.units import HOUR, UNIT, WHOLE

LITTLE = 3 * UNIT * HOUR
"""Three GPU-hours: what a young cluster has used, where both sides are between 2**53 and 2**62."""


def test_a_ratio_is_rounded_once() -> None:
    """Twice would part equals: 30 used of 30 promised and 10 of 10 are the same, compiled or not."""
    chance = Random(1)
    for _ in range(5_000):
        used, promised = chance.randint(1, LITTLE), chance.randint(1, LITTLE * WHOLE)
        assert compared(used, promised) == used * WHOLE / promised
