"""One replay and its key measures on one screen.

    python -m bench.quick INPUT [--policy budget] [--set margin=50 --set window=1d] [--profile] [--json FILE]

INPUT: a folder such as ../shared/data/reference, `synth:seed=2,days=7`, `synth:workloads=10000,load=2`, or a stock
scenario (`small-burst`, `maintenance:seed=3`).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import sys
import time
from pathlib import Path
from typing import Any

from bench.inputs import load_policy, load_trace
from mirab.sim.engine import replay
from mirab.study.demand import CLASSES
from mirab.study.measures import Measures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("--policy", default="budget")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="FIELD=VALUE")
    parser.add_argument("--profile", action="store_true", help="print the 30 dearest functions")
    parser.add_argument("--no-measures", action="store_true", help="replay alone, for profiling the core")
    parser.add_argument("--json", type=Path, help="write the whole report there")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    trace = load_trace(options.input)
    policy = load_policy(options.policy, options.settings)
    loaded = time.perf_counter()
    measures = None if options.no_measures else Measures(trace, policy)
    profile = cProfile.Profile() if options.profile else None
    replayed = (profile.runcall if profile else _call)(
        replay,
        trace,
        policy,
        journals=[measures] if measures else [],
        attach=measures.attach if measures else None,
    )
    ran = time.perf_counter() - loaded
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{trace.name}: {len(trace.arrivals)} workloads, {trace.cluster.slots} slots, policy {policy.name}\n"
        f"load {loaded - began:.2f} s, replay {ran:.2f} s, {len(trace.arrivals) / ran:.0f} workloads/s, "
        f"{replayed.passes} passes, peak {peak:.0f} MiB"
    )
    if measures:
        report = measures.report()
        show(report)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1, sort_keys=True))
    if profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(30)
    return 0


def _call(function: Any, *positional: Any, **named: Any) -> Any:
    return function(*positional, **named)


def show(report: dict[str, Any]) -> None:
    """The measures of a report, compactly."""
    metrics = report["metrics"]
    rows = [
        f"{name:24s} {_text(value)}"
        for name, value in metrics.items()
        if not isinstance(value, dict)
    ]  # fmt: skip
    half = -(-len(rows) // 2)
    for left, right in zip(rows[:half], [*rows[half:], ""], strict=False):
        print(f"{left:52s}{right}")
    for name in ("deadlines", "preemptions_by_cause", "fragmentation_by_shape"):
        print(f"{name}: " + ", ".join(f"{key} {_text(value)}" for key, value in metrics.get(name, {}).items()))
    print(
        f"{'waits (s)':10s} {'count':>6s} {'started':>7s} {'mean':>8s} {'p50':>8s} {'p90':>8s} {'p99':>8s} {'max':>8s}"
    )
    for name in CLASSES:
        waits = metrics["waits"].get(name)
        if waits:
            times = " ".join(f"{_text(waits[key]):>8s}" for key in ("mean_s", "p50_s", "p90_s", "p99_s", "max_s"))
            print(f"{name:10s} {waits['count']:6d} {waits['started']:7d} {times}")
    heads = ("share", "deliv.", "owed", "charged", "lost", "stopped", "p90")
    print(f"{'account':22s} " + " ".join(f"{head:>8s}" for head in heads))
    for path, row in report["by_account"].items():
        if not row["charged"] and not row["owed"]:
            continue
        values = [row[key] for key in ("share", "delivered_ratio", "owed", "charged", "lost", "preempted")]
        print(f"{path:22s} " + " ".join(f"{_text(value):>8s}" for value in [*values, row["waits"]["p90_s"]]))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.0f}"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
