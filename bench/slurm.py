"""What mirab costs a Slurm controller, and how soon a free node is used: on a real Slurm with pretend GPUs, as root.

    python -m bench.slurm [--jobs 5000] [--seconds 60] [--work 60]

1. A queue of so many held jobs for so many seconds, without mirab and with it: calls of Slurm's programs a minute, and
   what `sdiag` says. 2. The same short work twice, under Slurm's backfill and under mirab: from the instant at which
   a node was free to the next start on it, as the jobs themselves wrote it down.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.slurm.cluster import SlurmCluster, missing
from tests.slurm.house import House, clear, house, sbatch

SHOWN = (
    "Server thread count",
    "Agent queue size",
    "Max cycle",
    "Mean cycle",
    "Last cycle",
)
NODES = 3
SCHEDULER = "bf_interval=5,sched_min_interval=200000"
"""Slurm's defaults, but a backfill every 5 s instead of every 30: what mirab is compared with is not slow."""


@contextmanager
def cluster() -> Iterator[SlurmCluster]:
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    try:
        with SlurmCluster(folder, nodes=NODES, extra="MaxJobCount=20000\n", scheduler=SCHEDULER) as slurm:
            yield slurm
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- what it costs ----------------------------------------------------------------------------------------------------
def cost(jobs: int, seconds: float) -> None:
    with cluster() as slurm:
        slurm.governed.write_text("*\n")
        for _ in range(NODES):
            slurm.governed.unlink(missing_ok=True)
            sbatch(slurm, "-N1", "--gpus-per-node=8", "-A", "red")
        slurm.governed.write_text("*\n")
        begun = time.monotonic()
        for _ in range(jobs):
            sbatch(slurm, "-N1", "--gpus-per-node=8", "-A", "red", "--comment=mirab:min=1h")
        print(f"{jobs} jobs submitted in {time.monotonic() - begun:.0f} s; {NODES} run")
        before = diagnosed(slurm, seconds)
        made = House(slurm, slurm.folder / "mirab", settings="interval: 5s\n")
        service = made.start()
        try:
            time.sleep(10)
            engine = service.engine
            engine.runner.calls.clear()  # type: ignore[attr-defined]
            looks, spent = engine.looks, time.process_time()  # type: ignore[attr-defined]
            after = diagnosed(slurm, seconds)
            spent = time.process_time() - spent
            calls = dict(engine.runner.calls)  # type: ignore[attr-defined]
            looks = engine.looks - looks  # type: ignore[attr-defined]
        finally:
            made.stop()
        minutes = seconds / 60
        print(f"listings of everything: {looks / minutes:.1f} a minute (one each 5 s is 12)")
        print("calls a minute: " + ", ".join(f"{name} {count / minutes:.1f}" for name, count in sorted(calls.items())))
        print(f"mirab's own processor time: {100 * spent / seconds:.1f} % of one core")
        print(f"{'sdiag':46}{'without':>12}{'with mirab':>12}")
        for name in dict.fromkeys((*before, *after)):
            print(f"{name:46}{before.get(name, '-'):>12}{after.get(name, '-'):>12}")


def diagnosed(slurm: SlurmCluster, seconds: float) -> dict[str, str]:
    """What sdiag counted in so many seconds."""
    slurm.run("sdiag", "--reset")
    time.sleep(seconds)
    found: dict[str, str] = {}
    for line in slurm.run("sdiag").splitlines():
        name, colon, value = line.strip().partition(":")
        if colon and name in SHOWN:
            found.setdefault(name, value.strip())
        rpc = re.match(r"\s*(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)\s+ave_time:(\d+)", line)
        if rpc is not None:
            found[f"{rpc[1]} (count, mean us)"] = f"{rpc[2]}, {rpc[3]}"
    return found


# --- how soon a free node is used -------------------------------------------------------------------------------------
def gaps(slurm: SlurmCluster, work: int) -> list[float]:
    """Seconds from the end of each job to the begin of the next on its node, as they wrote them."""
    book = slurm.folder / "out" / "book"
    book.unlink(missing_ok=True)
    book.touch()
    book.chmod(0o666)
    line = f"echo $SLURMD_NODENAME $(date +%s.%N) $(sleep $((2 + SLURM_JOB_ID % 4)); date +%s.%N) >>{book}"
    jobs = [
        sbatch(slurm, "-N1", "--gpus-per-node=8", "-A", "red", "--comment=mirab:min=1s,grace=1s", script=line)
        for _ in range(work)
    ]
    slurm.wait_for(
        lambda: not {"PENDING", "RUNNING", "COMPLETING"} & {slurm.states().get(job, "") for job in jobs},
        "the work",
        60.0 * work,
    )
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in book.read_text().splitlines():
        node, began, ended = row.split()
        spans.setdefault(node, []).append((float(began), float(ended)))
    found = []
    for rows in spans.values():
        rows.sort()
        found += [after[0] - before[1] for before, after in pairwise(rows)]
    return found


def latency(work: int) -> None:
    with cluster() as slurm:
        alone = gaps(slurm, work)
        with house(slurm, slurm.folder / "mirab", settings="interval: 5s\n") as made:
            made.govern("red")
            made.start()
            ours = gaps(slurm, work)
        clear(slurm)
    print(f"from a free node to the next start, {work} jobs of 2 to 5 s on {NODES} nodes:")
    for name, found in (("Slurm's own backfill", alone), ("mirab", ours)):
        found.sort()
        p90 = found[int(len(found) * 0.9)]
        print(f"  {name:22} median {statistics.median(found):.2f} s, p90 {p90:.2f} s, most {found[-1]:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--work", type=int, default=60)
    asked = parser.parse_args()
    absent = missing()
    if absent:
        raise SystemExit(f"skipped: {absent}")
    if asked.work:
        latency(asked.work)
    if asked.jobs:
        cost(asked.jobs, asked.seconds)


if __name__ == "__main__":
    main()
