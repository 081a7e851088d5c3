"""Instants as people and sbatch write them: ISO 8601, ``18:00``, ``now+4hours``."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from mirab.cli import clock
from mirab.model.units import parse_duration

_AHEAD = re.compile(r"now\s*\+\s*(\d{1,7})\s*(seconds?|minutes?|hours?|days?|weeks?)?", re.ASCII)
_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def deadline(text: str) -> str:
    """ISO 8601 with its zone; times without a zone are local, a time of day is the next one.

    Raises:
        ValueError: it is no instant.
    """
    compact = text.strip().lower()
    if match := _AHEAD.fullmatch(compact):
        unit = (match[2] or "seconds").rstrip("s") + "s"
        return _iso(clock.now() + timedelta(**{unit: int(match[1])}))
    if compact.startswith(("now+", "+")):
        return _iso(clock.now() + timedelta(milliseconds=parse_duration(compact.removeprefix("now").lstrip("+"))))
    if match := _OF_DAY.fullmatch(compact):
        return _next(int(match[1]), int(match[2]), int(match[3] or 0), text)
    try:
        return _iso(datetime.fromisoformat(text.strip()).astimezone())
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no instant: write 2026-05-01T18:00, 18:00, or now+4hours") from error


def _next(hour: int, minute: int, second: int, text: str) -> str:
    now = clock.now()
    try:
        today = now.replace(hour=hour, minute=minute, second=second, microsecond=0, tzinfo=None)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time of day") from error
    then = today if today > now.replace(tzinfo=None) else today + timedelta(days=1)
    return _iso(then.astimezone())


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
