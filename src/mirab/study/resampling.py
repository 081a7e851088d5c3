"""How much of a difference between two replays may be luck: days drawn again in blocks, the same days for both.

A log is one draw of what people might have asked for, and a replay is chaotic besides: one job that ends a second later
moves everything behind it. We draw the days of the log again, with replacement, in blocks of a few neighbouring days
(a circular block bootstrap: Politis and Romano 1992), and see how far the difference between the two replays moves.
Both replays are read on the same days, so what is common to both, a busy Tuesday, cancels.

Many accounts are looked at together, and of forty differences two would leave a 95 % interval by luck alone. So we
bound the part of luck among what is called a gain or a loss (Benjamini and Hochberg 1995), and widen the spreads to
match (Benjamini and Yekutieli 2005): a difference is beyond its spread just when it is called more than noise. Standard
errors come from few blocks, hence Student's t. docs/decisions/0010-noise-is-called-noise.md says how well this fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan, cbrt, ceil, cos, pi, sqrt, tan
from random import Random
from statistics import fmean

LUCK = 0.1
"""Of the differences that are called more than noise, so many are expected to be luck, at most."""
FEWEST_DAYS = 14
"""With fewer, nothing can be said about luck."""
_DRAWS, _FEWEST_DRAWS, _WORK = 600, 200, 40_000
"""Draws: as many as keep accounts times draws at about `_WORK`, between two bounds."""
_PIECES = 200
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Draw:
    """Days drawn again: how often each was drawn."""

    weights: tuple[int, ...]


def block_days(days: int) -> int:
    """Length of a block: the cube root of the number of days, the usual rate for a mean of a dependent series."""
    return max(1, round(cbrt(days)))


def draw_days(days: int, accounts: int, seed: int = 1) -> list[Draw]:
    """Draws for a log of so many days and accounts; the same arguments give the same draws."""
    rng = Random(seed)
    count = min(_DRAWS, max(_FEWEST_DRAWS, _WORK // max(1, accounts)))
    return [_draw(days, block_days(days), rng) for _ in range(count)]


def _draw(days: int, block: int, rng: Random) -> Draw:
    order: list[int] = []
    for _ in range(ceil(days / block)):
        first = int(rng.random() * days)
        order += [(first + step) % days for step in range(block)]
    weights = [0] * days
    for day in order[:days]:
        weights[day] += 1
    return Draw(tuple(weights))


def standard_error(samples: Sequence[float], days: int) -> float:
    """Of a difference, by its values in the draws of a log of so many days.

    They vary by (blocks - 1) / blocks too little, as any draw from few does.
    """
    centre = fmean(samples)
    variance = fmean((value - centre) ** 2 for value in samples)
    blocks = days / block_days(days)
    return sqrt(variance * blocks / max(1.0, blocks - 1))


def freedom(days: int) -> float:
    """Degrees of freedom of those standard errors: 1.5 for each block, as overlapping ones tell more, less one.

    The variance of a moving-block estimate is two thirds of that of one from separate blocks (Kuensch 1989).
    """
    return max(2.0, 1.5 * days / block_days(days) - 1)


def spreads(
    differences: Mapping[str, float], errors: Mapping[str, float], degrees: float, luck: float = LUCK
) -> dict[str, float]:
    """How far each difference may be from nothing by luck; it is more than noise if it is beyond.

    Args:
        differences, errors: every number that is looked at, with its standard error; one of 0 is no test.
        degrees: degrees of freedom of the errors.
    """
    tested = {name: abs(differences[name]) / error for name, error in errors.items() if error > 0}
    chances = sorted(outside(value, degrees) for value in tested.values())
    beyond = [rank for rank, chance in enumerate(chances, 1) if chance <= luck * rank / len(chances)]
    critical = quantile(luck * max(beyond, default=1) / len(chances), degrees) if chances else 0.0
    return {name: critical * error for name, error in errors.items()}


# --- Student's t ------------------------------------------------------------------------------------------------------
def outside(value: float, degrees: float) -> float:
    """The probability that Student's t is farther from 0 than `value`.

    With t = sqrt(degrees) tan(angle), its density is that of cos(angle) ** (degrees - 1).
    """
    return _tail(atan(abs(value) / sqrt(degrees)), degrees) / _tail(0.0, degrees)


def quantile(chance: float, degrees: float) -> float:
    """The value that Student's t exceeds, on either side, with this probability."""
    low, high = 0.0, pi / 2
    whole = _tail(0.0, degrees)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(middle, degrees) / whole > chance else (low, middle)
    return sqrt(degrees) * tan(low)


def _tail(angle: float, degrees: float) -> float:
    """The integral of cos(x) ** (degrees - 1) from an angle to pi / 2, by Simpson's rule."""
    step = (pi / 2 - angle) / _PIECES
    values = [float(max(0.0, cos(angle + step * place)) ** (degrees - 1)) for place in range(_PIECES + 1)]
    return step / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))
