"""The nodes of one pool as sets held in integers: bit i is node i.

`free[b]` is the set of nodes with exactly b slots free, so that "which nodes can take 4 GPUs" is a handful of ANDs
whatever the size of the pool, and a gang of 500 nodes is placed by one operation rather than by 500.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from mirab.core.domains import Domains
from mirab.model.resources import Allocation, Pool, nodes_of
from mirab.model.units import ChargeRate, Instant, NodeMask, RunId

if TYPE_CHECKING:
    from mirab.core.runs import Run


class Health(Enum):
    """What a node that is not simply up may do."""

    DEGRADED = "degraded"
    """Sick: takes nothing new; waits for its turn to drain."""
    DRAINING = "draining"
    REPAIR = "repair"
    DOWN = "down"


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Look:
    """What has been counted of a pool's usable nodes, while these and what runs on them stay as they are.

    Attributes:
        wide: those with at least so many slots free, from all slots downwards, as far as somebody asked.
        counts: how many these are, by slots; -1 = nobody asked.
        slots_free: free slots on all usable nodes; -1 = nobody asked.
    """

    __slots__ = ("counts", "slots_free", "wide")

    def __init__(self, slots: int) -> None:
        self.wide: list[NodeMask] = []
        self.counts = [-1] * (slots + 1)
        self.slots_free = -1


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Bank:
    """Free slots, and (where work asks for them) used cores and memory, of one pool.

    `look`: what `mirab.core.space` has counted of it. It begins anew with each change.
    """

    __slots__ = ("cpus", "domains", "free", "look", "memory", "pool", "slots", "total")

    def __init__(self, pool: Pool, domains: Domains | None = None) -> None:
        self.pool = pool
        self.domains = Domains(pool) if domains is None else domains
        self.slots = pool.slots_per_node
        self.total = pool.slots
        self.free: list[NodeMask] = [0] * self.slots + [(1 << len(pool.nodes)) - 1]
        self.cpus: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.look_anew()

    def look_anew(self) -> None:
        """Its slots or its usable nodes have changed."""
        self.look = Look(self.slots)

    def grow(self, pool: Pool) -> NodeMask:
        """The pool has nodes added at its end; returns them as a mask. They are empty."""
        added = (1 << len(pool.nodes)) - (1 << len(self.pool.nodes))
        self.pool, self.total, self.domains = pool, pool.slots, Domains(pool)
        self.free[self.slots] |= added
        self.look_anew()
        return added

    def copy(self) -> Bank:
        """A scratch copy, for the same usable nodes: a list of integers, nothing per node but what asked for cores or
        memory.
        """
        twin = Bank(self.pool, self.domains)
        twin.free = self.free.copy()
        twin.cpus, twin.memory = (self.cpus.copy(), self.memory.copy()) if self.cpus or self.memory else ({}, {})
        twin.look.slots_free = self.look.slots_free
        return twin

    def take(self, given: Allocation, usable: bool = False) -> None:
        """Book an allocation. Every node of it has the slots free; `usable`: and is known to be usable."""
        width, rest, free = given.slots_per_node, given.mask, self.free
        for level in range(width, self.slots + 1):
            moved = free[level] & rest
            if moved:
                free[level] ^= moved
                free[level - width] |= moved
                rest ^= moved
                if not rest:
                    break
        if rest and width:
            raise AssertionError(f"nodes {nodes_of(rest)} of {self.pool.name} have not {width} slots free")
        self._count(given, 1, usable)

    def give(self, given: Allocation, usable: bool = False) -> None:
        """Undo `take`."""
        give(self.free, given.mask, given.slots_per_node)
        self._count(given, -1, usable)

    def _count(self, given: Allocation, sign: int, usable: bool) -> None:
        slots_free = self.look.slots_free
        self.look_anew()
        if usable and slots_free >= 0:
            self.look.slots_free = slots_free - sign * given.slots
        if given.cpus_per_node or given.memory_mib_per_node:
            for node in nodes_of(given.mask):
                self.cpus[node] = self.cpus.get(node, 0) + sign * given.cpus_per_node
                self.memory[node] = self.memory.get(node, 0) + sign * given.memory_mib_per_node

    def level(self, node: int) -> int:
        """Free slots of one node."""
        for level, mask in enumerate(self.free):
            if mask >> node & 1:
                return level
        raise AssertionError(f"node {node} of {self.pool.name} is in no level")

    def with_free(self, width: int) -> NodeMask:
        """Nodes with at least `width` slots free."""
        found = 0
        for level in range(width, self.slots + 1):
            found |= self.free[level]
        return found

    def roomy(self, mask: NodeMask, cpus: int, memory: int) -> NodeMask:
        """Those nodes of `mask` whose cores and memory suffice too."""
        pool = self.pool
        if not (cpus and pool.cpus_per_node) and not (memory and pool.memory_mib_per_node):
            return mask
        for node in nodes_of(mask):
            short_of_cpus = pool.cpus_per_node and self.cpus.get(node, 0) + cpus > pool.cpus_per_node
            short_of_memory = pool.memory_mib_per_node and self.memory.get(node, 0) + memory > pool.memory_mib_per_node
            if short_of_cpus or short_of_memory:
                mask ^= 1 << node
        return mask

    def free_slots(self, among: NodeMask) -> int:
        total = 0
        for level in range(1, self.slots + 1):
            nodes = self.free[level] & among
            if nodes:
                total += level * nodes.bit_count()
        return total

    def used_charge(self, among: NodeMask) -> ChargeRate:
        """Charge units of the used slots on the nodes of a set."""
        return (among.bit_count() * self.slots - self.free_slots(among)) * self.pool.weight


def without(nodes: NodeMask, others: NodeMask) -> NodeMask:
    """The nodes that are not among the others. Of large sets this is much cheaper than with a complement."""
    common = nodes & others
    return nodes ^ common if common else nodes


def inside(nodes: NodeMask, others: NodeMask) -> bool:
    """Whether all of the nodes are among the others."""
    return nodes & others == nodes


def give(free: list[NodeMask], nodes: NodeMask, width: int) -> None:
    """`width` slots more are free on each of the nodes. `free[b]`: nodes with exactly b slots free."""
    for level in range(len(free) - width):
        moved = free[level] & nodes
        if moved:
            free[level] ^= moved
            free[level + width] |= moved
            nodes ^= moved
            if not nodes:
                break


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class NodeState:
    """A node that is not simply up, and what runs on it."""

    __slots__ = ("cause", "health", "healthy_again", "human_called", "runs", "since")

    def __init__(self, health: Health, since: Instant, cause: str, runs: dict[RunId, Run]) -> None:
        self.runs = runs
        self.health = health
        self.since = since
        self.cause = cause
        self.human_called = False
        self.healthy_again = False
        """Its health came back during the drain: the drain is to be undone."""
