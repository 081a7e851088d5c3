"""The history of a live service's budgets: every change a changeset, those to come kept until they are due.

A changeset is recorded in the same transaction as the fact that puts it in force, as one line of the audit log whose
`after` is the changeset itself. So the history is what the journal says, whatever instant the service is killed at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from mirab.control.recover import FILE
from mirab.core.state import State
from mirab.model.accounts import Budgets
from mirab.model.changesets import NOTHING, Changeset, applied
from mirab.model.codec import decode, encode
from mirab.model.events import BudgetsChanged, Event
from mirab.model.records import AuditEntry, Write
from mirab.model.units import SECOND, Instant
from mirab.service.paging import PAGE, every
from mirab.store.beginning import beginning
from mirab.study.budgetedits import difference
from mirab.study.budgethistory import History

if TYPE_CHECKING:
    from mirab.service.live import Live

KEPT = "budget.changeset"
"""Action of the audit lines that hold changesets."""
MIRAB = "mirab"

log = structlog.get_logger("mirab.budgets")


class Changesets:
    """The history, changed only in the decider's thread. Source and timer of the loop.

    `history` is replaced, never changed: read it while the state is held, and keep it as long as you like.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self.history = History()
        self._settled: Instant = 0
        self._next: tuple[History, Instant | None] | None = None
        self._restated: Budgets | None = None
        self._unwritten: list[Write] = []

    def load(self, state: State) -> None:
        """The history as it was recorded; what came into force by other ways is taken in."""
        self._settled = state.now
        first = _first(self._live)
        kept = sorted(self._kept(), key=lambda each: each.version)
        self.history = History((first, *kept))
        if not kept:
            self._read_journal(state)
        self._take_in(state.budgets, state.now, FILE, "as the ledger has it")
        lines = self._taken_out()
        if lines:
            self._live.store.write(lines)

    def _kept(self) -> Iterator[Changeset]:
        for entry in every(lambda cursor: self._live.store.audit(action=KEPT, limit=PAGE, after=cursor)):
            yield decode(json.loads(entry.after))

    def _read_journal(self, state: State) -> None:
        """A ledger from before there were changesets: each change of budgets is one."""
        if state.budgets == self.history.at(state.now):
            return
        for _, facts, _ in self._live.store.records():
            for fact in facts:
                if isinstance(fact, BudgetsChanged):
                    self._take_in(fact.budgets, fact.at, fact.author, fact.reason)

    # --- in the decider's thread --------------------------------------------------------------------------------------
    def keep(self, history: History) -> AuditEntry:
        """Take in a history with one more changeset; the line that keeps it. To be recorded with this cycle."""
        self.history = history
        return _line(history.changesets[-1])

    def __call__(self, state: State, now: Instant) -> Iterator[Event]:
        """What is due, and what a changed file of the settings has to be told in the form of changesets."""
        due = self._due(now)
        budgets = state.budgets
        for each in due:
            try:
                after = applied(budgets, each.edits)
            except ValueError as error:
                log.error("budgets.due_failed", version=each.version, author=each.author, error=str(error))
                continue
            if after != budgets:
                yield BudgetsChanged(now, after, each.author, each.reason)
                budgets = after
        if due:
            return
        for fact in self._live.news:
            if isinstance(fact, BudgetsChanged) and state.budgets != self.history.at(now):
                self._take_in(state.budgets, now, fact.author, fact.reason)
        self._live.writes += self._taken_out()
        if self._restated is not None:
            tree, self._restated = self._restated, None
            if tree != state.budgets:
                yield BudgetsChanged(now, tree, FILE, "accounts that the file leaves out are closed, not forgotten")

    def _due(self, now: Instant) -> list[Changeset]:
        """What takes effect between the last time and now, in that order."""
        begin = self.timer()
        if begin is None or now < begin:
            return []
        due = [each for each in self._coming() if each.effective_at <= now]
        self._settled, self._next = now, None
        return due

    def _coming(self) -> list[Changeset]:
        return [each for each in self.history.planned(self._settled) if _planned(each)]

    def timer(self) -> Instant | None:
        """When the next changeset is due; asked after each cycle, so worked out only when the history has changed."""
        if self._next is None or self._next[0] is not self.history:
            self._next = self.history, min((each.effective_at for each in self._coming()), default=None)
        return self._next[1]

    # --- what came in by another way ----------------------------------------------------------------------------------
    def _take_in(self, budgets: Budgets, now: Instant, author: str, reason: str) -> None:
        """One more changeset for a tree that is in force and that the history does not have."""
        before = self.history.at(now)
        edits = tuple(difference(before, budgets, day(now)))
        if not edits:
            return
        now = self.history.later(now)
        head = self.history.head
        made = Changeset(head + 1, head, author or FILE, reason or "no reason was given", now, now, edits)
        self._add(made)
        self._cancel_impossible(now)
        tree = self.history.at(now)
        self._restated = tree if tree != budgets else None

    def _add(self, made: Changeset) -> None:
        self.history = History((*self.history.changesets, made))
        self._unwritten.append(_line(made))

    def _cancel_impossible(self, now: Instant) -> None:
        """Plans that could not take effect any more are cancelled, the latest first."""
        for planned in reversed(self.history.planned(now)):
            wrong = _impossible(self.history)
            if not wrong:
                return
            head = self.history.head
            why = f"it could not take effect after the cluster file had changed the budgets: {wrong}"
            self._add(Changeset(head + 1, head, MIRAB, why, now, planned.effective_at, (), planned.version))

    def _taken_out(self) -> list[Write]:
        """The lines of what was taken in, for whoever writes them now."""
        lines, self._unwritten = self._unwritten, []
        return lines


def _impossible(history: History) -> str:
    try:
        history.steps()
    except ValueError as error:
        return str(error)
    return ""


def _planned(each: Changeset) -> bool:
    """Whether it was recorded before it was to hold."""
    return each.effective_at > each.recorded_at


def _line(made: Changeset) -> AuditEntry:
    text = json.dumps(encode(made), separators=(",", ":"), ensure_ascii=False)
    return AuditEntry(made.recorded_at, made.author, "", KEPT, f"budgets version {made.version}", "", text, made.reason)


def _first(live: Live) -> Changeset:
    """What the ledger began with, as its first version."""
    began = beginning(live.store.meta)
    assert began is not None, "recovery puts it down before anything else"
    edits = tuple(difference(NOTHING, began.budgets))
    return Changeset(1, 0, FILE, "as the ledger began", began.at, began.at, edits)


def day(now: Instant) -> str:
    """The date, UTC."""
    return datetime.fromtimestamp(now / SECOND, UTC).date().isoformat()
