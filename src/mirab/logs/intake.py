"""What importers hand in: jobs, and the rows that were no jobs, by reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mirab.logs.contracts import UNSTATED, Terms
from mirab.model.units import Duration

LINES_SHOWN = 5

NEVER_RAN = "never ran: run time unknown"
DUPLICATE = "exact duplicate of an earlier row"
SAME_ID = "the id of an earlier row"
FIELDS_MISSING = "too few fields (a truncated line?)"


class Job(NamedTuple):
    """One job as a log tells it, on the log's own clock. Sorts by submission and id.

    Attributes:
        submitted, started: milliseconds, Unix or since the log's start (see `Intake.unix_times`).
        run: milliseconds of running, over all attempts.
        nodes: 0 = the log does not say.
        gpus, cpus, memory_mib: in all, over all nodes; 0 = none, or not said.
        gpu_types: types that it asked for; empty = any.
        ran_on: the type of the GPUs that it ran on, for inferring the cluster.
        line: where it stands.
    """

    submitted: int
    id: str
    run: Duration
    account: str
    user: str
    line: int
    nodes: int = 0
    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0
    started: int | None = None
    gpu_types: tuple[str, ...] = ()
    ran_on: str = ""
    label: str = ""
    limit: Duration | None = None
    terms: Terms = UNSTATED
    cancel_after: Duration | None = None
    priority: int = 1
    preemptible: bool = True
    deadline: int | None = None


@dataclass(slots=True)
class Installed:
    """What a log's header claims about its cluster; 0 = nothing. Headers lie: it is checked against the rows."""

    nodes: int = 0
    slots: int = 0
    source: str = ""


@dataclass(slots=True)
class Intake:
    """Collects what one log holds.

    Attributes:
        form: the form's name for people.
        unix_times: instants are Unix milliseconds (else since the log's start).
        origin: Unix milliseconds of the log's start where instants count from it; None = unknown.
        rows: data rows seen, used or not.
        starts_known: the log says when jobs started, so that concurrent use can be reconstructed.
        hosts: names of the nodes that jobs ran on, by type of GPU (key ``cpu``: all nodes).
        resources_told: cores and memory of jobs are requests that a cluster file may bound.
    """

    form: str
    unix_times: bool = True
    origin: int | None = None
    rows: int = 0
    starts_known: bool = True
    jobs: list[Job] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    hosts: dict[str, dict[str, None]] = field(default_factory=dict)
    installed: Installed = field(default_factory=Installed)

    def drop(self, line: int, reason: str) -> None:
        """Count a row that is not used."""
        number, lines = self.dropped.get(reason, (0, ()))
        self.dropped[reason] = (number + 1, (*lines, line) if len(lines) < LINES_SHOWN else lines)


class Counter:
    """Counts something per reason with first lines, for notes about rows that *are* used."""

    def __init__(self) -> None:
        self.found: dict[str, list[int]] = {}

    def add(self, line: int, what: str) -> None:
        self.found.setdefault(what, []).append(line)

    def notes(self) -> list[str]:
        return [f"{len(lines):,} rows: {what} (first at line {lines[0]})" for what, lines in self.found.items()]


def account_path(text: str) -> str:
    """An account's name as a path without empty parts; empty = ``unknown``."""
    if "/" in text:
        text = "/".join(part for part in (part.strip() for part in text.split("/")) if part)
    return text.strip() or "unknown"
