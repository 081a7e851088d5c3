"""The native form: CSV with a header, one workload a row, times in seconds.

    id, submit_s, account, user, label, nodes, gpus_per_node, run_s, min_runtime_s, time_limit_s, checkpoint_s,
    restart_s, grace_s, resume, cancel_after_s, priority, preemptible
    optional: gpu_type, deadline_s, cpus_per_node, memory_per_node

Only `submit_s`, `run_s` and a size are required; an empty field is unknown. `submit_s` counts from the log's start, or
is a Unix time. `checkpoint_s` 0 = never.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from operator import itemgetter
from sys import intern
from typing import NamedTuple

from mirab.logs.contracts import Terms, parse_flag
from mirab.logs.errors import LogError
from mirab.logs.fields import MOST_SLOTS, Memo, count, is_number, memory_mib, milliseconds
from mirab.logs.intake import SAME_ID, Intake, Job, account_path
from mirab.logs.moments import UNIX_FROM
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source
from mirab.logs.tables import Table
from mirab.logs.yamltree import nearest
from mirab.model.units import Duration

REQUIRED = ("submit_s", "run_s")
COLUMNS = (
    "id", "submit_s", "account", "user", "label", "nodes", "gpus_per_node", "run_s", "min_runtime_s", "time_limit_s",
    "checkpoint_s", "restart_s", "grace_s", "resume", "cancel_after_s", "priority", "preemptible",
)  # fmt: skip
OPTIONAL = ("gpu_type", "deadline_s", "cpus_per_node", "memory_per_node")
PRIORITIES = {"low": 0, "normal": 1, "high": 2, "": 1}


class Size(NamedTuple):
    nodes: int
    gpus: int
    cpus: int
    memory_mib: int
    types: tuple[str, ...]


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read a native log into `intake`."""
    table = Table.open(source)
    table.require(*REQUIRED)
    _check_size(table)
    _note_columns(table, intake)
    rows = _Rows(table, _account_column(table, options))
    seen: set[str] = set()
    for line, row in table.rows(intake):
        try:
            job = rows.job(line, row)
        except ValueError:
            intake.drop(line, rows.fault(row))
            continue
        if job.id in seen:
            intake.drop(line, SAME_ID)
        else:
            seen.add(job.id)
            intake.jobs.append(job)
    intake.unix_times = bool(intake.jobs) and min(job.submitted for job in intake.jobs) >= UNIX_FROM


class _Rows:
    """Makes jobs of rows; what repeats from row to row is parsed once."""

    def __init__(self, table: Table, account_column: str) -> None:
        at = table.column
        self.at = at
        self.id, self.submit, self.run, self.user = at("id"), at("submit_s"), at("run_s"), at("user")
        self.account, self.label = at(account_column), at("label")
        self.limit, self.cancel, self.deadline = at("time_limit_s"), at("cancel_after_s"), at("deadline_s")
        self.priority, self.preemptible = at("priority"), at("preemptible")
        self.size = itemgetter(
            at("nodes"), at("gpus_per_node"), at("cpus_per_node"), at("memory_per_node"), at("gpu_type")
        )
        self.terms = itemgetter(at("min_runtime_s"), at("checkpoint_s"), at("restart_s"), at("grace_s"), at("resume"))
        self.numbered = "id" not in table.names
        self.sizes: Memo[tuple[str, ...], Size] = Memo(lambda key: _size(*key))
        self.contracts: Memo[tuple[str, ...], Terms] = Memo(lambda key: _terms(*key))
        self.amounts: Memo[str, Duration | None] = Memo(_amount)
        self.accounts: Memo[str, str] = Memo(lambda name: intern(account_path(name)))
        self.priorities: Memo[str, int] = Memo(_priority)
        self.flags: Memo[str, bool] = Memo(lambda text: not text or parse_flag(text))

    def job(self, line: int, row: list[str]) -> Job:
        """The job of a row.

        Raises:
            ValueError: a field is not usable; `fault` says which.
        """
        size = self.sizes[self.size(row)]
        account = self.accounts[row[self.account]]
        submitted, run = milliseconds(row[self.submit]), milliseconds(row[self.run])
        job_id = str(line) if self.numbered else row[self.id]
        if run <= 0 or submitted < 0 or not job_id:
            raise ValueError
        return Job(
            submitted, job_id, run, account, intern(row[self.user]) or account, line, size.nodes, size.gpus, size.cpus,
            size.memory_mib, None, size.types, "", intern(row[self.label]), self.amounts[row[self.limit]] or None,
            self.contracts[self.terms(row)], self.amounts[row[self.cancel]], self.priorities[row[self.priority]],
            self.flags[row[self.preemptible]], _amount(row[self.deadline]),
        )  # fmt: skip

    def fault(self, row: list[str]) -> str:
        """Which field makes the row unusable."""
        for name, what, check in _CHECKS:
            try:
                check(row[self.at(name)])
            except ValueError:
                return f"{name} {what}"
        if not self.numbered and not row[self.id]:
            return "id is empty"
        return "nodes, gpus_per_node or cpus_per_node are no usable size"


def _check_size(table: Table) -> None:
    """Raises LogError if nothing says how large a job is on a node; another name for it is told as what was meant."""
    if "gpus_per_node" in table.names or "cpus_per_node" in table.names:
        return
    strange = [name for name in table.names if name not in (*COLUMNS, *OPTIONAL)]
    close = get_close_matches("gpus_per_node", strange, 1, 0.3)
    hint = f"was {close[0]} meant? Call it gpus_per_node" if close else "add it"
    what = "has neither a column gpus_per_node nor cpus_per_node"
    raise LogError(what, table.source.path, table.header_line, hint)


def _account_column(table: Table, options: LoadOptions) -> str:
    column = options.account_by or "account"
    if options.account_by and column not in table.names:
        raise LogError(
            f"has no column {column}", table.source.path, table.header_line, "choose another with --account-by"
        )
    return column


def _note_columns(table: Table, intake: Intake) -> None:
    known = (*COLUMNS, *OPTIONAL)
    for name in table.names:
        if name and name not in (*known, "partition", "qos", "vc"):
            near = nearest(name, known)
            intake.notes.append(f"column {name!r} is not known and was not used (did you mean {near}?)")


def _amount(text: str) -> Duration | None:
    value = milliseconds(text) if text else None
    if value is not None and value < 0:
        raise ValueError("negative")
    return value


def _terms(minimum: str, checkpoint: str, restart: str, grace: str, resume: str) -> Terms:
    return Terms(
        _amount(minimum), _amount(checkpoint), _amount(restart), _amount(grace), parse_flag(resume) if resume else None
    )


def _size(nodes: str, gpus: str, cpus: str, memory: str, types: str) -> Size:
    node_count = count(nodes) if nodes else 1
    per_node = count(gpus) if gpus else 0
    cores = count(cpus) if cpus else 0
    if not node_count or not (per_node or cores) or node_count * max(per_node, cores) > MOST_SLOTS:
        raise ValueError("no size")
    accepted = tuple(intern(name.strip()) for name in re.split(r"[|;]", types) if name.strip())
    mib = memory_mib(memory) if memory else 0
    return Size(node_count, node_count * per_node, node_count * cores, node_count * mib, accepted)


def _priority(text: str) -> int:
    known = PRIORITIES.get(text.strip().lower())
    return known if known is not None else count(text)


def _flag(text: str) -> None:
    if text:
        parse_flag(text)


def _number(text: str) -> None:
    if not is_number(text):
        raise ValueError


def _above(text: str, least: int) -> None:
    if milliseconds(text) < least:
        raise ValueError


_SECONDS = "is not a number of seconds"
_CHECKS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("submit_s", "is neither seconds since the start of the log nor a Unix time", lambda text: _above(text, 0)),
    ("run_s", _SECONDS, _number),
    ("run_s", "is not above 0, or beyond a hundred years", lambda text: _above(text, 1)),
    *((name, _SECONDS, _amount) for name in ("time_limit_s", "cancel_after_s", "deadline_s", "min_runtime_s")),
    *((name, _SECONDS, _amount) for name in ("checkpoint_s", "restart_s", "grace_s")),
    ("resume", "is neither yes nor no", _flag),
    ("preemptible", "is neither yes nor no", _flag),
    ("priority", "is neither low, normal, high nor a number", _priority),
    ("memory_per_node", "is not an amount with a unit", lambda text: memory_mib(text) if text else 0),
)
