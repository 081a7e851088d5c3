"""The whole command in a process of its own, as a person runs it: wall time, peak memory, and its report."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "bench"


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall seconds and peak resident memory of one process."""

    wall_s: float
    peak_mib: float


def run(command: Sequence[str], stdout: Path) -> Measured:
    """Run it to its end with its output in a file.

    Raises:
        RuntimeError: it failed; the message has the end of what it said.
    """
    began = time.perf_counter()
    errors = stdout.with_suffix(".err")
    with stdout.open("w") as out, errors.open("w") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {errors.read_text()[-2000:]}")
    return Measured(wall, usage.ru_maxrss / 1024)


def mirab(*arguments: str) -> tuple[Measured, Path]:
    """`mirab ...` in a fresh process; what it printed is in the file."""
    OUT.mkdir(parents=True, exist_ok=True)
    stdout = OUT / "stdout.txt"
    return run([sys.executable, "-m", "mirab", *arguments], stdout), stdout


def sim(*arguments: str) -> tuple[Measured, dict[str, Any]]:
    """`mirab sim ... --json`: what it took and the report."""
    report = OUT / "report.json"
    measured, _ = mirab("sim", *arguments, "--quiet", "--json", str(report))
    loaded: dict[str, Any] = json.loads(report.read_text())
    return measured, loaded


def median_of(count: int, measure: Callable[[], Measured]) -> Measured:
    """The run of median wall time out of `count`, with the highest peak of all."""
    runs = [measure() for _ in range(count)]
    return Measured(median(each.wall_s for each in runs), max(each.peak_mib for each in runs))


def synthetic_log(name: str, *arguments: str) -> list[str]:
    """Arguments of `mirab sim` for a log that `mirab synth` makes into out/bench/NAME, unless it is there already."""
    folder = OUT / name
    made_by = folder / "made-by.txt"
    recipe = " ".join([*arguments, _generator()])
    if not made_by.exists() or made_by.read_text() != recipe:
        mirab("synth", "--out", str(folder), *arguments)
        made_by.write_text(recipe)
    return log_arguments(folder)


def _generator() -> str:
    """A checksum of the code that makes synthetic logs: another code makes another log."""
    files = (ROOT / "src" / "mirab" / "sim" / name for name in ("population.py", "synthetic.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def log_arguments(folder: Path) -> list[str]:
    """Arguments of `mirab sim` for a folder of the reference's form."""
    return [
        str(folder / "workloads.csv.gz"),
        "--cluster", str(folder / "cluster.yaml"),
        "--node-events", str(folder / "node_events.csv"),
    ]  # fmt: skip


def cluster_file(unit: str) -> Path:
    """A cluster of 128 nodes of 8 `gpus` or `cpus`, without budgets: those are inferred from the log."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"cluster-1024-{unit}.yaml"
    path.write_text(f"cluster:\n  name: bench\n  pools:\n    main: {{nodes: 'n[000-127]', {unit}_per_node: 8}}\n")
    return path
