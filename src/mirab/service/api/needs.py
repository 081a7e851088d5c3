"""Each route names the action that it is; nobody gets past without the right to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request

from mirab.service.api.parts import Parts
from mirab.service.api.problems import CHALLENGE, ProblemError, denied
from mirab.service.auth.principal import Principal
from mirab.service.auth.rules import RULES, Rule, Scope

NOBODY = Principal("")


class Needs:
    """A dependency: the principal, who may do the action somewhere. Where exactly, `require` asks."""

    def __init__(self, action: str) -> None:
        self.action = action
        self.rule = RULES[action]

    async def __call__(self, request: Request) -> Principal:
        who = getattr(request.state, "principal", None)
        if self.rule.scope is Scope.OPEN:
            return who or NOBODY
        if who is None:
            raise ProblemError(
                401, "say who you are: send a token as `Authorization: Bearer mirab_...`", headers=CHALLENGE
            )
        if not who.may_somewhere(self.action):
            raise denied(refusal(who, self.rule))
        assert isinstance(who, Principal)
        return who


def needs(action: str) -> Any:
    return Depends(Needs(action))


def require(who: Principal, action: str, account: str, owner: str | None = None) -> None:
    """Raises the problem `denied`, unless they may do it to something of that account and owner."""
    if not who.may(action, account, owner):
        raise denied(refusal(who, RULES[action], account))


def refusal(who: Principal, rule: Rule, account: str = "") -> str:
    """What they may not do, and who may."""
    if rule.scope is Scope.MEMBER:
        return f"{who.user} has no role on any account here: ask an admin for one"
    there = f" of {account}" if account else ""
    owner = "its owner, or " if rule.own else ""
    scope = "the whole cluster" if rule.scope is Scope.CLUSTER else "the account or above it"
    return f"{who.user} may not {rule.what}{there}: that takes {owner}the role {listed(rule.roles)} on {scope}"


def listed(roles: Sequence[str]) -> str:
    """``manager, operator or admin``."""
    return " or ".join(filter(None, (", ".join(roles[:-1]), roles[-1])))


def action_of(route: APIRoute) -> str | None:
    """The action that a route names; None = it names none."""
    found = [each.call.action for each in route.dependant.dependencies if isinstance(each.call, Needs)]
    return found[0] if len(found) == 1 else None


def check_rules(app: FastAPI) -> None:
    """Raises ValueError for a route that does not name exactly one action."""
    for route in app.routes:
        if not isinstance(route, APIRoute) or action_of(route) is None:
            raise ValueError(f"the route {getattr(route, 'path', route)} does not name the action that it is")


def _parts(request: Request) -> Parts:
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


async def _parts_async(request: Request) -> Parts:
    return _parts(request)


Service = Annotated[Parts, Depends(_parts_async)]
