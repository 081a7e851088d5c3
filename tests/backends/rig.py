"""A local backend in a folder of its own, with what a test needs to drive it; leaves no process behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mirab.backends.local import LocalBackend, rundir, shim
from mirab.backends.local.hardware import detect
from mirab.backends.local.watching import shim_pidfd
from mirab.model.events import ActionRefused, Event, NodeDegraded, NodeUp, RunCheckpointed, RunEnded, RunStarted
from mirab.model.plans import Cancel, Preempt, Start
from mirab.model.reasons import InOrder, StartTimedOut
from mirab.model.records import JobSpec
from mirab.model.resources import Allocation
from mirab.model.units import AccountPath, NodeName, RunId, WorkloadId

PATIENCE_S = 180.0
"""A safety net, never a measure: what has not happened by then never will."""
GPU, CPU = 0, 1
Fact = TypeVar("Fact", bound=Event)


def wait_for(question: Callable[[], Any], what: str) -> Any:
    """The first true answer to a question that is asked again and again."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = question()
        if answer:
            return answer
        time.sleep(0.005)
    raise AssertionError(f"never came: {what}")


class Rig:
    def __init__(self, root: Path, gpus: int = 8, nodes: int = 2, **options: Any) -> None:
        self.root, self.options = root, options
        self.cluster = detect(pretend_gpus=gpus, pretend_nodes=nodes)
        self.jobs: dict[WorkloadId, JobSpec] = {}
        self.starts: dict[RunId, Start] = {}
        self.facts: list[Event] = []
        self.woken = threading.Event()
        self.backend = self.made()

    def made(self) -> LocalBackend:
        return LocalBackend(self.root, self.cluster, self.jobs.get, rundir.now_ms, self.woken.set, **self.options)

    def restart(self, expected: list[str] | None = None, started: list[str] | None = None) -> None:
        """The service is gone and comes back: it expects these runs (all that it decided, if not said)."""
        self.backend.close()
        self.facts.clear()
        self.backend = self.made()
        ids = list(self.starts) if expected is None else [RunId(run_id) for run_id in expected]
        self.backend.adopt({run_id: self.starts[run_id] for run_id in ids}, [RunId(one) for one in started or []])

    # --- doing ---------------------------------------------------------------------------------------------------
    def job(self, workload: str, *argv: str, **fields: Any) -> JobSpec:
        known = {"name": "test", "cwd": str(self.root), "grace": 300, **fields}
        job = JobSpec(WorkloadId(workload), argv=argv, **known)
        self.jobs[job.workload_id] = job
        return job

    def decide(
        self, workload: str, *argv: str, attempt: int = 1, gpus: int = 1, nodes: int = 1, **fields: Any
    ) -> Start:
        """Make a job and the decision to start it, without applying that."""
        pool, minimum = fields.pop("pool", GPU), fields.pop("minimum", 60_000)
        self.job(workload, *argv, **fields)
        allocation = Allocation(pool, (1 << nodes) - 1, gpus)
        run_id = RunId(f"{workload}.{attempt}")
        self.starts[run_id] = Start(
            run_id, WorkloadId(workload), allocation, minimum, InOrder(AccountPath("team"), 0.5, True), attempt > 1
        )
        return self.starts[run_id]

    def start(self, workload: str, *argv: str, **fields: Any) -> RunId:
        start = self.decide(workload, *argv, **fields)
        self.backend.submit(start)
        return start.run_id

    def preempt(self, run_id: RunId, grace: int = 300) -> None:
        self.backend.submit(Preempt(run_id, grace, StartTimedOut(0)))

    def cancel(self, run_id: RunId, grace: int = 300, requeue: bool = False) -> None:
        self.backend.submit(Cancel(run_id, grace, requeue))

    # --- seeing ----------------------------------------------------------------------------------------------------
    def look(self) -> list[Event]:
        self.facts.extend(self.backend.observe())
        return self.facts

    def facts_of(self, kind: type[Fact], name: str) -> list[Fact]:
        return [fact for fact in self.look() if isinstance(fact, kind) and subject(fact) == name]

    def fact(self, kind: type[Fact], name: str) -> Fact:
        """The first fact of a kind about a run or node, as soon as it is there."""
        found: list[Fact] = wait_for(lambda: self.facts_of(kind, name), f"{kind.__name__} of {name}; have {self.facts}")
        return found[0]

    def started(self, run_id: RunId) -> RunStarted:
        return self.fact(RunStarted, run_id)

    def ended(self, run_id: RunId) -> RunEnded:
        return self.fact(RunEnded, run_id)

    def run(self, workload: str, *argv: str, **fields: Any) -> RunEnded:
        """Start a job and wait for its end."""
        return self.ended(self.start(workload, *argv, **fields))

    def output(self, workload: str, attempt: int | None = None) -> str:
        file = self.backend.open_output(WorkloadId(workload), attempt)
        if file is None:
            return ""
        with file:
            return file.read().decode(errors="replace")

    def says(self, workload: str, text: str) -> str:
        """The output, as soon as a text is in it."""
        said: str = wait_for(lambda: (out := self.output(workload)) if text in self.output(workload) else "", text)
        return said

    def file(self, run_id: RunId, name: str) -> dict[str, Any]:
        return rundir.read_json(os.path.join(self.backend.folders.run(run_id), name)) or {}

    def shim_pid(self, run_id: RunId) -> int:
        pid: int = wait_for(lambda: self.file(run_id, rundir.SHIM).get("pid"), f"shim of {run_id}")
        return pid

    def last_word(self, run_id: RunId) -> dict[str, Any]:
        """Without the backend: what the shim wrote at the end."""
        word: dict[str, Any] = wait_for(lambda: self.file(run_id, rundir.EXIT), f"exit file of {run_id}")
        return word

    def leave_nothing(self) -> None:
        self.backend.close()
        for run_id, directory in self.backend.folders.all_runs():
            if os.path.exists(os.path.join(directory, rundir.SPEC)):
                wait_for(partial(taken_over, directory), f"shim of {run_id}")
            pidfd = shim_pidfd(directory)
            if pidfd is not None:
                rundir.write_json(
                    os.path.join(directory, rundir.STOP), {"outcome": "CANCELLED", "grace_ms": 0, "why": ""}
                )
                rundir.ring(os.path.join(directory, rundir.BELL))
                wait_for(partial(gone, pidfd), f"end of the shim of {run_id}")
                os.close(pidfd)


def subject(fact: Event) -> str:
    if isinstance(fact, RunStarted | RunEnded | RunCheckpointed | ActionRefused):
        return fact.run_id
    return fact.node if isinstance(fact, NodeDegraded | NodeUp) else ""


def taken_over(directory: str) -> bool:
    return any(os.path.exists(os.path.join(directory, name)) for name in (rundir.SHIM, rundir.EXIT))


def gone(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def alive(pid: int) -> bool:
    fields = rundir.stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def node(rig: Rig, number: int = 0, pool: int = GPU) -> NodeName:
    return rig.cluster.pools[pool].nodes[number]


@contextmanager
def shim_by_hand(directory: str) -> Iterator[subprocess.Popen[bytes]]:
    """A second shim for a folder, as a service would start it that was killed before it knew of the first."""
    process = subprocess.Popen([sys.executable, "-I", "-S", shim.__file__, directory])
    try:
        yield process
    finally:
        process.wait(PATIENCE_S)
