"""Dates of other people's logs as Unix milliseconds, and the moments that people name in files and options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from mirab.logs.errors import LogError
from mirab.logs.fields import LONGEST, span
from mirab.model.units import DAY, Duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)
UNIX_FROM = 1_000_000_000_000
"""Milliseconds: from here on (September 2001) a number of a log is a Unix time, not a time since the log's start."""


class Calendar:
    """Reads dates; those without a zone of their own are in `zone`.

    Where the clocks are set back, the repeated hour is read as its first pass.
    """

    def __init__(self, zone: str | None = None) -> None:
        self.name = zone or "UTC"
        self.zone = _zone(self.name)
        self.plain = self.zone is UTC

    def unix_ms(self, text: str) -> int:
        """Unix milliseconds of ``2020-11-01T00:30:00``, with or without an offset, or of a bare Unix time in seconds.

        Raises:
            ValueError: not a date, or before 1971 or after 2069.
        """
        if text.isdigit() and text.isascii() and len(text) > 8:
            return _bounded(int(text) * 1_000 if len(text) < 13 else int(text[:16]), text)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None and self.plain:
                value = (moment - _NAIVE_EPOCH) // _MS
            else:
                aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=self.zone)
                value = (aware - _EPOCH) // _MS
        except OverflowError as error:
            raise ValueError(f"{text[:30]!r} is not a date") from error
        return _bounded(value, text)

    def midnight(self, unix_ms: int) -> int:
        """The last local midnight at or before an instant."""
        local = (_EPOCH + unix_ms * _MS).astimezone(self.zone)
        return (local.replace(hour=0, minute=0, second=0, microsecond=0) - _EPOCH) // _MS

    def text(self, unix_ms: int) -> str:
        """The instant as people write it, to the minute."""
        return (_EPOCH + unix_ms * _MS).astimezone(self.zone).strftime("%Y-%m-%d %H:%M")


def _bounded(value: int, text: str) -> int:
    if not 365 * DAY <= value <= LONGEST:
        raise ValueError(f"{text[:30]!r} is not a date of a job")
    return value


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z"):
        return UTC
    if match := _OFFSET.fullmatch(name):
        ahead = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if ahead < timedelta(hours=24):
            return timezone(ahead if match[1] == "+" else -ahead)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise LogError(f"timezone {name!r} is not known", remedy="write UTC, +01:00 or Europe/Berlin") from error


class Moment(NamedTuple):
    """An instant as a person wrote it: a date, or a span from the log's start. Exactly one is set."""

    unix_ms: int | None
    since_start: Duration | None

    def at(self, origin: int | None) -> int:
        """Milliseconds from the log's instant 0, whose Unix time is `origin`.

        Raises:
            ValueError: a date, and the log has no calendar.
        """
        if self.since_start is not None:
            return self.since_start
        if origin is None:
            raise ValueError("the log has no calendar: write a duration from its start, such as 3d12h, not a date")
        assert self.unix_ms is not None
        return self.unix_ms - origin


def parse_moment(text: str, calendar: Calendar) -> Moment:
    """A date (``2017-10-02``, ``2017-10-02T08:00``) or a duration from the log's start (``3d``).

    Raises:
        ValueError: neither.
    """
    if re.match(r"\d{4}-\d\d", text):
        try:
            return Moment(calendar.unix_ms(text), None)
        except ValueError:
            pass
    else:
        try:
            return Moment(None, span(text))
        except ValueError:
            pass
    raise ValueError(f"{text!r} is neither a date nor a duration from the log's start: write 2017-10-02 or 3d12h")
