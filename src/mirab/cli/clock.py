"""Instants and spans of the API for people: local times, and Slurm's forms for its columns."""

from __future__ import annotations

import time
from datetime import UTC, datetime

UNKNOWN = "N/A"


def instant(text: str | None) -> datetime | None:
    """An instant of the API (ISO 8601) in the local zone."""
    return None if text is None else datetime.fromisoformat(text).astimezone()


def now() -> datetime:
    return datetime.now(UTC).astimezone()


def slurm_instant(text: str | None) -> str:
    """``2026-03-01T12:00:00`` in the local zone."""
    moment = instant(text)
    return UNKNOWN if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S")


def near(text: str | None) -> str:
    """The time alone where it is today, else with the date; "" = there is none."""
    moment = instant(text)
    if moment is None:
        return ""
    today = moment.date() == now().date()
    return moment.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M")


def zoned(text: str | None) -> str:
    """The same with the name of the local zone: ``14:30:00 CET``."""
    moment = instant(text)
    return "" if moment is None else f"{near(text)} {moment.strftime('%Z')}"


def slurm_span(seconds: float | None) -> str:
    """``D-HH:MM:SS``, ``H:MM:SS``, ``M:SS``, as squeue writes it."""
    if seconds is None:
        return "UNLIMITED"
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ran(job: dict[str, object], at: float | None = None) -> float:
    """Seconds that the present or last attempt of a job has run."""
    started, ended = job.get("started_at"), job.get("ended_at")
    if not isinstance(started, str):
        return 0
    end = datetime.fromisoformat(ended).timestamp() if isinstance(ended, str) else at or time.time()
    return max(0.0, end - datetime.fromisoformat(started).timestamp())
