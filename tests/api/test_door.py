"""The guard, and what hostile or clumsy callers send: a problem each time, never a traceback, never a hang."""

from __future__ import annotations

import json
import socket
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from mirab.service.api.guard import check_host, check_origin
from mirab.service.api.ports import ApiSettings
from mirab.service.api.problems import ProblemError, problem_of, respond
from mirab.service.desk.errors import KINDS, DeskError
from mirab.service.inbox import UnavailableError, UnknownOutcomeError
from mirab.store.errors import StoreError
from tests.api.stage import PATIENCE, Stage, job, stage


def raw(service: Stage, data: bytes, *, half: bool = False) -> bytes:
    """What comes back for these bytes. `half`: nothing more is sent, but the connection is kept open."""
    host, port = "127.0.0.1", int(service.url.rpartition(":")[2])
    with socket.create_connection((host, port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        if not half:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
        return answer


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


# --- who may call from where ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:7077", True),
        ("localhost:7077", True),
        ("[::1]:7077", True),
        ("10.1.2.3", True),
        ("gpu.example", True),
        ("GPU.example:80", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[::1", False),
        ("a@localhost", True),
        ("user:pass@evil.example", False),
    ],
)
def test_only_known_names_against_dns_rebinding(host: str, known: bool) -> None:
    request = _request(host=host)
    if known:
        check_host(request, ("gpu.example",))
    else:
        with pytest.raises(ProblemError) as caught:
            check_host(request, ("gpu.example",))
        assert caught.value.status == 421


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"origin": "http://localhost:7077"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://localhost:7078"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
    ],
)
def test_pages_of_other_origins_get_nothing(headers: dict[str, str], allowed: bool) -> None:
    request = _request(host="localhost:7077", **headers)
    if allowed:
        check_origin(request)
    else:
        with pytest.raises(ProblemError) as caught:
            check_origin(request)
        assert caught.value.status == 403


def _request(**headers: str) -> Any:
    from starlette.requests import Request

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": pairs, "query_string": b""})


def test_the_door_asks_host_and_origin_before_the_token(service: Stage) -> None:
    with service.client("adm") as client:
        assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/api/v1/jobs", headers={"Origin": "http://evil.example"}).status_code == 403


def test_every_answer_carries_the_headers_of_safety_and_an_id(service: Stage) -> None:
    with service.client() as client:
        for path in ("/healthz", "/api/v1/jobs", "/nowhere", "/openapi.json"):
            headers = client.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-request-id"]
            assert "server" not in headers
        assert client.get("/healthz", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
        assert client.get("/healthz", headers={b"X-Request-Id": "a b\u2028".encode()}).headers["x-request-id"] != "a b"


def test_an_answer_is_dated_when_it_is_given(service: Stage) -> None:
    with service.client() as client:
        before = int(time.time())
        said = parsedate_to_datetime(client.get("/healthz").headers["date"]).timestamp()
    assert before <= said <= time.time()


def test_no_page_of_documentation_loads_anything_from_outside(service: Stage) -> None:
    with service.client("adm") as client:
        assert [client.get(path).status_code for path in ("/docs", "/redoc", "/docs/oauth2-redirect")] == [404] * 3


# --- sizes and times -----------------------------------------------------------------------------------------------
def test_a_large_body_is_refused_before_it_is_read(service: Stage) -> None:
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", content=b"x" * (10 << 20), headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert "MiB" in answer.json()["detail"]
        assert client.post("/api/v1/jobs", json=job(script="#!/bin/sh\n" + "x" * (2 << 20))).status_code == 422


def test_a_large_body_in_pieces_without_a_length_is_refused_too(service: Stage) -> None:
    def pieces() -> Any:
        for _ in range(100):
            yield b"x" * (1 << 20)

    try:
        with service.client("ada") as client:
            answer = client.post("/api/v1/jobs", content=pieces(), headers={"Content-Type": "application/json"})
            assert answer.status_code == 413
    except OSError:
        pass
    except Exception as error:
        assert type(error).__name__ in ("WriteError", "ReadError", "RemoteProtocolError")


def test_nobody_is_read_at_length_who_has_not_said_who_they_are(service: Stage) -> None:
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    assert status_of(raw(service, head, half=True)) == 401


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    with stage(tmp_path, ApiSettings(body_patience=0.05)) as service:
        token = service.tokens["ada"].encode()
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token
        answer = raw(service, head + b"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", half=True)
    assert status_of(answer) == 408


# --- what is no request --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_a_problem_or_a_closed_door(service: Stage, data: bytes) -> None:
    answer = raw(service, data)
    assert b"Traceback" not in answer
    if answer:
        assert 400 <= status_of(answer) < 500, answer[:300]
        assert b"problem+json" in answer
    with service.client() as client:
        assert client.get("/healthz").status_code == 200


def test_an_address_in_full_and_a_star_are_nothing(service: Stage) -> None:
    for target in (b"http://evil.example/healthz", b"*", b"//evil.example/x"):
        answer = raw(service, b"OPTIONS " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert status_of(answer) in (400, 401, 404, 405)


def test_a_method_that_is_not_known_is_told_which_are(service: Stage) -> None:
    with service.client("adm") as client:
        answer = client.request("PATCH", "/api/v1/budgets")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, PUT"
        assert client.request("BREW", "/api/v1/jobs").headers["allow"] == "GET, POST"


# --- what is no job ------------------------------------------------------------------------------------------------
def test_a_refusal_names_the_field_as_its_sender_knows_it(service: Stage) -> None:
    with service.client("ada") as client:
        named = client.post("/api/v1/jobs", json=job(name="two\nlines")).json()
        asked = client.get("/api/v1/jobs", params={"limit": "x"}).json()
    assert named["detail"] == "name: write one line of plain text, without control characters"
    assert named["errors"][0]["where"] == "body.name"
    assert asked["detail"].startswith("limit: ")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "body: is missing"),
        (b"[]", 'body: has to be an object, {"name": value}'),
        (b"{", "body.1: is not JSON"),
        (b'{"argv": "sleep"}', "argv: has to be a list, [...]"),
        (b'{"argv": [1]}', "argv.0: has to be text, in quotes"),
        (b'{"nodes": 1.5}', "nodes: has to be a whole number"),
        (b'{"nodes": 0}', "nodes: has to be 1 or more"),
        (b'{"nodes": 100001}', "nodes: has to be 100000 or less"),
        (b'{"environment": {"A": null}}', "environment.A: has to be text, in quotes"),
        (b'{"node": 1}', "node: there is no such field"),
        (b'{"name": "' + b"x" * 257 + b'"}', "name: has more than 256 characters"),
    ],
)
def test_a_refusal_is_in_plain_words(service: Stage, body: bytes, told: str) -> None:
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"}).json()
    assert answer["detail"] == told


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": 0},
        {"nodes": -1},
        {"nodes": 2**80},
        {"nodes": 1.0},
        {"nodes": True},
        {"nodes": "2"},
        {"nodes": None},
        {"nodes": []},
        {"nodes": 100_001},
        {"gpus_per_node": 1e308},
        {"name": "a\nb"},
        {"name": "a\x1b[31m"},
        {"name": "\x00"},
        {"name": "abc\u202ecba"},
        {"name": "x" * 257},
        {"name": 7},
        {"account": "vision/../llm"},
        {"account": "\ud800"},
        {"argv": ["\ud800"]},
        {"argv": ["a\x00b"]},
        {"argv": [[]]},
        {"argv": "sleep 1"},
        {"argv": ["x"] * 5_000},
        {"argv": []},
        {"script": "#!/bin/sh\n\x00"},
        {"environment": {"A=B": "c"}},
        {"environment": {"": "c"}},
        {"environment": {"A": "\x00"}},
        {"environment": {"A": None}},
        {"environment": [["A", "b"]]},
        {"cwd": "relative"},
        {"cwd": "/a\x00"},
        {"time_limit": "60"},
        {"time_limit": "1e9h"},
        {"time_limit": "99999999999d"},
        {"time_limit": "-1h"},
        {"min_runtime": "\u0663h"},
        {"signal": "KILL; rm -rf /"},
        {"signal": "NOSUCH"},
        {"output": "a\x00b"},
        {"output": "x" * 5_000},
        {"deadline": "tomorrow"},
        {"deadline": "2026-01-01T00:00:00"},
        {"deadline": "99999-01-01T00:00:00Z"},
        {"dependency": "afterok:no"},
        {"dependency": "x" * 10_000},
        {"array": "0-999999999"},
        {"array": "a-b"},
        {"priority": 10**9},
        {"unknown_field": 1},
        {"hold": "yes"},
        {"gpu_types": ["\x07"]},
    ],
)
def test_jobs_that_cannot_be_are_refused_with_a_sentence(service: Stage, fields: dict[str, Any]) -> None:
    before = service.store.counts()
    body = json.dumps(job(**fields)).encode("utf-8")
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (403, 404, 422), answer.text
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert problem["detail"]
    assert "Traceback" not in answer.text
    assert service.store.counts() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"name": 'it\'s "quoted" & $(odd) \u00fc\u4e2d \U0001f600'},
        {"argv": ["sleep", "1000", "two\nlines", "'", '"', "\\", "$HOME", "\u202e", "-" * 100_000]},
        {"environment": {"A B": "c\nd", "\u00fc": "\u00fc", "QUOTE": "'\"`$(x)"}},
        {"script": "#!/bin/sh\necho '\u00fc' \"$1\"\n"},
        {"signal": "SIGUSR1"},
        {"signal": "10"},
        {"gpu_types": ["H100"]},
        {"output": "../%j/./x y.out"},
    ],
)
def test_odd_but_honest_jobs_are_taken_as_they_are(service: Stage, fields: dict[str, Any]) -> None:
    made = service.submit(**fields)
    spec = service.store.spec(made["id"])
    assert spec is not None
    if "argv" in fields:
        assert list(spec.argv) == fields["argv"]
    if "environment" in fields:
        assert dict(spec.environment) == fields["environment"]
    with service.client("ada") as client:
        shown = client.get(f"/api/v1/jobs/{made['id']}").json()
    assert "name" not in fields or shown["name"] == fields["name"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[]", 422),
        (b"null", 422),
        (b"\xff\xfe\x00", 400),
        (b'{"account": "\xff"}', 400),
        (b'{"nodes": ' + b"9" * 5_000 + b"}", 400),
        (b'{"nodes": NaN}', 422),
        (b'{"nodes": Infinity}', 422),
        (b"[" * 100_000, 400),
        (b'{"a":' * 100_000, 400),
    ],
)
def test_bodies_that_are_no_json_are_refused(service: Stage, body: bytes, status: int) -> None:
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_of_a_foreign_page_is_no_json(service: Stage, kind: str) -> None:
    """What a browser sends across origins without asking first."""
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", content=json.dumps(job()), headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == 422


# --- problems ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_every_refusal_of_the_desk_has_a_status(kind: str) -> None:
    problem = problem_of(DeskError(kind, "because", id="7"))
    answer = json.loads(bytes(respond(problem, "r1").body))
    assert 400 <= answer["status"] < 600
    assert (answer["detail"], answer["id"], answer["instance"]) == ("because", "7", "urn:mirab:request:r1")


def test_an_unknown_outcome_says_whether_to_repeat() -> None:
    assert problem_of(UnknownOutcomeError("late"), repeatable=True).status == 503
    assert problem_of(UnknownOutcomeError("late"), repeatable=False).status == 504
    assert problem_of(UnavailableError("busy")).status == 503


def test_the_inside_stays_inside() -> None:
    for error in (RuntimeError("password=plum"), StoreError("postgresql://u:plum@h/db"), KeyError("plum")):
        assert "plum" not in problem_of(error).detail


def test_a_fault_in_a_handler_is_a_500_without_its_story(own_service: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> None:
        raise RuntimeError("password=plum")

    monkeypatch.setattr(own_service.parts.views, "nodes", break_down)
    with own_service.client("ada") as client:
        answer = client.get("/api/v1/nodes")
        assert answer.status_code == 500
        assert "plum" not in answer.text
        assert answer.headers["x-request-id"] in answer.json()["instance"]
        assert client.get("/api/v1/jobs").status_code == 200


# --- how it is -----------------------------------------------------------------------------------------------------
def test_health_is_of_the_process_and_readiness_of_the_scheduler(own_service: Stage) -> None:
    with own_service.client() as client:
        own_service.submit()
        assert client.get("/readyz").json() == {"status": "ready", "detail": ""}
        own_service.live.pulse.store_trouble = "the disk is full: free some space"
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["detail"] == "the disk is full: free some space"
    with own_service.client("ada") as client:
        refused = client.post("/api/v1/jobs", json=job())
        assert (refused.status_code, "disk is full" in refused.text) == (503, True), "at once, instead of in 30 s"
        own_service.live.pulse.store_trouble = ""
        assert client.post("/api/v1/jobs", json=job()).status_code == 201


def test_metrics_can_be_closed(tmp_path: Path) -> None:
    with stage(tmp_path, ApiSettings(metrics_open=False)) as service:
        with service.client() as client:
            assert client.get("/metrics").status_code == 401
        with service.client("eve") as client:
            assert client.get("/metrics").status_code == 200
        with service.over_socket() as client:
            assert client.get("/metrics").status_code == 200
