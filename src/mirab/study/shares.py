"""The share of the whole cluster that each leaf holds, by the budgets and the exceptions in force."""

from __future__ import annotations

from collections.abc import Iterable

from mirab.model.accounts import Budgets, covers, left_by, rest_path
from mirab.model.policy import Exemption
from mirab.model.units import WHOLE, AccountPath, Instant


def leaf_shares(budgets: Budgets, exemptions: Iterable[Exemption] = (), now: Instant = 0) -> dict[AccountPath, int]:
    """Leaf -> share in parts of `WHOLE`, with the extra shares that are in force at `now`."""
    shares = dict(_shares(budgets))
    for exemption in sorted(exemptions, key=lambda each: each.id):
        if exemption.kind == "extra-share" and exemption.begin <= now < exemption.end:
            _grant(shares, exemption)
    return shares


def leaf_of(account: AccountPath, shares: dict[AccountPath, int]) -> AccountPath:
    """The leaf that pays for work of an account: itself, or the implicit child of an inner account."""
    rest = rest_path(account)
    return rest if rest in shares else account


def _shares(budgets: Budgets) -> Iterable[tuple[AccountPath, int]]:
    for path, budget, share in budgets.walk():
        if budget.children:
            yield rest_path(path), share * left_by(budget.children) // WHOLE
        else:
            yield path, share


def _grant(shares: dict[AccountPath, int], exemption: Exemption) -> None:
    """Move an extra share: to the leaves of its account, from those of its donor or from the unassigned rest."""
    if exemption.donor:
        asked = -_spread(shares, exemption.donor, -exemption.share)
    else:
        asked = min(exemption.share, WHOLE - sum(shares.values()))
    _spread(shares, exemption.account, asked)


def _spread(shares: dict[AccountPath, int], root: str, change: int) -> int:
    """Change the leaves below an account in proportion to their shares; none falls below 0. What was changed."""
    leaves = [path for path in shares if covers(root, path)]
    whole = sum(shares[path] for path in leaves)
    if not leaves:
        return 0
    change = max(change, -whole)
    left = change
    for path in leaves[1:]:
        part = change * shares[path] // whole if whole else 0
        shares[path] += part
        left -= part
    shares[leaves[0]] += left
    return change
