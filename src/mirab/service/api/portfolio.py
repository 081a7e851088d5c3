"""Routes of the portfolio plane: decisions about budgets, exceptions, gates, the rollout."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from mirab.model.accounts import plain
from mirab.model.changesets import Changeset
from mirab.model.codec import encode
from mirab.model.units import parse_duration, parse_share
from mirab.service.api.needs import Service, needs
from mirab.service.api.parts import Parts
from mirab.service.api.problems import ProblemError
from mirab.service.auth.principal import Principal
from mirab.service.desk.budgets import version_of
from mirab.service.desk.changing import Proposal
from mirab.service.desk.exceptions import Wish
from mirab.service.desk.portfolio import Portfolio
from mirab.service.fields import AccountText, DurationText
from mirab.service.forms.base import Why
from mirab.service.portfolioforms import (
    BudgetHistory,
    ChangesetKept,
    ChangesetMade,
    ChangesetWanted,
    ExceptionKept,
    Exceptions,
    ExceptionWanted,
    Rollout,
    RolloutLine,
    RolloutWanted,
)
from mirab.service.trials import NAME, Trials
from mirab.service.views.moments import iso
from mirab.service.views.windowed import ReportError
from mirab.study.budgethistory import Logged, logged
from mirab.study.budgettext import about, change_json

CaseId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_.-]+$", examples=["x7"])]

router = APIRouter(prefix="/api/v1", tags=["portfolio"])


def portfolio_of(parts: Parts) -> Portfolio:
    found = getattr(parts.desk, "portfolio", None)
    assert isinstance(found, Portfolio)
    return found


def _unix_ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000)


# --- changesets -------------------------------------------------------------------------------------------------------
@router.get("/budgets/history", response_model=BudgetHistory)
def show_budget_history(
    who: Annotated[Principal, needs("budget.see")],
    parts: Service,
    account: Annotated[AccountText, Query(description="Only what changed it, or what lies below it.")] = "",
    latest: Annotated[int | None, Query(ge=1, le=1_000, description="Only so many, the latest.")] = None,
) -> BudgetHistory:
    """Every decision about budgets, those to come too: who, when, why, from when on, and what it changed."""
    portfolio = portfolio_of(parts)
    history, now = portfolio.budgets.history()
    entries = about(logged(history), plain(account))
    return BudgetHistory(
        version=history.head,
        etag=version_of(history.at(now)),
        now=iso(now),
        changesets=[
            ChangesetKept(**_told(each, portfolio.trials), edits=encode(each.changeset))
            for each in (entries if latest is None else entries[-latest:])
        ],
    )


@router.post("/budgets/changes", status_code=201, response_model=ChangesetMade, responses={409: {}, 422: {}})
def change_some_budgets(
    who: Annotated[Principal, needs("budget.set")], parts: Service, wanted: ChangesetWanted
) -> ChangesetMade:
    """Decide about some accounts, at once or from an instant on. What contradicts another decision is told (409)."""
    budgets = portfolio_of(parts).budgets
    made = budgets.propose(who, _proposal(wanted, _evidence(parts, wanted.evidence)))
    entry = next(each for each in logged(budgets.history()[0]) if each.changeset.version == made.version)
    return ChangesetMade(**_told(entry, portfolio_of(parts).trials))


def _evidence(parts: Parts, text: str) -> str:
    """A what-if that is named by its id is kept by its hash."""
    if NAME.fullmatch(text) is None:
        return text
    tried = portfolio_of(parts).trials.find(text)
    if tried is None or tried.found is None:
        raise ProblemError(422, f"evidence: there is no what-if {text} that is done: ask for it anew")
    return tried.named


def _proposal(wanted: ChangesetWanted, evidence: str) -> Proposal:
    edits = {
        parent: {name: node.model_dump(mode="json", exclude_defaults=True) for name, node in children.items()}
        for parent, children in wanted.edits.items()
    }
    at = _unix_ms(wanted.effective_at)
    return Proposal(edits, wanted.why, wanted.base, at, wanted.reverts, evidence)


def _told(entry: Logged, trials: Trials) -> dict[str, Any]:
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
        "evidence_told": trials.sentences(made.evidence),
        "changes": [change_json(change) for change in entry.changes],
    }


# --- exceptions -------------------------------------------------------------------------------------------------------
@router.get("/exceptions", response_model=Exceptions)
def list_exceptions(who: Annotated[Principal, needs("exception.see")], parts: Service) -> Exceptions:
    """Every exception and reservation: who asked, who approved, until when, and what it costs whom."""
    return Exceptions(exceptions=[ExceptionKept(**each) for each in portfolio_of(parts).exceptions.all()])


@router.post("/exceptions", status_code=201, response_model=ExceptionKept, responses={404: {}})
def request_exception(
    who: Annotated[Principal, needs("exception.request")], parts: Service, wanted: ExceptionWanted
) -> ExceptionKept:
    """Ask for an exception. Nothing changes until somebody else approves it."""
    exceptions = portfolio_of(parts).exceptions
    begin = _unix_ms(wanted.begin)
    wish = Wish(
        kind=wanted.kind, account=wanted.account, reason=wanted.reason, begin=begin,
        end=_end(wanted, parts.live.now() if begin is None else begin), cap=parse_duration(wanted.cap),
        share=parse_share(wanted.share), donor=wanted.donor, nodes=wanted.nodes, gpus_per_node=wanted.gpus_per_node,
        pool=wanted.pool, node=wanted.node,
    )  # fmt: skip
    return ExceptionKept(**exceptions.told(exceptions.request(who, wish)))


def _end(wanted: ExceptionWanted, begin: int) -> int:
    end = _unix_ms(wanted.end)
    if (end is None) == (wanted.lasts is None):
        raise ProblemError(422, "every exception ends: say either its end, or how long it lasts")
    if end is not None:
        return end
    assert wanted.lasts is not None
    return begin + parse_duration(wanted.lasts)


@router.post("/exceptions/{case_id}/approve", response_model=ExceptionKept, responses={404: {}, 409: {}})
def approve_exception(
    who: Annotated[Principal, needs("exception.approve")], parts: Service, case_id: CaseId, why: Why
) -> ExceptionKept:
    """Grant it. A reservation that cannot be kept beside what is promised to others is refused, and why (409)."""
    exceptions = portfolio_of(parts).exceptions
    return ExceptionKept(**exceptions.told(exceptions.approve(who, case_id, why.why)))


@router.post("/exceptions/{case_id}/refuse", response_model=ExceptionKept, responses={404: {}, 409: {}})
def refuse_exception(
    who: Annotated[Principal, needs("exception.approve")], parts: Service, case_id: CaseId, why: Why
) -> ExceptionKept:
    """Say no to a request, and why."""
    exceptions = portfolio_of(parts).exceptions
    return ExceptionKept(**exceptions.told(exceptions.refuse(who, case_id, why.why)))


@router.post("/exceptions/{case_id}/revoke", response_model=ExceptionKept, responses={404: {}, 409: {}})
def revoke_exception(
    who: Annotated[Principal, needs("exception.revoke")], parts: Service, case_id: CaseId, why: Why
) -> ExceptionKept:
    """End it before its end, or take a request back."""
    exceptions = portfolio_of(parts).exceptions
    return ExceptionKept(**exceptions.told(exceptions.revoke(who, case_id, why.why)))


# --- gates ------------------------------------------------------------------------------------------------------------
@router.get("/report", response_model=dict[str, Any], responses={503: {}})
def show_report(
    who: Annotated[Principal, needs("report.see")],
    parts: Service,
    window: Annotated[DurationText | None, Query(description="How far back; default: the policy's window.")] = None,
) -> dict[str, Any]:
    """The measures of the last window, as `mirab sim --json` reports a replay. It takes time: the journal is read."""
    span = None if window is None else parse_duration(window)
    if span == 0:
        raise ProblemError(422, "a window of no length holds nothing: write 7d")
    try:
        return portfolio_of(parts).report(span)
    except ReportError as error:
        raise ProblemError(503, str(error), headers={"Retry-After": "60"}) from error


# --- rollout ----------------------------------------------------------------------------------------------------------
@router.get("/rollout", response_model=Rollout)
def show_rollout(who: Annotated[Principal, needs("rollout.see")], parts: Service) -> Rollout:
    """Which accounts are enforced upon, by whose decision, and on what grounds."""
    return _rollout(portfolio_of(parts).rollout.status())


@router.post("/rollout", response_model=Rollout, responses={404: {}, 409: {}})
def set_rollout(who: Annotated[Principal, needs("rollout.set")], parts: Service, wanted: RolloutWanted) -> Rollout:
    """Let an account be enforced upon, past its gates or with an exception that ends; or only observe it again."""
    done = portfolio_of(parts).rollout.set(
        who, wanted.account, wanted.mode, wanted.why, wanted.report, wanted.exception
    )
    return _rollout(done)


def _rollout(told: dict[str, Any]) -> Rollout:
    lines = [
        RolloutLine(**{key: iso(value) if key in ("at", "until") and value is not None else value
                       for key, value in each.items()})
        for each in told["accounts"]
    ]  # fmt: skip
    return Rollout(engine=told["engine"], mode=told["mode"], accounts=lines)
