"""The true condition of each node: healthy, degraded (perhaps deaf to stops), dead or in repair."""

from __future__ import annotations

from collections.abc import Iterable

from mirab.model.resources import Allocation, Cluster
from mirab.model.units import Duration, Instant, NodeMask, plural
from mirab.model.workloads import NodeTrouble

KINDS = ("degraded", "down")


class Sickness:
    """What is wrong with one node. `up_at` None = degraded, and nobody has begun the repair."""

    __slots__ = ("repair", "up_at")

    def __init__(self, repair: Duration, up_at: Instant | None) -> None:
        self.repair = repair
        self.up_at = up_at


class Hardware:
    """All nodes by name. `dead` and `deaf` are masks for each pool: out of service, and ignoring stops."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._place: dict[str, tuple[int, NodeMask]] = {
            name: (number, 1 << index)
            for number, pool in enumerate(cluster.pools)
            for index, name in enumerate(pool.nodes)
        }
        self._sick: dict[str, Sickness] = {}
        self.dead: list[NodeMask] = [0] * len(cluster.pools)
        self.deaf: list[NodeMask] = [0] * len(cluster.pools)

    def check(self, troubles: Iterable[NodeTrouble]) -> None:
        """Raises ValueError: a trouble is of an unknown kind, or names a node that the cluster does not have."""
        for trouble in troubles:
            if trouble.kind not in KINDS:
                raise ValueError(f"node event {trouble.kind!r} on {trouble.node}: write degraded or down")
            if trouble.node not in self._place:
                known = [name for pool in self._cluster.pools for name in pool.nodes]
                span = f"{known[0]} to {known[-1]}" if known else "none"
                raise ValueError(
                    f"node events name {trouble.node}, which cluster {self._cluster.name} does not have "
                    f"({plural(len(known), 'node')}: {span}): correct the name or give the cluster file that it is from"
                )

    def place(self, node: str) -> tuple[int, NodeMask]:
        """Pool number and bit of a node.

        Raises:
            ValueError: there is no such node.
        """
        if node not in self._place:
            raise ValueError(f"no node {node} in cluster {self._cluster.name}")
        return self._place[node]

    def healthy(self, node: str) -> bool:
        return node not in self._sick

    def ends_repair(self, node: str) -> Instant | None:
        """When the node comes back; None = healthy, or its repair has not begun."""
        sickness = self._sick.get(node)
        return sickness.up_at if sickness else None

    def usable(self, allocation: Allocation) -> bool:
        return not self.dead[allocation.pool] & allocation.mask

    def ignores_stops(self, allocation: Allocation) -> bool:
        return bool(self.deaf[allocation.pool] & allocation.mask)

    def strike(self, trouble: NodeTrouble) -> str | None:
        """A trouble happens; the kind of fact that it makes, or None where it only adds to what is known.

        On a node that is degraded already: a second degradation lasts as long as the longer repair and may make it
        deaf; a death kills it. On a node that is out of service: its repair ends as late as the later of the two.
        """
        sickness = self._sick.get(trouble.node)
        if sickness is None:
            return self._fall_sick(trouble, trouble.repair)
        if sickness.up_at is not None:
            sickness.up_at = max(sickness.up_at, trouble.at + trouble.repair)
            return None
        kind = self._fall_sick(trouble, max(trouble.repair, sickness.repair))
        return kind if kind == "down" else None

    def _fall_sick(self, trouble: NodeTrouble, repair: Duration) -> str:
        if trouble.kind == "down":
            self._leave_service(trouble.node, trouble.at, repair)
        else:
            self._sick[trouble.node] = Sickness(repair, None)
            if trouble.stuck:
                number, bit = self.place(trouble.node)
                self.deaf[number] |= bit
        return trouble.kind

    def begin_repair(self, node: str, at: Instant) -> Instant | None:
        """Take a degraded node to repair: when it comes back, or None where it is healthy or out of service."""
        sickness = self._sick.get(node)
        if sickness is None or sickness.up_at is not None:
            return None
        self._leave_service(node, at, sickness.repair)
        return self.ends_repair(node)

    def _leave_service(self, node: str, at: Instant, repair: Duration) -> None:
        """A repair takes at least a millisecond, so that the node never comes back before it has gone."""
        self._sick[node] = Sickness(repair, at + max(1, repair))
        number, bit = self.place(node)
        self.dead[number] |= bit
        self.deaf[number] &= ~bit

    def listen(self, node: str) -> None:
        """A human has been there: the node obeys again."""
        number, bit = self.place(node)
        self.deaf[number] &= ~bit

    def mend(self, node: str) -> None:
        """Healthy again."""
        self._sick.pop(node, None)
        number, bit = self.place(node)
        self.dead[number] &= ~bit
        self.deaf[number] &= ~bit
