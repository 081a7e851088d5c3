"""Which ledger a workload belongs to, where pools have trees of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirab.model.accounts import Ledger
from mirab.model.resources import Cluster


def home_of(pools: Sequence[int], ledgers: Sequence[Ledger], cluster: Cluster, share_in: Callable[[str], int]) -> str:
    """The name of the ledger: the only one that has a pool for it; of several, where its account is promised most.

    That is the account's share of the ledger now, times the installed slots of those of the ledger's pools that could
    hold the workload; where two are equal, the one whose pool comes first in the cluster. Work that no pool can hold
    is the main ledger's.

    Args:
        pools: numbers of the pools that could hold it.
        share_in: name of a ledger -> the account's share there, in parts of the ledger's whole.
    """
    if len(ledgers) == 1:
        return ledgers[0].name
    found, most, first = "", -1, -1
    for ledger in ledgers:
        able = [pool for pool in pools if pool in ledger.pools]
        if able:
            promised = share_in(ledger.name) * sum(cluster.pools[pool].slots for pool in able)
            if promised > most or (promised == most and min(able) < first):
                found, most, first = ledger.name, promised, min(able)
    return found
