"""Routes of logging in to the pages and out again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from mirab.service.api.needs import Service, needs
from mirab.service.api.people import show_caller
from mirab.service.api.problems import ProblemError
from mirab.service.auth.principal import Principal
from mirab.service.auth.tokens import digest_of
from mirab.service.forms.people import WhoAmI
from mirab.service.pages.shapes import Session

router = APIRouter(prefix="/api/v1", tags=["the pages"])


@router.get("/session", response_model=Session)
def show_session(who: Annotated[Principal, needs("page.see")], parts: Service) -> Session:
    """Who is logged in; null = nobody, which is no error."""
    return Session(me=show_caller(who, parts) if who.user else None)


@router.post("/session", response_model=WhoAmI)
def begin_session(
    who: Annotated[Principal, needs("session.begin")], parts: Service, request: Request, response: Response
) -> WhoAmI:
    """Log a browser in: the token in the header becomes a cookie that scripts cannot read and that only reads."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        raise ProblemError(422, "a session begins with a token; over the Unix socket none is needed")
    cookie = parts.sessions.begin(digest_of(secret.strip()), parts.live.now(), secure=_secure(request))
    response.headers["Set-Cookie"] = cookie
    return show_caller(who, parts)


@router.delete("/session", status_code=204, response_class=Response)
def end_session(who: Annotated[Principal, needs("session.end")], parts: Service, request: Request) -> Response:
    """Log a browser out; the token stays as it is."""
    return Response(status_code=204, headers={"Set-Cookie": parts.sessions.end(secure=_secure(request))})


def _secure(request: Request) -> bool:
    """Whether the browser came over HTTPS, as it says itself; then its cookie never travels otherwise."""
    return request.headers.get("origin", "").lower().startswith("https://")
