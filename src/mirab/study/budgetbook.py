"""A file of budgets with its history: opened, changed by one changeset at a time, and written back.

The history is the truth, and what the file says of budgets follows from it: the tree in force when the last changeset
was recorded, and the trees to come under ``budget_changes``. A file edited by hand is told, not overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mirab.logs.budgetedit import PlannedTree, date_text, edited, planned_trees
from mirab.logs.budgetfile import BudgetChange, budget_changes_from, budgets_from, check_pools
from mirab.logs.budgethistory import append_changesets, history_path, locked, read_changesets, replace_text
from mirab.logs.errors import LogError
from mirab.logs.moments import Calendar
from mirab.logs.yamltree import Entry, parse_yaml, unreadable
from mirab.model.accounts import Budgets
from mirab.model.changesets import NOTHING, Changeset, UnixMs
from mirab.study.budgetedits import difference, term_changes
from mirab.study.budgethistory import BudgetConflictError, Draft, History, recorded

FOUND = "as found in the file"


@dataclass(frozen=True, slots=True)
class Book:
    """A file of budgets as it stands.

    Attributes:
        text: of the file; `budgets` and `planned`: what it says.
        history: what has been recorded; one that has none yet is given what the file says when it is first changed.
        pools: names of the cluster's pools; None = the file says nothing of its cluster.
    """

    path: Path
    text: str
    budgets: Budgets
    planned: tuple[PlannedTree, ...]
    history: History
    pools: tuple[str, ...] | None = None

    def at(self, now: UnixMs) -> Budgets:
        """The tree in force at an instant."""
        if self.history.head:
            return self.history.at(now)
        due = [each.budgets for each in self.planned if each.at <= now]
        return due[-1] if due else self.budgets

    @property
    def by_hand(self) -> bool:
        """Whether somebody has edited the budgets in the file since the last changeset."""
        return bool(self.history.head) and not _says(self, self.history)


def open_book(path: Path, calendar: Calendar | None = None) -> Book:
    """Read a file of budgets and its history.

    Raises:
        LogError: with file and line: it cannot be read, has no budgets, or has a share of a pool that its cluster has
            not. Such a share that stands in its history is passed over: the cluster has lost the pool since.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    top = parse_yaml(raw, path).table("the file")
    if "budgets" not in top:
        raise LogError("has no budgets", path, remedy="write a section budgets: with accounts and their shares")
    budgets = budgets_from(top["budgets"])
    changes = budget_changes_from(top.get("budget_changes"), calendar or Calendar())
    planned = sorted(map(_planned, changes), key=lambda each: each.at)
    history = History(read_changesets(history_path(path)))
    pools = _pools(top.get("cluster"))
    if pools is not None:
        known = _pools_recorded(history)
        check_pools(top["budgets"], budgets, pools, known)
        for change in changes:
            check_pools(change.section, change.budgets, pools, known)
    return Book(path, raw.decode("utf-8-sig"), budgets, tuple(planned), history, pools)


def _pools(cluster: Entry | None) -> tuple[str, ...] | None:
    found = None if cluster is None else cluster.table("cluster").get("pools")
    return None if found is None else tuple(found.table("pools"))


def _pools_recorded(history: History) -> list[str]:
    """The pools that are named by what a history says now, and of the time to come."""
    budgets, planned = view(history)
    return [pool for tree in (budgets, *(each.budgets for each in planned)) for pool in tree.pools_named()]


def _planned(change: BudgetChange) -> PlannedTree:
    if change.moment.unix_ms is None:
        raise change.entry.error("at: a history of decisions has dates", "write a date such as 2027-03-01")
    return PlannedTree(change.moment.unix_ms, change.budgets, change.author, change.reason)


def view(history: History) -> tuple[Budgets, tuple[PlannedTree, ...]]:
    """What a file says of a history: the tree of the last recording, and those to come after it."""
    at = history.changesets[-1].recorded_at if history.head else 0
    planned: dict[UnixMs, PlannedTree] = {}
    for each in history.planned(at):
        tree = history.at(each.effective_at)
        planned[each.effective_at] = PlannedTree(each.effective_at, tree, each.author, each.reason)
    return history.at(at), tuple(planned.values())


def _says(book: Book, history: History) -> bool:
    """Whether the file says what follows from the history, whoever it names as authors."""
    budgets, planned = view(history)
    return book.budgets == budgets and planned_trees(book.planned) == planned_trees(planned)


# --- changing ---------------------------------------------------------------------------------------------------------
Clock = Callable[[], UnixMs]
"""Tells what time it is: asked when it is this changeset's turn, not before."""


def change(
    path: Path, make: Callable[[Book, UnixMs], Draft], author: str, clock: Clock, calendar: Calendar
) -> Changeset:
    """Record one changeset, and write the file anew.

    `make` is told the book as it stands and the present instant, and says what is to change.

    Raises:
        BudgetConflictError: it contradicts another changeset, or the file was edited by hand since.
        ValueError: see `recorded`, or a share of a pool that the file's cluster has not; LogError: see `open_book`.
        OSError: a file cannot be written.
    """
    with locked(path):
        book = _repaired(open_book(path, calendar))
        if book.by_hand:
            raise BudgetConflictError(hand_edited(book))
        now = book.history.later(clock())
        book = begun(book, author, now)
        made = recorded(book.history, make(book, now), now)
        _check_pools(book, made)
        return _keep(book, made)


def _check_pools(book: Book, history: History) -> None:
    if book.pools is not None:
        tree = history.at(history.changesets[-1].effective_at)
        wrong = tree.share_without_pool(book.pools, _pools_recorded(book.history))
        if wrong is not None:
            raise ValueError(wrong.told())


def take_in(path: Path, author: str, reason: str, clock: Clock, calendar: Calendar) -> Changeset:
    """Record what somebody has edited in the file by hand, as one changeset that holds at once.

    Raises:
        ValueError: nothing was edited, or an account would vanish; OSError: a file cannot be written.
    """
    with locked(path):
        book = _repaired(open_book(path, calendar))
        now = book.history.later(clock())
        if not book.history.head:
            first = begun(book, author, now, reason)
            return _keep(first, first.history)
        if planned_trees(book.planned) != planned_trees(view(book.history)[1]):
            raise BudgetConflictError(f"{path}: budget_changes were edited by hand: plan changes with set --from")
        edits = tuple(difference(book.history.at(now), book.budgets))
        if not edits:
            raise ValueError(f"{path} says what version {book.history.head} says: there is nothing to take in")
        made = recorded(book.history, Draft(author, reason, book.history.head, edits), now)
        _check_pools(book, made)
        return _keep(book, made)


def begun(book: Book, author: str, now: UnixMs, reason: str = FOUND) -> Book:
    """The book with what its file says as the first version, and later ones for its changes to come."""
    if book.history.head:
        return book
    history = recorded(History(), Draft(author, reason, 0, tuple(difference(NOTHING, book.budgets))), now)
    for each in book.planned:
        at = max(each.at, now)
        edits = tuple(difference(history.at(at), each.budgets, date_text(at)[:10]))
        if edits:
            draft = Draft(each.author or author, each.reason or FOUND, history.head, edits, at)
            history = recorded(history, draft, now)
    return replace(book, history=history)


def _keep(book: Book, history: History) -> Changeset:
    """History first: if the machine fails before the file is written, the next command writes it."""
    budgets, planned = view(history)
    text = edited(book.text, book.path, budgets, planned)
    known = len(read_changesets(history_path(book.path)))
    append_changesets(history_path(book.path), history.changesets[known:])
    replace_text(book.path, text)
    return history.changesets[-1]


def _repaired(book: Book) -> Book:
    """If the last command was stopped between history and file, finish it."""
    before = History(book.history.changesets[:-1])
    if not book.by_hand or not before.head or not _says(book, before):
        return book
    budgets, planned = view(book.history)
    text = edited(book.text, book.path, budgets, planned)
    replace_text(book.path, text)
    return replace(book, text=text, budgets=budgets, planned=planned)


def hand_edited(book: Book) -> str:
    """The sentence for a file that somebody has edited since the last changeset."""
    changes = term_changes(view(book.history)[0], book.budgets)
    told = ", ".join(f"{each.path} {each.term}" for each in changes[:5]) or "the changes to come"
    more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
    return (
        f"{book.path} was edited by hand since version {book.history.head} ({told}{more}): record it with "
        "`mirab budget set FILE --as-edited`, or take your edit back"
    )
