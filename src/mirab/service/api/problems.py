"""What goes wrong, as RFC 9457 problems: a type for programs, a sentence for people, and never a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from mirab.service.api.bus import TooManyStreamsError
from mirab.service.auth.authenticate import NotYourServiceError, TooManyFailuresError, UnknownCallerError
from mirab.service.desk.errors import DeskError
from mirab.service.inbox import UnavailableError, UnknownOutcomeError
from mirab.store.errors import StoreError, UnreachableStoreError

MEDIA_TYPE = "application/problem+json"
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="mirab"'}
SHOWN_ERRORS = 20

DESK_STATUS: Mapping[str, int] = {
    "invalid": 422,
    "not-found": 404,
    "denied": 403,
    "conflict": 409,
    "precondition": 412,
    "unavailable": 503,
}
_KINDS: Mapping[int, str] = {
    400: "malformed",
    401: "not-authenticated",
    403: "denied",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    409: "conflict",
    412: "precondition-failed",
    413: "too-large",
    421: "wrong-host",
    422: "invalid",
    428: "precondition-required",
    429: "too-many-failures",
    500: "internal",
    503: "unavailable",
    504: "outcome-unknown",
}
"""The last part of ``type``: ``urn:mirab:problem:KIND``."""


class ProblemError(Exception):
    """A request that cannot be answered as asked."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers, self.extra = dict(headers or {}), dict(extra or {})


def not_found(detail: str) -> ProblemError:
    return ProblemError(404, detail)


def denied(detail: str) -> ProblemError:
    return ProblemError(403, detail)


def problem_of(error: BaseException, repeatable: bool = False) -> ProblemError:
    """The problem that an exception is. `repeatable`: the request may be sent again whatever became of it."""
    match error:
        case ProblemError():
            return error
        case DeskError():
            return ProblemError(DESK_STATUS[error.kind], error.detail, extra=error.extra)
        case UnknownCallerError():
            return ProblemError(401, str(error), headers=CHALLENGE)
        case NotYourServiceError():
            return denied(str(error))
        case TooManyFailuresError():
            return ProblemError(429, str(error), headers={"Retry-After": str(int(error.wait) + 1)})
        case UnknownOutcomeError():
            return ProblemError(503 if repeatable else 504, str(error), headers={"Retry-After": "1"})
        case TooManyStreamsError():
            return ProblemError(503, "too many streams are open: try again later", headers={"Retry-After": "10"})
        case UnavailableError() | UnreachableStoreError():
            return ProblemError(503, str(error), headers={"Retry-After": "2"})
        case StoreError():
            return ProblemError(503, "the store is not well: see the service's log", headers={"Retry-After": "10"})
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return ProblemError(error.status_code, _sentence(error), headers=error.headers or {})
    return ProblemError(500, "a fault in mirab itself: give the id of this request to whoever runs the service")


def _sentence(error: HTTPException) -> str:
    phrases = {
        404: "there is nothing at this address: see /openapi.json for what there is",
        405: "this address does not know that method",
        400: "the body cannot be read as JSON in UTF-8",
    }
    return phrases.get(error.status_code, str(error.detail))


def _invalid(error: RequestValidationError) -> ProblemError:
    """Where and what, without the value: it may be secret, and it may not be writable."""
    found = [
        {"where": ".".join(printable(str(part)) for part in each["loc"]), "what": _what(each)}
        for each in error.errors()[:SHOWN_ERRORS]
    ]
    malformed = any(each["type"] == "json_invalid" for each in error.errors())
    detail = "; ".join(f"{_field(each['where'])}: {each['what']}" for each in found)
    return ProblemError(400 if malformed else 422, detail, extra={"errors": found})


def _field(where: str) -> str:
    """The name that its sender knows it by: whether it stood in the body or in the query is in the list of errors."""
    place, _, name = where.partition(".")
    return name if place in ("body", "query", "path", "header") and name and not name.isdigit() else where


_OBJECT, _WHOLE, _NUMBER = 'has to be an object, {{"name": value}}', "has to be a whole number", "has to be a number"
_INSTANT = "has to be an instant, such as 2026-03-01T12:00:00Z"
_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    "json_invalid": "is not JSON",
    "string_pattern_mismatch": "is not written as it has to be: see /openapi.json",
    "string_type": "has to be text, in quotes",
    "string_unicode": "is not text that can be written as UTF-8",
    "string_too_long": "has more than {max_length} characters",
    "string_too_short": "has to have at least {min_length} characters",
    "too_long": "has more than {max_length} entries",
    "too_short": "has to have at least {min_length} entries",
    "greater_than_equal": "has to be {ge} or more",
    "greater_than": "has to be more than {gt}",
    "less_than_equal": "has to be {le} or less",
    "less_than": "has to be less than {lt}",
    "literal_error": "has to be {expected}",
    "list_type": "has to be a list, [...]",
    "bool_type": "has to be true or false",
    "bool_parsing": "has to be true or false",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _OBJECT),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), _NUMBER),
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _INSTANT),
}
"""Pydantic's kinds of errors -> what people are told; the names in braces are those of its context."""


def _what(error: Mapping[str, Any]) -> str:
    words = _WORDS.get(error["type"])
    if words is not None:
        return printable(words.format(**error.get("ctx", {})))
    return printable(str(error["msg"]).removeprefix("Value error, "))


@contextmanager
def reading_cursor() -> Iterator[None]:
    """A cursor that is none of ours is the caller's mistake."""
    try:
        yield
    except ValueError as error:
        raise ProblemError(422, printable(str(error))) from error


def printable(text: str) -> str:
    """At most 200 characters, none of which could harm a terminal or a writer of UTF-8."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:200])


def respond(problem: ProblemError, request_id: str) -> Response:
    body = {
        "type": f"urn:mirab:problem:{_KINDS.get(problem.status, 'other')}",
        "title": _title(problem.status),
        "status": problem.status,
        "detail": problem.detail,
        "instance": f"urn:mirab:request:{request_id}",
        **problem.extra,
    }
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, default=str)
    return Response(text.encode("utf-8", "replace"), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Problem"


def install(app: FastAPI) -> None:
    """Let every exception that a handler raises become a problem; what is left over the guard answers with 500."""

    async def handle(request: Request, error: Exception) -> Response:
        problem = problem_of(error, "idempotency-key" in request.headers)
        if problem.status == 405:
            problem.headers["Allow"] = ", ".join(_methods(app, request))
        return respond(problem, getattr(request.state, "request_id", ""))

    kinds: Sequence[type[Exception]] = (
        ProblemError, DeskError, UnknownCallerError, NotYourServiceError, TooManyFailuresError, UnknownOutcomeError,
        UnavailableError, StoreError, TooManyStreamsError, RequestValidationError, HTTPException,
    )  # fmt: skip
    for kind in kinds:
        app.add_exception_handler(kind, handle)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """The methods that the address does know."""
    scope = dict(request.scope)
    return sorted(
        method
        for route in app.routes
        if route.matches(scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    )
