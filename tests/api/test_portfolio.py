"""The portfolio plane over the wire: decisions about budgets, exceptions, gates and the rollout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.stage import Stage

VISION = {"video": {"share": "50%"}, "image": {"share": "25%"}}


def ask(service: Stage, user: str, method: str, path: str, **body: Any) -> Any:
    with service.client(user) as client:
        return client.request(method, f"/api/v1{path}", json=body if method != "GET" else None)


def change(service: Stage, user: str = "mia", *, why: str = "a try", **body: Any) -> Any:
    return ask(service, user, "POST", "/budgets/changes", why=why, **body)


def test_a_change_of_some_accounts_is_a_version_of_the_history(own_service: Stage) -> None:
    edits = {"vision": {**VISION, "image": {"share": "40%", "owner": "ida"}}}
    made = change(own_service, edits=edits, base=1, evidence="whatif.json sha256:12ab")
    assert made.status_code == 201, made.text
    assert made.json()["version"] == 2
    assert made.json()["changes"][0]["account"] == "vision/image"
    told = ask(own_service, "eve", "GET", "/budgets/history").json()
    assert told["version"] == 2
    assert [each["author"] for each in told["changesets"]] == ["cluster file", "mia"]
    assert told["changesets"][1]["evidence"] == "whatif.json sha256:12ab"
    tree = ask(own_service, "eve", "GET", "/budgets").json()
    assert tree["version"] == told["etag"]
    assert tree["budgets"]["vision"]["children"]["image"] == {"share": "40%", "owner": "ida"}
    late = change(own_service, "adm", edits={"vision": VISION}, base=1)
    assert late.status_code == 409
    assert "version 2 of mia" in late.json()["detail"]
    assert late.json()["by"] == "mia"


def test_a_change_of_the_future_is_planned_and_can_be_cancelled(own_service: Stage) -> None:
    at = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    made = change(own_service, edits={"vision": {**VISION, "image": {"share": "40%"}}}, effective_at=at)
    assert made.status_code == 201, made.text
    assert made.json()["effective_at"] > made.json()["recorded_at"]
    assert ask(own_service, "eve", "GET", "/budgets").json()["budgets"]["vision"]["children"] == VISION
    assert change(own_service, reverts=made.json()["version"]).status_code == 201
    told = ask(own_service, "eve", "GET", "/budgets/history").json()
    assert [each["cancelled"] for each in told["changesets"]] == [False, True, True]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"edits": {}},
        {"edits": {"vision": {}}},
        {"edits": {"vision": {"a": {}}}},
        {"edits": {"vision": VISION}, "base": -1},
        {"edits": {"vision": VISION}, "effective_at": "2027-01-01"},
        {"edits": {"vision": VISION}, "base": True},
        {"edits": {"vision": {**VISION, "more": {"share": "30%"}}}},
    ],
)  # fmt: skip
def test_what_is_no_changeset_is_refused(service: Stage, body: dict[str, Any]) -> None:
    answer = change(service, "adm", **body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


def test_a_share_of_more_than_there_is_is_refused_in_words(service: Stage) -> None:
    wish = {"kind": "extra-share", "account": "vision/video", "reason": "a try", "lasts": "1d", "share": "890%"}
    answer = ask(service, "adm", "POST", "/exceptions", **wish)
    assert answer.status_code == 422, answer.text
    assert "more than 100%" in answer.json()["detail"]
