"""Structured logs on standard error: a line of JSON each, or readable ones on a terminal; never a secret."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from mirab.model.events import Event
from mirab.model.plans import Action, Plan

FORMS = ("auto", "json", "console")
LEVELS = ("debug", "info", "warning", "error")
SECRET_KEYS = ("token", "secret", "password", "authorization", "cookie", "environment")
HIDDEN = "***"
_SECRETS = re.compile(r"(mirab_[A-Za-z0-9_-]{20,})|(?<=://)([^/@\s:]*:)[^@\s]+(?=@)")
NAMED = 20
"""Actions named in one line; more are counted only."""

log = structlog.get_logger("mirab.decision")


def configure(form: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs, ours and those of the libraries, to `stream` (default: standard error)."""
    out = stream or sys.stderr
    as_json = form == "json" or (form == "auto" and not out.isatty())
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    last: Processor = structlog.dev.ConsoleRenderer(colors=out.isatty())
    if as_json:
        last = structlog.processors.JSONRenderer(default=str)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "sqlalchemy", "alembic", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def hide_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Values under telling names, tokens wherever they stand, and passwords in addresses."""
    for key, value in event.items():
        if any(word in key.lower() for word in SECRET_KEYS):
            event[key] = HIDDEN
        elif isinstance(value, str):
            event[key] = without_secrets(value)
    return event


def without_secrets(text: str) -> str:
    return _SECRETS.sub(lambda found: HIDDEN if found.group(1) else f"{found.group(2)}{HIDDEN}", text)


def log_decision(seq: int, facts: Sequence[Event], plan: Plan, **took_ms: float) -> None:
    """One line for each decision that acted; at level debug also for those that did not."""
    times = {name: round(value, 2) for name, value in took_ms.items()}
    if plan.actions:
        named = [describe(action) for action in plan.actions[:NAMED]]
        log.info("decided", seq=seq, facts=len(facts), actions=len(plan.actions), what=named, **times)
    else:
        log.debug("decided", seq=seq, facts=len(facts), actions=0, **times)


def describe(action: Action) -> str:
    """``Start 12.1``, ``Drain n3``."""
    for subject in ("run_id", "node", "workload_id"):
        found = getattr(action, subject, None)
        if found:
            return f"{type(action).__name__} {found}"
    return type(action).__name__
