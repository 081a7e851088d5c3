"""Routes of the portfolio plane: decisions about budgets, exceptions, gates, the rollout."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter

from mirab.model.changesets import Changeset
from mirab.model.codec import encode
from mirab.service.api.needs import Service, needs
from mirab.service.api.parts import Parts
from mirab.service.api.told import iso
from mirab.service.auth.principal import Principal
from mirab.service.desk.budgets import version_of
from mirab.service.desk.changing import Proposal
from mirab.service.desk.portfolio import Portfolio
from mirab.service.portfolioforms import BudgetHistory, ChangesetKept, ChangesetMade, ChangesetWanted
from mirab.study.budgethistory import Logged, logged
from mirab.study.budgettext import change_json

router = APIRouter(prefix="/api/v1", tags=["portfolio"])


def _of(parts: Parts) -> Portfolio:
    found = getattr(parts.desk, "portfolio", None)
    assert isinstance(found, Portfolio)
    return found


def _unix_ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000)


# --- changesets -------------------------------------------------------------------------------------------------------
@router.get("/budgets/history", response_model=BudgetHistory)
def show_budget_history(who: Annotated[Principal, needs("budget.see")], parts: Service) -> BudgetHistory:
    """Every decision about budgets, those to come too: who, when, why, from when on, and what it changed."""
    history, now = _of(parts).budgets.history()
    return BudgetHistory(
        version=history.head,
        etag=version_of(history.at(now)),
        now=iso(now),
        changesets=[ChangesetKept(**_told(each), edits=encode(each.changeset)) for each in logged(history)],
    )


@router.post("/budgets/changes", status_code=201, response_model=ChangesetMade, responses={409: {}, 422: {}})
def change_some_budgets(
    who: Annotated[Principal, needs("budget.set")], parts: Service, wanted: ChangesetWanted
) -> ChangesetMade:
    """Decide about some accounts, at once or from an instant on. What contradicts another decision is told (409)."""
    budgets = _of(parts).budgets
    made = budgets.propose(who, _proposal(wanted))
    entry = next(each for each in logged(budgets.history()[0]) if each.changeset.version == made.version)
    return ChangesetMade(**_told(entry))


def _proposal(wanted: ChangesetWanted) -> Proposal:
    edits = {
        parent: {name: node.model_dump(mode="json", exclude_defaults=True) for name, node in children.items()}
        for parent, children in wanted.edits.items()
    }
    at = _unix_ms(wanted.effective_at)
    return Proposal(edits, wanted.why, wanted.base, at, wanted.reverts, wanted.evidence)


def _told(entry: Logged) -> dict[str, Any]:
    made: Changeset = entry.changeset
    return {
        "version": made.version,
        "based_on": made.based_on,
        "author": made.author,
        "reason": made.reason,
        "recorded_at": iso(made.recorded_at),
        "effective_at": iso(made.effective_at),
        "reverts": made.reverts or None,
        "cancelled": entry.cancelled,
        "evidence": made.evidence,
        "changes": [change_json(change) for change in entry.changes],
    }
