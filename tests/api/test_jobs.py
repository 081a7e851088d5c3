"""Jobs over HTTP: submission with keys, lists, commands, awaiting."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.api.stage import Stage, job


def test_a_job_is_submitted_shown_and_cancelled(service: Stage) -> None:
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", json=job(name="first"))
        assert answer.status_code == 201
        [made] = answer.json()["jobs"]
        assert answer.headers["location"] == f"/api/v1/jobs/{made['id']}"
        assert client.get(f"/api/v1/jobs/{made['id']}").json()["spec"]["argv"] == ["sleep", "1000"]
        assert client.post(f"/api/v1/jobs/{made['id']}/cancel", json={"why": "tired"}).status_code == 200
        ended = client.get(f"/api/v1/jobs/{made['id']}/await", params={"timeout": 30}).json()
        assert ended["state"] == "CANCELLED"


def test_a_request_with_a_key_is_done_once_however_often_it_comes(service: Stage) -> None:
    with service.client("ada") as client:
        headers = {"Idempotency-Key": "monday-1"}

        def send(_: int) -> Any:
            return client.post("/api/v1/jobs", json=job(name="once"), headers=headers)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(send, range(8)))
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["ids"][0] for answer in answers}) == 1
        other = client.post("/api/v1/jobs", json=job(name="another"), headers=headers)
        assert other.status_code == 409
        assert "key" in other.json()["detail"]


def test_a_key_is_its_users_own(service: Stage) -> None:
    headers = {"Idempotency-Key": "tuesday-1"}
    with service.client("ada") as ada, service.client("bob") as bob:
        first = ada.post("/api/v1/jobs", json=job(), headers=headers).json()["ids"]
        second = bob.post("/api/v1/jobs", json=job(), headers=headers).json()["ids"]
    assert first != second


@pytest.mark.parametrize("key", ["", "two words", "x" * 256, "\u00e9"])
def test_keys_that_cannot_be_are_refused(service: Stage, key: str) -> None:
    with service.client("ada") as client:
        answer = client.post("/api/v1/jobs", json=job(), headers={b"Idempotency-Key": key.encode()})
    assert answer.status_code == 422


def test_a_dry_run_tells_the_decision_and_submits_nothing(service: Stage) -> None:
    with service.client("ada") as client:
        before = service.store.counts()
        told = client.post("/api/v1/jobs", params={"dry_run": True}, json=job()).json()
        assert told["decision"] in ("start", "wait")
        assert told["sentence"]
        never = client.post("/api/v1/jobs", params={"dry_run": True}, json=job(gpus_per_node=64)).json()
        assert never["decision"] == "reject"
    assert service.store.counts() == before


def test_the_folder_of_a_run_is_for_those_who_see_what_it_executes(own_service: Stage, tmp_path: Path) -> None:
    made = own_service.submit(argv=["sleep", "1000"])["id"]
    own_service.outputs.folders[made] = tmp_path
    with own_service.client("ada") as ada, own_service.client("eve") as eve:
        while ada.get(f"/api/v1/jobs/{made}").json()["state"] != "RUNNING":
            time.sleep(0.02)
        assert ada.get(f"/api/v1/jobs/{made}").json()["run_dir"] == str(tmp_path)
        seen = eve.get(f"/api/v1/jobs/{made}").json()
        assert (seen["run_dir"], seen["spec"]) == ("", None)


def test_pages_neither_repeat_nor_leave_out(own_service: Stage) -> None:
    made = [own_service.submit(argv=["sleep", "1000"])["id"] for _ in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    with own_service.client("eve") as client:
        while True:
            page = client.get("/api/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
            seen += [each["id"] for each in page["jobs"]]
            if (cursor := page["next"]) is None:
                break
    assert seen == made


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"state": "PENDING,RUNNING"}, 200),
        ({"state": ["pending", "RUNNING"]}, 200),
        ({"state": "SLEEPING"}, 422),
        ({"limit": 0}, 422),
        ({"limit": 10**30}, 422),
        ({"cursor": "nonsense"}, 422),
        ({"account": "vision"}, 200),
        ({"user": "a\x00b"}, 422),
        ({"ids": "1,2,3"}, 200),
        ({"array_job": "x"}, 422),
        ({"unknown": "ignored"}, 200),
    ],
)
def test_queries_are_understood_or_refused(service: Stage, query: dict[str, Any], status: int) -> None:
    with service.client("ada") as client:
        answer = client.get("/api/v1/jobs", params=query)
    assert answer.status_code == status, answer.text


def test_awaiting_ends_with_the_time_or_with_the_job(own_service: Stage) -> None:
    made = own_service.submit(argv=["sleep", "1000"])["id"]
    with own_service.client("ada") as client, ThreadPoolExecutor(1) as pool:
        still = client.get(f"/api/v1/jobs/{made}/await", params={"timeout": 0}).json()
        assert still["state"] in ("PENDING", "RUNNING")
        waiting = pool.submit(client.get, f"/api/v1/jobs/{made}/await", params={"timeout": 60})
        own_service.desk.cancel(_adm(own_service), [made], "enough")
        assert waiting.result(60).json()["state"] == "CANCELLED"
        assert client.get("/api/v1/jobs/999/await").status_code == 404


def _adm(service: Stage) -> Any:
    return service.parts.auth.of_token(service.tokens["adm"], "test")


def test_every_change_stands_in_the_audit_log(service: Stage) -> None:
    made = service.submit()["id"]
    with service.client("mia") as mia, service.client("ops") as ops:
        mia.post(f"/api/v1/jobs/{made}/cancel", json={"why": "the deadline moved"})
        page = ops.get("/api/v1/audit", params={"user": "mia", "limit": 1}).json()
    [entry] = page["entries"]
    assert entry["who"] == "mia"
    assert entry["origin"] == "127.0.0.1"
    assert entry["target"] == made
    assert entry["why"] == "the deadline moved"
