"""Rights and lists follow an account that goes on under another name."""

from __future__ import annotations

from typing import Any

from tests.api.stage import Stage, job
from tests.api.test_budgets import get, put
from tests.api.test_streams import listening


def renamed(service: Stage) -> None:
    """vision/video goes on as vision/film."""
    budgets, etag = get(service)
    children = budgets["vision"]["children"]
    children["film"] = {**children.pop("video"), "formerly": ["vision/video"]}
    done = put(service, budgets, user="mia", etag=etag)
    assert done.status_code == 200, done.text


def listed(service: Stage, account: str) -> list[tuple[str, str]]:
    with service.client("adm") as client:
        rows: list[dict[str, Any]] = client.get("/api/v1/jobs", params={"account": account}).json()["jobs"]
    return [(row["id"], row["account"]) for row in rows]


def test_roles_and_jobs_follow_a_renamed_account(own_service: Stage) -> None:
    first = own_service.submit("ada")
    film = own_service.token("kim", "manager:vision/film")
    renamed(own_service)
    for account in ("vision/film", "vision", "vision/video"):
        assert listed(own_service, account) == [(first["id"], "vision/film")], account
    assert listed(own_service, "llm") == []
    with own_service.client("bob") as client:
        more = client.post("/api/v1/jobs", json=job(account="vision/film"))
        assert more.status_code == 201, more.text
        mine = client.get("/api/v1/whoami").json()
        assert "vision/film" in str(mine), mine
    with own_service.client("max") as client:
        assert client.post(f"/api/v1/jobs/{first['id']}/hold", json={"why": "no"}).status_code == 403
    with own_service.client(secret=film) as client:
        assert client.get(f"/api/v1/jobs/{first['id']}").json()["spec"] is not None
        done = client.post(f"/api/v1/jobs/{first['id']}/cancel", json={"why": "over"})
        assert done.status_code == 200, done.text


def test_who_listens_to_an_account_hears_the_jobs_it_goes_on_for(own_service: Stage) -> None:
    """Those of the time before, under the new name and the old one; and nobody else's."""
    first = own_service.submit("ada")["id"]
    renamed(own_service)
    with (
        listening(own_service, account="vision/film") as film,
        listening(own_service, account="vision/video") as video,
        listening(own_service, account="llm") as elsewhere,
    ):
        with own_service.client("adm") as client:
            assert client.post(f"/api/v1/jobs/{first}/cancel", json={"why": "over"}).status_code == 200
        other = own_service.submit("eve", account="llm")["id"]
        for heard in (film, video):
            assert next(heard).data["job"] == first
        assert next(elsewhere).data["job"] == other


def test_nobody_takes_the_past_of_an_account_that_was_not_theirs(own_service: Stage) -> None:
    renamed(own_service)
    budgets, etag = get(own_service)
    budgets["llm"]["children"] = {"loot": {"share": "10%", "formerly": ["vision/video"]}}
    refused = put(own_service, budgets, user="max", etag=etag)
    assert refused.status_code == 403, refused.text
    assert "vision/video" in refused.json()["detail"]
    with own_service.client("max") as client:
        edits = {"llm": budgets["llm"]["children"]}
        changed = client.post("/api/v1/budgets/changes", json={"edits": edits, "why": "loot"})
    assert changed.status_code == 403, changed.text
    assert "may not let llm/loot go on for vision/video" in changed.json()["detail"]
