"""Alibaba's Kubernetes traces of 2023: a table of pods, and a table of nodes (clusterdata v2023; Weng et al., ATC'23).

Pods: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time,
scheduled_time``, times in seconds since the trace's start. Nodes: ``sn, cpu_milli, memory_mib, gpu, model``.

A share of a GPU is rounded up to a whole one. A pod without `scheduled_time` never ran.
"""

from __future__ import annotations

from pathlib import Path
from sys import intern

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


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read a table of pods into `intake`."""
    table = Table.open(source)
    table.require(*POD_COLUMNS)
    if options.account_by not in (None, "qos"):
        raise LogError(
            f"pods have no {options.account_by}", source.path, remedy="the account can only be --account-by qos"
        )
    intake.unix_times = False
    at = [table.column(name) for name in (*POD_COLUMNS, "gpu_milli", "gpu_spec", "qos")]
    seen: set[str] = set()
    shared = 0
    for line, row in table.rows(intake):
        name, cpu, memory, gpus, created, deleted, scheduled, milli, spec, qos = (row[index] for index in at)
        if not scheduled:
            intake.drop(line, "never scheduled: run time unknown")
            continue
        try:
            started = milliseconds(scheduled)
            job = Job(
                submitted=milliseconds(created),
                id=name,
                run=milliseconds(deleted) - started if deleted else -1,
                account=intern(account_path(qos)),
                user=intern(qos or "unknown"),
                line=line,
                nodes=1,
                gpus=count(gpus) if gpus else 0,
                cpus=-(-count(cpu, MOST_SLOTS * 1000) // 1000) if cpu else 0,
                memory_mib=count(memory, 10**12) if memory else 0,
                started=started,
                gpu_types=_types(spec),
                preemptible=qos == "BE",
            )
            shared += bool(job.gpus and milli and count(milli) < WHOLE_GPU)
        except ValueError:
            intake.drop(line, "a field is not a number")
            continue
        if job.run <= 0 or job.submitted < 0 or not name:
            intake.drop(line, NEVER_RAN if deleted else "not deleted: run time unknown")
        elif name in seen:
            intake.drop(line, DUPLICATE)
        else:
            seen.add(name)
            intake.jobs.append(job)
    if shared:
        intake.notes.append(f"pods that ask for a share of a GPU, each given a whole one: {shared:,}")
    intake.notes.append("pods name no users: each quality of service is one account with one user")


def _types(spec: str) -> tuple[str, ...]:
    return tuple(intern(name) for name in spec.split("|") if name)


def is_nodes_file(path: Path) -> bool:
    """Whether the file is a table of nodes (else it is taken for a cluster file)."""
    if path.is_dir():
        return False
    first = Source(path).head().decode("utf-8", "replace").lstrip().partition("\n")[0]
    return set(NODE_COLUMNS) <= set(header_fields(first.rstrip("\r"))[0])


def read_nodes(path: Path, unit: str) -> tuple[Cluster, list[str]]:
    """The installed cluster of a table of nodes: one pool for each kind of node.

    With unit ``gpu``, nodes without GPUs are left out, and counted in the notes.

    Raises:
        LogError: the file cannot be read, or has no usable node.
    """
    table = Table.open(Source(path))
    table.require(*NODE_COLUMNS)
    at = [table.column(name) for name in NODE_COLUMNS]
    intake = Intake("nodes")
    kinds: dict[tuple[str, int, int, int], dict[NodeName, None]] = {}
    for line, row in table.rows(intake):
        name, cpu, memory, gpus, model = (row[index].strip() for index in at)
        try:
            kind = (model, count(gpus), count(cpu, MOST_SLOTS * 1000) // 1000, count(memory, 10**12))
        except ValueError:
            intake.drop(line, "a field is not a number")
            continue
        if not name or not (kind[1] or kind[2]):
            intake.drop(line, "no name, or neither GPUs nor cores")
        else:
            kinds.setdefault(kind, {})[NodeName(name)] = None
    without = sum(len(nodes) for kind, nodes in kinds.items() if not kind[1])
    notes = [
        f"nodes not used: {number:,} ({reason}; first at line {lines[0]})"
        for reason, (number, lines) in intake.dropped.items()
    ]
    if unit == "gpu" and without:
        notes.append(f"nodes without GPUs, left out: {without:,} (replay cores with --unit cpu)")
        kinds = {kind: nodes for kind, nodes in kinds.items() if kind[1]}
    if not kinds:
        raise LogError("has no usable node", path, remedy="give the table of nodes of the same trace")
    return Cluster("alibaba", _pools(kinds), "gpu" if any(kind[1] for kind in kinds) else "cpu"), notes


def _pools(kinds: dict[tuple[str, int, int, int], dict[NodeName, None]]) -> tuple[Pool, ...]:
    """Pools, larger ones first, each with a name that says its type and size."""
    order = sorted(kinds, key=lambda kind: (-len(kinds[kind]) * (kind[1] or 0), kind))
    pools = []
    for kind in order:
        model, gpus, cpus, memory = kind
        name = f"{model or 'cpu'}-{gpus}x{cpus}c{memory // 1024}g"
        pools.append(Pool(name, tuple(kinds[kind]), gpus, model, cpus, memory))
    return tuple(pools)
