"""Who stands where in the order at this moment: the accounts with waiting work, from the state's own numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from mirab.core.shares import Account, parting
from mirab.core.state import State
from mirab.model.units import Charge, Instant, WorkloadId
from mirab.service.views import homes

SHOWN = 3
"""So many of those ahead are named."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A leaf account: what it has had, is committed to and was promised in the window, and its first waiting job.

    `par`: the part of `used` that was never charged, since it lies before the account's first day.
    """

    path: str
    ratio: float
    used: Charge
    par: Charge
    committed: Charge
    promised: int
    waiting: int
    first: WorkloadId | None
    mine: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Accounts that go before one's own (the first few), and one's own; how many there are before it in all.

    `pools`: those that they compete for, where pools have shares of their own; None = all.
    """

    shown: tuple[Standing, ...]
    ahead: int
    pools: tuple[int, ...] | None = None

    @property
    def mine(self) -> Standing:
        return self.shown[-1]


def order(state: State, account: Account, now: Instant) -> Order:
    """Owed leaves first, then by the ratios down the paths: the order of `mirab.core.ordering`, in one ledger."""
    window = account.window
    leaves = [
        leaf
        for leaf in state.accounts.values()
        if leaf.leaf and leaf.waiting and leaf is not account and leaf.window is window
    ]
    keys = {leaf: _key(leaf, now) for leaf in (*leaves, account)}
    ahead = sorted((leaf for leaf in leaves if keys[leaf] < keys[account]), key=keys.__getitem__)
    shown = tuple(_standing(state, leaf, now) for leaf in ahead[:SHOWN])
    return Order((*shown, _standing(state, account, now, mine=True)), len(ahead), homes.pools_of(state, account.path))


def _key(leaf: Account, now: Instant) -> tuple[object, ...]:
    ratios = [(above.ratio(now), above.path) for above in leaf.lineage]
    return (ratios[-1][0] >= 1.0, *ratios)


def _standing(state: State, leaf: Account, now: Instant, mine: bool = False) -> Standing:
    return Standing(
        leaf.path, leaf.ratio(now), leaf.used(now), leaf.par(now), leaf.committed(now), leaf.promised(now),
        leaf.waiting, state.first_waiting(leaf.path, now), mine,
    )  # fmt: skip


def level_at(state: State, mine: Account, first: Account, now: Instant, steps: Iterable[Instant]) -> Instant | None:
    """When `mine` stands no higher than `first` where their paths part, if all that runs goes on and nothing else does.

    On a copy: time passes in it. None = not within the steps. Between two of them the ratios go straight.
    """
    ours, theirs = parting(mine, first)
    before, above = now, ours.ratio(now) - theirs.ratio(now)
    for at in steps:
        state.advance(at)
        over = ours.ratio(at) - theirs.ratio(at)
        if over <= 0:
            return at if not 0 < above < inf else before + round((at - before) * above / (above - over))
        before, above = at, over
    return None
