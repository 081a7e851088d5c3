"""Which GPUs of a node a run gets. The core only counts them; here no GPU is ever given twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirab.model.resources import Cluster
from mirab.model.units import NodeName, RunId


class GpuTable:
    """Free GPUs by node, and who has which. What a run has is written in its spec, so this is rebuilt at boot."""

    def __init__(self, cluster: Cluster) -> None:
        self.free = {node: list(range(pool.gpus_per_node)) for pool in cluster.pools for node in pool.nodes}
        self.given: dict[RunId, dict[NodeName, tuple[int, ...]]] = {}

    def allocate(self, run_id: RunId, nodes: Iterable[NodeName], count: int) -> dict[NodeName, tuple[int, ...]] | None:
        """The lowest `count` free ones of each node; None if a node has fewer. The same run gets the same again."""
        if run_id in self.given:
            return self.given[run_id]
        chosen = {node: tuple(self.free[node][:count]) for node in nodes}
        if any(len(numbers) < count for numbers in chosen.values()):
            return None
        self.claim(run_id, chosen)
        return chosen

    def claim(self, run_id: RunId, gpus: Mapping[NodeName, Iterable[int]]) -> None:
        """It has these, as its spec says. Nodes that are no longer in the cluster are left out."""
        known = {node: tuple(numbers) for node, numbers in gpus.items() if node in self.free}
        self.given[run_id] = known
        for node, numbers in known.items():
            self.free[node] = [number for number in self.free[node] if number not in numbers]

    def release(self, run_id: RunId) -> None:
        for node, numbers in self.given.pop(run_id, {}).items():
            self.free[node] = sorted({*self.free[node], *numbers})
