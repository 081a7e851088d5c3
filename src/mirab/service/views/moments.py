"""Instants as they go over the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mirab.model.units import SECOND, Instant

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Instant = 253_402_300_799_000
"""The last second that has a date in four digits: what lasts for ever ends then."""


def iso(at: Instant) -> str:
    """Unix milliseconds as ISO 8601 in UTC, ``2026-03-01T12:00:00Z``; milliseconds only where there are some."""
    at = min(max(at, 0), LAST)
    moment = EPOCH + timedelta(milliseconds=at)
    return moment.isoformat(timespec="milliseconds" if at % SECOND else "seconds").replace("+00:00", "Z")


def iso_or_none(at: Instant | None) -> str | None:
    """The same, of an instant that there may not be."""
    return None if at is None else iso(at)
