"""A trace as mirab's own files: the log and the node events as CSV, the cluster and the budgets as YAML."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from mirab.cli.output import whole
from mirab.logs.native import COLUMNS
from mirab.model.accounts import Budget
from mirab.model.resources import Cluster, Pool
from mirab.model.trace import Trace
from mirab.model.units import SECOND, WHOLE, Duration, NodeName
from mirab.model.workloads import Arrival, NodeTrouble

EVENT_COLUMNS = ("time_s", "node", "event", "repair_s", "stuck")
PRIORITIES = ("low", "normal", "high")


def write_files(trace: Trace, folder: Path) -> dict[str, Path]:
    """``workloads.csv.gz``, ``node_events.csv`` and ``cluster.yaml`` in the folder; the path of each."""
    paths = {
        "log": folder / "workloads.csv.gz",
        "node_events": folder / "node_events.csv",
        "cluster": folder / "cluster.yaml",
    }
    with whole(paths["log"]) as target, _packing(target) as text:
        _write_table(text, COLUMNS, map(log_row, trace.arrivals))
    with whole(paths["node_events"]) as target, target.open("w", encoding="utf-8", newline="") as text:
        _write_table(text, EVENT_COLUMNS, map(event_row, trace.troubles))
    with whole(paths["cluster"]) as target:
        target.write_text("\n".join(cluster_yaml(trace)) + "\n", encoding="utf-8")
    return paths


def _write_table(text: TextIO, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


@contextmanager
def _packing(path: Path) -> Iterator[TextIO]:
    """A gzip text file that has the same bytes each time: without name and time."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        text = io.TextIOWrapper(packed, encoding="utf-8", newline="")
        yield text
        text.flush()


def _seconds(span: Duration | None) -> str:
    return "" if span is None else f"{span / SECOND:.3f}".rstrip("0").rstrip(".")


def log_row(arrival: Arrival) -> tuple[object, ...]:
    """One line of the log, in the order of `COLUMNS`."""
    workload, shape = arrival.workload, arrival.workload.shape
    return (
        workload.id, _seconds(workload.submitted_at), workload.account, workload.user, workload.label,
        shape.nodes, shape.gpus_per_node,
        _seconds(arrival.run), _seconds(shape.min_runtime), _seconds(shape.time_limit),
        _seconds(arrival.saves_every), _seconds(workload.restart), _seconds(shape.grace), int(workload.resume),
        _seconds(arrival.cancel_after), PRIORITIES[workload.priority], int(workload.preemptible),
    )  # fmt: skip


def event_row(trouble: NodeTrouble) -> tuple[object, ...]:
    return _seconds(trouble.at), trouble.node, trouble.kind, _seconds(trouble.repair), int(trouble.stuck)


def cluster_yaml(trace: Trace) -> Iterator[str]:
    """The lines of a cluster file: pools, then the tree of budgets."""
    yield from _cluster(trace.cluster)
    yield "budgets:"
    yield from _budgets(trace.budgets.roots, "  ")


def _cluster(cluster: Cluster) -> Iterator[str]:
    yield from ("cluster:", f"  name: {cluster.name}", "  pools:")
    for pool in cluster.pools:
        yield f"    {pool.name}:"
        yield from (f"      {key}: {value}" for key, value in _pool(pool).items() if value)


def _pool(pool: Pool) -> dict[str, object]:
    racks = {mask.bit_count() for mask in pool.domains[:-1] or pool.domains}
    memory = pool.memory_mib_per_node
    return {
        "nodes": node_range(pool.nodes),
        "gpus_per_node": pool.gpus_per_node,
        "gpu_type": pool.gpu_type,
        "cpus_per_node": pool.cpus_per_node,
        "memory_per_node": f"{memory}MiB" if memory else "",
        "topology": f"{{rack: {min(racks)}}}" if len(racks) == 1 else "",
    }


def node_range(nodes: Sequence[NodeName]) -> str:
    """``n[000-127]`` where the names count up so, else all of them."""
    first = nodes[0]
    prefix = first.rstrip("0123456789")
    digits = len(first) - len(prefix)
    start = int(first[len(prefix) :] or 0)
    counted = [f"{prefix}{number:0{digits}d}" for number in range(start, start + len(nodes))]
    if digits and len(nodes) > 1 and counted == list(nodes):
        return f"{prefix}[{first[len(prefix) :]}-{counted[-1][len(prefix) :]}]"
    return ",".join(nodes)


def _budgets(budgets: Sequence[Budget], indent: str) -> Iterator[str]:
    for budget in budgets:
        yield f"{indent}{budget.name}:"
        yield f"{indent}  share: {exact_share(budget.share)}"
        if budget.children:
            yield f"{indent}  children:"
            yield from _budgets(budget.children, indent + "    ")


def exact_share(parts: int) -> str:
    """A share as a percentage with all its digits, so that siblings still sum to what they summed to."""
    whole, fraction = divmod(parts * 100, WHOLE)
    return f"{whole}.{fraction:09d}".rstrip("0").rstrip(".") + "%"
