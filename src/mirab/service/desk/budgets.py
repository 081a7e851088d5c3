"""Budgets: the whole tree as it is to be, against the version that its author saw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from mirab.core.state import State
from mirab.logs.budgetfile import budgets_from
from mirab.logs.errors import LogError
from mirab.logs.yamltree import Entry as Part
from mirab.logs.yamltree import parse_yaml
from mirab.model.accounts import REST, TEXTS, Budget, Budgets, child_path, parent_of
from mirab.model.changesets import applied
from mirab.model.codec import encode
from mirab.model.events import BudgetsChanged
from mirab.model.resources import Cluster
from mirab.model.units import AccountPath, Instant
from mirab.service.auth.principal import Principal
from mirab.service.desk.changesets import Changesets, day
from mirab.service.desk.errors import DeskError, conflict, denied, invalid
from mirab.service.desk.forms import check_word
from mirab.service.desk.office import BRIEF, Office, audited
from mirab.service.inbox import Entry
from mirab.study.budgetedits import OF_POOL, TermChange, difference, term_changes, term_word
from mirab.study.budgethistory import BudgetConflictError, Draft, History, recorded
from mirab.study.budgettext import tree_json, value_text

ANY_VERSION = "*"
LARGEST = 256 << 10
"""Characters of YAML text."""
DEEPEST = 100
PLACE = Path("budgets")
LONGEST_NAME = 128
SHOWN = 5
"""So many changes of others are told one by one."""


@dataclass(frozen=True, slots=True)
class BudgetsNow:
    """The tree in force, its version, and who changed it last ("" = nobody since the ledger began).

    `pools`: names of the cluster's pools, each of which may have shares of its own.
    """

    budgets: Budgets
    version: str
    changed_at: Instant | None = None
    changed_by: str = ""
    why: str = ""
    pools: tuple[str, ...] = ()

    @property
    def tree(self) -> dict[str, Any]:
        """As in the cluster file: name -> share, children and the rest that differs from the default."""
        return tree_json(self.budgets)


def version_of(budgets: Budgets) -> str:
    """Changes with every change of the tree."""
    text = json.dumps(encode(budgets), separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()[:16]


class BudgetCommands:
    """For managers, below their own account, and admins."""

    def __init__(self, office: Office, changesets: Changesets) -> None:
        self._office = office
        self._changesets = changesets

    def now(self) -> BudgetsNow:
        """What is in force, and who decided it."""
        with self._office.live.reading() as state:
            budgets, history, now = state.budgets, self._changesets.history, state.now
            pools = state.cluster.pool_names
        made = [each for each in history.active() if each.effective_at <= now]
        if len(made) < 2:
            return BudgetsNow(budgets, version_of(budgets), pools=pools)
        last = made[-1]
        return BudgetsNow(budgets, version_of(budgets), last.effective_at, last.author, last.reason, pools)

    def set(self, who: Principal, budgets: Any, base_version: str, why: str) -> BudgetsNow:
        """Replace the tree. Accounts that it leaves out are closed: what they used stays accounted for.

        Args:
            budgets: name -> budget as in the cluster file, or its YAML text.
            base_version: the version that the author saw; ``*`` = whatever is in force.

        Raises:
            DeskError: no reason, no tree, shares of more than 100 % (named), a share of a pool that is none, another
                version in force, or a change of what is not below an account of theirs.
        """
        check_word("why", why, BRIEF)
        if not why.strip():
            raise invalid("say why the budgets change: it stands in the log beside your name")
        wanted = read_budgets(budgets)

        def build(state: State, now: Instant) -> Entry:
            history = self._changesets.history
            _check_version(state.budgets, base_version, history)
            after = successor(state.budgets, wanted, now)
            changes = term_changes(state.budgets, after)
            check_rights(who, changes)
            check_past(who, state.budgets, after)
            check_pools(state.budgets, after, state.cluster)
            if not changes:
                return Entry()
            edits = tuple(difference(state.budgets, after))
            kept = self._changesets.keep(after_draft(history, Draft(who.user, why, history.head, edits), now))
            before = version_of(state.budgets)
            entry = audited(who, now, "budget.set", "budgets", before, f"{version_of(after)}: {told(changes)}", why)
            return Entry((BudgetsChanged(now, after, who.user, why),), (entry, kept))

        self._office.live.send(build)
        return self.now()


def after_draft(history: History, draft: Draft, now: Instant) -> History:
    """The history with one more changeset; what it contradicts as a refusal."""
    try:
        return recorded(history, draft, now)
    except BudgetConflictError as error:
        other = error.other
        extra = {} if other is None else {"by": other.author, "changeset": other.version}
        raise conflict(str(error), version=history.head, **extra) from None
    except ValueError as error:
        raise invalid(str(error)) from None


def read_budgets(given: Any) -> Budgets:
    """A tree from YAML text or from JSON values, with or without a ``budgets:`` above it."""
    if isinstance(given, str) and len(given) > LARGEST:
        raise invalid(f"the budgets have more than {LARGEST >> 10} KiB of YAML: send a tree of that size as JSON")
    try:
        entry = parse_yaml(given.encode(), PLACE) if isinstance(given, str) else _entry(given, 0)
        table = entry.table("budgets")
        inner = table.get("budgets")
        if len(table) == 1 and inner is not None and "share" not in inner.table("budgets"):
            entry = inner
        return checked(budgets_from(entry))
    except LogError as error:
        place = f"line {error.line}: " if isinstance(given, str) and error.line else ""
        raise invalid(f"{place}{error.what}" + (f": {error.remedy}" if error.remedy else "")) from None
    except (ValueError, RecursionError) as error:
        raise invalid(f"these are no budgets: {error}") from None


def _entry(value: Any, depth: int) -> Part:
    """JSON values as the tree that the reader of files knows."""
    if depth > DEEPEST:
        raise invalid(f"the budgets are nested more than {DEEPEST} deep: flatten them")
    if isinstance(value, dict):
        return Part(PLACE, 0, {str(name): _entry(item, depth + 1) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return Part(PLACE, 0, [_entry(item, depth + 1) for item in value])
    if isinstance(value, bool):
        return Part(PLACE, 0, "yes" if value else "no")
    return Part(PLACE, 0, "" if value is None else str(value))


def checked(budgets: Budgets) -> Budgets:
    """The same tree, if its words can be shown and its names mean nothing else."""
    for path, budget, _ in budgets.walk():
        check_word("the name of an account", budget.name, LONGEST_NAME)
        if budget.name == REST or budget.name != budget.name.strip():
            raise invalid(f"{path!r} cannot be an account: '*' is what children leave, and spaces at the ends mislead")
        for word in TEXTS:
            check_word(f"{word} of {path}", getattr(budget, word), BRIEF)
    return budgets


def successor(before: Budgets, wanted: Budgets, now: Instant) -> Budgets:
    """The tree that follows: as wanted, with accounts that are left out closed, and what only the ledger knows kept."""
    wanted = Budgets(tuple(_carried("", budget, before) for budget in wanted.roots))
    try:
        return applied(before, difference(before, wanted, closing=day(now)))
    except ValueError as error:
        raise invalid(str(error)) from None


def _carried(parent: str, budget: Budget, before: Budgets) -> Budget:
    """What a form does not ask for stays: past names, the outcome of the last review, since when it is closed."""
    path = child_path(parent, budget.name)
    old = before.find(path)
    children = tuple(_carried(path, child, before) for child in budget.children)
    if old is None:
        return replace(budget, children=children)
    return replace(
        budget,
        children=children,
        formerly=budget.formerly or old.formerly,
        outcome=budget.outcome or old.outcome,
        closed=budget.closed or ("" if budget.share or any(dict(budget.pool_shares).values()) else old.closed),
    )


def _check_version(present: Budgets, base_version: str, history: History) -> None:
    version = version_of(present)
    if base_version not in (ANY_VERSION, version):
        raise DeskError(
            "precondition",
            f"the budgets have changed since you read them (they are at version {version}, you saw "
            f"{base_version[:40] or 'none'}){_since(history, base_version)}: read them again, then make your change "
            "to those",
            version=version,
        )


def _since(history: History, base_version: str) -> str:
    """Who has changed what since a version; "" where the history does not know that version."""
    steps = history.steps()
    place = next((at for at, step in reversed(list(enumerate(steps))) if version_of(step[2]) == base_version), None)
    if place is None:
        return ""
    made = steps[place + 1 :][-SHOWN:]
    return "; since then " + "; ".join(
        f"{each.author} changed {told(term_changes(before, after))} ({each.reason})" for each, before, after in made
    )


def check_rights(who: Principal, changes: Sequence[TermChange]) -> None:
    """The division of an account is its managers' affair: each changed account's parent is asked for."""
    for path in dict.fromkeys(path for change in changes for path in _touched(change)):
        parent = parent_of(path)
        if not who.may("budget.set", parent):
            below = f"the division of {parent}" if parent else "the accounts at the top"
            raise denied(
                f"{who.user} may not change {path}: {below} is for its managers and admins", path=path, parent=parent
            )


def check_pools(before: Budgets, after: Budgets, cluster: Cluster) -> None:
    """Every pool that is named anew is one of the cluster; what was named before it lost the pool stands in no way."""
    wrong = after.share_without_pool(cluster.pool_names, before.pools_named())
    if wrong is not None:
        raise invalid(wrong.told())


def check_past(who: Principal, before: Budgets, after: Budgets) -> None:
    """Who goes on for an account gets its work and its people's rights: that is for who divides what has them now."""
    known = before.heirs()
    for old, heir in after.heirs(known).items():
        holder = known.get(old, old)
        if heir != holder and not who.may("budget.set", parent_of(holder)):
            raise denied(f"{who.user} may not let {heir} go on for {old}: what {holder} has is for who divides "
                         f"{parent_of(holder) or 'the top'}", path=heir, parent=parent_of(holder))  # fmt: skip


def _touched(change: TermChange) -> Iterator[AccountPath]:
    yield change.path
    if change.term == "account":
        for value in (change.before, change.after):
            if isinstance(value, str):
                yield AccountPath(value)


def told(changes: Sequence[TermChange]) -> str:
    """What changed, in one line: ``vision/video share 30% -> 40%``."""
    line = "; ".join(_one(change) for change in changes)
    return line if len(line) <= BRIEF else f"{line[:BRIEF]} ... ({len(changes)} changes)"


def _one(change: TermChange) -> str:
    if change.term == "account":
        if change.before is None:
            return f"{change.path} is new"
        return f"{change.path} is gone" if change.after is None else f"{change.before} is now {change.after}"
    term = term_word(change.term) if change.term.startswith(OF_POOL) else change.term
    return f"{change.path} {term} {_value(change.term, change.before)} -> {_value(change.term, change.after)}"


def _value(term: str, value: object) -> str:
    if value is None or value == "":
        return "none"
    return str(value) if isinstance(value, bool) else value_text(term, value)
