"""What there is to give: pools of equal nodes; and what is asked for: the shape of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mirab.model.units import UNIT, ChargeRate, Duration, NodeMask, NodeName


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal nodes of one GPU type. A pool without GPUs is a CPU pool: its slots are cores.

    Attributes:
        weight: charge of one slot in milli-units (H100 = 1,000; a core of a CPU pool perhaps 10).
        domains: one mask per topology domain (rack); empty = the whole pool is one domain.
    """

    name: str
    nodes: tuple[NodeName, ...]
    gpus_per_node: int
    gpu_type: str = ""
    cpus_per_node: int = 0
    memory_mib_per_node: int = 0
    weight: ChargeRate = UNIT
    domains: tuple[NodeMask, ...] = ()

    @property
    def slots_per_node(self) -> int:
        """What a node is divided into: GPUs, or cores where there are none."""
        return self.gpus_per_node or self.cpus_per_node

    @property
    def slots(self) -> int:
        return self.slots_per_node * len(self.nodes)

    @property
    def charge_units(self) -> ChargeRate:
        """Charge rate of the whole installed pool, in milli-units."""
        return self.slots * self.weight


@dataclass(frozen=True, slots=True)
class Cluster:
    """The installed pools, in the order in which placement tries them."""

    name: str
    pools: tuple[Pool, ...]
    unit: str = "gpu"
    """What a slot is called in reports: ``gpu``, ``cpu`` or ``node``."""

    @property
    def slots(self) -> int:
        return sum(pool.slots for pool in self.pools)

    @property
    def charge_units(self) -> ChargeRate:
        return sum(pool.charge_units for pool in self.pools)

    @property
    def pool_names(self) -> tuple[str, ...]:
        return tuple([pool.name for pool in self.pools])


def extends(new: Cluster, old: Cluster) -> str:
    """What keeps `new` from being `old` grown; "" = nothing: every pool and node of `old` keeps its place."""
    if len(new.pools) < len(old.pools):
        return f"pool {old.pools[len(new.pools)].name} is missing: keep it, and mark its nodes as down"
    for before, after in zip(old.pools, new.pools, strict=False):
        if before.name != after.name:
            return f"pool {before.name} has become {after.name}: keep the order of the pools, add new ones at the end"
        if before.slots_per_node != after.slots_per_node:
            return f"nodes of pool {before.name} have {after.slots_per_node} slots, had {before.slots_per_node}"
        if after.nodes[: len(before.nodes)] != before.nodes:
            return f"pool {before.name} has lost or moved nodes: keep them in their order, add new ones at the end"
    return ""


class Shape(NamedTuple):
    """All that placement needs to know of a request; equal shapes succeed and fail together.

    `min_runtime` and `time_limit` are part of it: they decide what may start on nodes that are held for others.
    """

    nodes: int
    gpus_per_node: int
    cpus_per_node: int = 0
    memory_mib_per_node: int = 0
    gpu_types: tuple[str, ...] = ()
    """Accepted types; empty = any."""
    min_runtime: Duration = 0
    time_limit: Duration | None = None
    grace: Duration = 10_000

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def charged(self) -> bool:
        """What runs under a minimum above 0 is charged."""
        return self.min_runtime > 0


class Allocation(NamedTuple):
    """Nodes given to a run: `slots_per_node` slots on every node of `mask` in pool number `pool`."""

    pool: int
    mask: NodeMask
    slots_per_node: int
    cpus_per_node: int = 0
    memory_mib_per_node: int = 0

    @property
    def slots(self) -> int:
        return self.mask.bit_count() * self.slots_per_node


def nodes_of(mask: NodeMask) -> list[int]:
    """The node numbers in a mask, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def lowest(mask: NodeMask, count: int) -> NodeMask:
    """The `count` lowest nodes of a mask that holds at least as many, by halving: without a loop over nodes."""
    if mask.bit_count() == count:
        return mask
    begin, rest, size = 0, mask, mask.bit_length()
    while size > 1:
        half = size // 2
        low = rest & ((1 << half) - 1)
        here = low.bit_count()
        if here >= count:
            rest, size = low, half
        else:
            begin, rest, size, count = begin + half, rest >> half, size - half, count - here
    return mask & ((1 << (begin + 1 if count else begin)) - 1)
