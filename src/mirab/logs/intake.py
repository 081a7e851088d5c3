"""What importers hand in: jobs, and the rows that were no jobs, by reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mirab.logs.contracts import UNSTATED, Terms
from mirab.model.accounts import LEDGER_MARK
from mirab.model.units import Duration, plural

LINES_SHOWN = 5
LONGEST_NAME = 200
"""Letters of an account's name; the rest of a longer one is a broken line."""
DEEPEST = 16
"""Levels of an account's path; deeper ones are joined by dots."""

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
        name: the job's name, kept only where a rule of the contract asks for it.
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
    name: str = ""


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
        rows: data rows seen, used or not.
        hosts: names of the nodes that jobs ran on, by type of GPU (key ``cpu``: all nodes).
    """

    form: str
    unix_times: bool = True
    rows: int = 0
    jobs: list[Job] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dropped: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    hosts: dict[str, dict[str, None]] = field(default_factory=dict)
    installed: Installed = field(default_factory=Installed)

    def drop(self, line: int, reason: str) -> None:
        """Count a row that is not used."""
        number, lines = self.dropped.get(reason, (0, ()))
        shown = lines if len(lines) >= LINES_SHOWN or line in lines else (*lines, line)
        self.dropped[reason] = (number + 1, shown)


class Remarks:
    """Counts rows that are used and yet deserve a word."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, line: int, what: str) -> None:
        number, first = self._found.get(what, (0, line))
        self._found[what] = (number + 1, first)

    def notes(self) -> list[str]:
        return [
            f"{plural(number, 'row')}: {what} (first at line {line})" for what, (number, line) in self._found.items()
        ]


def account_path(text: str) -> str:
    """An account's name as a path without empty parts, at most `DEEPEST` of them; empty = ``unknown``.

    A colon, which parts a ledger from an account, becomes a dot; a lone ``*``, which is what children leave, a ``_``.
    """
    text = text.replace(LEDGER_MARK, ".")
    if "/" in text:
        parts = [part for part in (part.strip() for part in text.split("/")) if part]
        text = "/".join([*parts[: DEEPEST - 1], ".".join(parts[DEEPEST - 1 :])]).strip("/")
    text = text.strip()[:LONGEST_NAME].rstrip("/ ")
    if "*" in text:
        text = "/".join("_" if part == "*" else part for part in text.split("/"))
    return text or "unknown"
