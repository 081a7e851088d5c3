"""The cookie of the pages: it reads for whoever logged in, changes nothing, and ends with the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mirab.model.units import DAY, SECOND
from mirab.service.auth.sessions import LIFETIME, Sessions, kept_key
from mirab.service.auth.tokens import digest_of
from tests.api.stage import PATIENCE, Stage

NOW = 1_700_000_000_000
DIGEST = digest_of("mirab_x")


@pytest.fixture
def visitor(service: Stage) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=PATIENCE, verify=False) as client:
        yield client


def log_in(visitor: httpx.Client, token: str) -> httpx.Response:
    return visitor.post("/api/v1/session", headers={"Authorization": f"Bearer {token}"})


def test_whoever_logged_in_reads_and_changes_nothing(service: Stage, visitor: httpx.Client) -> None:
    job = service.submit("ada")["id"]
    assert visitor.get("/api/v1/session").json() == {"me": None}
    assert visitor.get("/api/v1/jobs").status_code == 401
    assert log_in(visitor, service.tokens["ada"]).json()["user"] == "ada"
    assert visitor.get("/api/v1/session").json()["me"]["user"] == "ada"
    assert visitor.get(f"/api/v1/jobs/{job}").json()["spec"] is not None
    changes = [("PUT", "/api/v1/budgets"), *(("POST", f"/api/v1/{name}") for name in ("jobs", "session", "tokens"))]
    for method, address in (*changes, ("POST", f"/api/v1/jobs/{job}/cancel")):
        assert visitor.request(method, address, json={}).status_code == 401, address
    assert visitor.delete("/api/v1/session").status_code == 204
    assert visitor.get("/api/v1/jobs").status_code == 401


def test_a_cookie_is_no_token_and_ends_with_it(service: Stage, visitor: httpx.Client) -> None:
    token = service.token("eve", "researcher:llm")
    answer = log_in(visitor, token)
    header = answer.headers["set-cookie"]
    assert "HttpOnly; SameSite=Strict" in header
    assert "Path=/api/v1" in header
    assert token not in header
    assert log_in(visitor, next(iter(visitor.cookies.values()))).status_code == 401
    newest = max((row for row in service.store.tokens() if row.user == "eve"), key=lambda row: row.created_at)
    with service.client("adm") as admin:
        assert admin.delete(f"/api/v1/tokens/{newest.id}").status_code == 204
    revoked = visitor.get("/api/v1/jobs")
    assert revoked.status_code == 401
    assert "log in" in revoked.json()["detail"]


def test_a_header_counts_more_than_a_cookie(service: Stage, visitor: httpx.Client) -> None:
    log_in(visitor, service.tokens["ada"])
    told = visitor.get("/api/v1/whoami", headers={"Authorization": f"Bearer {service.tokens['eve']}"}).json()
    assert told["user"] == "eve"


def test_only_what_the_service_signed_counts_and_not_for_ever() -> None:
    sessions, others = Sessions(b"k" * 32), Sessions(b"o" * 32)
    cookie = sessions.begin(DIGEST, NOW, secure=False).partition(";")[0]
    assert sessions.digest(f"a=b; {cookie}; c=d", NOW + DAY) == DIGEST
    assert sessions.digest(cookie, NOW + LIFETIME) is None
    assert others.digest(cookie.replace(sessions.cookie, others.cookie), NOW) is None
    name, _, value = cookie.partition("=")
    until, digest, mark = value.split(".")
    later = f"{name}={int(until) + SECOND}.{digest}.{mark}"
    for bad in (later, f"{name}={until}.{'0' * 64}.{mark}", f"{name}={value}x", f"{name}=", f"{name}=..", name, "",
                f"{name}={'9' * 9000}", f'{name}="', f"{name}=ä"):  # fmt: skip
        assert sessions.digest(bad, NOW) is None, bad
    assert sessions.cookie != others.cookie


def test_a_browser_that_came_over_https_sends_the_cookie_only_so() -> None:
    assert "; Secure" in Sessions().begin(DIGEST, NOW, secure=True)
    assert "Secure" not in Sessions().begin(DIGEST, NOW, secure=False)


def test_the_key_outlives_a_restart_and_only_the_service_reads_it(tmp_path: Path) -> None:
    key = kept_key(tmp_path)
    assert kept_key(tmp_path) == key
    assert (tmp_path / "pages.key").stat().st_mode & 0o777 == 0o600


# --- where one may come from -----------------------------------------------------------------------------------------
ELSEWHERE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


def test_a_link_in_a_mail_leads_to_a_page_but_not_into_the_api(service: Stage, visitor: httpx.Client) -> None:
    log_in(visitor, service.tokens["ada"])
    assert visitor.get("/jobs/1", headers=ELSEWHERE).status_code == 200
    assert visitor.get("/api/v1/jobs", headers=ELSEWHERE).status_code == 403
    assert visitor.get("/", headers={**ELSEWHERE, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert visitor.get("/", headers={**ELSEWHERE, "Origin": "https://elsewhere.example"}).status_code == 403
    assert visitor.post("/api/v1/session", headers=ELSEWHERE).status_code == 403


def test_the_pages_allow_nothing_from_outside_and_nobody_to_frame_them(visitor: httpx.Client) -> None:
    answer = visitor.get("/accounts/vision/video")
    policy = answer.headers["content-security-policy"]
    assert answer.headers.get_list("content-security-policy") == [policy]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    again = visitor.get("/accounts/vision/video", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert visitor.get("/api/v1/version").headers["content-security-policy"].startswith("default-src 'none'")


def test_sentences_name_instants_in_the_zone_of_the_reader(service: Stage, visitor: httpx.Client) -> None:
    """When a drain ends, say: the same instant, told on two clocks; a zone that is none is passed over."""
    log_in(visitor, service.tokens["ops"])
    node = {"Authorization": f"Bearer {service.tokens['ops']}"}
    service.submit("ada", gpus_per_node=4, min_runtime="2h")
    with service.client("ops") as ops:
        held = next(each for each in ops.get("/api/v1/nodes").json()["nodes"] if each["jobs"])
    visitor.post(f"/api/v1/nodes/{held['name']}/drain", json={"why": "a look"}, headers=node)
    told = {}
    for zone in ("Asia/Tokyo", "America/New_York", "No/Where", "../../etc/passwd", ""):
        answer = visitor.get("/api/v1/chronicle", params={"about": held["name"], "topic": "nodes"},
                             headers={"X-Time-Zone": zone})  # fmt: skip
        assert answer.status_code == 200, zone
        told[zone] = answer.text
    visitor.post(f"/api/v1/nodes/{held['name']}/resume", json={}, headers=node)
    assert told["Asia/Tokyo"] != told["America/New_York"]
    assert told["No/Where"] == told[""] == told["../../etc/passwd"]
