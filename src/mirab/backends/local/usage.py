"""What each run used, from the shims' own files: an account that owes nothing to the journal."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mirab.backends.local import rundir
from mirab.model.units import Duration, Instant, NodeName, RunId, WorkloadId


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One run as its shim saw it.

    Attributes:
        slots: GPUs, or cores in a pool without GPUs.
        ended_at, outcome, exit_code: None while it runs.
        ran: from its start to its end, or to its last sign of life; 0 if it never started.
        cpu: CPU time of its processes; None = not known.
        activity: mean GPU activity from 0 to 1 over its running time; None = no source told.
    """

    run_id: RunId
    workload_id: WorkloadId
    nodes: tuple[NodeName, ...]
    slots: int
    started_at: Instant | None
    ended_at: Instant | None
    outcome: str | None
    exit_code: int | None
    ran: Duration
    cpu: Duration | None = None
    activity: float | None = None


def usage_record(run_id: RunId, directory: str) -> UsageRecord | None:
    """None: the folder tells of no run (yet)."""
    spec = rundir.read_json(os.path.join(directory, rundir.SPEC))
    if spec is None:
        return None
    last_word = rundir.read_json(os.path.join(directory, rundir.EXIT))
    said = last_word or rundir.read_json(os.path.join(directory, rundir.STATUS)) or {}
    started, ended = said.get("started_at"), (last_word or {}).get("ended_at")
    until = ended if ended is not None else last_beat(directory)
    return UsageRecord(
        run_id,
        WorkloadId(spec["workload_id"]),
        tuple(NodeName(node) for node in spec["nodes"]),
        int(spec["slots"]),
        started,
        ended,
        (last_word or {}).get("outcome"),
        (last_word or {}).get("exit_code"),
        max(0, until - started) if started is not None else 0,
        (last_word or {}).get("cpu_ms"),
        mean_activity(directory),
    )


def last_beat(directory: str) -> Instant:
    try:
        return os.stat(os.path.join(directory, rundir.HEARTBEAT)).st_mtime_ns // 1_000_000
    except OSError:
        return 0


def mean_activity(directory: str) -> float | None:
    """Mean of the samples in the folder, 0 to 1; None if there is none."""
    seen = rundir.read_json(os.path.join(directory, rundir.ACTIVITY))
    return seen["sum"] / seen["samples"] / 100 if seen and seen["samples"] else None
