"""Listings as text, for a Slurm that has no JSON to give: ``squeue -O`` in columns, ``scontrol show nodes -o``.

Text becomes the entries that ``--json`` would have, so that one reading of them does for both. Columns have fixed
widths: whatever stands in a name or a comment, it cannot pass for another column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mirab.backends.slurm import listings
from mirab.backends.slurm.amounts import Json, text
from mirab.backends.slurm.commands import Command
from mirab.backends.slurm.listings import ListingError
from mirab.backends.slurm.records import SlurmJob, SlurmNode

# squeue's column, its width, the key of ``squeue --json``
COLUMNS = (
    ("JobID", 20, "job_id"), ("ArrayJobID", 20, "array_job_id"), ("ArrayTaskID", 400, "array_task_string"),
    ("UserName", 64, "user_name"), ("Account", 128, "account"), ("Partition", 256, "partition"),
    ("State", 32, "job_state"), ("Reason", 128, "state_reason"), ("NumNodes", 12, "node_count"),
    ("NumCPUs", 12, "cpus"), ("tres-alloc", 400, "tres_req_str"), ("tres-per-node", 200, "tres_per_node"),
    ("tres-per-job", 200, "tres_per_job"), ("NodeList", 1000, "nodes"), ("ReqNodes", 1000, "required_nodes"),
    ("TimeLimit", 32, "time_limit"), ("SubmitTime", 24, "submit_time"), ("EligibleTime", 24, "eligible_time"),
    ("StartTime", 24, "start_time"), ("EndTime", 24, "end_time"), ("PriorityLong", 24, "priority"),
    ("Dependency", 300, "dependency"), ("RestartCnt", 12, "restart_cnt"), ("Requeue", 8, "requeue"),
    ("BatchFlag", 8, "batch_flag"), ("exit_code", 16, "exit_code"), ("Reservation", 100, "resv_name"),
    ("Feature", 200, "features"), ("Licenses", 200, "licenses"), ("HetJobID", 20, "het_job_id"),
    ("Contiguous", 8, "contiguous"), ("admin_comment", 200, "admin_comment"), ("Comment", 1000, "comment"),
    ("Name", 200, "name"),
)  # fmt: skip
WIDTH = sum(width for _, width, _ in COLUMNS)
_FLAGS = frozenset({"requeue", "batch_flag", "contiguous"})
_FORMAT = f"--Format={','.join(f'{column}:{width}' for column, width, _ in COLUMNS)}"
LIST_JOBS_TEXT: Command = ("squeue", "--all", "--states=all", "--noheader", _FORMAT)
LIST_EXCLUDED: Command = ("squeue", "--all", "--states=PENDING", "--noheader", "--format=%A %x")
"""`squeue -O` has no column for the nodes that a job wants to leave out."""
LIST_NODES_TEXT: Command = ("scontrol", "--all", "--oneliner", "show", "nodes")
_LIMIT = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z]\w*)=")


def list_some_text(jobs: Sequence[str]) -> Command:
    return (*LIST_JOBS_TEXT, f"--jobs={','.join(jobs)}")


# --- jobs -------------------------------------------------------------------------------------------------------------
def jobs_of_text(listing: str, excluded: str = "") -> list[SlurmJob]:
    """The jobs of `LIST_JOBS_TEXT`, array tasks one by one; `excluded`: what `LIST_EXCLUDED` says.

    Raises:
        ListingError: a line is shorter than its columns.
    """
    left_out = dict(line.split(maxsplit=1) for line in excluded.splitlines() if len(line.split()) > 1)
    rows = [_row(line) for line in listing.splitlines() if line.strip()]
    found = [
        job for row in rows for job in listings.tasks_of({**row, "excluded_nodes": left_out.get(row["job_id"], "")})
    ]
    limits: dict[int, int] = {}
    for job in found:
        if job.array_job is not None:
            limits[job.array_job] = max(limits.get(job.array_job, 0), job.array_limit)
    return [job if job.array_job is None else replace(job, array_limit=limits[job.array_job]) for job in found]


def _row(line: str) -> dict[str, Json]:
    if len(line) < WIDTH - COLUMNS[-1][1]:
        raise ListingError(f"squeue's columns were expected, and it answered {line[:80]!r}")
    raw: dict[str, Json] = {}
    place = 0
    for _, width, key in COLUMNS:
        raw[key] = line[place : place + width].strip()
        place += width
    raw |= {key: raw[key] not in ("0", "no", "NO") for key in _FLAGS}
    raw["time_limit"] = minutes(raw["time_limit"])
    raw["exit_code"] = _status(raw["exit_code"])
    raw["state_reason"] = text(raw["state_reason"]).partition(",")[0] or "None"
    _array(raw)
    return raw


def _array(raw: dict[str, Json]) -> None:
    """A job that is no array gives its own number as the array's, and no task."""
    task = text(raw["array_task_string"])
    if not task:
        raw |= {"array_job_id": 0, "array_task_string": ""}
    elif task.isdigit():
        raw |= {"array_task_id": int(task), "array_task_string": ""}


def minutes(limit: str) -> int | None:
    """``1-02:00:00``, ``1:30:00``, ``30:00`` or ``UNLIMITED``, in minutes, rounded up."""
    match = _LIMIT.fullmatch(limit)
    if match is None:
        return None
    days, *rest = match.groups()
    numbers = [int(number) for number in rest if number is not None]
    hours, mins, seconds = [0] * (3 - len(numbers)) + numbers if days is None else numbers + [0] * (3 - len(numbers))
    return -(-((int(days or 0) * 24 + hours) * 3600 + mins * 60 + seconds) // 60)


def _status(told: str) -> int:
    """A wait status: ``3``, or ``3:0`` of exit code and signal."""
    code, colon, signal = told.partition(":")
    if not code.isdigit():
        return 0
    return (int(code) << 8) | int(signal or 0) if colon and (signal or "0").isdigit() else int(code)


# --- nodes ------------------------------------------------------------------------------------------------------------
def nodes_of_text(listing: str) -> list[SlurmNode]:
    """The nodes of `LIST_NODES_TEXT`, in the order of their names.

    Raises:
        ListingError: no line names a node.
    """
    rows = [row for line in listing.splitlines() if "NodeName" in (row := fields(line))]
    if not rows:
        raise ListingError(f"Slurm's answer lists no nodes: {listing[:80]!r}")
    return listings.nodes_of(
        {
            "name": row["NodeName"],
            "state": _state(row.get("State", "")),
            "gres": row.get("Gres", ""),
            "real_memory": row.get("RealMemory", ""),
            "cpus": row.get("CPUTot", ""),
            "partitions": row.get("Partitions", "").split(",") if text(row.get("Partitions")) else [],
            "reason": row.get("Reason", "").rpartition(" [")[0] or row.get("Reason", ""),
        }
        for row in rows
    )


def _state(told: str) -> list[str]:
    """``MIXED+DRAIN*``: a star is a node that does not answer."""
    words = told.rstrip("*").split("+")
    return [*words, "NOT_RESPONDING"] if told.endswith("*") else words


def fields(line: str) -> Mapping[str, str]:
    """``Key=value Key=value with spaces``; of a key that comes twice the first counts."""
    found: dict[str, str] = {}
    for key, value in _pairs(line):
        found.setdefault(key, value)
    return found


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    marks = list(_FIELD.finditer(line))
    ends = [*(mark.start() for mark in marks[1:]), len(line)]
    for mark, end in zip(marks, ends, strict=False):
        yield mark[1], line[mark.end() : end].strip()
