"""`docs/reference/api.md`, made from the routes, the schemas and the table of rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mirab.service.api.app import routes_alone
from mirab.service.auth.rules import ROLES, RULES, Rule, Scope
from mirab.service.fields import DURATION_PATTERN

HEAD = """# The REST API

<!-- Made from the code by `make docs`. -->

Everything that the commands do goes through this API. It is served over HTTP (`--listen`) and over a Unix socket
(`--socket`), below `/api/v1`. `GET /openapi.json` is the same as a document for programs (OpenAPI 3.1), with every
field's limits.

- **Who you are**: over the socket the kernel says it; over HTTP send `Authorization: Bearer mirab_...`. How to get a
  token, and who may do what: [Access](../howto/access.md).
- **Values**: durations are strings with units (`90s`, `15m`, `8h`, `7d`), instants ISO 8601 in UTC, amounts of charge
  GPU-hours. Requests are JSON; an unknown field is an error, since it is most likely a typing error. Answers may gain
  fields.
- **Errors** are problems (RFC 9457, `application/problem+json`): `detail` is a sentence for people, `type` a name for
  programs (`urn:mirab:problem:not-found`), `instance` the id of the request, which is also the header `X-Request-Id`
  and stands in the service's log.
- **Pages**: a list has `next`; pass it on as `cursor` until it is null. A page neither repeats nor leaves out what was
  there all the time.
- **Repeating**: `POST /api/v1/jobs` takes an `Idempotency-Key`. The same request with the same key submits once and
  gets the same answer for a day, also after a restart. With it, an answer of 503 means "send it again".
- **Two editors**: `PUT /api/v1/budgets` takes the `ETag` of what was read as `If-Match`. Without it the answer is 428,
  and 412 if somebody was faster.
- **Events**: `GET /api/v1/events` is a stream of server-sent events: `job`, `node`, `budget`, and `decision` at the end
  of each record of the journal, with the record's number as `id`. A client that comes back with `Last-Event-ID` gets
  what it missed from the journal. One that is too slow is disconnected, and comes back.
- **Long answers**: `output?follow=true` goes on until the job has ended; `await` answers when it has, or after
  `timeout` seconds.
- **Bounds**: 8 MiB a request, of which 1 MiB each for script, arguments and environment; names of one line without
  control characters.
- **Browsers**: pages of other origins get nothing, and over HTTP the service answers only to addresses, `localhost` and
  the names it was given (`--hosts`).
"""

STATUSES = """
## Statuses

| status | when | exit code of the command |
|---|---|---|
| 400, 422 | the request makes no sense; `errors` says which fields | 2 |
| 401 | no token, or one that is not known, has expired or was revoked | 4 |
| 403 | you may not | 4 |
| 404 | there is no such job, node, account, output, or address | 3 |
| 405 | the address does not know that method; `Allow` says which it knows | 1 |
| 408 | the body did not arrive in time | 7 |
| 409 | it contradicts the present state, or a key was used for another request | 5 |
| 412, 428 | the budgets have changed since, or their version was not named | 5, 1 |
| 413 | the body is too large | 2 |
| 421 | the service is not known under this name | 1 |
| 429 | too many bad tokens from this address; `Retry-After` says how long to wait | 1 |
| 500 | a fault in mirab; the log has its story under the request's id | 1 |
| 503 | not now, nothing was done (with an Idempotency-Key: send it again); or too many streams | 8 |
| 504 | not recorded in time, and it may still be: look before you repeat it | 7 |
"""

_DURATIONS = {DURATION_PATTERN: "duration"}
REQUESTS = ("SubmitRequest", "Why", "BudgetChange", "BudgetNode", "NodeReport", "NewToken", "GrantModel")
ANSWERS = ("Job", "Run", "JobSpec", "DryRun", "ShareAccount", "Node", "Squatter", "Token", "Audit")


def api_page() -> str:
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    document = routes_alone().openapi()
    yield HEAD.rstrip()
    yield from _routes(document)
    yield STATUSES.rstrip()
    yield from _rights()
    yield from ("", "## What is sent")
    for name in REQUESTS:
        yield from _schema(name, document["components"]["schemas"][name], defaults=True)
    yield from ("", "## What is answered", "", "The parts of answers that have fields of their own meaning.")
    for name in ANSWERS:
        yield from _schema(name, document["components"]["schemas"][name], defaults=False)


def _routes(document: dict[str, Any]) -> Iterator[str]:
    tag = ""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                yield from ("", f"## {tag[0].upper()}{tag[1:]}", "", "| | query and headers | |", "|---|---|---|")
            names = ", ".join(f"`{each['name']}`" for each in operation.get("parameters", []) if each["in"] != "path")
            what, _, right = operation["description"].rpartition("\n\n")
            yield f"| `{method.upper()} {path}` | {names} | {' '.join(what.split())} {_short(right)} |"


def _short(right: str) -> str:
    """``(`job.see`)`` of "Right `job.see`: ...": the table of rights tells the rest."""
    return f"({right.split(':')[0].removeprefix('Right ')})"


def _rights() -> Iterator[str]:
    yield from ("", "## Who may", "", "| right | to | who |", "|---|---|---|")
    for action, rule in RULES.items():
        yield f"| `{action}` | {rule.what} | {_who(rule)} |"
    yield from ("", "| role | |", "|---|---|")
    yield from (f"| {role} | {means} |" for role, means in ROLES.items())


def _who(rule: Rule) -> str:
    if rule.scope in (Scope.OPEN, Scope.KNOWN, Scope.MEMBER):
        return str(rule.scope.value)
    owner = "the job's owner; " if rule.own else ""
    where = "on the account or above it" if rule.scope is Scope.ACCOUNT else "on the whole cluster"
    return f"{owner}{', '.join(rule.roles)} {where}"


def _schema(name: str, schema: dict[str, Any], *, defaults: bool) -> Iterator[str]:
    yield from ("", f"### {schema.get('title', name)}", "", " ".join(schema.get("description", "").split()), "")
    yield from (
        ("| field | form | default | |", "|---|---|---|---|") if defaults else ("| field | form | |", "|---|---|---|")
    )
    for field, held in schema["properties"].items():
        cells = [f"`{field}`", _form(held)]
        if defaults:
            cells.append(_default(field, held, schema))
        yield f"| {' | '.join(cells)} | {' '.join(held.get('description', '').split())} |"


def _form(held: dict[str, Any]) -> str:
    """A type as people write it."""
    if "anyOf" in held:
        return " or ".join(_form(each) for each in held["anyOf"])
    if "$ref" in held:
        return str(held["$ref"]).rpartition("/")[2]
    if "enum" in held:
        return "one of " + ", ".join(str(each) for each in held["enum"])
    kind = str(held.get("type", "any"))
    if kind == "array":
        return f"list of {_form(held['items'])}"
    if kind == "object" and isinstance(held.get("additionalProperties"), dict):
        return f"object of {_form(held['additionalProperties'])}"
    if kind == "string":
        return "instant" if held.get("format") == "date-time" else _DURATIONS.get(held.get("pattern", ""), "text")
    return {"integer": "whole number", "boolean": "true or false"}.get(kind, kind)


def _default(field: str, held: dict[str, Any], schema: dict[str, Any]) -> str:
    if field in schema.get("required", ()):
        return "required"
    value = held.get("default")
    if isinstance(value, list | dict):
        return "empty"
    return json.dumps(value).replace('"', "'") if value in ("", None) or isinstance(value, bool) else str(value)
