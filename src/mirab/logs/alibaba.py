"""Alibaba's Kubernetes traces of 2023: a table of pods, and a table of nodes (clusterdata v2023; Weng et al., ATC'23).

Pods: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time,
scheduled_time``, times in seconds since the trace's start. Nodes: ``sn, cpu_milli, memory_mib, gpu, model``.

A share of a GPU is rounded up to a whole one. A pod without `scheduled_time` never ran.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern
from typing import NamedTuple

from mirab.logs.errors import LogError
from mirab.logs.fields import MOST_SLOTS, count, milliseconds
from mirab.logs.intake import DUPLICATE, NEVER_RAN, Intake, Job, account_path
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source
from mirab.logs.tables import Table, header_fields
from mirab.model.resources import Cluster, Pool
from mirab.model.units import NodeName

POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
WHOLE_GPU = 1_000
NO_NUMBER = "a field is not a number"


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read a table of pods into `intake`."""
    table = Table.open(source)
    table.require(*POD_COLUMNS)
    if options.account_by not in (None, "qos"):
        by = options.account_by
        raise LogError(f"pods have no {by}", source.path, remedy="the account can only be --account-by qos")
    intake.unix_times = False
    at = [table.column(name) for name in (*POD_COLUMNS, "gpu_spec", "qos")]
    milli = table.column("gpu_milli")
    seen: set[str] = set()
    shared = 0
    for line, row in table.rows(intake):
        job = _pod(line, [row[index] for index in at])
        if isinstance(job, str):
            intake.drop(line, job)
        elif job.id in seen:
            intake.drop(line, DUPLICATE)
        else:
            seen.add(job.id)
            intake.jobs.append(job)
            shared += bool(job.gpus) and _is_share(row[milli])
    if shared:
        intake.notes.append(f"pods that ask for a share of a GPU, each given a whole one: {shared:,}")
    intake.notes.append("pods name no users: each quality of service is one account with one user")


def _pod(line: int, fields: list[str]) -> Job | str:
    """The job of a pod, or why it is none."""
    name, cpu, memory, gpus, created, deleted, scheduled, spec, qos = fields
    if not scheduled:
        return "never scheduled: run time unknown"
    if not deleted:
        return "not deleted: run time unknown"
    account = intern(account_path(qos))
    try:
        started = milliseconds(scheduled)
        job = Job(
            milliseconds(created), name, milliseconds(deleted) - started, account, account, line,
            nodes=1,
            gpus=count(gpus) if gpus else 0,
            cpus=-(-count(cpu, MOST_SLOTS * 1000) // 1000) if cpu else 0,
            memory_mib=count(memory, 10**12) if memory else 0,
            started=started,
            gpu_types=_types(spec),
            preemptible=qos == "BE",
        )  # fmt: skip
    except ValueError:
        return NO_NUMBER
    return job if job.run > 0 and job.submitted >= 0 and name else NEVER_RAN


def _is_share(milli: str) -> bool:
    try:
        return count(milli) < WHOLE_GPU
    except ValueError:
        return False


def _types(spec: str) -> tuple[str, ...]:
    return tuple(intern(name) for name in spec.split("|") if name)


def is_nodes_file(path: Path) -> bool:
    """Whether the file is a table of nodes (else it is taken for a cluster file)."""
    if path.is_dir():
        return False
    try:
        head = Source(path).head()
    except LogError:
        return False
    first = head.decode("utf-8", "replace").lstrip().partition("\n")[0]
    return set(NODE_COLUMNS) <= set(header_fields(first.rstrip("\r"))[0])


def read_nodes(path: Path, unit: str) -> tuple[Cluster, list[str]]:
    """The installed cluster of a table of nodes: one pool for each kind of node.

    With unit ``gpu``, nodes without GPUs are left out, and counted in the notes.

    Raises:
        LogError: the file cannot be read, or has no usable node.
    """
    intake = Intake("nodes")
    kinds = _kinds(path, intake)
    without = sum(len(nodes) for kind, nodes in kinds.items() if not kind.gpus)
    notes = [
        f"nodes not used: {number:,} ({reason}; first at line {lines[0]})"
        for reason, (number, lines) in intake.dropped.items()
    ]
    if unit == "gpu" and without:
        notes.append(f"nodes without GPUs, left out: {without:,} (replay cores with --unit cpu)")
        kinds = {kind: nodes for kind, nodes in kinds.items() if kind.gpus}
    if not kinds:
        raise LogError("has no usable node", path, remedy="give the table of nodes of the same trace")
    return Cluster("alibaba", _pools(kinds), "gpu" if any(kind.gpus for kind in kinds) else "cpu"), notes


class _Kind(NamedTuple):
    model: str
    gpus: int
    cpus: int
    memory_mib: int


def _kinds(path: Path, intake: Intake) -> dict[_Kind, dict[NodeName, None]]:
    """The names of the nodes of each kind."""
    table = Table.open(Source(path))
    table.require(*NODE_COLUMNS)
    at = [table.column(name) for name in NODE_COLUMNS]
    kinds: dict[_Kind, dict[NodeName, None]] = {}
    for line, row in table.rows(intake):
        name, cpu, memory, gpus, model = (row[index].strip() for index in at)
        try:
            kind = _Kind(model, count(gpus), count(cpu, MOST_SLOTS * 1000) // 1000, count(memory, 10**12))
        except ValueError:
            intake.drop(line, NO_NUMBER)
            continue
        if not name or not (kind.gpus or kind.cpus):
            intake.drop(line, "no name, or neither GPUs nor cores")
        else:
            kinds.setdefault(kind, {})[NodeName(name)] = None
    return kinds


def _pools(kinds: dict[_Kind, dict[NodeName, None]]) -> tuple[Pool, ...]:
    """Pools, larger ones first, each with a name that says its type and size."""
    order = sorted(kinds, key=lambda kind: (-len(kinds[kind]) * kind.gpus, kind))
    pools = []
    for kind in order:
        name = f"{kind.model or 'cpu'}-{kind.gpus}x{kind.cpus}c{kind.memory_mib // 1024}g"
        pools.append(Pool(name, tuple(kinds[kind]), kind.gpus, kind.model, kind.cpus, kind.memory_mib))
    return tuple(pools)
