"""Pools that are accounted for by themselves: a forest instead of a tree.

A pool that a budget names under `pool_shares` has a ledger: its own accounts, and its own window over the capacity of
that pool alone. Nothing is compared across ledgers: what waits belongs to one of them (`Stock.ledger_for`), and what
runs to that of its pool.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mirab.core.shares import Window
from mirab.model.accounts import Budgets


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Ledger:
    """One of them as the core keeps it.

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
