"""The cluster file: ``cluster:``, ``budgets:``, ``policy:``, ``reservations:``, ``exceptions:``, ``budget_changes:``.

Every part is optional. Durations are strings with a unit (``8h``), shares strings with a per cent sign; an unknown key
is an error that names the nearest known one and the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mirab.logs.budgetfile import (
    BudgetChange,
    DraftExemption,
    DraftReservation,
    budget_changes_from,
    budgets_from,
    check_accounts,
    check_nodes,
    check_pools,
    exemptions_from,
    reservations_from,
)
from mirab.logs.errors import LogError
from mirab.logs.fields import count, memory_mib
from mirab.logs.moments import Calendar
from mirab.logs.settings import apply_settings, policy_from, read_policy
from mirab.logs.yamltree import Entry, read_yaml
from mirab.model.accounts import LEDGER_MARK, Budgets
from mirab.model.events import BudgetsChanged
from mirab.model.nodelists import expand
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Cluster, Pool
from mirab.model.settings import parse_setting
from mirab.model.units import UNIT, NodeMask, NodeName

__all__ = ["ClusterFile", "apply_settings", "parse_setting", "read_cluster_file", "read_policy"]

SECTIONS = ("cluster", "budgets", "policy", "reservations", "exceptions", "budget_changes")
POOL_KEYS = (
    "nodes",
    "gpus_per_node",
    "gpu_type",
    "cpus_per_node",
    "memory_per_node",
    "weight",
    "topology",
)
CLUSTER_UNITS = ("gpu", "cpu", "node")


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a cluster file states; None or empty = it has no such part. `section`: where its budgets stand."""

    path: Path
    cluster: Cluster | None = None
    budgets: Budgets | None = None
    policy: Policy | None = None
    draft_reservations: tuple[DraftReservation, ...] = ()
    draft_exemptions: tuple[DraftExemption, ...] = ()
    draft_changes: tuple[BudgetChange, ...] = ()
    section: Entry | None = None

    def check_accounts(self, budgets: Budgets) -> None:
        """Raises LogError where a reservation or exception names an account that is not in the budgets."""
        check_accounts((*self.draft_reservations, *self.draft_exemptions), budgets)

    def check_pools(self, cluster: Cluster) -> None:
        """Raises LogError where the budgets, or those to come, name a pool that the cluster has not."""
        pools = cluster.pool_names
        if self.budgets is not None and self.section is not None:
            check_pools(self.section, self.budgets, pools)
        for change in self.draft_changes:
            check_pools(change.section, change.budgets, pools)

    def check_nodes(self, cluster: Cluster) -> None:
        """Raises LogError where an exception names a node that the cluster has not."""
        check_nodes(self.draft_exemptions, cluster)

    def reservations(self, origin: int | None, shift: int = 0) -> tuple[Reservation, ...]:
        """Reservations on the clock of a log whose instant 0 is the Unix time `origin`, minus `shift` milliseconds.

        Raises:
            LogError: a date, and the log has no calendar.
        """
        return tuple(draft.at(origin, shift) for draft in self.draft_reservations)

    def exemptions(self, origin: int | None, shift: int = 0) -> tuple[Exemption, ...]:
        """Exceptions, likewise."""
        return tuple(draft.at(origin, shift) for draft in self.draft_exemptions)

    def budget_changes(self, origin: int | None, shift: int = 0) -> tuple[BudgetsChanged, ...]:
        """Changes of the budgets, likewise, in order of time."""
        changes = [draft.at(origin, shift) for draft in self.draft_changes]
        return tuple(sorted(changes, key=lambda change: change.at))


def read_cluster_file(path: Path, calendar: Calendar | None = None) -> ClusterFile:
    """Read a cluster file; `calendar` says which time zone its dates are in (default UTC).

    Raises:
        LogError: with the file and line, for anything that is not understood or does not fit together.
    """
    calendar = calendar or Calendar()
    top = read_yaml(path).fields("the file", SECTIONS)
    if not top:
        raise LogError("says nothing", path, remedy="write a cluster: section")
    cluster = _cluster(top["cluster"]) if "cluster" in top else None
    budgets = budgets_from(top["budgets"]) if "budgets" in top else None
    file = ClusterFile(
        path=path,
        cluster=cluster,
        budgets=budgets,
        policy=policy_from(top["policy"]) if "policy" in top else None,
        draft_reservations=reservations_from(top.get("reservations"), calendar, budgets, _pool_names(cluster)),
        draft_exemptions=exemptions_from(top.get("exceptions"), calendar, budgets),
        draft_changes=budget_changes_from(top.get("budget_changes"), calendar),
        section=top.get("budgets"),
    )
    if cluster is not None:
        file.check_nodes(cluster)
        file.check_pools(cluster)
    return file


def _pool_names(cluster: Cluster | None) -> Sequence[str] | None:
    return None if cluster is None else cluster.pool_names


def _cluster(entry: Entry) -> Cluster:
    found = entry.fields("cluster", ("name", "unit", "pools"), ("pools",))
    name = found["name"].text("name") if "name" in found else "cluster"
    pools = []
    taken: dict[NodeName, str] = {}
    for pool_name, pool_entry in found["pools"].table("pools").items():
        pool = _pool(pool_name, pool_entry)
        for node in pool.nodes:
            if node in taken:
                raise pool_entry.error(
                    f"node {node} stands in pool {taken[node]} and again in pool {pool_name}", "keep one"
                )
            taken[node] = pool_name
        pools.append(pool)
    if not pools:
        raise found["pools"].error("pools is empty", "describe at least one pool of nodes")
    unit = found["unit"].parsed("unit", _unit) if "unit" in found else _natural_unit(pools)
    return Cluster(name, tuple(pools), unit)


def _unit(text: str) -> str:
    if text not in CLUSTER_UNITS:
        raise ValueError(f"{text!r} is not a unit: write gpu, cpu or node")
    return text


def _natural_unit(pools: Sequence[Pool]) -> str:
    return "gpu" if any(pool.gpus_per_node for pool in pools) else "cpu"


def _pool(name: str, entry: Entry) -> Pool:
    if LEDGER_MARK in name:
        raise entry.error(f"the pool name {name!r} holds a ':'", "that parts a pool from an account (h100:vision): "
                          "choose another name")  # fmt: skip
    found = entry.fields(f"pool {name}", POOL_KEYS, ("nodes",))
    nodes = _node_names(name, found["nodes"])
    gpus = found["gpus_per_node"].parsed("gpus_per_node", _count) if "gpus_per_node" in found else 0
    cpus = found["cpus_per_node"].parsed("cpus_per_node", _count) if "cpus_per_node" in found else 0
    if not (gpus or cpus):
        raise entry.error(f"pool {name} has neither gpus_per_node nor cpus_per_node", "give it one of them")
    memory = found["memory_per_node"].parsed("memory_per_node", memory_mib) if "memory_per_node" in found else 0
    return Pool(
        name=name,
        nodes=tuple(nodes),
        gpus_per_node=gpus,
        gpu_type=found["gpu_type"].text("gpu_type") if "gpu_type" in found else "",
        cpus_per_node=cpus,
        memory_mib_per_node=memory,
        weight=found["weight"].parsed("weight", _weight) if "weight" in found else UNIT,
        domains=_domains(found["topology"], nodes) if "topology" in found else (),
    )


def _node_names(pool: str, entry: Entry) -> list[NodeName]:
    parts = [part.text("nodes") for part in entry.value] if isinstance(entry.value, list) else [entry.text("nodes")]
    names: list[str] = []
    for part in parts:
        try:
            names += [f"{pool}-{index:03d}" for index in range(_count(part))] if _is_count(part) else expand(part)
        except ValueError as error:
            raise entry.error(f"nodes: {error}", "write n[000-127], a list of names, or a count") from error
    if not names:
        raise entry.error(f"pool {pool} has no nodes", "write n[000-127], a list of names, or a count")
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise entry.error(f"node {twice} stands twice in pool {pool}", "keep one")
    return [NodeName(name) for name in names]


def _is_count(text: str) -> bool:
    """Whether nodes are numbered and not named; ``-2`` and ``1.5`` are numbers too, if wrong ones."""
    return text.strip("+-.").replace(".", "").isdigit()


def _count(text: str) -> int:
    if not (text.isdigit() and text.isascii()):
        raise ValueError(f"{text!r} is not a whole number: write such as 8")
    return count(text)


def _weight(text: str) -> int:
    whole, _, fraction = text.partition(".")
    if not (whole + fraction).isdigit() or not (whole + fraction).isascii() or len(fraction) > 3 or len(whole) > 6:
        raise ValueError(f"{text!r} is not a weight: write a number such as 1, 2 or 0.01, with at most 3 decimals")
    value = int(whole or "0") * UNIT + int(fraction.ljust(3, "0"))
    if not value:
        raise ValueError("a weight of 0 would make its GPUs free of charge: write at least 0.001")
    return value


def _domains(entry: Entry, nodes: list[NodeName]) -> tuple[NodeMask, ...]:
    """One mask per domain: ``{rack: 16}`` = 16 consecutive nodes each; ``{rack: [n[0-15], n[16-19]]}`` = as listed."""
    levels = entry.table("topology")
    if len(levels) != 1:
        raise entry.error("topology names several levels or none", "write the one within which gangs should stay")
    ((level, value),) = levels.items()
    if isinstance(value.value, list):
        return _listed_domains(level, value, nodes)
    size = value.parsed(level, _count)
    if not size:
        raise value.error(f"{level} has 0 nodes", "write how many nodes share one")
    return tuple(((1 << min(size, len(nodes) - begin)) - 1) << begin for begin in range(0, len(nodes), size))


def _listed_domains(level: str, entry: Entry, nodes: list[NodeName]) -> tuple[NodeMask, ...]:
    numbers = {name: number for number, name in enumerate(nodes)}
    masks: list[NodeMask] = []
    covered = 0
    for item in entry.rows(level):
        mask = 0
        for name in item.parsed(level, expand):
            number = numbers.get(NodeName(name))
            if number is None or covered >> number & 1 or mask >> number & 1:
                raise item.error(f"node {name} is not a node of the pool, or stands twice", "list each node once")
            mask |= 1 << number
        masks.append(mask)
        covered |= mask
    if covered.bit_count() < len(nodes):
        missing = next(name for name, number in numbers.items() if not covered >> number & 1)
        raise entry.error(f"node {missing} is in no {level}", "list each node once")
    return tuple(masks)
