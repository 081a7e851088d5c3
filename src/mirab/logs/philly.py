"""Microsoft's Philly trace (Jeon et al., ATC'19): the upstream JSON, and the CSV reduction of the ElasticFlow project.

CSV: ``timestamp`` = submission, ``duration`` = seconds over all attempts, ``num_gpus``, ``cluster`` = virtual cluster.
JSON: a list of jobs, each with its attempts and the GPUs of each machine. Jobs of the JSON without a finished attempt
have no known run time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from sys import intern
from typing import Any

from mirab.logs.errors import LogError
from mirab.logs.fields import MOST_SLOTS, count, milliseconds
from mirab.logs.intake import DUPLICATE, NEVER_RAN, SAME_ID, Intake, Job, account_path
from mirab.logs.moments import Calendar
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source
from mirab.logs.tables import Table

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
NO_SUBMIT = "submit time unknown"
NO_RUN = "run time unknown or not above 0"
NO_GPUS = "number of GPUs unknown or 0"
NO_JOB = "not a job with jobid, vc, submitted_time and attempts"
PIECE = 1 << 20
LARGEST_JOB = 1 << 26


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read the CSV reduction into `intake`. Jobs have no ids: they are numbered by line."""
    if options.account_by not in (None, "vc"):
        raise LogError(f"has no {options.account_by}", source.path, remedy="the account can only be --account-by vc")
    table = Table.open(source)
    table.require(*COLUMNS)
    calendar = Calendar(options.timezone)
    intake.notes.append("the log names no users: each virtual cluster is one account with one user")
    at = [table.column(name) for name in COLUMNS]
    seen: set[tuple[str, ...]] = set()
    for line, row in table.rows(intake):
        key = tuple(row[index] for index in at)
        if key in seen:
            intake.drop(line, DUPLICATE)
            continue
        job = _row(line, key, calendar)
        if isinstance(job, str):
            intake.drop(line, job)
        else:
            seen.add(key)
            intake.jobs.append(job)


def _row(line: int, key: tuple[str, ...], calendar: Calendar) -> Job | str:
    timestamp, duration, num_gpus, cluster = key
    try:
        submitted = calendar.unix_ms(timestamp)
    except ValueError:
        return NO_SUBMIT
    try:
        run = milliseconds(duration)
    except ValueError:
        return NO_RUN
    try:
        gpus = count(num_gpus)
    except ValueError:
        return NO_GPUS
    if run <= 0:
        return NO_RUN
    if not gpus:
        return NO_GPUS
    account = intern(account_path(cluster))
    return Job(submitted, str(line), run, account, account, line, gpus=gpus)


def read_json(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read the upstream JSON into `intake`, one job at a time."""
    if options.account_by not in (None, "vc", "user"):
        raise LogError(f"has no {options.account_by}", source.path, remedy="choose --account-by vc or user")
    calendar = Calendar(options.timezone)
    by = options.account_by or "vc"
    seen: set[str] = set()
    for line, value in _objects(source):
        intake.rows += 1
        job = _object(line, value, by, calendar, intake)
        if isinstance(job, str):
            intake.drop(line, job)
        elif job.id in seen:
            intake.drop(line, SAME_ID)
        else:
            seen.add(job.id)
            intake.jobs.append(job)


def _objects(source: Source) -> Iterator[tuple[int, Any]]:
    """Line and value of every element of the JSON list, without holding the list."""
    decode = json.JSONDecoder().raw_decode
    rest, line = "", 1
    for piece in _pieces(source):
        rest += piece
        at = 0
        while True:
            while at < len(rest) and rest[at] in " \t\r\n,[]":
                line += rest[at] == "\n"
                at += 1
            if at == len(rest):
                break
            try:
                value, end = decode(rest, at)
            except (ValueError, RecursionError):
                break
            if end == len(rest) and isinstance(value, int | float):
                break
            yield line, value
            line += rest.count("\n", at, end)
            at = end
        rest = rest[at:]
        if len(rest) > LARGEST_JOB:
            break
    if rest.strip():
        source.cut_short = source.cut_short or f"the JSON breaks off, or is damaged, in the job at line {line}"


def _pieces(source: Source) -> Iterator[str]:
    """The text in pieces, each at least as long as all that is still not understood can be."""
    lines: list[str] = []
    size, wanted = 0, PIECE
    for _, text in source.lines():
        lines.append(text)
        size += len(text) + 1
        if size >= wanted:
            yield "\n".join(lines) + "\n"
            lines, size, wanted = [], 0, min(wanted * 2, LARGEST_JOB)
    yield "\n".join(lines)


def _object(line: int, value: Any, by: str, calendar: Calendar, intake: Intake) -> Job | str:
    if not isinstance(value, dict):
        return NO_JOB
    job_id, vc, attempts = value.get("jobid"), value.get("vc"), value.get("attempts")
    user = value.get("user")
    if not isinstance(job_id, str) or not isinstance(vc, str) or not job_id:
        return NO_JOB
    if not isinstance(attempts, list) or not attempts:
        return NEVER_RAN
    submitted = _instant(value.get("submitted_time"), calendar)
    if submitted is None:
        return NO_SUBMIT
    spans = [span for span in (_span(attempt, calendar) for attempt in attempts) if span is not None]
    run = sum(end - start for start, end in spans)
    if run <= 0:
        return NO_RUN
    machines = next((found for found in map(_machines, reversed(attempts)) if found), {})
    gpus = sum(machines.values())
    if not 0 < gpus <= MOST_SLOTS:
        return NO_GPUS
    intake.hosts.setdefault("", {}).update(dict.fromkeys(machines))
    user_name = intern(user) if isinstance(user, str) and user else "unknown"
    account = intern(account_path(vc if by == "vc" else user_name))
    return Job(
        submitted, job_id, run, account, user_name, line, len(machines), gpus, started=min(start for start, _ in spans)
    )


def _instant(text: object, calendar: Calendar) -> int | None:
    try:
        return calendar.unix_ms(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _span(attempt: object, calendar: Calendar) -> tuple[int, int] | None:
    """Start and end of a finished attempt."""
    if not isinstance(attempt, dict):
        return None
    start, end = (_instant(attempt.get(key), calendar) for key in ("start_time", "end_time"))
    return (start, end) if start is not None and end is not None and end >= start else None


def _machines(attempt: object) -> dict[str, int]:
    """GPUs on each machine of an attempt."""
    detail = attempt.get("detail") if isinstance(attempt, dict) else None
    found: dict[str, int] = {}
    for machine in detail if isinstance(detail, list) else []:
        gpus = machine.get("gpus") if isinstance(machine, dict) else None
        name = machine.get("ip") if isinstance(machine, dict) else None
        if isinstance(gpus, list) and isinstance(name, str) and gpus:
            found[name] = found.get(name, 0) + len(gpus)
    return found
