"""Slurm's nodes as pools, and where in them a job's nodes are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mirab.backends.slurm.records import SlurmJob, SlurmNode
from mirab.model.resources import Allocation, Cluster, Pool
from mirab.model.units import ChargeRate, NodeName

CPU_WEIGHT: ChargeRate = 10
"""Charge of a core of a pool without GPUs, where nothing else is said: a hundredth of a GPU."""


def cluster_of(nodes: Sequence[SlurmNode], name: str, weights: Mapping[str, ChargeRate] | None = None) -> Cluster:
    """Pools of nodes with equal GPUs, in the order in which they appear.

    Args:
        weights: charge of one GPU by type, in milli-units; others are 1,000.
    """
    groups: dict[tuple[str, int, int, int], list[NodeName]] = {}
    for node in nodes:
        groups.setdefault((node.gpu_type, node.gpus, node.cpus, node.memory_mib), []).append(node.name)
    pools: list[Pool] = []
    for (kind, gpus, cpus, memory), names in groups.items():
        title = _title(kind, gpus, [pool.name for pool in pools])
        weight = (weights or {}).get(kind, 1000) if gpus else CPU_WEIGHT
        pools.append(Pool(title, tuple(names), gpus, kind, cpus, memory, weight))
    return Cluster(name, tuple(pools))


def _title(kind: str, gpus: int, taken: Iterable[str]) -> str:
    base = (kind or "gpu") if gpus else "cpu"
    known = set(taken)
    return (
        base
        if base not in known
        else next(title for number in range(2, len(known) + 3) if (title := f"{base}-{number}") not in known)
    )


def grown(old: Cluster, nodes: Sequence[SlurmNode]) -> Cluster:
    """The cluster with nodes that are new: each at the end of the pool that it is like, or in a new pool."""
    places = {node for pool in old.pools for node in pool.nodes}
    fresh = [node for node in nodes if node.name not in places]
    if not fresh:
        return old
    pools = list(old.pools)
    strange = []
    for node in fresh:
        number = next((number for number, pool in enumerate(pools) if _like(node, pool)), None)
        if number is None:
            strange.append(node)
        else:
            pools[number] = replace(pools[number], nodes=(*pools[number].nodes, node.name))
    taken = [pool.name for pool in pools]
    added = cluster_of(strange, old.name).pools
    for pool in added:
        title = _title(pool.gpu_type, pool.gpus_per_node, taken)
        pools.append(replace(pool, name=title))
        taken.append(title)
    return replace(old, pools=tuple(pools))


def _like(node: SlurmNode, pool: Pool) -> bool:
    return (node.gpu_type, node.gpus, node.cpus, node.memory_mib) == (
        pool.gpu_type,
        pool.gpus_per_node,
        pool.cpus_per_node,
        pool.memory_mib_per_node,
    )


class Places:
    """Which bit of which pool a node is."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._places = {
            node: (number, index)
            for number, pool in enumerate(cluster.pools)
            for index, node in enumerate(pool.nodes)
        }  # fmt: skip

    def __contains__(self, node: NodeName) -> bool:
        return node in self._places

    def allocation(self, job: SlurmJob) -> Allocation | None:
        """Where a job has its nodes; None = on no node that we know.

        A job whose nodes lie in several pools counts in the pool that holds most of them.
        """
        masks: dict[int, int] = {}
        for node in job.node_names:
            if node in self._places:
                number, index = self._places[node]
                masks[number] = masks.get(number, 0) | 1 << index
        if not masks:
            return None
        pool = max(masks, key=lambda number: (masks[number].bit_count(), -number))
        wants = job.gpus_per_node if self.cluster.pools[pool].gpus_per_node else job.cpus_per_node
        slots = min(wants, self.cluster.pools[pool].slots_per_node)
        return Allocation(pool, masks[pool], slots, job.cpus_per_node, job.memory_mib_per_node)

    def names(self, given: Allocation) -> list[NodeName]:
        nodes = self.cluster.pools[given.pool].nodes
        return [node for index, node in enumerate(nodes) if given.mask >> index & 1]
