"""Budgets: a tree of shares, each with an owner, a review date and a hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mirab.model.units import WHOLE, AccountPath, format_share


@dataclass(frozen=True, slots=True)
class Budget:
    """One account's budget: its share of what its parent has, in parts of `WHOLE`.

    Attributes:
        save_for_gangs: the team's own choice: younger work of the account waits while its oldest gang is blocked
            and owed, so that the account's share collects for it.
        equal_users: users share equally inside the account (False: first come, first served).
        outcome: what was found at the last review.
        formerly: paths of accounts that this one goes on for: it was renamed from them, or they were merged into it,
            and their usage and history are its own.
        closed: since when (a date) it takes no new work; its share is 0, its usage stays.
    """

    name: str
    share: int
    children: tuple[Budget, ...] = ()
    owner: str = ""
    review: str = ""
    hypothesis: str = ""
    save_for_gangs: bool = False
    equal_users: bool = True
    outcome: str = ""
    formerly: tuple[str, ...] = ()
    closed: str = ""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The tree of budgets that is in force from some instant on."""

    roots: tuple[Budget, ...]

    def __post_init__(self) -> None:
        _check_siblings("", self.roots)

    def walk(self) -> Iterator[tuple[AccountPath, Budget, int]]:
        """Every account, parents first: path, budget, and its share of the whole cluster in parts of `WHOLE`."""
        yield from _walk("", self.roots, WHOLE)

    def leaves(self) -> list[AccountPath]:
        return [path for path, budget, _ in self.walk() if not budget.children]

    def children_of(self, parent: str) -> tuple[Budget, ...] | None:
        """The children of an account, those of the root for ``""``; None if there is no such account."""
        if not parent:
            return self.roots
        found = self.find(parent)
        return None if found is None else found.children

    def find(self, path: str) -> Budget | None:
        """The budget of an account; None if there is none."""
        siblings: tuple[Budget, ...] = self.roots
        found: Budget | None = None
        for name in path.split("/"):
            found = next((budget for budget in siblings if budget.name == name), None)
            if found is None:
                return None
            siblings = found.children
        return found

    def heirs(self) -> dict[AccountPath, AccountPath]:
        """Account of an earlier tree -> the account that goes on for it, where that has another path now."""
        found = dict(_heirs("", (), self.roots))
        for path, _, _ in self.walk():
            found.pop(path, None)
        return found

    def with_zero_share(self, path: str) -> Budgets:
        """The same tree with one more account of share 0 (a policy may admit unknown accounts so)."""
        return Budgets(_insert(self.roots, path.split("/")))


def _check_siblings(parent: str, siblings: tuple[Budget, ...]) -> None:
    seen: set[str] = set()
    for budget in siblings:
        if not budget.name or "/" in budget.name:
            raise ValueError(f"account name {budget.name!r} under {parent or 'the root'} is empty or holds a '/'")
        if budget.name in seen:
            raise ValueError(f"account {budget.name} stands twice under {parent or 'the root'}: keep one")
        seen.add(budget.name)
        if not 0 <= budget.share <= WHOLE:
            raise ValueError(f"account {budget.name} has the share {format_share(budget.share)}: 0% to 100%")
        _check_siblings(f"{parent}/{budget.name}".lstrip("/"), budget.children)
    total = sum(budget.share for budget in siblings)
    if total > WHOLE:
        names = ", ".join(f"{budget.name} {format_share(budget.share)}" for budget in siblings)
        raise ValueError(f"shares under {parent or 'the root'} sum to {format_share(total)}, more than 100%: {names}")


def _walk(parent: str, budgets: tuple[Budget, ...], whole: int) -> Iterator[tuple[AccountPath, Budget, int]]:
    for budget in budgets:
        path = AccountPath(f"{parent}/{budget.name}" if parent else budget.name)
        share = whole * budget.share // WHOLE
        yield path, budget, share
        yield from _walk(path, budget.children, share)


def _heirs(
    parent: str, before: tuple[str, ...], budgets: tuple[Budget, ...]
) -> Iterator[tuple[AccountPath, AccountPath]]:
    """Earlier path -> path of these siblings and all below; `before`: earlier paths of their parent."""
    for budget in budgets:
        path = f"{parent}/{budget.name}" if parent else budget.name
        names = [old.rpartition("/")[2] for old in budget.formerly if old.rpartition("/")[0] in (parent, *before)]
        earlier = (*budget.formerly, *(f"{old}/{name}" for old in before for name in (budget.name, *names)))
        yield from ((AccountPath(old), AccountPath(path)) for old in earlier)
        yield from _heirs(path, earlier, budget.children)


def _insert(siblings: tuple[Budget, ...], names: list[str]) -> tuple[Budget, ...]:
    head, rest = names[0], names[1:]
    for index, budget in enumerate(siblings):
        if budget.name == head:
            if not rest:
                return siblings
            changed = replace(budget, children=_insert(budget.children, rest))
            return (*siblings[:index], changed, *siblings[index + 1 :])
    return (*siblings, Budget(head, 0, _insert((), rest) if rest else ()))
