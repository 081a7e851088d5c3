"""A cluster of two types of GPU of which one is paid for alone, for tests of the service."""

from __future__ import annotations

from mirab.model.accounts import Budget, Budgets, sorted_shares
from mirab.model.resources import Cluster, Pool
from mirab.model.units import WHOLE, NodeName

PERCENT = WHOLE // 100


def pool(name: str, count: int, gpus: int = 8) -> Pool:
    nodes = tuple(NodeName(f"{name}-{number}") for number in range(count))
    return Pool(name, nodes, gpus, gpu_type=name, cpus_per_node=64)


BOTH = Cluster("two types", (pool("a100", 4), pool("h100", 2)))


def budget(name: str, share: int, *children: Budget, **pools: int) -> Budget:
    named = {pool: part * PERCENT for pool, part in pools.items()}
    return Budget(name, share * PERCENT, children, pool_shares=sorted_shares(named))


PAID = Budgets((budget("vision", 30, budget("video", 60), budget("image", 40), h100=75), budget("llm", 70)))
"""Vision paid for three quarters of the H100s; the rest of them is nobody's."""
