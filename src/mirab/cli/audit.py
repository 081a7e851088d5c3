"""`mirab audit`: who changed what, when, from where, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from mirab.cli.client import Client
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width, wrapped
from mirab.cli.output import emit, to_json

COLUMNS = (
    Column("AT"),
    Column("WHO", least=6),
    Column("FROM", least=8),
    Column("ACTION", least=8),
    Column("TARGET", least=8),
    Column("BEFORE", least=8),
    Column("AFTER", least=8),
    Column("WHY", least=12),
)
TOLD_BELOW = 5
"""The columns from here on are sentences."""
PAGE = 1_000


@click.command()
@click.option("--target", metavar="NAME", help="Only about this job, node, account or token.")
@click.option("--user", "-u", metavar="NAME", help="Only what this user did.")
@click.option(
    "--limit",
    "-n",
    metavar="N",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@JSON_OPTION
@connected
def command(client: Client, target: str | None, user: str | None, limit: int, as_json: bool) -> None:
    """Show every change that somebody made, the newest first; for operators and admins."""
    entries = _entries(client, {"target": target, "user": user}, limit)
    if as_json:
        emit(to_json({"entries": entries}))
    else:
        emit(listed(entries, terminal_width()))


def listed(entries: list[dict[str, Any]], width: int) -> str:
    """A line each; on a terminal what was before and after, and why, stands below it, so that it can be read."""
    if not width:
        return table(COLUMNS, [_row(entry) for entry in entries])
    head, *lines = table(COLUMNS[:TOLD_BELOW], [_row(entry)[:TOLD_BELOW] for entry in entries], width).splitlines()
    below = (wrapped(text, width, "    ") if (text := _change(entry)) else "" for entry in entries)
    return "\n".join([head, *(part for pair in zip(lines, below, strict=True) for part in pair if part)])


def _change(entry: dict[str, Any]) -> str:
    before, after, why = _row(entry)[TOLD_BELOW:]
    change = f"{before} -> {after}" if before and after else before or after
    return f"{change} ({why})" if change and why else change or why


def _entries(client: Client, query: dict[str, object], limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while len(found) < limit:
        page = client.get("/audit", {**query, "limit": min(PAGE, limit - len(found)), "cursor": cursor})
        found += page["entries"]
        cursor = page["next"]
        if cursor is None:
            break
    return found


def _row(entry: dict[str, Any]) -> list[str]:
    return [
        near(entry["at"]),
        *(entry[name] for name in ("who", "origin", "action", "target", "before")),
        _after(entry),
        entry["why"],
    ]


def _after(entry: dict[str, Any]) -> str:
    """What machines read, in words: `--json` has it whole. A changeset has a line of its own, its `budget.set`."""
    kept: str = entry["after"]
    if kept.startswith('{"type":'):
        return "kept whole: see it with --json"
    words = _WORDS.get(entry["action"].partition(".")[0])
    try:
        return words(json.loads(kept)) if words is not None else kept
    except (ValueError, TypeError, KeyError, AttributeError):
        return kept


def _exception(case: dict[str, Any]) -> str:
    return f"{case['kind']} for {case['account']}, {case['state']}, to end at {near(_instant(case['end']))}"


def _rollout(decided: dict[str, Any]) -> str:
    grounds = [f"{name} {decided[name][:12]}" for name in ("gates", "exception") if decided[name]]
    return f"{decided['mode']}{', on ' + grounds[0] if grounds else ''}"


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {"exception": _exception, "rollout": _rollout}


def _instant(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat()
