"""Budgets: a tree of shares, each with an owner, a review date and a hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mirab.model.units import WHOLE, AccountPath, Duration, exact_duration, format_share

CAPS = ("gpus_max", "min_runtime_cap", "gang_gpus_max")


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
        closed: since when (a date) it takes no new work, nor what lies below it; its share counts as 0, so that its
            parent's implicit child has it until somebody decides otherwise; its usage stays.
        gpus_max: the most GPUs that it and what lies below it may use at once; None = no cap.
        min_runtime_cap: the longest minimum that its work may have; a longer one is cut to it, as to the policy's.
        gang_gpus_max: the most GPUs that one piece of its work may ask for.
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
    gpus_max: int | None = None
    min_runtime_cap: Duration | None = None
    gang_gpus_max: int | None = None

    def caps(self) -> dict[str, int | str]:
        """The caps that it has, as they are written: ``{"gpus_max": 16, "min_runtime_cap": "4h"}``."""
        told = {name: cap for name in ("gpus_max", "gang_gpus_max") if (cap := getattr(self, name)) is not None}
        if self.min_runtime_cap is not None:
            told["min_runtime_cap"] = exact_duration(self.min_runtime_cap)
        return told

    @property
    def share_in_force(self) -> int:
        """What counts of its share: nothing once it is closed."""
        return 0 if self.closed else self.share


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

    def heirs(self, before: dict[AccountPath, AccountPath] | None = None) -> dict[AccountPath, AccountPath]:
        """Account of an earlier tree -> the account that goes on for it, where that has another path now.

        Where two name the same former account (an account of that name was made again, and again given up), it is the
        one that did not name it in the tree before; so of two new ones the last.

        Args:
            before: what this said of the tree that was in force until now.
        """
        known = before or {}
        found: dict[AccountPath, AccountPath] = {}
        guessed: dict[AccountPath, AccountPath] = {}
        for old, path, sure in _heirs("", (), self.roots):
            if not sure:
                guessed[old] = path
            elif old not in found or path != known.get(old):
                found[old] = path
        found = guessed | found
        for path, _, _ in self.walk():
            found.pop(path, None)
        return found

    def open_paths(self) -> Iterator[AccountPath]:
        """The accounts that take work: those that are not closed and stand below no closed one; parents first."""
        yield from _open("", self.roots)

    def is_closed(self, path: str) -> bool:
        """Whether the tree says of the account, or of one above it, that it takes no new work."""
        return bool(self.closed_since(path))

    def closed_since(self, path: str) -> str:
        """Since when it takes no new work, as the budgets say of it or of one above it; ``""`` = they do not."""
        names = path.split("/")
        above = (self.find("/".join(names[: depth + 1])) for depth in range(len(names)))
        return next((budget.closed for budget in above if budget is not None and budget.closed), "")

    def with_zero_share(self, path: str) -> Budgets:
        """The same tree with one more account of share 0 (a policy may admit unknown accounts so)."""
        return Budgets(_insert(self.roots, path.split("/")))


def left_by(children: tuple[Budget, ...]) -> int:
    """What children leave of what their parent has, in parts of `WHOLE`."""
    return WHOLE - sum(child.share_in_force for child in children)


def _check_siblings(parent: str, siblings: tuple[Budget, ...]) -> None:
    seen: set[str] = set()
    for budget in siblings:
        if not budget.name or "/" in budget.name:
            raise ValueError(f"account name {budget.name!r} under {parent or 'the root'} is empty or holds a '/'")
        if budget.name in seen:
            raise ValueError(f"account {budget.name} stands twice under {parent or 'the root'}: keep one")
        seen.add(budget.name)
        negative = next((cap for cap in CAPS if (getattr(budget, cap) or 0) < 0), "")
        if negative:
            raise ValueError(f"account {budget.name} has the {negative} {getattr(budget, negative)}: 0 or more")
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
        share = whole * budget.share_in_force // WHOLE
        yield path, budget, share
        yield from _walk(path, budget.children, share)


def _open(parent: str, budgets: tuple[Budget, ...]) -> Iterator[AccountPath]:
    for budget in budgets:
        if not budget.closed:
            path = AccountPath(f"{parent}/{budget.name}" if parent else budget.name)
            yield path
            yield from _open(path, budget.children)


def _heirs(
    parent: str, before: tuple[str, ...], budgets: tuple[Budget, ...]
) -> Iterator[tuple[AccountPath, AccountPath, bool]]:
    """(earlier path, path, whether it says so) of siblings and all below; `before`: earlier paths of their parent.

    It does not say so where one was renamed below one of several earlier parents: another's child may have had the
    name.
    """
    for budget in budgets:
        path = f"{parent}/{budget.name}" if parent else budget.name
        names = [old.rpartition("/")[2] for old in budget.formerly if old.rpartition("/")[0] in (parent, *before)]
        said = (*budget.formerly, *(f"{old}/{budget.name}" for old in before))
        guessed = tuple(f"{old}/{name}" for old in before for name in names)
        yield from ((AccountPath(old), AccountPath(path), True) for old in said)
        yield from ((AccountPath(old), AccountPath(path), False) for old in guessed)
        yield from _heirs(path, (*said, *guessed), budget.children)


def _insert(siblings: tuple[Budget, ...], names: list[str]) -> tuple[Budget, ...]:
    head, rest = names[0], names[1:]
    for index, budget in enumerate(siblings):
        if budget.name == head:
            if not rest:
                return siblings
            changed = replace(budget, children=_insert(budget.children, rest))
            return (*siblings[:index], changed, *siblings[index + 1 :])
    return (*siblings, Budget(head, 0, _insert((), rest) if rest else ()))
