"""What a request costs a second, and where it could ever run."""

from __future__ import annotations

from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.units import ChargeRate


def slots_wanted(shape: Shape, pool: Pool) -> int:
    """Slots that the shape takes on each of its nodes: GPUs, or cores in a CPU pool."""
    return shape.gpus_per_node if pool.gpus_per_node else shape.cpus_per_node


def fits(shape: Shape, pool: Pool) -> bool:
    """Whether the empty pool could hold it: type, GPUs, cores, memory per node, and nodes.

    Work that asks for no GPU may run in a GPU pool only where it asks for cores.
    """
    if shape.gpu_types and pool.gpu_type not in shape.gpu_types:
        return False
    if shape.gpus_per_node > pool.gpus_per_node or not (shape.gpus_per_node or shape.cpus_per_node):
        return False
    return (
        shape.nodes <= len(pool.nodes)
        and (shape.cpus_per_node <= pool.cpus_per_node or not pool.cpus_per_node)
        and (shape.memory_mib_per_node <= pool.memory_mib_per_node or not pool.memory_mib_per_node)
    )


def pools_for(shape: Shape, cluster: Cluster) -> tuple[int, ...]:
    """Numbers of the pools that could hold it. Work without GPUs prefers CPU pools."""
    found = [number for number, pool in enumerate(cluster.pools) if fits(shape, pool)]
    if not shape.gpus_per_node:
        found.sort(key=lambda number: cluster.pools[number].gpus_per_node > 0)
    return tuple(found)


def charge_rate(shape: Shape, pool: Pool) -> ChargeRate:
    """Milli-units: the dominant share of the pool (Ghodsi et al., NSDI 2011) times its charge units, rounded up.

    At least its GPUs times the type's weight: one GPU with all of a node's cores costs as much as the whole node.
    """
    dominant = shape.nodes * slots_wanted(shape, pool) * pool.weight
    for asked, installed in (
        (shape.cpus_per_node, pool.cpus_per_node),
        (shape.memory_mib_per_node, pool.memory_mib_per_node),
    ):
        if asked and installed:
            whole = installed * len(pool.nodes)
            dominant = max(dominant, -(-asked * shape.nodes * pool.charge_units // whole))
    return dominant
