"""Routes of what only the pages ask for: the present, the course of a week, the journal in sentences."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mirab.service.api.needs import Service, needs
from mirab.service.api.problems import ProblemError, not_found
from mirab.service.auth.principal import Principal
from mirab.service.fields import NAME_PATTERN
from mirab.service.pages.present import PRESENT
from mirab.service.pages.shapes import Chronicle, Now, Trend
from mirab.service.views.chronicle import SUBJECTS

router = APIRouter(prefix="/api/v1", tags=["the pages"])

NEWEST = (1 << 63) - 1
Word = Annotated[str, Query(max_length=512, pattern=NAME_PATTERN)]


@router.get("/now", response_model=Now)
def show_present(who: Annotated[Principal, needs("node.see")], parts: Service) -> Response:
    """The four measures, the nodes with what is kept for whom, and who runs and waits. At most a second old."""
    return Response(PRESENT.text(parts), media_type="application/json")


@router.get("/trend", response_model=Trend, responses={404: {}})
def show_trend(
    who: Annotated[Principal, needs("share.see")],
    parts: Service,
    account: Annotated[Word | None, Query(description="It and all below it; default: all.")] = None,
) -> Trend:
    """GPUs owed and charged over the window, hour by hour, and when each account's debt will have left it."""
    found = parts.views.trend(account or None)
    if found is None:
        raise not_found(f"there is no account {account}: `mirab share` shows the accounts there are")
    return Trend.model_validate(found)


@router.get("/chronicle", response_model=Chronicle)
def show_chronicle(
    who: Annotated[Principal, needs("decision.see")],
    parts: Service,
    before: Annotated[int | None, Query(ge=1, le=NEWEST, description="Number of a record; default: the end.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    about: Annotated[Word | None, Query(description="A job, a node, or an account and all below it.")] = None,
    topic: Annotated[
        list[Annotated[str, Query(max_length=32)]] | None,
        Query(max_length=16, description=f"Some of {', '.join(SUBJECTS)}; default: all."),
    ] = None,
) -> Chronicle:
    """The journal in sentences, the newest first. A search that finds little says where to go on."""
    for each in topic or ():
        if each not in SUBJECTS:
            raise ProblemError(422, f"topic: there is no such topic; there are {', '.join(SUBJECTS)}")
    return Chronicle.model_validate(parts.views.chronicle(before, limit, topic or (), about or None))
