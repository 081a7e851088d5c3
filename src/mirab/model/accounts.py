"""Budgets: a tree of shares, each with an owner, a review date and a hypothesis.

A pool that any budget names under `pool_shares` has a *ledger* of its own: a tree of shares of that pool alone. All
pools that nobody names are the main ledger, whose shares are the ordinary ones. Accounts of a pool's ledger are
written ``POOL:ACCOUNT`` (``h100:vision/anna``), those of the main ledger as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirab.model.units import WHOLE, AccountPath, Duration, exact_duration, format_share

TEXTS = ("owner", "review", "hypothesis", "outcome", "closed")
"""What a budget says in words and dates; "" = nothing."""
CAPS = ("gpus_max", "min_runtime_cap", "gang_gpus_max")
LEDGER_MARK = ":"
"""Stands between the name of a ledger and the account, so in no account's name."""
REST = "*"
"""Name of the implicit child of an inner account: it holds what the children leave."""


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
        pool_shares: (pool, share of what its parent has of that pool), sorted by pool (`sorted_shares`). Where any
            sibling names a pool, those that do not name it have none of it; where none does, `share` holds there too.
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
    pool_shares: tuple[tuple[str, int], ...] = ()

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


def sorted_shares(shares: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Pool -> share, as `Budget.pool_shares` holds it."""
    return tuple(sorted(shares.items()))


def share_of_pool(budget: Budget, siblings: Iterable[Budget], pool: str) -> int:
    """What counts of a budget's share in one pool, in parts of what its parent has there; 0 once it is closed."""
    if budget.closed:
        return 0
    if any(pool == name for sibling in siblings for name, _ in sibling.pool_shares):
        return dict(budget.pool_shares).get(pool, 0)
    return budget.share


def ledger_path(name: str, path: str) -> AccountPath:
    """The account of a ledger: ``h100:vision/anna``; that of the main ledger, whose name is "", as it is."""
    return AccountPath(f"{name}{LEDGER_MARK}{path}" if name else path)


def plain(path: str) -> AccountPath:
    """The account's path in the budgets, whatever its ledger."""
    return AccountPath(path.rpartition(LEDGER_MARK)[2])


def ledger_of(path: str) -> str:
    """The name of the ledger that an account belongs to; "" = the main one."""
    return path.rpartition(LEDGER_MARK)[0]


def child_path(parent: str, name: str) -> AccountPath:
    """The path of a child; `parent` ``""`` = the root."""
    return AccountPath(f"{parent}/{name}" if parent else name)


def rest_path(path: str) -> AccountPath:
    """The path of the implicit child of an inner account."""
    return AccountPath(f"{path}/{REST}")


def parent_of(path: str) -> AccountPath:
    """The path of the parent; ``""`` for an account at the root."""
    return AccountPath(path.rpartition("/")[0])


def covers(above: str, path: str) -> bool:
    """Whether the account `path` is `above` or stands below it; ``""`` is the root, below which all stand."""
    return not above or path == above or path.startswith(f"{above}/")


def is_meant(asked: str, path: str) -> bool:
    """Whether who asks for an account means `path`: it, or one below; named without its pool, in every ledger."""
    return covers(asked, path if ledger_of(asked) else plain(path))


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

    def pools_named(self) -> tuple[str, ...]:
        """The pools that any budget names, sorted."""
        return tuple(sorted({name for _, budget, _ in self.walk() for name, _ in budget.pool_shares}))

    def share_without_pool(self, pools: Sequence[str], besides: Sequence[str] = ()) -> ShareWithoutPool | None:
        """The first share of a pool that there is not; None = there is no such.

        Args:
            pools: names of the cluster's pools.
            besides: names that are passed over, since they stood in the budgets before the cluster lost the pool.
        """
        for path, budget, _ in self.walk():
            for name, _ in budget.pool_shares:
                if name not in pools and name not in besides:
                    return ShareWithoutPool(path, name, tuple(pools))
        return None

    def ledgers(self, pools: Sequence[str]) -> tuple[Division, ...]:
        """How the budgets divide the pools: the main ledger, even if no pool is left to it, then those of the named
        pools in the cluster's order.

        Args:
            pools: names of the cluster's pools. Where a budget names another, nothing comes of it.
        """
        named = self.pools_named()
        if not named:
            return (Division("", tuple(range(len(pools))), self),)
        shared = tuple(number for number, pool in enumerate(pools) if pool not in named)
        found = [Division("", shared, Budgets(_in_pool(self.roots, "")))]
        for number, pool in enumerate(pools):
            if pool in named:
                found.append(Division(pool, (number,), Budgets(_in_pool(self.roots, pool))))
        return tuple(found)


class ShareWithoutPool(NamedTuple):
    """An account has a share of a pool that is none of those there are."""

    account: AccountPath
    pool: str
    pools: tuple[str, ...]

    def told(self) -> str:
        return f"account {self.account} has a share of the pool {self.pool}, and the pools are {', '.join(self.pools)}"


class Division(NamedTuple):
    """What budgets say of one ledger: pools that are accounted for together, and the tree of shares that holds there.

    Attributes:
        name: of the one pool that somebody names under `pool_shares`; "" = the main ledger.
        pools: their numbers in the cluster.
        budgets: the shares there as ordinary shares: nobody names a pool in it.
    """

    name: str
    pools: tuple[int, ...]
    budgets: Budgets


def left_by(children: tuple[Budget, ...]) -> int:
    """What children leave of what their parent has, in parts of `WHOLE`."""
    return WHOLE - sum(child.share_in_force for child in children)


def _check_siblings(parent: str, siblings: tuple[Budget, ...]) -> None:
    seen: set[str] = set()
    for budget in siblings:
        if not budget.name or "/" in budget.name or LEDGER_MARK in budget.name:
            raise ValueError(
                f"account name {budget.name!r} under {parent or 'the root'} is empty or holds a '/' or ':'"
            )
        if budget.name in seen:
            raise ValueError(f"account {budget.name} stands twice under {parent or 'the root'}: keep one")
        seen.add(budget.name)
        negative = next((cap for cap in CAPS if (getattr(budget, cap) or 0) < 0), "")
        if negative:
            raise ValueError(f"account {budget.name} has the {negative} {getattr(budget, negative)}: 0 or more")
        if not 0 <= budget.share <= WHOLE:
            raise ValueError(f"account {budget.name} has the share {format_share(budget.share)}: 0% to 100%")
        _check_siblings(child_path(parent, budget.name), budget.children)
    total = sum(budget.share for budget in siblings)
    if total > WHOLE:
        names = ", ".join(f"{budget.name} {format_share(budget.share)}" for budget in siblings)
        raise ValueError(f"shares under {parent or 'the root'} sum to {format_share(total)}, more than 100%: {names}")
    _check_pool_shares(parent, siblings)


def _check_pool_shares(parent: str, siblings: tuple[Budget, ...]) -> None:
    for budget in siblings:
        named = [name for name, _ in budget.pool_shares]
        if named != sorted(set(named)):
            raise ValueError(f"account {budget.name} names a pool twice, or not in their order: {', '.join(named)}")
        for name, share in budget.pool_shares:
            if not name or "/" in name or LEDGER_MARK in name:
                raise ValueError(f"account {budget.name}: the pool {name!r} cannot have shares of its own: rename it")
            if not 0 <= share <= WHOLE:
                raise ValueError(f"account {budget.name} has {format_share(share)} of the pool {name}: 0% to 100%")
    for pool in dict.fromkeys(name for budget in siblings for name, _ in budget.pool_shares):
        have = [(budget.name, share_of_pool(budget, siblings, pool)) for budget in siblings]
        total = sum(share for _, share in have)
        if total > WHOLE:
            names = ", ".join(f"{name} {format_share(share)}" for name, share in have if share)
            where = parent or "the root"
            raise ValueError(
                f"shares of the pool {pool} under {where} sum to {format_share(total)}, more than 100%: {names}"
            )


def _in_pool(siblings: tuple[Budget, ...], pool: str) -> tuple[Budget, ...]:
    """The siblings, and all below, with their shares of a pool as ordinary ones; for ``""`` as they are."""
    return tuple(
        replace(
            budget,
            share=share_of_pool(budget, siblings, pool) if pool else budget.share,
            children=_in_pool(budget.children, pool),
            pool_shares=(),
        )
        for budget in siblings
    )


def _walk(parent: str, budgets: tuple[Budget, ...], whole: int) -> Iterator[tuple[AccountPath, Budget, int]]:
    for budget in budgets:
        path = child_path(parent, budget.name)
        share = whole * budget.share_in_force // WHOLE
        yield path, budget, share
        yield from _walk(path, budget.children, share)


def _open(parent: str, budgets: tuple[Budget, ...]) -> Iterator[AccountPath]:
    for budget in budgets:
        if not budget.closed:
            path = child_path(parent, budget.name)
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
        path = child_path(parent, budget.name)
        names = [old.rpartition("/")[2] for old in budget.formerly if parent_of(old) in (parent, *before)]
        said = (*budget.formerly, *(f"{old}/{budget.name}" for old in before))
        guessed = tuple(f"{old}/{name}" for old in before for name in names)
        yield from ((AccountPath(old), path, True) for old in said)
        yield from ((AccountPath(old), path, False) for old in guessed)
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
