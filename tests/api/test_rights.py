"""Every route for every role, on one's own job, a colleague's and another team's. A route without a line here fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from mirab.model.records import Grant
from mirab.service.api.needs import action_of, check_rules
from mirab.service.auth.principal import Principal, parse_grant
from mirab.service.auth.rules import ROLES, RULES
from mirab.service.pages.site import ADDRESSES, ASSET
from tests.api.stage import PEOPLE, Stage, job, stage

EVERYBODY = frozenset(PEOPLE)
TEAM = frozenset({"ada", "mia", "adv", "adm"})
"""The owner, the manager of an account above, and admins there and of the whole; not a colleague, not operators."""
KEEPERS = TEAM | {"ops", "opv"}
OPERATORS = frozenset({"ops", "adm"})
SUBMITTERS = frozenset({"ada", "bob", "mia", "adv", "adm"})

ALLOWED: dict[tuple[str, str], frozenset[str]] = {
    ("POST", "/api/v1/jobs"): SUBMITTERS,
    ("GET", "/api/v1/jobs"): EVERYBODY,
    ("GET", "/api/v1/jobs/{job_id}"): EVERYBODY,
    ("POST", "/api/v1/jobs/{job_id}/cancel"): KEEPERS,
    ("POST", "/api/v1/jobs/{job_id}/hold"): KEEPERS,
    ("POST", "/api/v1/jobs/{job_id}/release"): KEEPERS,
    ("POST", "/api/v1/jobs/{job_id}/requeue"): KEEPERS,
    ("POST", "/api/v1/jobs/{job_id}/checkpoint"): frozenset({"ada", "adv", "adm"}),
    ("GET", "/api/v1/jobs/{job_id}/output"): TEAM,
    ("GET", "/api/v1/jobs/{job_id}/await"): EVERYBODY,
    ("GET", "/api/v1/jobs/{job_id}/why"): EVERYBODY,
    ("GET", "/api/v1/jobs/{job_id}/when"): EVERYBODY,
    ("POST", "/api/v1/when"): SUBMITTERS,
    ("GET", "/api/v1/calibration"): EVERYBODY,
    ("GET", "/api/v1/share"): EVERYBODY,
    ("GET", "/api/v1/share/{path:path}"): EVERYBODY,
    ("GET", "/api/v1/budgets"): EVERYBODY,
    ("PUT", "/api/v1/budgets"): frozenset({"mia", "adv", "adm"}),
    ("GET", "/api/v1/budgets/history"): EVERYBODY,
    ("POST", "/api/v1/budgets/changes"): frozenset({"mia", "adv", "adm"}),
    ("GET", "/api/v1/report"): EVERYBODY,
    ("GET", "/api/v1/whatif"): EVERYBODY,
    ("POST", "/api/v1/whatif"): EVERYBODY,
    ("GET", "/api/v1/whatif/{trial_id}"): EVERYBODY,
    ("GET", "/api/v1/rollout"): EVERYBODY,
    ("POST", "/api/v1/rollout"): frozenset({"adm"}),
    ("GET", "/api/v1/exceptions"): EVERYBODY,
    ("POST", "/api/v1/exceptions"): SUBMITTERS,
    ("POST", "/api/v1/exceptions/{case_id}/approve"): frozenset({"adm"}),
    ("POST", "/api/v1/exceptions/{case_id}/refuse"): frozenset({"mia", "adv", "adm"}),
    ("POST", "/api/v1/exceptions/{case_id}/revoke"): TEAM,
    ("GET", "/api/v1/nodes"): EVERYBODY,
    ("GET", "/api/v1/nodes/{name}"): EVERYBODY,
    ("POST", "/api/v1/nodes/{name}/drain"): OPERATORS,
    ("POST", "/api/v1/nodes/{name}/resume"): OPERATORS,
    ("POST", "/api/v1/nodes/{name}/report"): OPERATORS,
    ("GET", "/api/v1/squatters"): EVERYBODY,
    ("GET", "/api/v1/events"): EVERYBODY,
    ("GET", "/api/v1/decisions"): EVERYBODY,
    ("GET", "/api/v1/audit"): OPERATORS,
    ("GET", "/api/v1/whoami"): EVERYBODY,
    ("GET", "/api/v1/version"): EVERYBODY,
    ("GET", "/api/v1/tokens"): EVERYBODY,
    ("POST", "/api/v1/tokens"): frozenset({"adm"}),
    ("DELETE", "/api/v1/tokens/{token_id}"): frozenset({"eve", "adm"}),
    ("GET", "/api/v1/now"): EVERYBODY,
    ("GET", "/api/v1/trend"): EVERYBODY,
    ("GET", "/api/v1/chronicle"): EVERYBODY,
    ("GET", "/api/v1/replays"): EVERYBODY,
    ("GET", "/api/v1/replays/compare"): EVERYBODY,
    ("GET", "/api/v1/replays/page"): EVERYBODY,
    ("GET", "/api/v1/session"): EVERYBODY | {""},
    ("POST", "/api/v1/session"): EVERYBODY,
    ("DELETE", "/api/v1/session"): EVERYBODY | {""},
    **{("GET", address): EVERYBODY | {""} for address in (*ADDRESSES, ASSET)},
    ("GET", "/healthz"): EVERYBODY | {""},
    ("GET", "/readyz"): EVERYBODY | {""},
    ("GET", "/metrics"): EVERYBODY | {""},
    ("GET", "/openapi.json"): EVERYBODY | {""},
}
"""Route -> who may. The job is ada's of vision/video; the budget that changes is that of vision/video; the token that
is made is for somebody else; the one that is revoked is eve's; the exception is ada's, and costs everybody.
``""`` = whoever shows no token."""
REFUSALS = (401, 403)
NO_SUCH_TOKEN = 404
"""Whoever may not revoke a token does not learn whether there is one."""


def routes(app: Any) -> Iterator[tuple[str, str, APIRoute]]:
    for route in app.routes:
        assert isinstance(route, APIRoute), f"{route} is not made by FastAPI: it would pass the guard without a right"
        for method in sorted(route.methods or ()):
            yield method, route.path, route


def request(service: Stage, method: str, path: str, job_id: str) -> tuple[str, dict[str, Any]]:
    """The address and the rest of a request that changes as little as it can."""
    token = [row.id for row in service.store.tokens() if row.user == "eve"][-1]
    case = asked(service) if "{case_id}" in path else ""
    values = {
        "{trial_id}": "w0123456789abcdef",
        "{case_id}": case,
        "{job_id}": job_id,
        "{path:path}": "vision/video",
        "{name}": "n0",
        "{token_id}": token,
    }
    address = path
    for name, value in values.items():
        address = address.replace(name, value)
    rest: dict[str, Any] = {}
    if (method, path) in (("POST", "/api/v1/jobs"), ("POST", "/api/v1/when")):
        rest["json"] = job(argv=["true"])
    elif (method, path) == ("POST", "/api/v1/tokens"):
        rest["json"] = {"user": "zoe", "grants": [{"role": "researcher"}]}
    elif (method, path) == ("PUT", "/api/v1/budgets"):
        rest["json"], rest["headers"] = {"budgets": changed_budgets(service), "why": "a try"}, {"If-Match": "*"}
    elif (method, path) == ("POST", "/api/v1/exceptions"):
        rest["json"] = {"kind": "guaranteed", "account": "vision/video", "lasts": "1h", "reason": "a try"}
    elif (method, path) == ("POST", "/api/v1/rollout"):
        rest["json"] = {"account": "*", "mode": "enforce", "why": "a try"}
    elif "{case_id}" in path:
        rest["json"] = {"why": "a try"}
    elif path.endswith("/budgets/changes"):
        changed = changed_budgets(service)["vision"]["children"]
        rest["json"] = {"edits": {"vision": changed}, "why": "a try"}
    elif path.endswith("/when"):
        rest["params"] = {"wait": 0}
    elif method == "POST":
        rest["json"] = {"xid": 13} if path.endswith("/report") else {}
    return address, rest


def asked(service: Stage) -> str:
    """An exception that ada asks for."""
    with service.client("ada") as client:
        wanted = {"kind": "guaranteed", "account": "vision/video", "lasts": "1h", "reason": "a try"}
        made: str = client.post("/api/v1/exceptions", json=wanted).json()["id"]
    return made


def changed_budgets(service: Stage) -> dict[str, Any]:
    """The present budgets with another share of vision/video."""
    tree: dict[str, Any] = service.desk.budgets().tree
    video = tree["vision"]["children"]["video"]
    video["share"] = "49%" if video["share"] != "49%" else "48%"
    return tree


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A service whose streams end at once, as when it stops."""
    with pytest.MonkeyPatch.context() as patch, stage(tmp_path_factory.mktemp("quiet")) as running:
        patch.setattr("mirab.service.lookahead.RUNS", 3)
        running.parts.bus.close()
        yield running


def test_the_table_names_every_route_and_no_other(quiet: Stage) -> None:
    assert {(method, path) for method, path, _ in routes(quiet.app)} == set(ALLOWED)


def test_every_action_has_a_route_or_is_asked_by_one(quiet: Stage) -> None:
    asked = {action_of(route) for _, _, route in routes(quiet.app)}
    assert set(RULES) - asked == {"job.private", "token.any"}


def test_a_route_without_an_action_keeps_the_service_from_starting(quiet: Stage) -> None:
    from fastapi import FastAPI

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.get("/api/v1/secrets")(lambda: "all of them")
    with pytest.raises(ValueError, match="/api/v1/secrets"):
        check_rules(app)


@pytest.mark.parametrize("user", ["", *PEOPLE])
def test_each_route_for_each_role(quiet: Stage, user: str) -> None:
    job_id = quiet.submit()["id"]
    quiet.token("eve", "researcher:llm")
    wrong = []
    with quiet.client(user or None) as client:
        for method, path, _ in routes(quiet.app):
            address, rest = request(quiet, method, path, job_id)
            status = client.request(method, address, **rest).status_code
            assert status < 500, (method, path, status)
            refused = status in REFUSALS or (path.endswith("{token_id}") and status == NO_SUCH_TOKEN)
            if refused is (user in ALLOWED[method, path]):
                wrong.append(f"{method} {path}: {status}")
    assert not wrong


@pytest.mark.parametrize("user", PEOPLE)
def test_scripts_and_environments_are_for_the_team_only(quiet: Stage, user: str) -> None:
    job_id = quiet.submit(environment={"SECRET": "plum"})["id"]
    with quiet.client(user) as client:
        text = client.get(f"/api/v1/jobs/{job_id}").text
        listed = client.get("/api/v1/jobs", params={"limit": 1000}).text + client.get("/api/v1/decisions").text
    assert ("plum" in text) is (user in TEAM)
    assert "plum" not in listed


# --- the rules themselves ------------------------------------------------------------------------------------------
def principal(user: str, *grants: str) -> Principal:
    return Principal(user, tuple(parse_grant(grant) for grant in grants))


@pytest.mark.parametrize(
    ("grant", "account", "allowed"),
    [
        ("researcher:vision", "vision", True),
        ("researcher:vision", "vision/video", True),
        ("researcher:vision/video", "vision", False),
        ("researcher:vision", "visionary", False),
        ("researcher:vision", "llm", False),
        ("researcher", "llm", True),
        ("operator", "llm", False),
    ],
)
def test_a_role_covers_its_account_and_all_below(grant: str, account: str, allowed: bool) -> None:
    assert principal("ada", grant).may("job.submit", account) is allowed


def test_what_is_ones_own_takes_a_role_on_its_account() -> None:
    """So a token for one account is no key to the jobs of another."""
    assert principal("ada", "researcher:llm").may("job.cancel", "llm/chat", owner="ada")
    assert not principal("ada", "researcher:vision").may("job.cancel", "llm/chat", owner="ada")
    assert not principal("ada", "researcher:llm").may("job.cancel", "llm/chat", owner="bob")
    assert not principal("ada").may("job.cancel", "", owner="ada")


def test_an_action_without_a_rule_is_nobodys() -> None:
    with pytest.raises(KeyError):
        principal("ada", "admin").may("job.eat")


@pytest.mark.parametrize("role", ROLES)
def test_an_admin_may_give_every_role_and_the_others_only_their_own(role: str) -> None:
    assert principal("adm", "admin").holds(Grant(role, "llm"))
    assert not principal("eve", "researcher:vision").holds(Grant(role, "llm"))
    assert principal("mia", "manager:llm").holds(Grant(role, "llm/chat")) is (role in ("manager", "researcher"))


@pytest.mark.parametrize("text", ["king", "", "researcher:/llm", "researcher:llm/", "researcher:a//b"])
def test_grants_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"role|account"):
        parse_grant(text)
