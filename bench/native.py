"""The native log form read directly, for benches that must not depend on the importers.

Only what the reference log uses: no row is refused, no form detected, no cluster file parsed (the cluster and the
budgets are the stock ones of the synthetic generator, which are the reference's).
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, SECOND, AccountPath, UserName, WorkloadId
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.sim.population import make_cluster, stock_budgets

_RANK = {"low": 0, "normal": 1, "high": 2}


def read_reference(folder: Path) -> Trace:
    """The trace of a folder with `workloads.csv.gz` and `node_events.csv`, on 128 nodes of 8 GPUs."""
    with gzip.open(folder / "workloads.csv.gz", "rt", newline="") as file:
        arrivals = [_arrival(row) for row in csv.DictReader(file)]
    with open(folder / "node_events.csv", newline="") as file:
        troubles = [_trouble(row) for row in csv.DictReader(file)]
    arrivals.sort(key=lambda each: (each.workload.submitted_at, each.workload.id))
    return Trace(
        arrivals=arrivals,
        cluster=make_cluster(128, 8),
        budgets=stock_budgets(),
        troubles=troubles,
        name="reference",
        ends_at=30 * DAY,
        rows=len(arrivals),
    )


def _arrival(row: dict[str, str]) -> Arrival:
    def ms(column: str) -> int:
        return int(row[column] or 0) * SECOND

    shape = Shape(
        int(row["nodes"]),
        int(row["gpus_per_node"]),
        min_runtime=ms("min_runtime_s"),
        time_limit=ms("time_limit_s") or None,
        grace=ms("grace_s"),
    )
    workload = Workload(
        id=WorkloadId(row["id"]),
        submitted_at=ms("submit_s"),
        account=AccountPath(row["account"]),
        user=UserName(row["user"]),
        shape=shape,
        label=row["label"],
        checkpoint=ms("checkpoint_s"),
        restart=ms("restart_s"),
        resume=row["resume"] == "1",
        priority=_RANK[row["priority"]],
        preemptible=row["preemptible"] == "1",
    )
    return Arrival(workload, ms("run_s"), ms("cancel_after_s") or None)


def _trouble(row: dict[str, str]) -> NodeTrouble:
    return NodeTrouble(
        int(row["time_s"]) * SECOND, row["node"], row["event"], int(row["repair_s"]) * SECOND, row["stuck"] == "1"
    )
