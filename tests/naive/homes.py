"""Ledgers as people tell it: whose pool is whose, and where work goes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from mirab.model.accounts import Budget, Budgets
from mirab.model.policy import Exemption
from mirab.model.resources import Cluster, Pool
from mirab.model.workloads import Workload

SHARE = 1_000_000_000


def pool_named(budgets: Budgets, pool: str) -> bool:
    """Whether any budget names the pool."""
    siblings = list(budgets.roots)
    while siblings:
        budget = siblings.pop()
        if any(name == pool for name, _ in budget.pool_shares):
            return True
        siblings += budget.children
    return False


def ledger_at(budgets: Budgets, pool: Pool) -> str:
    """The ledger of a pool: its own if somebody names it, else the main one, ``""``."""
    return pool.name if pool_named(budgets, pool.name) else ""


def part(budget: Budget, siblings: Sequence[Budget], ledger: str) -> int:
    """What counts of a budget's share among its siblings in a ledger."""
    if budget.closed:
        return 0
    if ledger and any(name == ledger for each in siblings for name, _ in each.pool_shares):
        return sum(share for name, share in budget.pool_shares if name == ledger)
    return budget.share


def shares_in(budgets: Budgets, ledger: str) -> dict[str, Fraction]:
    """Account -> share of the ledger's whole, in whole parts; an inner account's own work has what is left, ``a/*``."""
    found: dict[str, Fraction] = {}

    def walk(above: str, whole: int, siblings: Sequence[Budget]) -> None:
        for budget in siblings:
            share = floor(Fraction(whole * part(budget, siblings, ledger), SHARE))
            found[f"{above}{budget.name}"] = Fraction(share, SHARE)
            if budget.children:
                left = SHARE - sum(part(child, budget.children, ledger) for child in budget.children)
                found[f"{above}{budget.name}/*"] = Fraction(floor(Fraction(share * left, SHARE)), SHARE)
            walk(f"{above}{budget.name}/", share, budget.children)

    walk("", SHARE, budgets.roots)
    return found


def could_hold(workload: Workload, pool: Pool) -> bool:
    """Whether the empty pool could (work for GPUs only: what the random worlds are made of)."""
    shape = workload.shape
    right_type = not shape.gpu_types or pool.gpu_type in shape.gpu_types
    return right_type and 0 < shape.gpus_per_node <= pool.gpus_per_node and shape.nodes <= len(pool.nodes)


def home(budgets: Budgets, cluster: Cluster, workload: Workload, extra: Sequence[Exemption] = ()) -> str:
    """The ledger that a workload belongs to: of those that could hold it the one that promises most, first come first.

    Args:
        extra: extra shares in force.
    """
    best, most = "", Fraction(-1)
    for ledger in dict.fromkeys(ledger_at(budgets, pool) for pool in cluster.pools if could_hold(workload, pool)):
        shares = shares_in(budgets, ledger)
        path = f"{workload.account}/*" if f"{workload.account}/*" in shares else str(workload.account)
        pools = [pool for pool in cluster.pools if ledger_at(budgets, pool) == ledger and could_hold(workload, pool)]
        share = shares.get(path, Fraction(0)) + more(budgets, ledger, shares, path, extra)
        promise = share * sum(pool.gpus_per_node * len(pool.nodes) for pool in pools)
        if promise > most:
            best, most = ledger, promise
    return best


def more(budgets: Budgets, ledger: str, shares: dict[str, Fraction], path: str, extra: Sequence[Exemption]) -> Fraction:
    """What extra shares add to a leaf (from what is assigned to nobody: the random worlds have no donors)."""
    total = Fraction(0)
    for exemption in extra:
        left = SHARE - sum(part(root, budgets.roots, ledger) for root in budgets.roots)
        given = Fraction(min(exemption.share, left), SHARE)
        if exemption.account == path or exemption.account.startswith(f"{path}/"):
            total += given
        elif path.startswith(f"{exemption.account}/"):
            whole = max(shares.get(exemption.account, Fraction(0)), Fraction(1, SHARE))
            total += Fraction(floor(given * SHARE * shares[path] / whole), SHARE)
    return total
