"""The OpenAPI document: FastAPI's, with every error that can come as a problem, and how one says who one is."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from mirab.service.api.needs import action_of
from mirab.service.api.problems import MEDIA_TYPE
from mirab.service.auth.rules import RULES, Rule, Scope
from mirab.service.forms.people import Problem

REFERENCE = {"$ref": "#/components/schemas/Problem"}
EVERYWHERE = (400, 403, 408, 413, 421, 422, 500)
FOR_CALLERS = (401, 429, 503)
FOR_CHANGES = (504,)


def document(app: FastAPI) -> dict[str, Any]:
    """Made once, then kept with the application."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        _add_problems(made, app)
        app.openapi_schema = made
    return app.openapi_schema


def _add_problems(made: dict[str, Any], app: FastAPI) -> None:
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token; over the Unix socket none is needed."}
    }
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                _complete(made["paths"][route.path_format][method.lower()], route, method)


def _complete(operation: dict[str, Any], route: APIRoute, method: str) -> None:
    action = action_of(route) or ""
    rule = RULES[action]
    operation["operationId"] = route.name
    operation["description"] = "\n\n".join(filter(None, (operation.get("description"), _right(action, rule))))
    responses = operation["responses"]
    for status in _statuses(rule, method, responses):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": REFERENCE}},
        }
    operation["responses"] = dict(sorted(responses.items()))
    operation["security"] = [] if rule.scope is Scope.OPEN else [{"token": []}]


def _statuses(rule: Rule, method: str, declared: dict[str, Any]) -> Iterator[int]:
    yield from (int(status) for status in list(declared) if int(status) >= 400)
    yield from EVERYWHERE
    if rule.scope is not Scope.OPEN:
        yield from FOR_CALLERS
    if method != "GET":
        yield from FOR_CHANGES


def _right(action: str, rule: Rule) -> str:
    """Who may, as a sentence."""
    if rule.scope in (Scope.OPEN, Scope.KNOWN, Scope.MEMBER):
        return f"Right `{action}`: {rule.scope.value}."
    owner = "the job's owner, and " if rule.own else ""
    where = "on the account or above it" if rule.scope is Scope.ACCOUNT else "on the whole cluster"
    return f"Right `{action}`: {owner}{', '.join(rule.roles)} {where}."
