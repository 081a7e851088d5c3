"""Writes what this layer reads: native logs, node events, cluster files. The same value gives the same bytes."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

from mirab.logs.native import COLUMNS, OPTIONAL, PRIORITIES
from mirab.logs.nodeevents import COLUMNS as EVENT_COLUMNS
from mirab.model.accounts import TEXTS, Budget, Budgets
from mirab.model.nodelists import compress
from mirab.model.resources import Cluster, Pool
from mirab.model.trace import Trace
from mirab.model.units import UNIT, exact_share
from mirab.model.workloads import Arrival, NodeTrouble

_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items() if name}
_LINE_ENDS = str.maketrans({"\n": " ", "\r": " ", "\x00": ""})


def write_native(path: Path, trace: Trace) -> None:
    """Write the arrivals of a trace in the native form (gzip if the name ends in ``.gz``).

    Instants are written as seconds since the trace's instant 0. Optional columns appear only where a row uses them.
    Where cores or nodes are shared out, they stand in the column of cores.
    """
    arrivals = trace.arrivals if trace.cluster.unit == "gpu" else list(map(_on_cores, trace.arrivals))
    used = [name for name in OPTIONAL if any(_OPTIONAL[name](arrival) for arrival in arrivals)]
    with _writer(path) as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow([*COLUMNS, *used])
        for arrival in arrivals:
            rows.writerow([*_native_row(arrival), *(_OPTIONAL[name](arrival) for name in used)])


def _on_cores(arrival: Arrival) -> Arrival:
    shape = arrival.workload.shape
    shape = shape._replace(gpus_per_node=0, cpus_per_node=shape.gpus_per_node)
    return replace(arrival, workload=replace(arrival.workload, shape=shape))


def _native_row(arrival: Arrival) -> Iterable[object]:
    work, shape = arrival.workload, arrival.workload.shape
    return (
        _plain(work.id), _seconds(work.submitted_at), _plain(work.account), _plain(work.user), _plain(work.label),
        shape.nodes, shape.gpus_per_node, _seconds(arrival.run), _seconds(shape.min_runtime),
        _optional(shape.time_limit), _seconds(work.checkpoint), _seconds(work.restart), _seconds(shape.grace),
        int(work.resume), _optional(arrival.cancel_after), _PRIORITY_NAMES.get(work.priority, work.priority),
        int(work.preemptible),
    )  # fmt: skip


_OPTIONAL: dict[str, Callable[[Arrival], object]] = {
    "gpu_type": lambda arrival: "|".join(arrival.workload.shape.gpu_types),
    "deadline_s": lambda arrival: _optional(arrival.workload.deadline_at),
    "cpus_per_node": lambda arrival: arrival.workload.shape.cpus_per_node or "",
    "memory_per_node": lambda arrival: _memory(arrival.workload.shape.memory_mib_per_node),
}


def _plain(text: str) -> str:
    return text.translate(_LINE_ENDS)


def _seconds(milliseconds: int) -> str:
    whole, rest = divmod(milliseconds, 1_000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def _optional(milliseconds: int | None) -> str:
    return "" if milliseconds is None else _seconds(milliseconds)


def _memory(mib: int) -> str:
    if not mib:
        return ""
    for size, name in ((1 << 20, "TiB"), (1 << 10, "GiB")):
        if mib % size == 0:
            return f"{mib // size}{name}"
    return f"{mib}MiB"


def write_node_events(path: Path, troubles: Iterable[NodeTrouble]) -> None:
    """Write hardware events as CSV (gzip if the name ends in ``.gz``)."""
    with _writer(path) as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(EVENT_COLUMNS)
        for trouble in troubles:
            repair = _seconds(trouble.repair)
            rows.writerow([_seconds(trouble.at), trouble.node, trouble.kind, repair, int(trouble.stuck)])


@contextlib.contextmanager
def _writer(path: Path) -> Iterator[io.TextIOBase]:
    with path.open("wb") as raw, contextlib.ExitStack() as stack:
        stream: IO[bytes] = raw
        if path.suffix == ".gz":
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
            stream = cast("IO[bytes]", stack.enter_context(packed))
        yield stack.enter_context(io.TextIOWrapper(stream, encoding="utf-8", newline=""))


def write_cluster(path: Path, cluster: Cluster, budgets: Budgets | None = None, comment: str = "") -> None:
    """Write a cluster file that `mirab.logs.clusterfile.read_cluster_file` reads back to the same values."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += ["cluster:", f"  name: {_quoted(cluster.name)}", f"  unit: {cluster.unit}", "  pools:"]
    for pool in cluster.pools:
        if cluster.unit != "gpu" and pool.gpus_per_node:
            pool = replace(pool, gpus_per_node=0, cpus_per_node=pool.gpus_per_node)
        lines += [f"    {_quoted(pool.name)}:", *(f"      {line}" for line in _pool_lines(pool))]
    if budgets is not None:
        lines += ["budgets:", *_budget_lines(budgets.roots, "  ")]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _pool_lines(pool: Pool) -> Iterator[str]:
    yield f"nodes: {_quoted(compress(pool.nodes))}"
    if pool.gpus_per_node:
        yield f"gpus_per_node: {pool.gpus_per_node}"
    if pool.gpu_type:
        yield f"gpu_type: {_quoted(pool.gpu_type)}"
    if pool.cpus_per_node:
        yield f"cpus_per_node: {pool.cpus_per_node}"
    if pool.memory_mib_per_node:
        yield f"memory_per_node: {_memory(pool.memory_mib_per_node)}"
    if pool.weight != UNIT:
        yield f"weight: {f'{pool.weight / UNIT:.3f}'.rstrip('0').rstrip('.')}"
    if pool.domains:
        yield f"topology: {{rack: {_rack(pool)}}}"


def _rack(pool: Pool) -> str:
    size = pool.domains[0].bit_count()
    count = len(pool.nodes)
    equal = tuple(((1 << min(size, count - begin)) - 1) << begin for begin in range(0, count, size))
    if pool.domains == equal:
        return str(size)
    parts = (compress(node for number, node in enumerate(pool.nodes) if mask >> number & 1) for mask in pool.domains)
    return "[" + ", ".join(_quoted(part) for part in parts) + "]"


def _budget_lines(budgets: tuple[Budget, ...], indent: str) -> Iterator[str]:
    for budget in budgets:
        fields = [f"share: {exact_share(budget.share)}"]
        pools = ", ".join(f"{_quoted(pool)}: {exact_share(share)}" for pool, share in budget.pool_shares)
        fields += [f"pool_shares: {{{pools}}}"] if pools else []
        fields += [f"{name}: {_quoted(text)}" for name in TEXTS if (text := getattr(budget, name))]
        fields += [f"formerly: [{', '.join(map(_quoted, budget.formerly))}]"] if budget.formerly else []
        fields += ["save_for_gangs: yes"] if budget.save_for_gangs else []
        fields += [] if budget.equal_users else ["equal_users: no"]
        fields += [f"{name}: {cap}" for name, cap in budget.caps().items()]
        if budget.children:
            yield f"{indent}{_quoted(budget.name)}:"
            yield from (f"{indent}  {field}" for field in fields)
            yield f"{indent}  children:"
            yield from _budget_lines(budget.children, indent + "    ")
        else:
            yield f"{indent}{_quoted(budget.name)}: {{{', '.join(fields)}}}"


def _quoted(text: str) -> str:
    """The text as a YAML scalar: plain where that is safe, else in double quotes."""
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", text, re.ASCII) and text.lower() != "null":
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    return char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}"
