"""Which ledger a workload belongs to, where pools have trees of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirab.model.accounts import Ledger
from mirab.model.resources import Cluster


def home_of(pools: Sequence[int], ledgers: Sequence[Ledger], cluster: Cluster, share_in: Callable[[str], int]) -> str:
    """The name of the ledger: the only one that has a pool for it; of several, where its account is promised most.

    Work that no pool can hold is the main ledger's. For the arguments see `promises`.
    """
    if len(ledgers) == 1:
        return ledgers[0].name
    found = promises(pools, ledgers, cluster, share_in)
    return found[0][0] if found else ""


def promises(
    pools: Sequence[int], ledgers: Sequence[Ledger], cluster: Cluster, share_in: Callable[[str], int]
) -> list[tuple[str, int]]:
    """(ledger, promise) for each that has a pool for the work, best first.

    A promise is the account's share of the ledger now, in parts of the ledger's whole, times the installed slots of
    those of its pools that could hold the work. Of equal ones that comes first whose pool does in the cluster.

    Args:
        pools: numbers of the pools that could hold it.
        share_in: name of a ledger -> the account's share there, in parts of the ledger's whole.
    """
    found: list[tuple[int, int, str]] = []
    for ledger in ledgers:
        able = [pool for pool in pools if pool in ledger.pools]
        if able:
            promised = share_in(ledger.name) * sum(cluster.pools[pool].slots for pool in able)
            found.append((-promised, min(able), ledger.name))
    return [(name, -promised) for promised, _, name in sorted(found)]
