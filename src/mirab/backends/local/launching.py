"""From a decided start to a process: make the folder, then start a shim for it, each as often as needed to be once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from mirab.backends.local import rundir, shim
from mirab.backends.local.folders import Folders, login_of
from mirab.backends.local.gpus import GpuTable
from mirab.backends.local.translate import Place, node_names, shim_spec, unusable
from mirab.model.plans import Start
from mirab.model.records import JobSpec
from mirab.model.resources import Cluster
from mirab.model.units import WorkloadId

SHIM = os.path.abspath(shim.__file__)


class RefusedError(Exception):
    """It could not be done now, and may well be done later: what becomes an `ActionRefused`."""


class Launcher:
    def __init__(
        self, folders: Folders, cluster: Cluster, gpus: GpuTable, spec_of: Callable[[WorkloadId], JobSpec | None]
    ) -> None:
        self.folders, self.cluster, self.gpus, self.spec_of = folders, cluster, gpus, spec_of

    def spec_for(self, start: Start, directory: str) -> dict[str, Any]:
        """The spec in the run's folder; the folder is made if it is not there yet.

        Raises:
            RefusedError: it cannot be made now.
        """
        known = rundir.read_json(os.path.join(directory, rundir.SPEC))
        if known is not None:
            return known
        job = self.job(start.workload_id)
        spec = shim_spec(job, start, self.place(start, directory), login_of(job.uid))
        spec["impossible"] = unusable(job) or not_permitted(job)
        try:
            self.folders.make(directory, job, spec)
        except OSError as error:
            self.gpus.release(start.run_id)
            raise RefusedError(f"the folder of run {start.run_id} cannot be made: {error}") from error
        return spec

    def job(self, workload_id: WorkloadId) -> JobSpec:
        """What the workload is to execute. Whoever keeps that may fail in ways of its own; it is asked again later."""
        try:
            job = self.spec_of(workload_id)
        except Exception as error:
            raise RefusedError(f"what job {workload_id} is to run cannot be read: {error}") from error
        if job is None:
            raise RefusedError(f"nothing is known of what job {workload_id} is to run")
        return job

    def place(self, start: Start, directory: str) -> Place:
        nodes = node_names(self.cluster, start)
        pool = self.cluster.pools[start.allocation.pool]
        count = start.allocation.slots_per_node if pool.gpus_per_node else 0
        gpus = self.gpus.allocate(start.run_id, nodes, count)
        if gpus is None:
            raise RefusedError(f"a run that is being stopped still has GPUs of {', '.join(nodes)}")
        state = str(self.folders.state(start.workload_id))
        return Place(directory, state, self.folders.doorbell, nodes, gpus)


def not_permitted(job: JobSpec) -> str:
    if job.uid is not None and os.geteuid() not in (0, job.uid):
        return f"this service does not run as root, so it cannot run job {job.workload_id} as Unix user {job.uid}"
    return ""


def spawn(directory: str) -> subprocess.Popen[bytes]:
    """Start a shim for the folder. It leaves at once if there is, or was, one.

    It inherits neither our environment, where secrets may be, nor our terminal.

    Raises:
        RefusedError: no process can be had.
    """
    try:
        with open(os.path.join(directory, rundir.TALK), "ab") as talk:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", SHIM, directory],
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=talk,
                start_new_session=True,
            )
    except OSError as error:
        raise RefusedError(f"no process can be started for {directory}: {error}") from error
