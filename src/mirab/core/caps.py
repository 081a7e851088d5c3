"""Caps that a budget sets: GPUs at once, the GPUs of one piece of work, the longest minimum.

A cap counts what runs in the account and below it, in every ledger, and what nodes are kept for. An account at its cap
is passed over: others go on, and its heads are looked at again as soon as something of it ends. Nobody is stopped for a
cap that has been lowered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mirab.core.shares import Account
from mirab.model.accounts import Budgets, plain
from mirab.model.reasons import GangTooLarge
from mirab.model.resources import Shape
from mirab.model.units import AccountPath, Duration


def install_caps(accounts: Collection[Account], budgets: Budgets) -> None:
    """Let the accounts know their caps on GPUs. Those of the main ledger have them, and the others know those."""
    known = {path: budget for path, budget, _ in budgets.walk()}
    for account in accounts:
        budget = known.get(account.path)
        account.gpus_max = None if budget is None else budget.gpus_max
        account.gang_max = None if budget is None else budget.gang_gpus_max
    for account in accounts:
        homes = [above.home for above in account.lineage]
        account.capped = tuple(above for above in homes if above.gpus_max is not None or above.gang_max is not None)


def minimum_caps(accounts: Iterable[Account], budgets: Budgets) -> dict[AccountPath, Duration]:
    """The shortest cap on minimums that holds for an account, its own or one from above, where there is any."""
    known = {path: budget for path, budget, _ in budgets.walk()}
    minimums: dict[AccountPath, Duration] = {}
    for account in accounts:
        names = [plain(above.path) for above in account.lineage]
        caps = [known[name].min_runtime_cap for name in names if name in known]
        shortest = min((cap for cap in caps if cap is not None), default=None)
        if shortest is not None:
            minimums[account.path] = shortest
    return minimums


def too_large(account: Account, shape: Shape) -> GangTooLarge | None:
    """Whether a cap forbids one piece of work of this size, whatever else runs."""
    wanted = shape.gpus
    for above in account.capped:
        caps = [cap for cap in (above.gpus_max, above.gang_max) if cap is not None]
        if wanted > min(caps):
            return GangTooLarge(above.path, min(caps), wanted)
    return None


def is_full(account: Account) -> bool:
    """Whether not one more GPU may be used."""
    return any(above.gpus_max is not None and above.gpus >= above.gpus_max for above in account.capped)
