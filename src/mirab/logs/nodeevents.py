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


def read_node_events(path: Path, nodes: Collection[str], origin: int | None) -> tuple[list[NodeTrouble], list[str]]:
    """The events in order of time and node, and notes about those that cannot be used.

    `time_s` counts from the log's instant 0, or is a Unix time if the log has a calendar, with the Unix time `origin`
    (milliseconds) at its instant 0.

    Raises:
        LogError: the file cannot be read or lacks a column.
    """
    table = Table.open(Source(path))
    table.require("time_s", "node", "event", "repair_s")
    at = [table.column(name) for name in COLUMNS]
    intake = Intake("node events")
    troubles: list[NodeTrouble] = []
    known = frozenset(nodes)
    for line, row in table.rows(intake):
        time, node, kind, repair, stuck = (row[index].strip() for index in at)
        if node not in known:
            intake.drop(line, "the node is not in the cluster")
            continue
        if kind not in KINDS:
            intake.drop(line, f"the event is neither {' nor '.join(KINDS)}")
            continue
        try:
            instant, length = milliseconds(time), milliseconds(repair)
            is_stuck = bool(stuck) and parse_flag(stuck)
            if instant >= UNIX_FROM and origin is not None:
                instant -= origin
            if length < 0:
                raise ValueError
        except ValueError:
            intake.drop(line, "time_s, repair_s or stuck is not a number")
            continue
        troubles.append(NodeTrouble(instant, node, kind, length, is_stuck))
    troubles.sort(key=lambda trouble: (trouble.at, trouble.node, trouble.kind))
    return troubles, [
        f"node events not used: {number:,} of {intake.rows:,} ({reason}; first at line {lines[0]})"
        for reason, (number, lines) in intake.dropped.items()
    ]
