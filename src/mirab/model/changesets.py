"""Changes of budgets: all children of an account at once, by somebody, for a reason, from an instant on.

A changeset never deletes an account. One that is not named any more must be the predecessor of another (renamed,
merged: see `Budget.formerly`); otherwise it is closed and keeps its place, so that what was used stays accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mirab.model.accounts import Budget, Budgets, child_path, covers, share_of_pool, sorted_shares
from mirab.model.units import AccountPath

UnixMs: TypeAlias = int
"""Milliseconds since 1970, UTC: decisions have dates, whatever clock the scheduler counts by."""

NOTHING = Budgets(())
"""The tree before the first changeset."""


@dataclass(frozen=True, slots=True)
class ChildrenSet:
    """The children of one account, all of them, as they are to be.

    Attributes:
        parent: the account; ``""`` = the root.
        children: in their order. A child that exists already, by its name or by one of its `formerly`, keeps the
            children it has, and none are given here; a new one may bring its own.
    """

    parent: AccountPath
    children: tuple[Budget, ...]


@dataclass(frozen=True, slots=True)
class Changeset:
    """One decision about budgets.

    Attributes:
        version: 1, 2, 3, ... in the order in which decisions were recorded.
        based_on: the version that the author saw; 0 = nothing.
        effective_at: from when on it holds; never before `recorded_at`, so that the past is not rewritten.
        reverts: the version that it takes back; 0 = none. Of one that was not in effect yet, it is a cancellation.
        evidence: what it was decided on, such as the name and the hash of a what-if.
    """

    version: int
    based_on: int
    author: str
    reason: str
    recorded_at: UnixMs
    effective_at: UnixMs
    edits: tuple[ChildrenSet, ...]
    reverts: int = 0
    evidence: str = ""


def applied(budgets: Budgets, edits: Iterable[ChildrenSet]) -> Budgets:
    """The tree after the edits, one after the other.

    Raises:
        ValueError: no such account, an account would vanish or have two heirs, siblings of more than 100 % (named), or
            children given for an account that has its own.
    """
    for edit in edits:
        budgets = _with_children(budgets, edit)
    return budgets


def _with_children(budgets: Budgets, edit: ChildrenSet) -> Budgets:
    present = budgets.children_of(edit.parent)
    if present is None:
        raise ValueError(no_account(budgets, edit.parent))
    given = {child.name for child in edit.children}
    leaving = [child for child in present if child.name not in given]
    _check_heirs(edit, leaving)
    children = tuple(_grown(child, edit.parent, present, leaving) for child in edit.children)
    return Budgets(_replaced(budgets.roots, edit.parent.split("/") if edit.parent else [], children))


def no_account(budgets: Budgets, path: str) -> str:
    """The sentence about an account that is not there, with the one that goes on for it."""
    heir = budgets.heirs().get(AccountPath(path))
    known = ", ".join(path for path, budget, _ in budgets.walk() if budget.children) or "none yet"
    return f"there is no account {path}: " + (f"it is {heir} now" if heir else f"accounts with children are {known}")


def _check_heirs(edit: ChildrenSet, leaving: Sequence[Budget]) -> None:
    for child in leaving:
        path = child_path(edit.parent, child.name)
        heirs = [other.name for other in edit.children if path in other.formerly]
        if not heirs:
            raise ValueError(f"account {path} would vanish with what it used: close it, rename it, or merge it")
        if len(heirs) > 1:
            raise ValueError(f"account {path} has two heirs, {' and '.join(heirs)}: its usage can go to one only")


def _grown(child: Budget, parent: str, present: Sequence[Budget], leaving: Sequence[Budget]) -> Budget:
    """The child with the children that it keeps or inherits."""
    before = [other for other in present if other.name == child.name]
    before += [other for other in leaving if child_path(parent, other.name) in child.formerly]
    if not before:
        return child
    kept = tuple(grandchild for other in before for grandchild in _scaled(other, before, present))
    if child.children and child.children != kept:
        raise ValueError(f"the children of {child_path(parent, child.name)} change in an edit of their own")
    return replace(child, children=kept)


def _scaled(child: Budget, merged: Sequence[Budget], present: Sequence[Budget]) -> tuple[Budget, ...]:
    """What lies below one of several accounts that become one: each keeps what it has of the whole cluster, and of
    each pool that any of them, or of theirs, names."""
    if len(merged) == 1:
        return child.children
    named = [*present, *(each for other in merged for each in other.children)]
    pools = sorted({pool for budget in named for pool, _ in budget.pool_shares})
    whole = sum(other.share for other in merged)
    wholes = {pool: sum(share_of_pool(other, present, pool) for other in merged) for pool in pools}
    parts = {pool: share_of_pool(child, present, pool) for pool in pools}
    return tuple(
        replace(
            each,
            share=each.share * child.share // whole if whole else 0,
            pool_shares=sorted_shares({
                pool: share_of_pool(each, child.children, pool) * parts[pool] // wholes[pool] if wholes[pool] else 0
                for pool in pools
            }),
        )
        for each in child.children
    )  # fmt: skip


def _replaced(siblings: tuple[Budget, ...], names: list[str], children: tuple[Budget, ...]) -> tuple[Budget, ...]:
    """The siblings with the children of the account at the end of `names` replaced."""
    if not names:
        return children
    head, rest = names[0], names[1:]
    return tuple(
        replace(budget, children=_replaced(budget.children, rest, children)) if budget.name == head else budget
        for budget in siblings
    )


def outside(edits: Iterable[ChildrenSet], root: str) -> list[AccountPath]:
    """The accounts whose children the edits change although they are not `root` nor below it.

    A manager of `root` may change what lies below it, so not `root`'s own share, which is an edit of its parent.
    """
    return [edit.parent for edit in edits if not covers(root, edit.parent)]
