"""Routes of what-ifs on the last days of the journal: asked for, worked out in the background, read when done."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from mirab.service.api.needs import Service, needs
from mirab.service.api.portfolio import portfolio_of
from mirab.service.api.problems import ProblemError, not_found
from mirab.service.auth.principal import Principal
from mirab.service.desk.portfolio import Shares
from mirab.service.fields import NAME_PATTERN
from mirab.service.portfolioforms import Trial, TrialWanted
from mirab.service.trials import Tried
from mirab.study.whatiftext import cost_told, exception_told, lede, method

router = APIRouter(prefix="/api/v1/whatif", tags=["portfolio"])

TrialId = Annotated[str, Path(pattern=r"^w[0-9a-f]{16}$", examples=["w0123456789abcdef"])]
Share = Annotated[str, Query(max_length=600, pattern=NAME_PATTERN)]


@router.get("", response_model=Trial, responses={404: {}, 503: {}})
def try_shares(
    who: Annotated[Principal, needs("whatif.ask")],
    parts: Service,
    share: Annotated[
        list[Share],
        Query(
            min_length=1,
            max_length=1_000,
            description="ACCOUNT=40%, of its parent; POOL:ACCOUNT=40% of that pool alone.",
        ),
    ],
    days: Annotated[int, Query(ge=1, le=90)] = 14,
) -> Trial:
    """Try other shares on the last days, on the same arrivals. Nothing changes; one question is worked out once."""
    return told(portfolio_of(parts).tried(_shares(share), days))


def _shares(given: list[str]) -> Shares:
    wanted = Shares()
    for each in given:
        account, sign, share = each.rpartition("=")
        if not sign or not account:
            raise ProblemError(422, f"share: {each[:80]!r} is no share: write ACCOUNT=40%")
        wanted[account] = share
    return wanted


@router.post("", response_model=Trial, responses={404: {}, 503: {}})
def try_budgets(who: Annotated[Principal, needs("whatif.ask")], parts: Service, wanted: TrialWanted) -> Trial:
    """Try a whole tree of budgets, or an exception, on the last days, on the same arrivals. Nothing changes."""
    if bool(wanted.budgets) == bool(wanted.exception):
        raise ProblemError(422, "what is to be tried? Send either budgets or the id of an exception")
    if wanted.exception:
        return told(portfolio_of(parts).tried_exception(wanted.exception, wanted.days))
    tree: Any = wanted.budgets
    if not isinstance(tree, str):
        tree = {name: node.model_dump(mode="json", exclude_defaults=True) for name, node in tree.items()}
    return told(portfolio_of(parts).tried(tree, wanted.days))


@router.get("/{trial_id}", response_model=Trial, responses={404: {}})
def show_trial(
    who: Annotated[Principal, needs("whatif.ask")],
    parts: Service,
    trial_id: TrialId,
    whole: Annotated[bool, Query(description="The result as a file, with both reports: evidence of a change.")] = False,
) -> Trial | Response:
    """What became of it: by account the owed, delivered, waits and lost work before and after."""
    found = portfolio_of(parts).trials.find(trial_id)
    if found is None:
        raise not_found(f"there is no what-if {trial_id}: ask for it anew")
    if not whole:
        return told(found)
    if found.found is None:
        raise not_found(f"what-if {trial_id} is {found.state}")
    headers = {"Content-Disposition": f'attachment; filename="whatif-{trial_id}.json"'}
    return Response(found.data, media_type="application/json", headers=headers)


def told(tried: Tried) -> Trial:
    """The trial for people and programs."""
    found = tried.found
    if found is None:
        return Trial(id=tried.id, state=tried.state, problem=tried.problem)
    return Trial(
        id=tried.id,
        state=tried.state,
        sha256=tried.sha256,
        told=[*lede(found), *(text for each in found["exceptions"] for text in _cost(each, found)), *found["notes"]],
        method=method(found),
        result={key: value for key, value in found.items() if key != "reports"},
    )


def _cost(exception: dict[str, Any], found: dict[str, Any]) -> tuple[str, str]:
    """What an exception that was tried sets aside, and who pays."""
    return exception_told(exception, found), cost_told(exception, found)
