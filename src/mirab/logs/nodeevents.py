"""Hardware events: CSV with ``time_s, node, event (degraded|down), repair_s, stuck``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mirab.logs.contracts import parse_flag
from mirab.logs.fields import milliseconds
from mirab.logs.intake import Intake
from mirab.logs.moments import UNIX_FROM
from mirab.logs.source import Source
from mirab.logs.tables import Table
from mirab.model.workloads import NodeTrouble

COLUMNS = ("time_s", "node", "event", "repair_s", "stuck")
KINDS = ("degraded", "down")
NO_NUMBER = "time_s, repair_s or stuck is not a number"


def read_node_events(path: Path, nodes: Collection[str], origin: int | None) -> tuple[list[NodeTrouble], list[str]]:
    """The events in order of time and node, and notes about those that cannot be used.

    `time_s` counts from the log's instant 0, or is a Unix time if the log has a calendar, with the Unix time `origin`
    (milliseconds) at its instant 0.

    Raises:
        LogError: the file cannot be read or lacks a column.
    """
    table = Table.open(Source(path), "event")
    table.require("time_s", "node", "event", "repair_s")
    at = [table.column(name) for name in COLUMNS]
    intake = Intake("node events")
    troubles: list[NodeTrouble] = []
    known = frozenset(nodes)
    for line, row in table.rows(intake):
        trouble = _trouble(known, origin, *(row[index].strip() for index in at))
        if isinstance(trouble, str):
            intake.drop(line, trouble)
        else:
            troubles.append(trouble)
    troubles.sort(key=lambda trouble: (trouble.at, trouble.node, trouble.kind))
    return troubles, [
        f"node events not used: {number:,} of {intake.rows:,} ({reason}; first at line {lines[0]})"
        for reason, (number, lines) in intake.dropped.items()
    ]


def _trouble(
    nodes: frozenset[str], origin: int | None, time: str, node: str, kind: str, repair: str, stuck: str
) -> NodeTrouble | str:
    """The event of a row, or why it is none."""
    if node not in nodes:
        return "the node is not in the cluster"
    if kind not in KINDS:
        return f"the event is neither {' nor '.join(KINDS)}"
    try:
        instant, length = milliseconds(time), milliseconds(repair)
        is_stuck = bool(stuck) and parse_flag(stuck)
    except ValueError:
        return NO_NUMBER
    if instant >= UNIX_FROM and origin is not None:
        instant -= origin
    return NodeTrouble(instant, node, kind, length, is_stuck) if length >= 0 else NO_NUMBER
