"""Routes of shares and budgets."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Response

from mirab.service.api.needs import Service, needs
from mirab.service.api.problems import ProblemError, not_found
from mirab.service.auth.principal import Principal
from mirab.service.fields import NAME_PATTERN
from mirab.service.forms.sharing import BudgetChange, BudgetNode, BudgetTree, Shares
from mirab.service.views.moments import iso

router = APIRouter(prefix="/api/v1", tags=["shares and budgets"])

_ETAG = re.compile(r'"([!#-~]{1,128})"|(\*)')


@router.get("/share", response_model=Shares)
def show_shares(who: Annotated[Principal, needs("share.see")], parts: Service) -> Shares:
    """The whole tree: what each account is promised, and what it got in the window."""
    return _shares(parts.views.shares(None), "")


@router.get("/share/{path:path}", response_model=Shares, responses={404: {}})
def show_shares_below(
    who: Annotated[Principal, needs("share.see")],
    parts: Service,
    path: Annotated[str, Path(min_length=1, max_length=512, pattern=NAME_PATTERN, examples=["llm/pretrain"])],
) -> Shares:
    """An account and all below it."""
    return _shares(parts.views.shares(path), path)


def _shares(found: Shares | None, path: str) -> Shares:
    if found is None:
        raise not_found(f"there is no account {path}: `mirab share` shows the accounts there are")
    return found


@router.get("/budgets", response_model=BudgetTree, response_model_exclude_defaults=True)
def show_budgets(who: Annotated[Principal, needs("budget.see")], parts: Service, response: Response) -> BudgetTree:
    """The budgets in force. The ETag is their version, for changing them."""
    found = parts.desk.budgets()
    response.headers["ETag"] = f'"{found.version}"'
    return BudgetTree(
        budgets={name: BudgetNode.model_validate(node) for name, node in found.tree.items()},
        version=found.version,
        changed_at=None if found.changed_at is None else iso(found.changed_at),
        changed_by=found.changed_by,
        why=found.why,
        pools=list(found.pools),
    )


@router.put(
    "/budgets", response_model=BudgetTree, response_model_exclude_defaults=True, responses={409: {}, 412: {}, 428: {}}
)
def change_budgets(
    who: Annotated[Principal, needs("budget.set")],
    parts: Service,
    change: BudgetChange,
    response: Response,
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            max_length=256,
            description="The ETag of the budgets that you changed. Without it 428, if another was faster 412.",
        ),
    ] = None,
) -> BudgetTree:
    """Replace the budgets. A manager may change what lies below their accounts, an admin everything."""
    parts.desk.set_budgets(who, _plain(change), _version(if_match), change.why)
    return show_budgets(who, parts, response)


def _plain(change: BudgetChange) -> dict[str, Any]:
    """The budgets as in a cluster file, without what stands at its default."""
    return {name: node.model_dump(mode="json", exclude_defaults=True) for name, node in change.budgets.items()}


def _version(if_match: str | None) -> str:
    """The version that an If-Match names.

    Raises:
        ProblemError: 428 without one, 412 for one that can be no version of these budgets.
    """
    if if_match is None:
        raise ProblemError(428, "say which budgets you changed: send their ETag as If-Match, so that no change is lost")
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise ProblemError(412, "If-Match has to be one ETag as GET /api/v1/budgets gives it, with its quotes, or *")
    return match[1] or match[2]
