"""How long a client command takes against a warm service, from the shell's point of view.

    python -m bench.client [--times 20] [--jobs 200] [--json FILE]

Starts a service of its own with pretended GPUs in a temporary folder and a queue of held jobs, then runs each command
as a process of its own. Beside it: Python alone, and Python with click, which no command can beat.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from math import ceil, isnan
from pathlib import Path
from statistics import median
from typing import Any

from mirab.cli.client import Client, new_key
from mirab.cli.localservice import LocalService, local_service

ACCOUNT = "everyone"
BESIDE = {
    "python": [sys.executable, "-c", "pass"],
    "python with click": [sys.executable, "-c", "import click"],
}
COMMANDS: dict[str, Sequence[str]] = {
    "mirab --version": ["--version"],
    "mirab ls": ["ls"],
    "mirab ls --me --long": ["ls", "--me", "--long"],
    "mirab show 1": ["show", "1"],
    "mirab share": ["share"],
    "mirab node ls": ["node", "ls"],
    "mirab submit": ["submit", "-A", ACCOUNT, "--hold", "--", "true"],
    "mirab hold 1": ["hold", "1", "-q"],
    "mirab squatters": ["squatters"],
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=200, help="held jobs in the queue, which ls has to show")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="mirab-bench-") as folder,
        local_service(Path(folder) / "state", "--pretend-gpus", "8") as service,
    ):
        fill(service, options.jobs)
        found = measured(service, options.times)
        requests = requests_alone(service, options.times)
    show({**found, **requests})
    if options.json:
        options.json.write_text(json.dumps({**found, **requests}, indent=1), encoding="utf-8")
    return 0


def fill(service: LocalService, number: int) -> None:
    body = {"account": ACCOUNT, "argv": ["true"], "cwd": "/", "hold": True, "gpus_per_node": 1}
    with service.client() as client:
        for index in range(number):
            client.post("/jobs", {**body, "name": f"job {index}"}, key=new_key())


def measured(service: LocalService, times: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each command: median and p95 of the wall time, and the median of its CPU time."""
    environment = {**os.environ, "MIRAB_SERVER": str(service.address)}
    lines = {**BESIDE, **{name: [sys.executable, "-m", "mirab", *words] for name, words in COMMANDS.items()}}
    return {name: timed(line, environment, times) for name, line in lines.items()}


def timed(line: Sequence[str], environment: dict[str, str], times: int) -> dict[str, float]:
    walls, cpus = [], []
    for _ in range(times + 1):
        began = time.perf_counter()
        child = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, status, usage = os.wait4(child.pid, 0)
        walls.append((time.perf_counter() - began) * 1000)
        cpus.append((usage.ru_utime + usage.ru_stime) * 1000)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.stderr is not None
        with child.stderr:
            if child.returncode:
                raise RuntimeError(f"{' '.join(line)} ended with {child.returncode}: {child.stderr.read().decode()}")
    return {"median_ms": median(walls[1:]), "p95_ms": nearest_rank(walls[1:], 0.95), "cpu_ms": median(cpus[1:])}


def requests_alone(service: LocalService, times: int) -> dict[str, dict[str, float]]:
    """The same requests over one connection that stays, so what the service itself takes."""
    with service.client() as client:
        return {
            "GET /jobs?limit=500": _asked(client, "/jobs", {"limit": 500}, times),
            "GET /jobs/1": _asked(client, "/jobs/1", {}, times),
            "GET /share": _asked(client, "/share", {}, times),
        }


def _asked(client: Client, path: str, query: dict[str, Any], times: int) -> dict[str, float]:
    walls = []
    for _ in range(times + 1):
        began = time.perf_counter()
        client.get(path, query)
        walls.append((time.perf_counter() - began) * 1000)
    return {"median_ms": median(walls[1:]), "p95_ms": nearest_rank(walls[1:], 0.95), "cpu_ms": float("nan")}


def nearest_rank(values: Sequence[float], part: float) -> float:
    return sorted(values)[max(0, ceil(len(values) * part) - 1)]


def show(found: dict[str, dict[str, float]]) -> None:
    print(f"{'':24}{'median ms':>12}{'p95 ms':>10}{'CPU ms':>10}")
    for name, numbers in found.items():
        shown = "" if isnan(numbers["cpu_ms"]) else f"{numbers['cpu_ms']:.0f}"
        print(f"{name:24}{numbers['median_ms']:12.0f}{numbers['p95_ms']:10.0f}{shown:>10}")


if __name__ == "__main__":
    sys.exit(main())
