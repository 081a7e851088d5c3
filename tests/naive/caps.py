"""Caps of budgets, looked up by walking the tree."""

from __future__ import annotations

from collections.abc import Iterable

from mirab.model.accounts import Budget, Budgets
from mirab.model.workloads import Workload


def over(budgets: Budgets, account: str) -> list[tuple[str, Budget]]:
    """The budgets that an account stands under, its own too."""
    names = account.split("/")
    paths = ["/".join(names[: depth + 1]) for depth in range(len(names))]
    return [(path, found) for path in paths if (found := budgets.find(path)) is not None]


def largest(budgets: Budgets, account: str) -> float:
    """The most GPUs that one piece of its work may ever have."""
    caps = [cap for _, budget in over(budgets, account) for cap in (budget.gpus_max, budget.gang_gpus_max)]
    return min((cap for cap in caps if cap is not None), default=float("inf"))


def longest_minimum(budgets: Budgets, account: str, policy_cap: int) -> int:
    caps = [budget.min_runtime_cap for _, budget in over(budgets, account) if budget.min_runtime_cap is not None]
    return min([policy_cap, *caps])


def broken(budgets: Budgets, workload: Workload, others: Iterable[Workload]) -> str:
    """The account whose cap would be broken if the workload ran beside the others; "" = none."""
    beside = list(others)
    for path, budget in over(budgets, workload.account):
        used = sum(other.shape.gpus for other in beside if f"{other.account}/".startswith(f"{path}/"))
        if budget.gpus_max is not None and used + workload.shape.gpus > budget.gpus_max:
            return path
    return ""
