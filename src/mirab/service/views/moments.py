"""Instants as they go over the wire."""

from __future__ import annotations

from datetime import UTC, datetime

from mirab.model.units import SECOND, Instant


def iso(at: Instant) -> str:
    """Unix milliseconds as ISO 8601 in UTC, ``2026-03-01T12:00:00Z``; milliseconds only where there are some."""
    moment = datetime.fromtimestamp(at / SECOND, UTC)
    return moment.isoformat(timespec="milliseconds" if at % SECOND else "seconds").replace("+00:00", "Z")
