"""What a job has written: read, followed, and never a way to somebody else's file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirab.service.api.output import open_output
from mirab.service.api.problems import ProblemError
from tests.api.stage import Stage

SECRET = b"the other team's secret"


@pytest.fixture
def running(own_service: Stage) -> str:
    """A job that runs."""
    made = str(own_service.submit()["id"])
    with own_service.client("ada") as client:
        while client.get(f"/api/v1/jobs/{made}").json()["state"] != "RUNNING":
            client.get(f"/api/v1/jobs/{made}/await", params={"timeout": 0.05})
    return made


def write(service: Stage, job: str, file: Path, text: bytes, attempt: int = 1, stream: str = "out") -> None:
    file.write_bytes(text)
    service.outputs.files[job, attempt, stream] = file


def test_output_is_read_from_where_one_wants(own_service: Stage, running: str, tmp_path: Path) -> None:
    write(own_service, running, tmp_path / "out", bytes(range(256)) * 1000)
    with own_service.client("ada") as client:
        whole = client.get(f"/api/v1/jobs/{running}/output")
        assert whole.content == bytes(range(256)) * 1000
        assert whole.headers["content-type"].startswith("text/plain")
        rest = client.get(f"/api/v1/jobs/{running}/output", params={"offset": 255_990})
        assert rest.content == bytes(range(246, 256))
        assert client.get(f"/api/v1/jobs/{running}/output", params={"stream": "err"}).status_code == 404
        assert client.get(f"/api/v1/jobs/{running}/output", params={"attempt": 2}).status_code == 404


def test_followed_output_goes_on_until_the_job_has_ended(own_service: Stage, running: str, tmp_path: Path) -> None:
    file = tmp_path / "out"
    write(own_service, running, file, b"one\n")
    with (
        own_service.client("ada") as client,
        client.stream("GET", f"/api/v1/jobs/{running}/output", params={"follow": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "one"
        with file.open("ab") as more:
            more.write(b"two\n")
        assert next(lines) == "two"
        with file.open("ab") as more:
            more.write(b"three\n")
        with own_service.client("ada") as other:
            other.post(f"/api/v1/jobs/{running}/cancel", json={})
        assert list(lines) == ["three"]


def test_following_goes_on_with_the_next_attempt(own_service: Stage, running: str, tmp_path: Path) -> None:
    write(own_service, running, tmp_path / "one", b"first attempt\n")
    write(own_service, running, tmp_path / "two", b"second attempt\n", attempt=2)
    with (
        own_service.client("ada") as client,
        own_service.client("ada") as other,
        client.stream("GET", f"/api/v1/jobs/{running}/output", params={"follow": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "first attempt"
        assert other.post(f"/api/v1/jobs/{running}/requeue", json={}).status_code == 200
        assert next(lines) == "second attempt"
        other.post(f"/api/v1/jobs/{running}/cancel", json={})
        assert list(lines) == []


def test_following_begins_before_there_is_anything(own_service: Stage, running: str, tmp_path: Path) -> None:
    with own_service.client("ada") as client, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(client.get, f"/api/v1/jobs/{running}/output", params={"follow": True})
        write(own_service, running, tmp_path / "out", b"late\n")
        with own_service.client("ada") as other:
            other.post(f"/api/v1/jobs/{running}/cancel", json={})
        assert reading.result(60).content in (b"late\n", b"")


def test_a_file_that_was_emptied_is_read_again(own_service: Stage, running: str, tmp_path: Path) -> None:
    file = tmp_path / "out"
    write(own_service, running, file, b"a long first line\n")
    with (
        own_service.client("ada") as client,
        client.stream("GET", f"/api/v1/jobs/{running}/output", params={"follow": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "a long first line"
        file.write_bytes(b"new\n")
        assert next(lines) == "new"


def test_a_job_that_has_not_started_has_no_output(own_service: Stage) -> None:
    made = own_service.submit(hold=True)["id"]
    with own_service.client("ada") as client:
        answer = client.get(f"/api/v1/jobs/{made}/output")
    assert answer.status_code == 404
    assert "not started" in answer.json()["detail"]


# --- tricks --------------------------------------------------------------------------------------------------------
def refused(path: Path, owner: int | None = None) -> str:
    with pytest.raises(ProblemError) as caught:
        os.close(open_output(path, os.geteuid() if owner is None else owner))
    assert caught.value.status == 404
    return caught.value.detail


def test_a_link_in_place_of_the_output_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "out").symlink_to(tmp_path / "secret")
    refused(tmp_path / "out")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_file_is_not_shown_whatever_leads_there(tmp_path: Path) -> None:
    """A hard link, and a folder that was replaced by a link."""
    (tmp_path / "theirs").mkdir()
    secret = tmp_path / "theirs" / "out"
    secret.write_bytes(SECRET)
    os.chown(secret, 61_001, 61_001)
    (tmp_path / "hard").hardlink_to(secret)
    (tmp_path / "mine").symlink_to(tmp_path / "theirs")
    for path in (tmp_path / "hard", tmp_path / "mine" / "out"):
        assert "belongs" in refused(path, owner=61_000)


def test_pipes_folders_and_devices_are_not_opened(tmp_path: Path) -> None:
    """A pipe without a writer would keep the thread for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "missing", Path("/proc/self/mem/x")):
        refused(path)


def test_a_link_put_there_while_it_is_followed_shows_nothing(own_service: Stage, running: str, tmp_path: Path) -> None:
    file = tmp_path / "out"
    write(own_service, running, file, b"mine\n")
    (tmp_path / "secret").write_bytes(SECRET)
    with (
        own_service.client("ada") as client,
        own_service.client("ada") as other,
        client.stream("GET", f"/api/v1/jobs/{running}/output", params={"follow": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "mine"
        file.unlink()
        file.symlink_to(tmp_path / "secret")
        other.post(f"/api/v1/jobs/{running}/requeue", json={})
        other.post(f"/api/v1/jobs/{running}/cancel", json={})
        assert SECRET.decode() not in "".join(lines)
    with own_service.client("ada") as client:
        assert client.get(f"/api/v1/jobs/{running}/output", params={"attempt": 1}).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs/../../../etc/passwd/output",
        "/api/v1/jobs/..%2f..%2f..%2fetc%2fpasswd/output",
        "/api/v1/jobs/%2e%2e%2f%2e%2e/output",
        "/api/v1/jobs/1%00/output",
        "/api/v1/jobs/1_0_0/output",
        "/api/v1/jobs/-1/output",
        "/api/v1/jobs/1/output?attempt=../1",
        "/api/v1/jobs/1/output?attempt=1e3",
        "/api/v1/jobs/1/output?stream=../../shadow",
        "/api/v1/jobs/1/output?offset=-1",
        "/api/v1/jobs/1/output?offset=99999999999999999999",
    ],
)
def test_names_that_lead_elsewhere_are_no_names(service: Stage, path: str) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", int(service.url.rpartition(":")[2]), timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {service.tokens['adm']}"})
    answer = connection.getresponse()
    assert answer.status in (404, 422), answer.read()
    connection.close()
