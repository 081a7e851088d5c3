"""From what was asked for to what the shim executes: pure, without a look at this machine."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirab.model.plans import Start
from mirab.model.reasons import DrainedFrom, PreemptedFor, ReservationBegins, StopReason
from mirab.model.records import JobSpec
from mirab.model.resources import Cluster, nodes_of
from mirab.model.units import NodeName, RunId, WorkloadId

LONGEST_VALUE = 100
"""Bytes of one value in a file name: names of jobs may be long, names of files may not."""
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
PATTERN = re.compile(r"%(\d{0,2})([%jJAaxu])")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Login:
    """The Unix user of a run, as the system knows it."""

    name: str
    home: str = "/"
    shell: str = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run lives: its folder, its workload's folder, the doorbell; and what it was given, node by node."""

    directory: str
    state_dir: str
    doorbell: str
    nodes: tuple[NodeName, ...]
    gpus: Mapping[NodeName, tuple[int, ...]]


def read_run_id(run_id: RunId) -> tuple[WorkloadId, int]:
    """Workload and number of the attempt out of a run's id.

    Raises:
        ValueError: it is not of the form ``workload.attempt``, or no name for a folder.
    """
    workload, _, attempt = run_id.rpartition(".")
    if not ID.fullmatch(workload) or not attempt.isdigit():
        raise ValueError(f"{run_id!r} is no run id: it must be WORKLOAD.ATTEMPT of letters, digits, _ and -")
    return WorkloadId(workload), int(attempt)


def node_names(cluster: Cluster, start: Start) -> tuple[NodeName, ...]:
    pool = cluster.pools[start.allocation.pool]
    return tuple(pool.nodes[number] for number in nodes_of(start.allocation.mask))


def unusable(job: JobSpec) -> str:
    """Why it can never be executed as it is, in a sentence; "" = it can be tried."""
    texts = {"argument": job.argv, "environment": tuple(part for pair in job.environment for part in pair)}
    texts |= {"script": (job.script,), "working directory": (job.cwd,), "output": (job.output, job.error)}
    texts |= {"check command": (job.verify_resume,), "checkpoint file": (job.checkpoint_file,)}
    for what, parts in texts.items():
        if what != "script" and any("\0" in part for part in parts):
            return f"the {what} of job {job.workload_id} holds a NUL character, which no command can be given"
        if not all(encodable(part) for part in parts):
            return f"the {what} of job {job.workload_id} holds half a character (a lone surrogate)"
    for name, _ in job.environment:
        if not name or "=" in name:
            return f"the environment of job {job.workload_id} has a variable with the impossible name {name!r}"
    if not (job.argv or job.script or job.interactive):
        return f"job {job.workload_id} has neither a command nor a script"
    if not os.path.isabs(job.cwd):
        return f"the working directory {job.cwd!r} of job {job.workload_id} is not an absolute path"
    return ""


def encodable(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def shim_spec(job: JobSpec, start: Start, place: Place, login: Login) -> dict[str, Any]:
    """All that the shim needs to know, as JSON values."""
    _, attempt = read_run_id(start.run_id)
    output = output_file(job.output or "mirab-%j.out", job, login)
    return {
        "run_id": start.run_id,
        "workload_id": job.workload_id,
        "attempt": attempt,
        "argv": command(job, place, login),
        "cwd": job.cwd,
        "environment": environment(job, start, place, login),
        "uid": job.uid,
        "gid": job.gid,
        "output": output,
        "error": output_file(job.error, job, login) if job.error else "",
        "append": job.append or job.interactive or attempt > 1,
        "signal": job.signal,
        "grace_ms": job.grace,
        "time_limit_ms": job.time_limit,
        "min_runtime_ms": start.min_runtime,
        "checkpoint_file": os.path.join(job.cwd, job.checkpoint_file) if job.checkpoint_file else "",
        "verify_resume": job.verify_resume if start.resumed or attempt > 1 else "",
        "state_dir": place.state_dir,
        "interactive": job.interactive,
        "idle_timeout_ms": job.idle_timeout,
        "doorbell": place.doorbell,
        "nodes": list(place.nodes),
        "slots": start.allocation.slots,
        "gpus": {node: list(numbers) for node, numbers in place.gpus.items()},
    }


def why_stopped(reason: StopReason) -> str:
    """A few words for the output of the run that is stopped; the whole story is the service's to tell."""
    match reason:
        case PreemptedFor():
            return f"job {reason.beneficiary} of {reason.account} goes before it"
        case DrainedFrom():
            return f"node {reason.node} goes to repair"
        case ReservationBegins():
            return f"reservation {reason.reservation_id} begins"
        case _:
            return "it did not start in time"


def command(job: JobSpec, place: Place, login: Login) -> list[str]:
    if job.script:
        return [os.path.join(place.directory, "script"), *job.argv]
    return list(job.argv) or [dict(job.environment).get("SHELL", login.shell)]


# --- names of files -------------------------------------------------------------------------------------------------


def output_file(pattern: str, job: JobSpec, login: Login) -> str:
    """Slurm's ``%j %J %A %a %x %u %%`` filled in (``%4a`` pads numbers), relative to the working directory.

    A value never leaves the folder that the pattern names: what could is replaced.
    """
    task = "4294967294" if job.array_task is None else str(job.array_task)
    values = {
        "j": job.workload_id,
        "J": job.workload_id,
        "A": job.array_job or job.workload_id,
        "a": task,
        "x": job.name,
        "u": str(job.user) or login.name,
    }

    def fill(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter == "%":
            return "%"
        value = harmless(values[letter])
        return value.zfill(int(width or 0)) if value.isdigit() else value

    return os.path.normpath(os.path.join(job.cwd, PATTERN.sub(fill, pattern)))


def harmless(value: str) -> str:
    """A value that is part of one file name, whatever a job was called."""
    text = "".join("_" if letter == "/" or not letter.isprintable() else letter for letter in value)
    text = text.encode("utf-8", "replace")[:LONGEST_VALUE].decode("utf-8", "ignore")
    return text.replace(".", "_") if not text.strip(".") else text


# --- environment ----------------------------------------------------------------------------------------------------


def environment(job: JobSpec, start: Start, place: Place, login: Login) -> dict[str, str]:
    """What was exported, what a login has where it was not, and ours above all.

    The names that scripts written for sbatch look for are given too. Ours that do not apply to this run are removed:
    a job may be submitted from inside another.
    """
    values = {"PATH": PATH, "HOME": login.home, "USER": login.name, "LOGNAME": login.name, "SHELL": login.shell}
    values |= dict(job.environment)
    own = own_variables(job, start, place)
    for name, value in own.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return values


def own_variables(job: JobSpec, start: Start, place: Place) -> dict[str, str | None]:
    _, attempt = read_run_id(start.run_id)
    nodes = ",".join(place.nodes)
    gpus = ",".join(str(number) for number in place.gpus.get(place.nodes[0], ()))
    cpus = str(start.allocation.cpus_per_node or (0 if gpus else start.allocation.slots_per_node) or "")
    resumed = "1" if start.resumed or attempt > 1 else "0"
    ours: dict[str, str | None] = {
        "MIRAB_JOB_ID": job.workload_id,
        "MIRAB_ATTEMPT": str(attempt),
        "MIRAB_RUN_ID": start.run_id,
        "MIRAB_RESUMED": resumed,
        "MIRAB_STATE_DIR": place.state_dir,
        "MIRAB_RUN_DIR": place.directory,
        "MIRAB_JOB_NODELIST": nodes,
        "MIRAB_NNODES": str(len(place.nodes)),
        "MIRAB_JOB_NAME": job.name.replace("\0", ""),
        "MIRAB_JOB_ACCOUNT": str(job.account) or None,
        "MIRAB_CPUS_PER_NODE": cpus or None,
        "MIRAB_ARRAY_JOB_ID": job.array_job,
        "MIRAB_ARRAY_TASK_ID": None if job.array_task is None else str(job.array_task),
        "CUDA_VISIBLE_DEVICES": gpus,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    return ours | slurm_twins(ours, attempt, gpus, job)


def slurm_twins(ours: Mapping[str, str | None], attempt: int, gpus: str, job: JobSpec) -> dict[str, str | None]:
    return {
        "SLURM_JOB_ID": ours["MIRAB_JOB_ID"],
        "SLURM_JOBID": ours["MIRAB_JOB_ID"],
        "SLURM_JOB_NAME": ours["MIRAB_JOB_NAME"],
        "SLURM_JOB_ACCOUNT": ours["MIRAB_JOB_ACCOUNT"],
        "SLURM_JOB_NODELIST": ours["MIRAB_JOB_NODELIST"],
        "SLURM_NODELIST": ours["MIRAB_JOB_NODELIST"],
        "SLURM_JOB_NUM_NODES": ours["MIRAB_NNODES"],
        "SLURM_NNODES": ours["MIRAB_NNODES"],
        "SLURM_CPUS_ON_NODE": ours["MIRAB_CPUS_PER_NODE"],
        "SLURM_JOB_GPUS": gpus or None,
        "SLURM_GPUS_ON_NODE": str(gpus.count(",") + 1) if gpus else None,
        "SLURM_ARRAY_JOB_ID": ours["MIRAB_ARRAY_JOB_ID"],
        "SLURM_ARRAY_TASK_ID": ours["MIRAB_ARRAY_TASK_ID"],
        "SLURM_RESTART_COUNT": str(attempt - 1) if attempt > 1 else None,
        "SLURM_SUBMIT_DIR": job.cwd,
    }
