"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a row, -1 = unknown, ``;`` = comment.

Row: job, submit, wait, run, processors, average cpu time, memory, requested processors, requested time, requested
memory, status, user, group, executable, queue, partition, preceding job, think time. Times in seconds since
``UnixStartTime``. What the header claims about counts is only believed where the rows do not contradict it.
"""

from __future__ import annotations

import re
from sys import intern

from mirab.logs.errors import LogError
from mirab.logs.fields import MOST_SLOTS, count, milliseconds
from mirab.logs.intake import (
    DUPLICATE,
    FIELDS_MISSING,
    NEVER_RAN,
    SAME_ID,
    Installed,
    Intake,
    Job,
    Remarks,
    account_path,
)
from mirab.logs.moments import UNIX_FROM
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source

FIELDS = 18
(ID, SUBMIT, WAIT, RUN, PROCS, _, _, ASKED_PROCS, ASKED_TIME, _, STATUS, USER, GROUP, _, QUEUE, PARTITION) = range(16)
CANCELLED = "5"
PARTIAL = frozenset({"2", "3", "4"})
ACCOUNT = {None: (GROUP, "group"), "account": (GROUP, "group"), "user": (USER, "user"), "partition": (QUEUE, "queue")}
NO_SUBMIT = "submit time unknown (-1)"
NEGATIVE_RUN = "negative run time (unknown)"
NO_PROCS = "number of processors unknown (-1)"
PARTIAL_ROW = "a part of a job that has a row of its own"
NO_NUMBER = "a field is not a number"
_HEADER = re.compile(r";\s*(\w+):\s*(\S+)")


def looks_like(lines: list[str]) -> bool:
    """Whether the first rows are at least 18 numbers each."""
    rows = [line.split() for line in lines[:50] if line.strip() and not line.lstrip().startswith(";")]
    rows = rows[:-1] if len(rows) > 1 else rows
    return bool(rows) and all(len(row) >= FIELDS and all(map(_is_number, row[:FIELDS])) for row in rows)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(\.\d*)?", text, re.ASCII) is not None


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read an SWF log into `intake`."""
    if options.account_by not in ACCOUNT:
        raise LogError(f"SWF has no {options.account_by}", source.path, remedy="choose account, user or partition")
    rows = _Rows(options, intake)
    header: dict[str, str] = {}
    for line, text in source.lines():
        if text.lstrip().startswith(";"):
            match = _HEADER.match(text.lstrip())
            if match:
                header.setdefault(match[1], match[2])
        elif text.strip("\x00 \t"):
            intake.rows += 1
            rows.take(line, text.split(), header)
    _installed(header, intake)
    intake.notes += rows.remarks.notes()


def _installed(header: dict[str, str], intake: Intake) -> None:
    nodes, procs, jobs = (_header_count(header, name) for name in ("MaxNodes", "MaxProcs", "MaxJobs"))
    intake.installed = Installed(nodes, procs or nodes, "the header")
    if jobs and jobs != intake.rows:
        intake.notes.append(f"the header says {jobs:,} jobs, the file has {intake.rows:,} rows")


def _header_count(header: dict[str, str], name: str) -> int:
    try:
        return count(header.get(name, "0"), 10**9 if name == "MaxJobs" else MOST_SLOTS)
    except ValueError:
        return 0


class _Rows:
    """Makes jobs of rows and counts the rows that are none."""

    def __init__(self, options: LoadOptions, intake: Intake) -> None:
        self.intake = intake
        self.remarks = Remarks()
        self.seen: dict[str, tuple[int, int]] = {}
        self.account_at, self.account_name = ACCOUNT[options.account_by]
        self.base: int | None = None

    def take(self, line: int, row: list[str], header: dict[str, str]) -> None:
        """Add the job of a row to the intake, or count it as not used."""
        if len(row) < FIELDS:
            self.intake.drop(line, FIELDS_MISSING)
            return
        try:
            job = self._job(line, row, header)
        except ValueError:
            self.intake.drop(line, NO_NUMBER)
            return
        if isinstance(job, str):
            self.intake.drop(line, job)
            return
        before = self.seen.get(job.id)
        if before is None:
            self.seen[job.id] = (job.submitted, job.run)
            self.intake.jobs.append(job)
        elif before == (job.submitted, job.run):
            self.intake.drop(line, DUPLICATE)
        else:
            self.intake.drop(line, PARTIAL_ROW if row[STATUS] in PARTIAL else SAME_ID)

    def _job(self, line: int, row: list[str], header: dict[str, str]) -> Job | str:
        submitted, run, wait = milliseconds(row[SUBMIT]), milliseconds(row[RUN]), milliseconds(row[WAIT])
        procs = int(milliseconds(row[PROCS]) // 1_000)
        if procs <= 0:
            procs = int(milliseconds(row[ASKED_PROCS]) // 1_000)
        if submitted < 0:
            return NO_SUBMIT
        if run <= 0 and row[STATUS] == CANCELLED:
            return NEVER_RAN
        if run < 0:
            return NEGATIVE_RUN
        if not 0 < procs <= MOST_SLOTS:
            return NO_PROCS
        if not run:
            self.remarks.add(line, "ran for less than a second: taken as one second")
        submitted += self._base(submitted, header)
        limit = milliseconds(row[ASKED_TIME])
        started = submitted + wait if wait >= 0 else None
        account = intern(account_path(_named(self.account_name, row[self.account_at])))
        user = intern(_named("user", row[USER])) or account
        return Job(
            submitted, row[ID], run or 1_000, account, user, line, cpus=procs, started=started,
            label=intern(_named("queue", row[QUEUE])), limit=limit if limit > 0 else None,
        )  # fmt: skip

    def _base(self, submitted: int, header: dict[str, str]) -> int:
        """Unix time of the log's instant 0; decided at the first usable row: submissions may be absolute already."""
        if self.base is None:
            start = 0
            if submitted < UNIX_FROM:
                try:
                    start = milliseconds(header.get("UnixStartTime", "0"))
                except ValueError:
                    start = 0
            self.base = start if start >= UNIX_FROM // 2 else 0
            self.intake.unix_times = submitted >= UNIX_FROM or self.base > 0
        return self.base


def _named(what: str, number: str) -> str:
    """``group7``; empty for -1, which is unknown."""
    return "" if number == "-1" else what + number
