"""Speed and memory of whole processes, quiet: the reference log, over load, growth in workloads and in nodes.

    python -m bench.speed [--runs 3] [--only reference,load,growth,nodes,decision] [--json FILE]

Each number is the median of the runs. The logs are made once by `mirab synth` into out/bench.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import decision
from bench.inputs import shared_data
from bench.process import Measured, log_arguments, median_of, sim, synthetic_log


@dataclass(frozen=True, slots=True)
class Speed:
    """One number beside what it has to reach; `at_least` says on which side."""

    what: str
    found: float
    unit: str
    reach: float
    at_least: bool = False
    note: str = ""

    @property
    def reached(self) -> bool:
        return self.found >= self.reach if self.at_least else self.found <= self.reach


def _timed(arguments: list[str], runs: int) -> Measured:
    return median_of(runs, lambda: sim(*arguments)[0])


def reference(runs: int) -> list[Speed]:
    """The reference log, or a synthetic month of its shape where the shared data are not there."""
    folder = shared_data() / "reference"
    there = (folder / "workloads.csv.gz").exists()
    took = _timed(log_arguments(folder) if there else synthetic_log("month"), runs)
    name = "reference log" if there else "synthetic month (no reference log here)"
    return [Speed(f"{name}, wall", took.wall_s, "s", 10), Speed(f"{name}, peak memory", took.peak_mib, "MiB", 250)]


def load(runs: int) -> list[Speed]:
    took = _timed(_over_load(100_000), runs)
    note = f"{took.wall_s:.1f} s, {took.peak_mib:.0f} MiB"
    return [Speed("100,000 workloads at load 2", 100_000 / took.wall_s, "workloads/s", 5000, at_least=True, note=note)]


def growth(runs: int) -> list[Speed]:
    few, many = (_timed(_over_load(count), runs).wall_s for count in (10_000, 100_000))
    note = f"{few:.2f} s -> {many:.2f} s"
    return [Speed("time of 100,000 workloads / time of 10,000", many / few, "times", 12, note=note)]


def _over_load(count: int) -> list[str]:
    return synthetic_log(f"load2-{count}", "--workloads", str(count), "--load", "2")


def nodes(runs: int) -> list[Speed]:
    """40,000 workloads, their sizes scaled with the cluster: the cost of one against 128 nodes.

    Hardware fails as often for each node, so that 8,192 nodes have 64 times the events for as many workloads; the last
    row leaves them out.
    """
    logs = {count: _scaled(count) for count in (128, 1024, 8192)}
    walls = {count: _timed(log, runs).wall_s for count, log in logs.items()}
    calm = {count: _timed(logs[count][:3], runs).wall_s for count in (128, 8192)}
    return [
        *(_grown(f"128 -> {count:,} nodes", walls[128], walls[count]) for count in (1024, 8192)),
        _grown("the same without hardware events", calm[128], calm[8192]),
    ]


def _scaled(count: int) -> list[str]:
    scale = str(count // 128)
    return synthetic_log(f"nodes-{count}", "--workloads", "40000", "--nodes", str(count), "--size-scale", scale)


def _grown(what: str, before: float, after: float) -> Speed:
    return Speed(f"cost of a workload, {what}", after / before, "times", 1.5, note=f"{before:.1f} s -> {after:.1f} s")


def one_decision(runs: int) -> list[Speed]:
    found = decision.measure(1024, 10_000, 1000)
    note = f"p99 {found.p99_ms:.2f} ms, max {found.max_ms:.0f} ms"
    return [Speed("one decision, 1,024 nodes, 10,000 waiting, median", found.p50_ms, "ms", 5, note=note)]


BENCHES: dict[str, Callable[[int], list[Speed]]] = {
    "reference": reference,
    "load": load,
    "growth": growth,
    "nodes": nodes,
    "decision": one_decision,
}


def text(rows: list[Speed]) -> str:
    lines = [f"{'':52s} {'found':>10s} {'to reach':>12s}"]
    for row in rows:
        bound = f"{'>=' if row.at_least else '<='} {row.reach:g}"
        mark = "" if row.reached else "  MISSED"
        note = f"  ({row.note})" if row.note else ""
        lines.append(f"{row.what:52s} {row.found:10.2f} {bound:>12s} {row.unit}{note}{mark}")
    return "\n".join(lines)


def markdown(rows: list[Speed]) -> str:
    lines = ["| what | found | to reach |", "|---|---:|---:|"]
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        bound = ("at least" if row.at_least else "at most") + f" {row.reach:,g} {row.unit}"
        lines.append(f"| {row.what} | {row.found:,.2f} {row.unit}{note} | {bound} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(BENCHES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows: list[Speed] = []
    for name in options.only.split(","):
        if name not in BENCHES:
            parser.error(f"no bench {name!r}: there are {', '.join(BENCHES)}")
        rows.extend(BENCHES[name](options.runs))
    print(text(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
