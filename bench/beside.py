"""Beside AccaSim: the same SWF log, whole processes one after the other, in the same run.

    python -m bench.beside [--workloads 10000] [--seconds 600] [--json FILE]

AccaSim (FIFO, first fit; and its EASY backfilling) comes from the package registry into an environment of its own under
out/, with one line ported to Python 3.10 and later. mirab replays the SWF log with the full policy `budget` (a group is
an account) and with `fifo` without backfill. If AccaSim is not done after the given time, what it has dispatched until
then counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.inputs import load_trace
from bench.process import OUT, ROOT, Measured, cluster_file, run, sim
from bench.swf import write_swf
from mirab.model.trace import Trace

_ENVIRONMENT = ROOT / "out" / "accasim"
_VERSION = "1.1.3"
_OLD_LINE, _NEW_LINE = "from collections import Mapping", "from collections.abc import Mapping"


@dataclass(frozen=True, slots=True)
class Beside:
    """One scheduler on the log. `rate`: workloads a second of the whole process."""

    name: str
    workloads: int
    wall_s: float
    peak_mib: float
    rate: float


def accasim_python() -> Path:
    """The Python of AccaSim's environment, made on first use.

    Raises:
        RuntimeError: the package could not be installed.
    """
    python = _ENVIRONMENT / "bin" / "python"
    if not (_ENVIRONMENT / "ready").exists():
        venv.create(_ENVIRONMENT, with_pip=True, clear=True)
        log = _ENVIRONMENT / "install.txt"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "sortedcontainers", "psutil"], log)
        run([*pip, "--no-deps", f"accasim=={_VERSION}"], log)
        _port()
        (_ENVIRONMENT / "ready").touch()
    return python


def _port() -> None:
    """`collections.Mapping` has moved in Python 3.10: the one line that AccaSim needs changed."""
    (module,) = _ENVIRONMENT.glob("lib/python*/site-packages/accasim/utils/misc.py")
    module.write_text(module.read_text().replace(_OLD_LINE, _NEW_LINE))


def accasim(trace: Trace, log: Path, dispatcher: str, seconds: int) -> Beside:
    """AccaSim with `fifo` or `easy` on the SWF log."""
    python = accasim_python()
    folder = OUT / "accasim"
    folder.mkdir(parents=True, exist_ok=True)
    pool = trace.cluster.pools[0]
    system = folder / "system.json"
    system.write_text(
        json.dumps(
            {
                "groups": {"node": {"core": pool.gpus_per_node}},
                "resources": {"node": len(pool.nodes)},
                "equivalence": {"processor": {"core": 1}},
                "start_time": 0,
            }
        )
    )
    script = Path(__file__).with_name("accasim_run.py")
    output = folder / "output.txt"
    took = run([str(python), str(script), str(log), str(system), dispatcher, str(seconds), str(folder)], output)
    dispatched = json.loads(output.read_text().splitlines()[-1])["dispatched"]
    return _beside(f"AccaSim {dispatcher}", dispatched, took)


def _beside(name: str, workloads: int, took: Measured) -> Beside:
    return Beside(name, workloads, took.wall_s, took.peak_mib, workloads / took.wall_s)


def measure(workloads: int, seconds: int) -> list[Beside]:
    """mirab with two policies, then AccaSim with two dispatchers, one at a time."""
    trace = load_trace(f"synth:workloads={workloads},load=2")
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / f"beside-{workloads}.swf"
    write_swf(trace, log)
    rows = []
    for name, settings in (("budget", ()), ("fifo", ("backfill=none",))):
        extra = [part for setting in settings for part in ("--set", setting)]
        took, report = sim(str(log), "--cluster", str(cluster_file("cpus")), "--policy", name, *extra)
        rows.append(_beside(f"mirab {name}", report["input"]["used"], took))
    rows.extend(accasim(trace, log, dispatcher, seconds) for dispatcher in ("fifo", "easy"))
    return rows


def text(rows: list[Beside]) -> str:
    by_name = {row.name: row for row in rows}
    lines = [f"{'':14s} {'workloads':>10s} {'wall s':>8s} {'peak MiB':>9s} {'workloads/s':>12s}"]
    lines += [
        f"{row.name:14s} {row.workloads:10d} {row.wall_s:8.2f} {row.peak_mib:9.0f} {row.rate:12.0f}" for row in rows
    ]
    full, first = by_name["mirab budget"], by_name["AccaSim fifo"]
    lines.append(f"mirab's full policy against AccaSim's FIFO: {full.rate / first.rate:.1f} times (to reach: 10)")
    return "\n".join(lines)


def markdown(rows: list[Beside]) -> str:
    lines = ["| scheduler | workloads | wall | peak memory | workloads a second |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {row.name} | {row.workloads:,} | {row.wall_s:.2f} s | {row.peak_mib:.0f} MiB | {row.rate:,.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=600, help="AccaSim's longest time")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows = measure(options.workloads, options.seconds)
    print(text(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
