"""What a log does not say and its jobs show: the unit that is shared, the cluster, the budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mirab.logs.errors import LogError
from mirab.logs.intake import Intake, Job
from mirab.model.accounts import Budget, Budgets
from mirab.model.resources import Cluster, Pool
from mirab.model.units import HOUR, WHOLE, NodeName, plural

UNIT_NAMES = {"gpu": "GPU", "cpu": "core", "node": "node"}
USUAL_NODE = 8
"""GPUs of a node where a log does not say how many."""
LARGEST_NODE = {"gpu": 16, "cpu": 256}
"""What a node may have more than any job asked of it, where only that explains that the named nodes held their work."""
MOST_NODES = 100_000
GPU_JOBS = 20
"""A log is one of GPUs if at least every so many-th job used some, ..."""
GPU_NODE_TIME = 4
"""... or at least so many-th of the node-time was theirs, and they were at least `GPU_JOBS`."""

SlotsOf = Callable[[Job], int]


def slots_of(unit: str) -> SlotsOf:
    """How many GPUs, cores or nodes a job takes in all."""
    if unit == "gpu":
        return lambda job: job.gpus
    if unit == "cpu":
        return lambda job: job.cpus
    return lambda job: job.nodes


def unit_of(jobs: Sequence[Job]) -> str:
    """``gpu`` if GPUs matter in the log, else ``cpu`` if most jobs tell their cores, else ``node``."""
    with_gpus = sum(1 for job in jobs if job.gpus)
    if with_gpus * GPU_JOBS >= len(jobs):
        return "gpu"
    if with_gpus >= GPU_JOBS:
        time = sum(job.run * max(job.nodes, 1) for job in jobs)
        if sum(job.run * max(job.nodes, 1) for job in jobs if job.gpus) * GPU_NODE_TIME >= time:
            return "gpu"
    with_cores = sum(1 for job in jobs if job.cpus)
    return "cpu" if with_cores * 2 >= len(jobs) or not any(job.nodes for job in jobs) else "node"


def spread(total: int, size: int) -> tuple[int, int]:
    """Nodes and slots on each, for `total` slots on nodes of `size`: the fewest nodes that share them equally.

    Where twice the fewest nodes do not suffice for that, the last node's rest is rounded up: 13 on nodes of 8 become
    2 x 7.
    """
    if total <= size:
        return 1, total
    fewest = -(-total // size)
    for nodes in range(fewest, 2 * fewest):
        if total % nodes == 0:
            return nodes, total // nodes
    return fewest, -(-total // fewest)


def layout(nodes: int, total: int, size: int) -> tuple[int, int]:
    """Nodes and slots on each of a job that ran on `nodes` (0 = unknown), on nodes of `size` slots."""
    if nodes and total % nodes == 0 and total // nodes <= size:
        return nodes, total // nodes
    return spread(total, size)


class Period(NamedTuple):
    """First and last submission, rounded outwards to whole hours."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.begin


def period_of(jobs: Sequence[Job]) -> Period:
    first = min(job.submitted for job in jobs)
    last = max(job.submitted for job in jobs)
    return Period(first // HOUR * HOUR, (last // HOUR + 1) * HOUR)


def infer_cluster(intake: Intake, unit: str) -> tuple[Cluster, list[str]]:
    """A cluster on which the log could have run, and how it was inferred.

    Raises:
        LogError: it would have more than `MOST_NODES` nodes.
    """
    slots = slots_of(unit)
    groups: dict[str, list[Job]] = {}
    for job in intake.jobs:
        kind = job.ran_on or (job.gpu_types[0] if job.gpu_types else "")
        groups.setdefault(kind if unit == "gpu" else "", []).append(job)
    pools, notes = [], []
    for kind in sorted(groups):
        pool, note = _infer_pool(intake, unit, kind, groups[kind], slots)
        pools.append(pool)
        notes.append(note)
    return Cluster("inferred", tuple(pools), unit), notes


def _infer_pool(intake: Intake, unit: str, kind: str, jobs: list[Job], slots: SlotsOf) -> tuple[Pool, str]:
    needed, why = _capacity(intake, jobs, slots)
    names = list(intake.hosts.get("cpu" if unit != "gpu" else kind, ()))
    size, size_why = _node_size(intake, unit, jobs, slots, needed)
    held = -(-needed // len(names)) if names else 0
    if size < held <= LARGEST_NODE.get(unit, 0):
        size, size_why = held, "they held it, so that each has as many"
    count = max(-(-needed // size), len(names))
    widest = max(jobs, key=lambda job: layout(job.nodes, slots(job), size)[0])
    count = max(count, layout(widest.nodes, slots(widest), size)[0])
    if count > MOST_NODES:
        raise LogError(
            f"a cluster of {plural(count, 'node')} would be needed (the largest job stands at line {widest.line})",
            remedy="describe the real one in a file and give it with --cluster",
        )
    if len(names) < count:
        taken = set(names)
        fresh = (f"{kind or 'n'}{'-' if kind else ''}{number:03d}" for number in range(count + len(names)))
        names += [name for name in fresh if name not in taken][: count - len(names)]
        listed = ""
    else:
        listed = f"; {plural(len(names), 'node')} named in its node lists"
    pool = Pool(kind or unit, tuple(map(NodeName, names)), size, gpu_type=kind)
    per_node = "" if unit == "node" else f" of {plural(size, f'{kind} {UNIT_NAMES[unit]}'.lstrip())}"
    return (
        pool,
        f"cluster inferred: {plural(count, 'node')}{per_node} ({why}; {size_why}{listed}); give --cluster",
    )


def _capacity(intake: Intake, jobs: list[Job], slots: SlotsOf) -> tuple[int, str]:
    """Slots that the cluster must have had, and why."""
    installed = intake.installed
    peak = peak_use(jobs, slots)
    if installed.slots and installed.slots >= peak:
        return installed.slots, f"{installed.source} says {installed.slots:,}; the peak of concurrent use is {peak:,}"
    if peak:
        lie = f", more than the {installed.slots:,} of {installed.source}" if installed.slots else ""
        return peak, f"the peak of concurrent use is {peak:,}{lie}"
    used = sum(job.run * slots(job) for job in jobs)
    return max(1, -(-used // period_of(jobs).length)), (
        "the log has no start times, so that concurrent use is not known: its work would fill it just once"
    )


def peak_use(jobs: Iterable[Job], slots: SlotsOf) -> int:
    """Most slots in use at once, from the log's own starts and run times; a job that ends makes room for one that
    starts at the same instant."""
    edges: list[int] = []
    for job in jobs:
        if job.started is not None:
            edges.append((job.started * 2 + 1) << 24 | slots(job))
            edges.append((job.started + job.run) * 2 << 24 | slots(job))
    edges.sort()
    now = most = 0
    for edge in edges:
        if edge >> 24 & 1:
            now += edge & 0xFFFFFF
            most = max(most, now)
        else:
            now -= edge & 0xFFFFFF
    return most


def _node_size(intake: Intake, unit: str, jobs: list[Job], slots: SlotsOf, needed: int) -> tuple[int, str]:
    """Slots of a node, and why."""
    if unit == "node":
        return 1, "a node is given whole"
    what = UNIT_NAMES[unit] + "s"
    seen = max((-(-slots(job) // job.nodes) for job in jobs if job.nodes), default=0)
    if seen:
        return seen, f"{plural(seen, UNIT_NAMES[unit])} is the most of a job on one node"
    if unit == "gpu":
        return USUAL_NODE, f"the log does not say how many {what} a node has: {USUAL_NODE} is usual"
    if 0 < intake.installed.nodes <= intake.installed.slots:
        size = -(-intake.installed.slots // intake.installed.nodes)
        return size, f"{intake.installed.source} says {plural(intake.installed.nodes, 'node')}"
    largest = max(slots(job) for job in jobs)
    return max(needed, largest), "the log does not say which cores share a node: one node holds them all"


def infer_budgets(jobs: Iterable[Job], unit: str) -> Budgets:
    """Each account's share of the time that jobs used, rounded, 100 % in all; no account that used any gets nothing."""
    slots = slots_of(unit)
    by_account: dict[str, int] = {}
    for job in jobs:
        by_account[job.account] = by_account.get(job.account, 0) + job.run * slots(job)
    root = _Used(0, 0, {})
    for account, used in by_account.items():
        node = root
        for name in account.split("/"):
            node = node.children.setdefault(name, _Used(0, 0, {}))
            node.below += used
        node.own += used
    return Budgets(_shared_out(root.children, 0))


class _Used:
    """Slot-milliseconds of an account: all below it, its own jobs among them, and its children."""

    __slots__ = ("below", "children", "own")

    def __init__(self, below: int, own: int, children: dict[str, _Used]) -> None:
        self.below = below
        self.own = own
        self.children = children


def _shared_out(tree: dict[str, _Used], own: int) -> tuple[Budget, ...]:
    names = sorted(tree)
    amounts = [tree[name].below for name in names]
    if own:
        amounts.append(own)
    parts = round_shares(amounts)
    return tuple(
        Budget(name, part, _shared_out(tree[name].children, tree[name].own))
        for name, part in zip(names, parts, strict=False)
    )


def round_shares(amounts: list[int]) -> list[int]:
    """Shares in parts of `WHOLE`, in steps of 0.1 % (finer for many), at least one step each, exactly `WHOLE` in all.

    Largest remainders; ties go to the earlier one.
    """
    steps = next(steps for steps in (1_000, 10_000, 100_000, WHOLE) if len(amounts) * 10 <= steps or steps == WHOLE)
    amounts = amounts if any(amounts) else [1] * len(amounts)
    total = sum(amounts)
    parts = [max(1, amount * steps // total) for amount in amounts]
    by_rest = sorted(range(len(amounts)), key=lambda index: (-(amounts[index] * steps % total), index))
    missing = steps - sum(parts)
    for index in by_rest[: max(0, missing)]:
        parts[index] += 1
    while missing < 0:
        largest = max(range(len(parts)), key=lambda index: (parts[index], -index))
        taken = min(-missing, parts[largest] - 1)
        parts[largest] -= taken
        missing += taken
    return [part * (WHOLE // steps) for part in parts]
