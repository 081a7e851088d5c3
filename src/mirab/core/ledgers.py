"""Pools that are accounted for by themselves: a forest instead of a tree.

A pool that a budget names under `pool_shares` has a ledger: its own accounts, and its own window over the capacity of
that pool alone. Nothing is compared across ledgers: what waits belongs to one of them (`Stock.ledger_for`), and what
runs to that of its pool.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mirab.core.meter import Meter
from mirab.model.accounts import Budgets
from mirab.model.units import Charge, ChargeRate, Duration, Instant


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Window:
    """The sliding window over time, and over the cumulative capacity that entitlements are metered against."""

    __slots__ = ("_at", "_seen", "_since", "capacity", "length")

    def __init__(self, length: Duration, now: Instant, capacity: ChargeRate) -> None:
        self.length = length
        self._since: Instant = now - length
        self.capacity = Meter(now - length, capacity)
        self._at: Instant = now - 1
        self._seen = (0, 0, 0)

    def at(self, now: Instant) -> tuple[Instant, Charge, Charge]:
        """(start of the window, capacity until then, capacity until now)."""
        if now != self._at:
            start = max(now - self.length, self._since)
            self._seen = start, self.capacity.before(start), self.capacity.total(now)
            self._at = now
        return self._seen

    def change_length(self, now: Instant, length: Duration) -> None:
        """A longer window grows into its length as time passes, since what lay before the old one is forgotten."""
        self._since = self.at(now)[0]
        self.length = length
        self._at = now - 1

    def set_capacity(self, now: Instant, capacity: ChargeRate) -> None:
        self.capacity.set_rate(now, capacity)
        self._at = now - 1


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Ledger:
    """One of them as it is kept; `Division` is what the budgets say of it.

    Attributes:
        name: the pool's; "" = the main ledger, of all pools that nobody names.
        pools: their numbers; none = nobody names the pool any more, and its accounts are only history (or nothing is
            left to the main ledger).
        budgets: the tree of shares that holds there.
    """

    __slots__ = ("budgets", "name", "pools", "window")

    def __init__(self, name: str, pools: tuple[int, ...], budgets: Budgets, window: Window) -> None:
        self.name = name
        self.pools = pools
        self.budgets = budgets
        self.window = window

    def __repr__(self) -> str:
        return f"Ledger({self.name or 'main'})"

    @property
    def in_force(self) -> bool:
        return bool(self.pools) or not self.name
