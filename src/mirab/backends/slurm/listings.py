"""From ``squeue --json`` and ``sinfo --json`` of any version to records. What is not understood is kept or left out,
never a crash; what cannot be read at all is one `ListingError`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mirab.backends.slurm.amounts import (
    Json,
    count,
    gpus,
    instant,
    limit,
    memory_mib,
    number,
    per_node,
    text,
    tres,
    words,
)
from mirab.backends.slurm.records import (
    FLAGS_OF_JOBS,
    HELD_MARK,
    PLACED_MARK,
    USER_HOLD_MARK,
    WAITS,
    Booking,
    SlurmJob,
    SlurmNode,
)
from mirab.model.nodelists import expand, numbers_of
from mirab.model.units import NodeName

MOST_TASKS = 10_000
_HELD_BY = {"JobHeldUser": "user", "JobHeldAdmin": "admin"}
_SPECIAL = {
    "resv_name": "a reservation",
    "features": "features of nodes",
    "excluded_nodes": "nodes to leave out",
    "licenses": "licences",
}
_TASK_LIMIT = re.compile(r"%(\d+)$")


class ListingError(ValueError):
    """The text is no listing of Slurm's; the message holds its beginning."""


def jobs(listing: str) -> list[SlurmJob]:
    """The jobs of ``squeue --json``, array tasks one by one."""
    return [job for raw in _entries(listing, "jobs") for job in tasks_of(raw)]


def nodes(listing: str) -> list[SlurmNode]:
    """The nodes of ``sinfo --json`` or ``scontrol show nodes --json``, in the order of their names."""
    return nodes_of(_entries(listing, "nodes", "sinfo"))


def nodes_of(entries: Iterable[dict[str, Json]]) -> list[SlurmNode]:
    """The nodes of these entries, in the order of their names."""
    found = {node.name: node for raw in entries for node in _nodes(raw)}
    return [found[name] for name in sorted(found, key=_natural)]


def _entries(listing: str, *names: str) -> list[dict[str, Json]]:
    try:
        told = json.loads(listing, strict=False)
    except ValueError as error:
        raise ListingError(f"Slurm answered {listing[:80]!r} where JSON was expected") from error
    for name in names:
        if isinstance(told, dict) and isinstance(told.get(name), list):
            return [entry for entry in told[name] if isinstance(entry, dict)]
    raise ListingError(f"Slurm's answer lists no {names[0]}: {listing[:80]!r}")


# --- jobs -----------------------------------------------------------------------------------------------------------
def tasks_of(raw: dict[str, Json]) -> Iterator[SlurmJob]:
    """The job of one entry, or each task of the array that it stands for."""
    job = _job(raw)
    listed = _TASK_LIMIT.sub("", text(raw.get("array_task_string")))
    if job.array_job is None or job.array_task is not None or not listed:
        yield job
        return
    try:
        tasks = numbers_of(listed.strip("[]"), MOST_TASKS)
    except ValueError:
        yield job
        return
    for task in map(int, tasks):
        yield replace(job, id=f"{job.array_job}_{task}", array_task=task)


def _job(raw: dict[str, Json]) -> SlurmJob:
    job_id = count(raw.get("job_id"))
    array_job = count(raw.get("array_job_id")) or None
    array_task = None if array_job is None else number(raw.get("array_task_id"))
    state, flags = _state(raw.get("job_state"))
    asked = text(raw.get("tres_req_str"))
    node_count = max(1, count(raw.get("node_count")))
    per_job, kind = gpus(asked)
    on_each, named = gpus(text(raw.get("tres_per_node")))
    exit_code, signal = _exit(raw.get("exit_code"))
    limited = _TASK_LIMIT.search(text(raw.get("array_task_string")))
    return SlurmJob(
        id=f"{array_job}_{array_task}" if array_task is not None else str(array_job or job_id),
        job_id=job_id,
        name=text(raw.get("name")),
        user=text(raw.get("user_name")) or str(count(raw.get("user_id"))),
        account=text(raw.get("account")),
        partition=text(raw.get("partition")),
        state=state,
        flags=flags,
        reason=text(raw.get("state_reason")),
        nodes=node_count,
        gpus_per_node=on_each or per_node(per_job, node_count),
        gpu_type=named or kind or gpus(text(raw.get("tres_per_job")))[1],
        cpus_per_node=per_node(count(raw.get("cpus")), node_count),
        memory_mib_per_node=per_node(memory_mib(tres(asked).get("mem", "")), node_count),
        node_names=_names(raw.get("nodes")),
        requested_nodes=_names(raw.get("required_nodes")),
        time_limit=limit(raw.get("time_limit")),
        submitted_at=instant(raw.get("submit_time")) or 0,
        eligible_at=instant(raw.get("eligible_time")),
        started_at=instant(raw.get("start_time")),
        ended_at=instant(raw.get("end_time")),
        priority=count(raw.get("priority")),
        held_by=_held_by(raw, state),
        dependency=text(raw.get("dependency")),
        comment=text(raw.get("comment")),
        restarts=count(raw.get("restart_cnt")),
        requeue=bool(raw.get("requeue", True)) and bool(raw.get("batch_flag", True)),
        exit_code=exit_code,
        signal=signal,
        array_job=array_job,
        array_task=array_task,
        array_limit=int(limited[1]) if limited else count(raw.get("array_max_tasks")),
        special=_special(raw),
        placed=_placed(raw),
    )


def _state(value: Json) -> tuple[str, tuple[str, ...]]:
    """Base state and further words; a base state that is only a flag (``["REQUEUED"]``) is the flag."""
    told = words(value)
    base = next((word for word in told if word not in FLAGS_OF_JOBS), told[0] if told else "UNKNOWN")
    return base, tuple(word for word in told if word != base)


def _held_by(raw: dict[str, Json], state: str) -> str:
    """A hold is a priority of 0; the reason says whose, unless a mark says more."""
    if state not in WAITS:
        return ""
    told = _HELD_BY.get(text(raw.get("state_reason")), "")
    if not told and raw.get("hold") is not True and number(raw.get("priority")) != 0:
        return ""
    if USER_HOLD_MARK in text(raw.get("comment")).split():
        return "user"
    return "mirab" if HELD_MARK in _marks(raw) else told or "admin"


def _marks(raw: dict[str, Json]) -> list[str]:
    return text(raw.get("admin_comment")).replace(",", " ").split()


def _placed(raw: dict[str, Json]) -> bool:
    return PLACED_MARK in _marks(raw)


def _special(raw: dict[str, Json]) -> str:
    """What only Slurm's own scheduler understands."""
    for key, means in _SPECIAL.items():
        value = raw.get(key)
        if text(value) if not isinstance(value, dict) else number(value):
            return means
    if _names(raw.get("required_nodes")) and not _placed(raw):
        return "nodes of its user's choice"
    if raw.get("contiguous") is True:
        return "neighbouring nodes"
    return "parts of several kinds" if count(raw.get("het_job_id")) else ""


def _exit(value: Json) -> tuple[int, int]:
    """(exit code, signal) of a wait status, or of the newer form that names both."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal") or {}
        return count(value.get("return_code")), count(signal.get("id", signal.get("signal_id")))
    status = count(value)
    return status >> 8, status & 0x7F


def _names(value: Json) -> tuple[NodeName, ...]:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    try:
        return tuple(map(NodeName, expand(text(value))))
    except ValueError:
        return ()


# --- nodes ----------------------------------------------------------------------------------------------------------
def _nodes(raw: dict[str, Json]) -> Iterator[SlurmNode]:
    if isinstance(raw.get("nodes"), dict) and isinstance(raw.get("node"), dict):
        yield from _grouped(raw)
        return
    told = (*words(raw.get("state")), *words(raw.get("state_flags")))
    yield _node(NodeName(text(raw.get("name"))), told, raw, text(raw.get("gres")), raw.get("real_memory"))


def _grouped(raw: dict[str, Json]) -> Iterator[SlurmNode]:
    """The form of ``sinfo --json`` from 23.11 on: one entry for all nodes that are alike."""
    told = words(raw["node"].get("state"))
    gres = raw.get("gres")
    total = text(gres.get("total")) if isinstance(gres, dict) else text(gres)
    memory = raw.get("memory")
    least = memory.get("minimum") if isinstance(memory, dict) else memory
    for name in _names(raw["nodes"].get("nodes")):
        yield _node(name, told, raw, total, least)


def _node(name: NodeName, told: tuple[str, ...], raw: dict[str, Json], gres: str, memory: Json) -> SlurmNode:
    have, kind = gpus(gres)
    cpus = raw.get("cpus")
    if isinstance(cpus, dict) and "maximum" in cpus:
        cpus = cpus["maximum"]
    partition = raw.get("partitions", raw.get("partition"))
    if isinstance(partition, dict):
        partition = partition.get("name")
    base = told[0].rstrip("*~#!%$@^-") if told else "UNKNOWN"
    return SlurmNode(
        name=name,
        state=base,
        flags=told[1:],
        gpus=have,
        gpu_type=kind,
        cpus=count(cpus),
        memory_mib=count(memory),
        reason=_reason(raw.get("reason")),
        partitions=tuple(map(str, partition))
        if isinstance(partition, list)
        else tuple(filter(None, [text(partition)])),
    )


def _reason(value: Json) -> str:
    if isinstance(value, dict):
        value = value.get("description")
    return text(value)


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """n2 before n10."""
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name))


# --- what the accounting knows ----------------------------------------------------------------------------------------
def bookings(listing: str) -> list[Booking]:
    """The attempts in ``sacct --duplicates`` as `commands.LOOK_UP` asks for them, in the order of their starts."""
    found = [booking for line in listing.splitlines() if (booking := _booking(line.split("|"))) is not None]
    return sorted(found, key=lambda booking: (booking.job, booking.started_at))


def _booking(fields: list[str]) -> Booking | None:
    """One row; None = it never began. What was requeued in the second of its begin is booked without one."""
    if len(fields) < 5:
        return None
    job, state, code, began, ended = fields[:5]
    status, _, signal = code.partition(":")
    word = (state.split() or ["UNKNOWN"])[0].upper()
    over = instant(ended)
    started = over if instant(began) is None and word == "REQUEUED" else instant(began)
    if started is None:
        return None
    return Booking(job, word, started, over, count(status), count(signal))
