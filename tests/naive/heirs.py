"""Accounts as people tell it: each is a bundle of pasts, and a bundle changes hands whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor

from mirab.model.accounts import Budget, Budgets
from tests.naive.amounts import SHARE
from tests.naive.history import NEVER


def shares_of(budgets: Budgets) -> dict[str, Fraction]:
    """Account -> share of the whole, in whole parts; a closed one, and all below it, has none."""
    found: dict[str, Fraction] = {}

    def walk(above: str, whole: Fraction, siblings: Sequence[Budget]) -> None:
        for budget in siblings:
            share = Fraction(0) if budget.closed else Fraction(floor(whole * budget.share), SHARE)
            found[f"{above}{budget.name}"] = share
            walk(f"{above}{budget.name}/", share, budget.children)

    walk("", Fraction(1), budgets.roots)
    return found


def claims(budgets: Budgets) -> list[tuple[str, str]]:
    """(former account, who names it), down the tree."""
    found: list[tuple[str, str]] = []

    def walk(above: str, siblings: Sequence[Budget]) -> None:
        for budget in siblings:
            found.extend((old, f"{above}{budget.name}") for old in budget.formerly)
            walk(f"{above}{budget.name}/", budget.children)

    walk("", budgets.roots)
    return found


def heir(path: str, before: Budgets, after: Budgets) -> str:
    """The path that an account has after a change; one that is gone without an heir keeps its own.

    An account goes to the one that names it now and did not before, else to one that names it still, else where its
    parent goes.
    """
    if path in shares_of(after):
        return path
    naming = [who for old, who in claims(after) if old == path]
    new = [who for who in naming if (path, who) not in claims(before)]
    if new or naming:
        return (new or naming)[-1]
    parent, _, name = path.rpartition("/")
    return f"{heir(parent, before, after)}/{name}" if parent else path


def heir_now(name: str, budgets: Budgets) -> str:
    """Where work that is sent in for a name goes under a tree, however often the name was changed since."""
    seen: list[str] = []
    while name not in shares_of(budgets) and name not in seen:
        seen.append(name)
        name = heir(name, Budgets(()), budgets)
    return name


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]


@dataclass
class Past:
    """What one account was before anything was merged into it: its shares from instants on, and what was charged."""

    born: int
    shares: list[tuple[int, Fraction]]
    charges: list[list[int]] = field(default_factory=list)
    """[from, until, rate]"""

    def share_at(self, at: int) -> Fraction:
        return [share for since, share in self.shares if since <= max(at, self.born)][-1]

    def promised(self, begin: int, end: int, capacity: int) -> Fraction:
        cuts = sorted({begin, end, *(since for since, _ in self.shares if begin < since < end)})
        parts = (self.share_at(left) * capacity * (right - left) for left, right in pairwise(cuts))
        return sum(parts, Fraction(0))

    def used(self, begin: int, end: int, capacity: int) -> Fraction:
        charged = sum(rate * max(0, min(until, end) - max(since, begin)) for since, until, rate in self.charges)
        return self.promised(begin, max(begin, self.born), capacity) + charged


class Books:
    """Who is who, and what each used and was promised, under a capacity that never changes."""

    def __init__(self, budgets: Budgets, capacity: int) -> None:
        self.budgets, self.capacity = budgets, capacity
        self.pasts: dict[str, list[Past]] = {
            path: [Past(0, [(0, share)])] for path, share in shares_of(budgets).items()
        }
        self.running: dict[str, tuple[str, int, list[list[int]]]] = {}
        """Run -> its account, its rate, and the charges that it adds to."""

    def account_of(self, name: str) -> str:
        """Where work that is sent in for a name goes now."""
        return heir_now(name, self.budgets)

    def begin(self, run: str, account: str, rate: int, now: int) -> None:
        charges = []
        names = account.split("/")
        for depth in range(len(names)):
            charge = [now, NEVER, rate]
            self.pasts["/".join(names[: depth + 1])][0].charges.append(charge)
            charges.append(charge)
        self.running[run] = account, rate, charges

    def end(self, run: str, now: int) -> None:
        for charge in self.running.pop(run)[2]:
            charge[1] = now

    def change(self, budgets: Budgets, now: int) -> None:
        """Every run stops being charged, the pasts change hands, and every run is charged again.

        What goes to an account that stood above it brings nothing: it was charged there already.
        """
        running = [(run, account, rate) for run, (account, rate, _) in self.running.items()]
        for run, _, _ in running:
            self.end(run, now)
        moved: dict[str, list[Past]] = {}
        for path, pasts in self.pasts.items():
            into = heir(path, self.budgets, budgets)
            above = [heir(each, self.budgets, budgets) for each in _above(path)]
            if into not in above:
                moved.setdefault(into, []).extend(pasts)
        shares = shares_of(budgets)
        for path, share in shares.items():
            moved.setdefault(path, [Past(now, [])])
            moved[path][0].shares.append((now, share))
        for path, pasts in moved.items():
            for past in pasts[1:] if path in shares else pasts:
                past.shares.append((now, Fraction(0)))
        for run, account, rate in running:
            self.pasts = moved
            self.begin(run, heir(account, self.budgets, budgets), rate, now)
        self.pasts, self.budgets = moved, budgets

    def used(self, path: str, now: int, window: int) -> Fraction:
        return sum((past.used(now - window, now, self.capacity) for past in self.pasts[path]), Fraction(0))

    def promised(self, path: str, now: int, window: int) -> Fraction:
        return sum((past.promised(now - window, now, self.capacity) for past in self.pasts[path]), Fraction(0))
