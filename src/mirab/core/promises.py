"""Which ledger a workload belongs to, where pools have trees of their own: one rule for decisions and for measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirab.core.charge import pools_for
from mirab.model.resources import Cluster, Shape


def promises(
    shape: Shape, cluster: Cluster, by_pool: Sequence[str], share_in: Callable[[str], int]
) -> list[tuple[str, int]]:
    """(ledger, what it promises) to work of a shape, best first: it goes to the first. Empty: it fits nowhere.

    A promise is the account's share there, in parts of `WHOLE`, times the slots of the ledger's pools that could hold
    the work; equal ones stand in the order of the cluster's pools. Work without GPUs goes where there are CPU pools.

    Args:
        by_pool: name of the ledger, by the number of the pool.
        share_in: name of a ledger -> the account's share there, in parts of `WHOLE`.
    """
    pools: dict[str, list[int]] = {}
    for number in pools_for(shape, cluster):
        pools.setdefault(by_pool[number], []).append(number)
    found: list[tuple[bool, int, int, str]] = []
    for name, numbers in pools.items():
        those = [cluster.pools[number] for number in numbers]
        suits = shape.gpus_per_node > 0 or not all(pool.gpus_per_node for pool in those)
        found.append((not suits, -share_in(name) * sum(pool.slots for pool in those), min(numbers), name))
    return [(name, -promised) for _, promised, _, name in sorted(found)]
