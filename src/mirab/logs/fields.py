"""Words of other people's logs as numbers: strict, bounded, and ValueError for everything else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from typing import TypeVar

from mirab.model.units import DAY, Duration, parse_duration

LONGEST: Duration = 36_525 * DAY
"""A hundred years: nothing in a log of jobs is longer."""
MOST_SLOTS = 1_000_000
"""More in one job is a broken number."""

K = TypeVar("K")
V = TypeVar("V")

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,4}):(\d{1,2})(?:\.(\d{1,6}))?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(K|M|G|T|P)(i?)B?", re.ASCII | re.IGNORECASE)


class Memo(dict[K, V]):
    """Remembers what `make` made of each text, so that equal rows share their values."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(key)
        return value


def milliseconds(text: str) -> int:
    """Milliseconds of a number of seconds, whole or decimal, at most a hundred years either way.

    Raises:
        ValueError: not a number, not finite, or out of range.
    """
    plain = text.isdigit() and text.isascii() and len(text) < 13
    value = int(text) * 1_000 if plain else _decimal(text)
    if value > LONGEST or value < -LONGEST:
        raise ValueError(f"{text[:30]} seconds is out of range")
    return value


def is_number(text: str) -> bool:
    """Whether it is written as a number, whatever its size: no ``nan``, no ``7,5``."""
    return _NUMBER.fullmatch(text.strip()) is not None


def _decimal(text: str) -> int:
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped) or len(stripped) > 400:
        raise ValueError(f"{text[:30]!r} is not a number of seconds")
    seconds = float(stripped)
    if not math.isfinite(seconds):
        raise ValueError(f"{text[:30]!r} seconds is out of range")
    return round(seconds * 1_000)


def count(text: str, most: int = MOST_SLOTS) -> int:
    """A whole number from 0 to `most`; ``8.0`` counts as 8.

    Raises:
        ValueError: anything else.
    """
    number = text.strip()
    if number.endswith(".0"):
        number = number[:-2]
    if not (number.isdigit() and number.isascii()) or len(number) > 15:
        raise ValueError(f"{text[:30]!r} is not a whole number from 0 to {most:,}")
    value = int(number)
    if value > most:
        raise ValueError(f"{text[:30]} is more than {most:,}")
    return value


def day(text: str) -> str:
    """A day of the calendar, as it was written.

    Raises:
        ValueError: anything but ``2027-03-01``.
    """
    try:
        if _DAY.fullmatch(text):
            date.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise ValueError(f"{text[:30]!r} is not a day: write one such as 2027-03-01")


def span(text: str) -> Duration:
    """`mirab.model.units.parse_duration`, bounded.

    Raises:
        ValueError: not a duration with units, or longer than a hundred years.
    """
    if len(text) > 100:
        raise ValueError(f"{text[:30]!r}... is not a duration")
    value = parse_duration(text)
    if value > LONGEST:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return value


def slurm_span(text: str) -> Duration:
    """Milliseconds of Slurm's ``[DD-[HH:]]MM:SS[.fff]``; ``125-00:00:00`` is 125 days.

    A bare number is refused: Slurm's options read it as minutes, its reports never print it.

    Raises:
        ValueError: anything else.
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:30]!r} is not a time such as 1-02:03:04")
    days, hours, minutes, seconds, fraction = match.groups(default="0")
    whole = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    value = whole * 1_000 + int(fraction.ljust(3, "0")[:3])
    if value > LONGEST:
        raise ValueError(f"{text[:30]!r} is longer than a hundred years")
    return value


def memory_mib(text: str) -> int:
    """MiB of ``2TiB``, ``512G``, ``48000M``: the units are binary, with or without the i. Rounded up.

    Raises:
        ValueError: no unit, or not an amount.
    """
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:30]!r} is not an amount of memory: write it with a unit, such as 512GiB or 2TiB")
    whole, _, fraction = match[1].partition(".")
    scale: int = 10 ** len(fraction)
    kib: int = int(whole + fraction) << 10 * "KMGTP".index(match[2].upper())
    return -(-kib // (scale * 1024))
