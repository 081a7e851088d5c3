"""From one listing of nodes to the next: which have become sick, dead or well. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mirab.backends.slurm.places import Places, grown
from mirab.backends.slurm.records import SlurmNode
from mirab.model import events as facts
from mirab.model.events import Event
from mirab.model.resources import Cluster
from mirab.model.units import Instant, NodeName

UP, DEGRADED, DOWN = "up", "degraded", "down"
RESERVED = "reserved in Slurm"


class Nodes:
    """The nodes as they were listed last, and where they stand in the cluster.

    `health`: what the scheduler believes of each (`UP` if it is not there).
    """

    def __init__(self, cluster: Cluster, health: Mapping[NodeName, str] | None = None) -> None:
        self.places = Places(cluster)
        self.health: dict[NodeName, str] = dict(health or {})
        self.listed: dict[NodeName, SlurmNode] = {}

    def take_in(self, nodes: Sequence[SlurmNode], now: Instant) -> list[Event]:
        told: list[Event] = []
        cluster = grown(self.places.cluster, nodes)
        if cluster is not self.places.cluster:
            self.places = Places(cluster)
            told.append(facts.ClusterChanged(now, cluster))
        self.listed = {node.name: node for node in nodes}
        for pool in cluster.pools:
            for name in pool.nodes:
                told += self._node(name, self.listed.get(name), now)
        return told

    def _node(self, name: NodeName, node: SlurmNode | None, now: Instant) -> Iterator[Event]:
        before, after = self.health.get(name, UP), health_of(node)
        cause = _cause(node)
        self.health[name] = after
        if after == before:
            return
        if after == UP or before == DOWN:
            yield facts.NodeUp(now, name)
        if after == DEGRADED:
            yield facts.NodeDegraded(now, name, cause)
        if after == DOWN:
            yield facts.NodeDown(now, name, cause)

    def down(self, name: NodeName) -> bool:
        return self.health.get(name) == DOWN

    def takes_nothing(self, name: NodeName) -> bool:
        """Whether Slurm starts nothing there already."""
        node = self.listed.get(name)
        return node is None or node.draining or node.dead

    def only_reserved(self, name: NodeName) -> bool:
        """Whether nothing is wrong with it: it is kept for others."""
        node = self.listed.get(name)
        return node is not None and node.reserved and not node.sick and not node.dead

    def doubt(self, name: NodeName) -> None:
        """What the scheduler believes is not so: the next listing tells it again."""
        self.health.pop(name, None)


def health_of(node: SlurmNode | None) -> str:
    if node is None or node.dead:
        return DOWN
    return DEGRADED if node.draining else UP


def _cause(node: SlurmNode | None) -> str:
    if node is None:
        return "no longer in Slurm's configuration"
    return node.reason or (RESERVED if node.reserved else "")
