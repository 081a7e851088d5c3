"""A real PostgreSQL that stops under the service and comes back: it is told, nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mirab.cli.client import new_key
from mirab.cli.exits import UnreachableError
from mirab.cli.localservice import LocalService, local_service
from tests.live.postgres import PostgresServer, postgres_server  # noqa: F401
from tests.live.test_serve import PATIENCE, until
from tests.live.test_trouble import readiness

pytestmark = pytest.mark.slow
AWAY_S = float(os.environ.get("MIRAB_TEST_AWAY_S", "5"))
PEOPLE = 4


@pytest.fixture
def service(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[LocalService]:  # noqa: F811
    with local_service(tmp_path / "s", "--pretend-gpus", "8", "--db", postgres_server.new_database()) as running:
        yield running


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(UnreachableError) as caught:
        ask()
    return str(caught.value)


def test_that_it_is_away_is_noticed_without_a_write(
    service: LocalService,
    postgres_server: PostgresServer,  # noqa: F811
) -> None:
    assert readiness(service) == ""
    postgres_server.stop()
    try:
        until(lambda: "does not answer" in readiness(service))
        with service.client() as client:
            for path in ("/jobs", "/share", "/nodes"):
                assert "does not answer" in refusal(lambda path=path: client.get(path, {}))  # type: ignore[misc]
    finally:
        postgres_server.start()
    until(lambda: readiness(service) == "")
    with service.client() as client:
        assert client.get("/jobs", {})["jobs"] == []


def test_stopped_for_a_while_under_load(service: LocalService, postgres_server: PostgresServer) -> None:  # noqa: F811
    enough = threading.Event()
    told: list[str] = []

    def person(number: int) -> None:
        while not enough.is_set():
            told.append(submitted(service, f"{number}/{new_key()}"))

    people = [threading.Thread(target=person, args=(number,), daemon=True) for number in range(PEOPLE)]
    for each in people:
        each.start()
    try:
        until(lambda: len(told) > 5 * PEOPLE)
        postgres_server.stop(signal.SIGQUIT)
        try:
            away = time.monotonic()
            until(lambda: readiness(service))
            time.sleep(max(0.0, away + AWAY_S - time.monotonic()))
            before = len(told)
        finally:
            postgres_server.start()
        until(lambda: len(told) > before + 2 * PEOPLE)
    finally:
        enough.set()
    for each in people:
        each.join(PATIENCE)
        assert not each.is_alive()
    assert len(set(told)) == len(told), "no number is given to two"
    until(lambda: {state for _, state in all_jobs(service)} == {"COMPLETED"})
    assert sorted(number for number, _ in all_jobs(service)) == sorted(told), "none more than was told"
    ran = (service.folder / "ran").read_text().split()
    assert sorted(ran) == sorted(told), "each has run once; a start that could not be read is no run"


def submitted(service: LocalService, key: str) -> str:
    """As a client that repeats what was not answered, with the same key: it is submitted once."""
    script = "echo $MIRAB_JOB_ID >> ran"
    body = {"argv": ["/bin/sh", "-c", script], "cwd": str(service.folder), "output": "/dev/null", "gpus_per_node": 1}
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        with suppress(UnreachableError), service.client() as client:
            number: str = client.post("/jobs", body, key=key)["ids"][0]
            return number
        time.sleep(0.1)
    raise AssertionError("nobody takes a job any more")


def all_jobs(service: LocalService) -> Iterator[tuple[str, str]]:
    """Number and state of each."""
    cursor: dict[str, str] = {}
    with service.client() as client:
        while True:
            page = client.get("/jobs", {"limit": 100, **cursor})
            yield from ((each["id"], each["state"]) for each in page["jobs"])
            if not page.get("next"):
                return
            cursor = {"cursor": page["next"]}
