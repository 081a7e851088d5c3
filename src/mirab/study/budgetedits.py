"""From what somebody wants of the budgets to the edits that a changeset holds. Pure: trees in, edits out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from mirab.model.accounts import CAPS, Budget, Budgets, child_path, parent_of, share_of_pool, sorted_shares
from mirab.model.changesets import ChildrenSet, applied
from mirab.model.units import WHOLE, AccountPath, format_share

TERMS = (
    "share",
    "pool_shares",
    "owner",
    "review",
    "hypothesis",
    "outcome",
    "save_for_gangs",
    "equal_users",
    "closed",
    "formerly",
    *CAPS,
)
"""What a changeset may change of one account."""
OF_POOL = "pool_shares."
"""Before the name of a pool: the term that is an account's share of that pool alone."""
WORDS = {"save_for_gangs": "saves for gangs", "equal_users": "equal users", "gpus_max": "most GPUs at once",
          "min_runtime_cap": "longest minimum", "gang_gpus_max": "most GPUs of one job"}  # fmt: skip
"""Terms as people read them, where they are not the word itself."""


def terms_changed(budgets: Budgets, changes: Mapping[str, Mapping[str, object]]) -> list[ChildrenSet]:
    """Edits that change terms of accounts; one that is not there is made if its parent is, and a share is given.

    Args:
        changes: path -> terms (see `TERMS`) with their new values; `pool_shares` as pool -> share, None taking it away,
            those that are not named staying as they are.

    Raises:
        ValueError: no such account; or siblings of more than 100 %, who are named.
    """
    edits: list[ChildrenSet] = []
    by_parent: dict[AccountPath, dict[str, Mapping[str, object]]] = {}
    for path, terms in changes.items():
        by_parent.setdefault(parent_of(path), {})[path.rpartition("/")[2]] = terms
    for parent, children in by_parent.items():
        present = _children(budgets, parent)
        known = [child.name for child in present]
        changed = [_changed(child, children[child.name]) if child.name in children else child for child in present]
        changed += [_made(budgets, parent, name, terms) for name, terms in children.items() if name not in known]
        edits.append(ChildrenSet(parent, bare(changed)))
    _check_sums(edits)
    return edits


def _children(budgets: Budgets, parent: str) -> tuple[Budget, ...]:
    present = budgets.children_of(parent)
    if present is None:
        raise UnknownAccountError(unknown_account(budgets, parent))
    return present


def _changed(child: Budget, terms: Mapping[str, object]) -> Budget:
    pools = terms.get("pool_shares")
    given = terms.get("share") or (isinstance(pools, Mapping) and any(pools.values()))
    if given and child.closed and "closed" not in terms:
        terms = {**terms, "closed": ""}
    return _with_terms(child, terms)


def _with_terms(child: Budget, terms: Mapping[str, object]) -> Budget:
    pools = terms.get("pool_shares")
    if isinstance(pools, Mapping):
        kept = {**dict(child.pool_shares), **pools}
        named = {pool: share for pool, share in kept.items() if share is not None}
        terms = {**terms, "pool_shares": sorted_shares(named)}
    return replace(child, **terms)  # type: ignore[arg-type]


def _made(budgets: Budgets, parent: AccountPath, name: str, terms: Mapping[str, object]) -> Budget:
    if "share" not in terms:
        raise UnknownAccountError(unknown_account(budgets, child_path(parent, name)))
    return _with_terms(Budget(name, 0), terms)


class UnknownAccountError(ValueError):
    """An account that is not in the tree."""


def unknown_account(budgets: Budgets, path: str) -> str:
    """The sentence for an account that is not in the tree."""
    known = [str(each) for each, _, _ in budgets.walk()]
    heir = budgets.heirs().get(AccountPath(path))
    close = get_close_matches(path, known, 1)
    hint = f"it is {heir} now" if heir else f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    return f"there is no account {path!r}: {hint}"


def _check_sums(edits: Iterable[ChildrenSet]) -> None:
    for edit in edits:
        where = edit.parent or "the root"
        _check_sum(f"the shares under {where}", {child.name: child.share for child in edit.children})
        for pool in sorted({pool for child in edit.children for pool, _ in child.pool_shares}):
            named = {child.name: share_of_pool(child, edit.children, pool) for child in edit.children}
            _check_sum(f"the shares of pool {pool} under {where}", named)


def _check_sum(what: str, shares: Mapping[str, int]) -> None:
    total = sum(shares.values())
    if total > WHOLE:
        names = ", ".join(f"{name} {format_share(share)}" for name, share in shares.items() if share)
        raise ValueError(
            f"{what} would sum to {format_share(total)}, more than 100%: {names}; "
            f"lower another by {format_share(total - WHOLE)} in the same changeset"
        )


def renamed(budgets: Budgets, path: str, name: str) -> list[ChildrenSet]:
    """The account under another name of the same parent; it stays heir of its own past."""
    child = _account(budgets, path)
    parent = parent_of(path)
    new_path = child_path(parent, name)
    if budgets.find(new_path) is not None:
        raise ValueError(f"account {new_path} exists already: merge {path} into it, or choose another name")
    new = replace(child, name=name, formerly=(*child.formerly, path))
    return [_edit(budgets, parent, {path: new})]


def merged(budgets: Budgets, paths: Sequence[str], into: str) -> list[ChildrenSet]:
    """Siblings as one, with their shares added and their past taken over; `into` is one of them, or a new name.

    Shares of single pools are added pool by pool. Caps on GPUs at once add up as shares do, of other caps the widest
    counts; where one part has none there is none.

    Raises:
        ValueError: they are not siblings, or children of two of them have one name.
    """
    parent = parent_of(into)
    sources = [path for path in paths if path != into]
    if not sources or any(parent_of(path) != parent for path in sources):
        raise ValueError(f"{', '.join(paths)} and {into} are not accounts of one parent: move shares step by step")
    accounts = [_account(budgets, path) for path in sources]
    heir = budgets.find(into) or replace(accounts[0], name=into.rpartition("/")[2], share=0, formerly=())
    parts = [heir, *accounts] if budgets.find(into) else accounts
    _check_names(parts)
    earlier = [old for path, child in zip(sources, accounts, strict=True) for old in (*child.formerly, path)]
    whole = replace(
        heir,
        share=heir.share + sum(child.share for child in accounts),
        pool_shares=_pools_together(parts),
        formerly=tuple(dict.fromkeys((*heir.formerly, *earlier))),
        closed="",
        gpus_max=_together(sum, [part.gpus_max for part in parts]),
        gang_gpus_max=_together(max, [part.gang_gpus_max for part in parts]),
        min_runtime_cap=_together(max, [part.min_runtime_cap for part in parts]),
    )
    gone: dict[str, Budget | None] = dict.fromkeys(sources)
    return [_edit(budgets, parent, {**gone, (into if budgets.find(into) else sources[0]): whole})]


def _pools_together(accounts: Sequence[Budget]) -> tuple[tuple[str, int], ...]:
    """What several have of single pools, pool by pool."""
    whole: dict[str, int] = {}
    for account in accounts:
        for pool, share in account.pool_shares:
            whole[pool] = whole.get(pool, 0) + share
    return sorted_shares(whole)


def _together(kind: Callable[[list[int]], int], caps: list[int | None]) -> int | None:
    known = [cap for cap in caps if cap is not None]
    return kind(known) if len(known) == len(caps) else None


def _check_names(accounts: Sequence[Budget]) -> None:
    names = [grandchild.name for child in accounts for grandchild in child.children]
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"two of them have a child {twice!r}: rename one first")


def closed(budgets: Budgets, path: str, date: str, heir: str = "") -> list[ChildrenSet]:
    """The account at share 0 from now on; its share goes to a sibling, or to nobody. What it used stays its own."""
    child = _account(budgets, path)
    if heir and parent_of(heir) != parent_of(path):
        raise ValueError(f"{heir} is no sibling of {path}: its share can go to a sibling only")
    changes: dict[str, Budget | None] = {path: shut(child, date)}
    if heir:
        taker = _account(budgets, heir)
        changes[heir] = replace(taker, share=taker.share + child.share, pool_shares=_pools_together([taker, child]))
    return [_edit(budgets, parent_of(path), changes)]


def shut(child: Budget, date: str) -> Budget:
    """The budget closed since a date: nothing of anything is promised to it, nor of the pools that it named."""
    nothing = dict.fromkeys((pool for pool, _ in child.pool_shares), 0)
    return replace(child, share=0, pool_shares=sorted_shares(nothing), closed=date)


def split(budgets: Budgets, path: str, parts: Sequence[Budget]) -> list[ChildrenSet]:
    """A leaf divided among children of its own. Its past and its queued work stay with it, above them.

    Raises:
        ValueError: it has children already, is closed, or the parts are more than 100 %.
    """
    if _account(budgets, path).children:
        raise ValueError(f"{path} has children already: change their shares instead")
    if since := budgets.closed_since(path):
        raise ValueError(f"{path} is closed since {since}, and so its children would be: give it a share first")
    edit = ChildrenSet(AccountPath(path), tuple(parts))
    _check_sums([edit])
    return [edit]


def reviewed(budgets: Budgets, path: str, outcome: str, review: str) -> list[ChildrenSet]:
    """What was found at the review of a budget, and when to look again (``""`` = never)."""
    _account(budgets, path)
    return terms_changed(budgets, {path: {"outcome": outcome, "review": review}})


def _account(budgets: Budgets, path: str) -> Budget:
    found = budgets.find(path)
    if found is None:
        raise UnknownAccountError(unknown_account(budgets, path))
    return found


def _edit(budgets: Budgets, parent: AccountPath, changes: Mapping[str, Budget | None]) -> ChildrenSet:
    """All children of a parent, some of them replaced, or gone (None)."""
    children: list[Budget] = []
    for child in _children(budgets, parent):
        new = changes.get(child_path(parent, child.name), child)
        if new is not None:
            children.append(new)
    return ChildrenSet(parent, bare(children))


def bare(children: Iterable[Budget]) -> tuple[Budget, ...]:
    """The budgets without what lies below them."""
    return tuple(replace(child, children=()) for child in children)


# --- from tree to tree ----------------------------------------------------------------------------------------------
def difference(before: Budgets, after: Budgets, closing: str | None = None) -> list[ChildrenSet]:
    """The edits that lead from one tree to another, parents first.

    Args:
        closing: a date: accounts that the new tree does not have are closed; None: they are an error.

    Raises:
        ValueError: an account would vanish.
    """
    edits: list[ChildrenSet] = []
    _differ(edits, before, after, "", closing)
    return edits


def _differ(edits: list[ChildrenSet], before: Budgets, after: Budgets, parent: str, closing: str | None) -> None:
    now = applied(before, edits)
    present, wanted = now.children_of(parent) or (), after.children_of(parent) or ()
    names = [child.name for child in wanted]
    leaving = [child for child in present if child.name not in names]
    heirs = {old for child in wanted for old in child.formerly}
    lost = [child for child in leaving if child_path(parent, child.name) not in heirs]
    there = {child.name for child in present}
    children = [replace(child, children=()) if _goes_on(child, parent, there, leaving) else child for child in wanted]
    if closing is not None:
        children += [replace(shut(child, child.closed or closing), children=()) for child in lost]
    if tuple(children) != bare(present):
        edits.append(ChildrenSet(AccountPath(parent), tuple(children)))
        applied(before, edits)
    for child in children:
        if _goes_on(child, parent, there, leaving) and (child.name in names):
            _differ(edits, before, after, child_path(parent, child.name), closing)


def _goes_on(child: Budget, parent: str, there: set[str], leaving: Sequence[Budget]) -> bool:
    """Whether it has a predecessor, and so keeps the children it has."""
    return child.name in there or any(child_path(parent, other.name) in child.formerly for other in leaving)


# --- what changed, for people ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class TermChange:
    """One term of one account before and after; `term` is ``account`` where the account itself is new or moved.

    A share of one pool is a term of its own, ``pool_shares.h100``; None = it names none, and has what siblings leave.
    """

    path: AccountPath
    term: str
    before: object
    after: object


def term_word(term: str) -> str:
    """A term as people read it: ``share of pool h100``."""
    return f"share of pool {term.removeprefix(OF_POOL)}" if term.startswith(OF_POOL) else WORDS.get(term, term)


def term_changes(before: Budgets, after: Budgets) -> list[TermChange]:
    """What differs between two trees, in the order of the later one; accounts that are gone come last."""
    old = {path: budget for path, budget, _ in before.walk()}
    came_from = _predecessors(old, after)
    changes: list[TermChange] = []
    taken: list[str] = []
    for path, budget, _ in after.walk():
        source = came_from.get(path)
        taken += [source] if source else []
        if source != path:
            changes.append(TermChange(path, "account", source, path))
        changes += _terms(path, old.get(AccountPath(source)) if source else None, budget)
    heirs = after.heirs()
    for path in old:
        if path not in taken:
            changes.append(TermChange(path, "account", path, heirs.get(path)))
    return changes


def _predecessors(old: Mapping[AccountPath, Budget], after: Budgets) -> dict[AccountPath, AccountPath]:
    """Path -> path before, for each account that was there: itself, else the first whose heir it is."""
    found = {path: path for path, _, _ in after.walk() if path in old}
    for before, path in after.heirs().items():
        if before in old and path not in found:
            found[path] = before
    return found


def _terms(path: AccountPath, before: Budget | None, after: Budget) -> list[TermChange]:
    source = before or Budget(after.name, 0)
    changes: list[TermChange] = []
    for term in TERMS:
        if term == "pool_shares":
            changes += _pool_terms(path, source, after)
        elif term != "formerly" and getattr(source, term) != getattr(after, term):
            changes.append(TermChange(path, term, getattr(source, term) if before else None, getattr(after, term)))
    return changes


def _pool_terms(path: AccountPath, before: Budget, after: Budget) -> list[TermChange]:
    old, new = dict(before.pool_shares), dict(after.pool_shares)
    return [
        TermChange(path, f"{OF_POOL}{pool}", old.get(pool), new.get(pool))
        for pool in sorted({**old, **new})
        if old.get(pool) != new.get(pool)
    ]
