"""Routes of tokens and of who one is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from mirab.model.records import Grant, TokenRow
from mirab.model.units import parse_duration
from mirab.service.api.needs import Service, needs
from mirab.service.api.problems import ProblemError, denied, not_found
from mirab.service.auth.principal import Principal, checked, format_grant
from mirab.service.auth.rules import RULES
from mirab.service.auth.tokens import is_local
from mirab.service.forms.people import GrantModel, NewToken, Token, TokenMade, Tokens, WhoAmI
from mirab.service.views.moments import iso

router = APIRouter(prefix="/api/v1", tags=["people"])

TokenId = Annotated[str, Path(max_length=64, pattern=r"^[0-9a-f]+$", examples=["5f0c9a31b7de"])]


@router.get("/whoami", response_model=WhoAmI)
def show_caller(who: Annotated[Principal, needs("self.see")], parts: Service) -> WhoAmI:
    """Who the service takes you for, and what you may do."""
    rights = [action for action in RULES if who.may_somewhere(action)]
    return WhoAmI(user=who.user, origin=who.origin, grants=_models(who.grants), rights=rights)


@router.get("/tokens", response_model=Tokens)
def list_tokens(who: Annotated[Principal, needs("token.own")], parts: Service) -> Tokens:
    """Your own tokens; for an admin those of everybody."""
    every = who.may("token.any")
    rows = [row for row in parts.tokens.rows() if every or row.user == who.user]
    return Tokens(tokens=[Token(**_fields(row)) for row in rows])


@router.post("/tokens", status_code=201, response_model=TokenMade)
def create_token(who: Annotated[Principal, needs("token.own")], parts: Service, wanted: NewToken) -> TokenMade:
    """A token for yourself with at most your own rights; for an admin: for anybody, or the roles of a local user."""
    grants = [_grant(each) for each in wanted.grants]
    _check_right(who, wanted, grants)
    lifetime = parse_duration(wanted.expires_in) if wanted.expires_in is not None else None
    if wanted.local:
        row = parts.tokens.grant_local(who, parts.live.now(), wanted.user, grants, lifetime=lifetime, note=wanted.note)
        return TokenMade(**_fields(row))
    secret, row = parts.tokens.issue(who, parts.live.now(), wanted.user, grants, lifetime=lifetime, note=wanted.note)
    return TokenMade(**_fields(row), token=secret)


def _grant(model: GrantModel) -> Grant:
    try:
        return checked(Grant(model.role, model.account))
    except ValueError as error:
        raise ProblemError(422, str(error)) from error


def _check_right(who: Principal, wanted: NewToken, grants: list[Grant]) -> None:
    """Raises the problem `denied` for a token that gives more than its maker has."""
    if who.may("token.any"):
        return
    if wanted.local or wanted.user != who.user:
        raise denied(f"{who.user} may make tokens only for {who.user}: ask an admin")
    for grant in grants:
        if not who.holds(grant):
            raise denied(f"{who.user} is not {format_grant(grant)}, so a token of theirs cannot be either")


@router.delete("/tokens/{token_id}", status_code=204, response_class=Response, responses={404: {}})
def revoke_token(who: Annotated[Principal, needs("token.own")], parts: Service, token_id: TokenId) -> Response:
    """From now on the token is worth nothing."""
    row = parts.tokens.find(token_id)
    if row is None or not (row.user == who.user or who.may("token.any")):
        raise not_found(f"there is no token {token_id} that you may revoke: `mirab token ls` shows those there are")
    if is_local(row) and not who.may("token.any"):
        raise denied("only an admin changes the roles of a local user")
    parts.tokens.revoke(who, parts.live.now(), row)
    return Response(status_code=204)


def _models(grants: tuple[Grant, ...]) -> list[GrantModel]:
    return [GrantModel.model_validate({"role": grant.role, "account": grant.account}) for grant in grants]


def _fields(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "user": row.user,
        "grants": _models(row.grants),
        "local": is_local(row),
        "created_at": iso(row.created_at),
        "created_by": row.created_by,
        "expires_at": None if row.expires_at is None else iso(row.expires_at),
        "revoked_at": None if row.revoked_at is None else iso(row.revoked_at),
        "note": row.note,
    }
