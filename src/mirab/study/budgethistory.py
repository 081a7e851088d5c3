"""The history of a tree of budgets: who decided what, when, on what they saw; and what is in force at an instant.

Nothing here is ever overwritten: a changeset that contradicts one its author has not seen is told, not applied. Files
and services keep the changesets and call these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirab.model.accounts import Budget, Budgets, child_path
from mirab.model.changesets import NOTHING, Changeset, ChildrenSet, UnixMs, applied
from mirab.model.units import AccountPath
from mirab.study.budgetedits import TermChange, bare, shut, term_changes


class BudgetConflictError(ValueError):
    """The changeset contradicts another. `other`: that one; None = something else is in the way."""

    def __init__(self, what: str, other: Changeset | None = None) -> None:
        super().__init__(what)
        self.other = other


@dataclass(frozen=True, slots=True)
class Draft:
    """A changeset that has not been recorded; see `Changeset`. `effective_at` None = at once."""

    author: str
    reason: str
    based_on: int
    edits: tuple[ChildrenSet, ...]
    effective_at: UnixMs | None = None
    reverts: int = 0
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """All changesets of a tree, in the order of their versions."""

    changesets: tuple[Changeset, ...] = ()

    @property
    def head(self) -> int:
        """The latest version; 0 = nothing has been recorded."""
        return len(self.changesets)

    def version(self, number: int) -> Changeset:
        """Raises ValueError where there is no such version."""
        if not 1 <= number <= self.head:
            raise ValueError(f"there is no version {number}: the latest is {self.head}")
        return self.changesets[number - 1]

    def later(self, now: UnixMs) -> UnixMs:
        """The instant, or that of the last recording if a clock was set back: versions are in order of time."""
        return max(now, self.changesets[-1].recorded_at) if self.changesets else now

    def active(self) -> list[Changeset]:
        """The changesets that hold or will hold, in the order in which they take effect."""
        gone = set(self.cancelled())
        kept = [each for each in self.changesets if each.version not in gone]
        return sorted(kept, key=lambda each: (each.effective_at, each.version))

    def cancelled(self) -> list[int]:
        """Versions that were taken back before they took effect, and those that took them back."""
        pairs = [(each, self.changesets[each.reverts - 1]) for each in self.changesets if each.reverts]
        return [one.version for later, earlier in pairs if is_cancellation(later, earlier) for one in (later, earlier)]

    def at(self, now: UnixMs) -> Budgets:
        """The tree in force at an instant."""
        return _folded([each for each in self.active() if each.effective_at <= now])

    def planned(self, now: UnixMs) -> list[Changeset]:
        """What takes effect later, in that order."""
        return [each for each in self.active() if each.effective_at > now]

    def steps(self) -> list[tuple[Changeset, Budgets, Budgets]]:
        """Each active changeset with the tree before and after it, in the order in which they take effect."""
        steps = []
        before = NOTHING
        for each in self.active():
            after = applied(before, each.edits)
            steps.append((each, before, after))
            before = after
        return steps


def is_cancellation(later: Changeset, earlier: Changeset) -> bool:
    return later.reverts == earlier.version and later.recorded_at < earlier.effective_at


def _folded(changesets: Sequence[Changeset]) -> Budgets:
    budgets = NOTHING
    for each in changesets:
        budgets = applied(budgets, each.edits)
    return budgets


# --- recording ------------------------------------------------------------------------------------------------------
def recorded(history: History, draft: Draft, now: UnixMs) -> History:
    """The history with one more changeset.

    Raises:
        BudgetConflictError: it contradicts a changeset that its author has not seen, or one that is planned.
        ValueError: it has no author or reason, changes nothing, would rewrite the past, or makes no tree.
    """
    now = history.later(now)
    _check_draft(history, draft, now)
    made = Changeset(
        version=history.head + 1,
        based_on=draft.based_on,
        author=draft.author.strip(),
        reason=draft.reason.strip(),
        recorded_at=now,
        effective_at=now if draft.effective_at is None else draft.effective_at,
        edits=draft.edits,
        reverts=draft.reverts,
        evidence=draft.evidence,
    )
    if not (made.reverts and is_cancellation(made, history.version(made.reverts))):
        _check_seen(history, made)
        _check_planned(history, made)
    after = History((*history.changesets, made))
    _check_fold(after, made)
    return after


def _check_draft(history: History, draft: Draft, now: UnixMs) -> None:
    for name, value in (("author", draft.author), ("reason", draft.reason)):
        if not value.strip():
            raise ValueError(f"a change of budgets needs the {name}: say who decides, and why")
    if not 0 <= draft.based_on <= history.head:
        raise ValueError(f"there is no version {draft.based_on} to base it on: the latest is {history.head}")
    if draft.effective_at is not None and draft.effective_at < now:
        raise ValueError("it would hold from an instant in the past: what was delivered is not rewritten")
    if not draft.edits and not draft.reverts:
        raise ValueError("it changes nothing")


def _check_seen(history: History, made: Changeset) -> None:
    """Whoever changes the children of an account must have seen the last change of them."""
    for other in history.changesets[made.based_on :]:
        both = _common(made, other)
        if both:
            raise BudgetConflictError(
                f"version {other.version} of {other.author} has changed {_under(both[0])} since version "
                f"{made.based_on}, which yours is based on ({other.reason}): look at it, then change the present tree",
                other,
            )


def _check_planned(history: History, made: Changeset) -> None:
    """A change that takes effect later names all children again: one before it would be undone in silence."""
    for other in history.planned(made.effective_at):
        both = _common(made, other)
        if both:
            raise BudgetConflictError(
                f"version {other.version} of {other.author} is to change {_under(both[0])} later and would undo this: "
                "revert it first, or let yours take effect after it",
                other,
            )


def _common(one: Changeset, other: Changeset) -> list[AccountPath]:
    theirs = {edit.parent for edit in other.edits}
    return [edit.parent for edit in one.edits if edit.parent in theirs]


def _under(parent: AccountPath) -> str:
    return f"what lies under {parent}" if parent else "the top accounts"


def _check_fold(after: History, made: Changeset) -> None:
    """Every tree that will ever be in force can be made."""
    before = NOTHING
    for each in after.active():
        try:
            before = applied(before, each.edits)
        except ValueError as error:
            if each.version == made.version:
                raise
            raise BudgetConflictError(
                f"version {each.version} of {each.author} is planned and could not take effect any more ({error}): "
                "revert it first",
                each,
            ) from error


# --- taking back ----------------------------------------------------------------------------------------------------
def reverting(history: History, number: int, now: UnixMs, date: str) -> tuple[ChildrenSet, ...]:
    """The edits that take a version back; none where it was not in effect yet and is only cancelled.

    Accounts that it made are closed (on the day `date`), not deleted.

    Raises:
        BudgetConflictError: the same accounts were changed again since.
        ValueError: no such version, or it was taken back already.
    """
    target = history.version(number)
    back = next((each for each in history.changesets if each.reverts == number), None)
    if back is not None:
        raise ValueError(f"version {number} was taken back already, by version {back.version}")
    if number in history.cancelled():
        raise ValueError(f"version {number} cancelled another and never held: there is nothing to take back")
    if target.effective_at > now:
        return ()
    steps = {step[0].version: step for step in history.steps()}
    _, before, _ = steps[number]
    if before == NOTHING:
        raise ValueError(f"version {number} is the first: there is nothing before it to go back to")
    _check_last(history, target)
    current = history.at(now)
    return tuple(_restored(edit, before, current, date) for edit in reversed(target.edits))


def _check_last(history: History, target: Changeset) -> None:
    order = history.active()
    for other in order[order.index(target) + 1 :]:
        both = _common(target, other)
        if both:
            raise BudgetConflictError(
                f"version {other.version} of {other.author} has changed {_under(both[0])} again since: revert that "
                "first, or set what you want",
                other,
            )


def _restored(edit: ChildrenSet, before: Budgets, current: Budgets, date: str) -> ChildrenSet:
    """The children of before; who has come since goes back into its predecessor, or is closed."""
    old = bare(before.children_of(edit.parent) or ())
    names = {child.name for child in old}
    paths = {child_path(edit.parent, child.name): child.name for child in old}
    since = [child for child in current.children_of(edit.parent) or () if child.name not in names]
    back: dict[str, tuple[str, ...]] = {}
    new: list[Budget] = []
    for child in since:
        source = next((paths[AccountPath(path)] for path in child.formerly if path in paths), None)
        if source is None:
            new.append(replace(shut(child, child.closed or date), children=()))
        else:
            back[source] = (*back.get(source, ()), child_path(edit.parent, child.name))
    restored = [replace(child, formerly=(*child.formerly, *back.get(child.name, ()))) for child in old]
    return ChildrenSet(edit.parent, (*restored, *new))


# --- looking back ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Logged:
    """A changeset and what it changed; `cancelled`: it never took effect."""

    changeset: Changeset
    changes: tuple[TermChange, ...]
    cancelled: bool = False


def logged(history: History) -> list[Logged]:
    """Every changeset with what it changes, by version."""
    made = {each.version: term_changes(before, after) for each, before, after in history.steps()}
    gone = history.cancelled()
    return [Logged(each, tuple(made.get(each.version, ())), each.version in gone) for each in history.changesets]


def blamed(history: History, now: UnixMs) -> dict[AccountPath, Changeset]:
    """Who decided last about each account that is there at an instant, by what took effect until then."""
    found: dict[AccountPath, Changeset] = {}
    for each, before, after in history.steps():
        if each.effective_at > now:
            break
        found = _blame(found, each, before, after)
    return found


def _blame(
    found: dict[AccountPath, Changeset], by: Changeset, before: Budgets, after: Budgets
) -> dict[AccountPath, Changeset]:
    changed = {change.path for change in term_changes(before, after)}
    heirs = {new: old for old, new in after.heirs().items() if old in found}
    blame: dict[AccountPath, Changeset] = {}
    for path, _, _ in after.walk():
        source = path if path in found else heirs.get(path, path)
        moved_only = path in changed and source != path and not _own_change(path, before, after, source)
        blame[path] = by if path in changed and not moved_only else found.get(source, by)
    return blame


def _own_change(path: AccountPath, before: Budgets, after: Budgets, source: AccountPath) -> bool:
    """Whether the account itself changed, and not only the name of one above it."""
    old, new = before.find(source), after.find(path)
    return old is None or new is None or replace(old, children=()) != replace(new, children=())
