"""Changesets as people propose them: children of accounts, from an instant on, on the version that was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.changesets import Changeset, ChildrenSet, applied
from mirab.model.events import BudgetsChanged
from mirab.model.units import AccountPath, Instant
from mirab.service.auth.principal import Principal
from mirab.service.desk.budgets import (
    after_draft,
    check_past,
    check_pools,
    check_rights,
    read_budgets,
    told,
    version_of,
)
from mirab.service.desk.changesets import Changesets, day
from mirab.service.desk.errors import conflict, denied, invalid
from mirab.service.desk.forms import check_word
from mirab.service.desk.office import BRIEF, Office, audited
from mirab.service.inbox import Entry
from mirab.study.budgetedits import term_changes
from mirab.study.budgethistory import BudgetConflictError, Draft, History, reverting


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changeset that somebody wants.

    Attributes:
        edits: account ("" = the top) -> all its children, as in the cluster file; a child that exists keeps its own.
        base: the version that its author saw; None = the latest, whatever it is.
        effective_at: from when on; None = at once.
        reverts: the version that it takes back, without edits of its own; 0 = none.
        evidence: what it was decided on.
    """

    edits: Mapping[str, Any]
    why: str
    base: int | None = None
    effective_at: Instant | None = None
    reverts: int = 0
    evidence: str = ""


class ChangesetCommands:
    """For managers, below their own account, and admins."""

    def __init__(self, office: Office, changesets: Changesets) -> None:
        self._office, self._changesets = office, changesets

    def history(self) -> tuple[History, Instant]:
        """Every decision, and the present instant."""
        with self._office.live.reading() as state:
            return self._changesets.history, max(state.now, self._office.live.now())

    def propose(self, who: Principal, wanted: Proposal) -> Changeset:
        """Record a changeset; it holds at once, or from the instant that it names.

        Raises:
            DeskError: ``conflict``: it contradicts one that its author has not seen, or one that is planned (whose it
                is, and what); ``invalid``: it makes no tree, changes nothing, has no reason, or lies in the past;
                ``denied``: it changes what is not below an account of theirs.
        """
        check_word("why", wanted.why, BRIEF)
        check_word("evidence", wanted.evidence, BRIEF)
        if bool(wanted.edits) == bool(wanted.reverts):
            raise invalid("a changeset either edits accounts or reverts a version: send edits, or reverts")
        edits = _read_edits(wanted.edits)
        made: list[Changeset] = []

        def build(state: State, now: Instant) -> Entry:
            history = self._changesets.history
            draft = _draft(history, who, wanted, edits, history.later(now))
            after = after_draft(history, draft, now)
            entry = self._entry(who, history, after, state, now)
            made.append(after.changesets[-1])
            return entry

        self._office.live.send(build)
        return made[-1]

    def _entry(self, who: Principal, history: History, after: History, state: State, now: Instant) -> Entry:
        """The facts and lines of a changeset, if they have the right to it."""
        made = after.changesets[-1]
        if made.reverts and not made.edits:
            return self._cancelled(who, history, after, now)
        before = history.at(made.effective_at)
        tree = _applied(before, made.edits)
        changes = term_changes(before, tree)
        if not changes:
            raise invalid("it changes nothing: the budgets are as you want them")
        check_rights(who, changes)
        check_past(who, before, tree)
        check_pools(before, tree, state.cluster)
        evidence = f" [on {made.evidence}]" if made.evidence else ""
        kept = self._changesets.keep(after)
        if made.effective_at > now:
            what = f"version {made.version} from {day(made.effective_at)}: {told(changes)}{evidence}"
            return Entry((), (audited(who, now, "budget.plan", "budgets", "", what, made.reason), kept))
        force = _applied(state.budgets, made.edits)
        what = f"{version_of(force)}: {told(changes)}{evidence}"
        line = audited(who, now, "budget.set", "budgets", version_of(state.budgets), what, made.reason)
        return Entry((BudgetsChanged(now, force, who.user, made.reason),), (line, kept))

    def _cancelled(self, who: Principal, history: History, after: History, now: Instant) -> Entry:
        made = after.changesets[-1]
        target = history.version(made.reverts)
        for edit in target.edits:
            if not who.may("budget.set", edit.parent):
                raise denied(
                    f"{who.user} may not cancel version {target.version}: it divides {edit.parent or 'the top'}"
                )
        what = f"version {target.version} of {target.author}, planned from {day(target.effective_at)}, is cancelled"
        kept = self._changesets.keep(after)
        return Entry((), (audited(who, now, "budget.cancel", "budgets", "", what, made.reason), kept))


def _draft(history: History, who: Principal, wanted: Proposal, edits: tuple[ChildrenSet, ...], now: Instant) -> Draft:
    base = history.head if wanted.base is None else wanted.base
    at = wanted.effective_at
    if wanted.reverts:
        try:
            edits = reverting(history, wanted.reverts, now, day(now))
            at = at if edits else history.version(wanted.reverts).effective_at
        except BudgetConflictError as error:
            raise conflict(str(error), version=history.head) from None
        except ValueError as error:
            raise invalid(str(error)) from None
    at = None if at is not None and at <= now and day(at) == day(now) else at
    return Draft(who.user, wanted.why, base, edits, at, wanted.reverts, wanted.evidence)


def _read_edits(given: Mapping[str, Any]) -> tuple[ChildrenSet, ...]:
    return tuple(ChildrenSet(AccountPath(parent), _children(parent, tree)) for parent, tree in given.items())


def _children(parent: str, tree: Any) -> tuple[Budget, ...]:
    """The children; those of an account that closes may all be gone, but not be nothing."""
    if not tree:
        raise invalid(f"{parent or 'the top'} has no children in it: close accounts, do not leave them out")
    return read_budgets(tree).roots


def _applied(budgets: Budgets, edits: Sequence[ChildrenSet]) -> Budgets:
    try:
        return applied(budgets, edits)
    except ValueError as error:
        raise invalid(str(error)) from None
