"""What a run on this machine costs: how long until it runs and until its end is known, and what its shim weighs.

    python -m bench.local_runs [--runs 30] [--json FILE]

The other processes of the machine are in the numbers. Each is a median, with the 99th percentile beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from mirab.backends.local import LocalBackend, detect, rundir
from mirab.backends.local.launching import spawn
from mirab.model.events import Event, RunEnded, RunStarted
from mirab.model.plans import Cancel, Start
from mirab.model.reasons import VictimsGone
from mirab.model.records import JobSpec
from mirab.model.resources import Allocation
from mirab.model.units import RunId, WorkloadId

PATIENCE_S = 120
BARE = [sys.executable, "-I", "-S", "-c", "pass"]


class Bench:
    def __init__(self, root: Path, gpus: int) -> None:
        self.jobs: dict[WorkloadId, JobSpec] = {}
        self.woken = threading.Event()
        self.root, self.count = root, 0
        cluster = detect(pretend_gpus=gpus)
        self.backend = LocalBackend(root, cluster, self.jobs.get, rundir.now_ms, self.woken.set)
        self.backend.adopt({})

    def start(self, *argv: str, submit: bool = True) -> Start:
        self.count += 1
        job = JobSpec(WorkloadId(str(self.count)), "bench", argv, cwd=str(self.root), output="/dev/null")
        self.jobs[job.workload_id] = job
        run_id = RunId(f"{self.count}.1")
        start = Start(run_id, job.workload_id, Allocation(0, 1, 1), 0, VictimsGone(0))
        if submit:
            self.backend.submit(start)
        return start

    def wait(self, kind: type[Event], count: int = 1) -> list[Event]:
        """So many facts of a kind, as the loop of the service would get them."""
        found: list[Event] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            if not self.woken.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"{len(found)} of {count} {kind.__name__}")
            self.woken.clear()
            found += [fact for fact in self.backend.observe() if isinstance(fact, kind)]
        return found


def bare_python(_: Bench) -> float:
    return timed(lambda: subprocess.run(BARE, check=True))


def takeover(bench: Bench) -> float:
    """A shim from its start until it has the run, durably."""
    start = bench.start("true", submit=False)
    directory = bench.backend.folders.run(start.run_id)
    bench.backend.launcher.spec_for(start, directory)
    span = timed(lambda: spawn(directory).wait())
    bench.backend.submit(start)
    bench.wait(RunEnded)
    return span


def takeover_work(bench: Bench) -> float:
    """Processor time of the same, which other processes do not lengthen as much."""
    start = bench.start("true", submit=False)
    directory = bench.backend.folders.run(start.run_id)
    bench.backend.launcher.spec_for(start, directory)
    shim = spawn(directory)
    _, status, usage = os.wait4(shim.pid, 0)
    shim.returncode = os.waitstatus_to_exitcode(status)
    bench.backend.submit(start)
    bench.wait(RunEnded)
    return (usage.ru_utime + usage.ru_stime) * 1000


def until_started(bench: Bench) -> float:
    """From the action to the fact that the command runs."""
    begun = time.perf_counter()
    start = bench.start("sleep", "1000")
    bench.wait(RunStarted)
    span = (time.perf_counter() - begun) * 1000
    bench.backend.submit(Cancel(start.run_id, 0))
    bench.wait(RunEnded)
    return span


def until_stopped(bench: Bench) -> float:
    """From the action to the fact that a run which stops at once is gone."""
    start = bench.start("sleep", "1000")
    bench.wait(RunStarted)
    begun = time.perf_counter()
    bench.backend.submit(Cancel(start.run_id, 10_000))
    bench.wait(RunEnded)
    return (time.perf_counter() - begun) * 1000


def many(bench: Bench, count: int) -> float:
    """Short jobs a second, all started at once."""
    begun = time.perf_counter()
    for _ in range(count):
        bench.start("true")
    bench.wait(RunEnded, count)
    return count / (time.perf_counter() - begun)


def weight(bench: Bench) -> float:
    """Memory that one shim has for itself (proportional set size), in MiB."""
    start = bench.start("sleep", "1000")
    bench.wait(RunStarted)
    shim = rundir.read_json(f"{bench.backend.folders.run(start.run_id)}/{rundir.SHIM}") or {}
    lines = Path(f"/proc/{shim['pid']}/smaps_rollup").read_text().splitlines()
    bench.backend.submit(Cancel(start.run_id, 0))
    bench.wait(RunEnded)
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="mirab-bench-") as folder:
        bench = Bench(Path(folder), gpus=64)
        for name, measure in (
            ("python alone, ms", bare_python),
            ("shim has taken over, ms", takeover),
            ("  of it processor time, ms", takeover_work),
            ("started, ms", until_started),
            ("stopped, ms", until_stopped),
        ):
            values = sorted(measure(bench) for _ in range(arguments.runs))
            found[name] = (median(values), values[max(0, round(len(values) * 0.99) - 1)])
        found["short jobs a second"] = (many(bench, 50),) * 2
        found["memory of a shim, MiB"] = (weight(bench),) * 2
        bench.backend.close()
    for name, (middle, worst) in found.items():
        print(f"{name:28} {middle:8.1f}  p99 {worst:8.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
