"""What befalls a service at work, one thing at a time: each is told, and nothing is lost or done twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mirab.cli.localservice import LocalService, begin, end, local_service
from tests.live.postgres import PostgresServer, postgres_server  # noqa: F401
from tests.live.test_serve import PATIENCE, in_state, job, ratio, submit, until

pytestmark = pytest.mark.slow
TWO_TEAMS = (
    "cluster: {pools: {gpu: {nodes: [a], gpus_per_node: 4}}}\n"
    "budgets: {red: {share: 50%}, blue: {share: 50%}}\n"
    "policy: {window: 10m, margin: 0%, commitment_floor: 1s}\n"
)
PEOPLE, EACH = 20, 50
SUBMITS = f"""
import sys
from mirab.cli.address import Address
from mirab.cli.client import Client, new_key
body = {{"argv": ["true"], "cwd": "/", "output": "/dev/null", "gpus_per_node": 1, "hold": True}}
with Client(Address("unix", sys.argv[1])) as client:
    for _ in range({EACH}):
        print(*client.post("/jobs", body, key=new_key())["ids"])
"""


@pytest.fixture
def two_teams(tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """A state folder, and the flags of a service for two teams with four GPUs."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(TWO_TEAMS)
    return tmp_path / "state", ("--cluster", str(cluster))


def full_of_red(service: LocalService, script: str) -> list[str]:
    """Jobs of a team that by now has had more than its share, on all GPUs."""
    ids = [submit(service, script, account="red", min_runtime="1s", grace="6s") for _ in range(4)]
    for number in ids:
        until(in_state(service, number, "RUNNING"))
    until(lambda: ratio(service, "red") > 1.005)
    return ids


def seconds_of(run: dict[str, Any]) -> float:
    return (datetime.fromisoformat(run["ended_at"]) - datetime.fromisoformat(run["started_at"])).total_seconds()


def victim_of(service: LocalService, ids: list[str]) -> Callable[[], str]:
    """The one that is being stopped, or has been."""
    return lambda: next((each for each in ids if is_victim(job(service, each))), "")


def is_victim(found: dict[str, Any]) -> bool:
    return bool(found["state"] == "COMPLETING" or found["preemptions"] > 0)


def test_killed_in_the_grace_of_a_preemption(two_teams: tuple[Path, tuple[str, ...]]) -> None:
    """The victim takes its notice and goes on to the end of its grace, while there is no service."""
    folder, flags = two_teams
    with local_service(folder, *flags) as service:
        ids = full_of_red(service, "trap '' TERM; while :; do sleep 0.2; done")
        debug = submit(service, "true", account="blue", min_runtime="1s")
        stopped = until(victim_of(service, ids))
        service.kill()
        again = begin(folder, "--wait", "0")
        try:
            again.wait_until_ready()
            until(in_state(again, debug, "COMPLETED"))
            until(in_state(again, stopped, "RUNNING"))
            found = {number: job(again, number) for number in ids}
            assert [found[number]["preemptions"] for number in ids] == [int(number == stopped) for number in ids]
            assert [found[number]["attempt"] for number in ids] == [1 + (number == stopped) for number in ids]
            first, second = found[stopped]["runs"]
            assert (first["outcome"], second["outcome"]) == ("PREEMPTED", "")
            assert seconds_of(first) >= 1, "no run is stopped before its minimum"
        finally:
            end(again)


def test_budgets_that_change_while_runs_run(two_teams: tuple[Path, tuple[str, ...]]) -> None:
    folder, flags = two_teams
    with local_service(folder, *flags) as service:
        ids = full_of_red(service, "sleep 600")
        with service.client() as client:
            now = client.get("/budgets")
            change = {"budgets": {"red": {"share": "90%"}, "blue": {"share": "10%"}}, "why": "a release"}
            client.send("PUT", "/budgets", change, headers={"If-Match": f'"{now["version"]}"'})
            shares = {each["path"]: each["share"] for each in client.get("/share")["accounts"]}
            assert (shares["red"], shares["blue"]) == (0.9, 0.1), "in force as soon as it is answered"
        assert [job(service, number)["attempt"] for number in ids] == [1] * 4, "what was begun goes on"
        assert all(job(service, number)["state"] == "RUNNING" for number in ids)
        urgent = submit(service, "true", account="blue", min_runtime="1s")
        until(in_state(service, urgent, "COMPLETED"))
        after = [job(service, number) for number in ids]
        assert sum(each["preemptions"] for each in after) == 1, "a team without anything is owed its smaller share too"
        assert all(each["attempt"] <= 1 + each["preemptions"] for each in after)
        assert all(seconds_of(run) >= 1 for each in after for run in each["runs"] if run["ended_at"])


def test_a_thousand_submissions_of_twenty_at_once(tmp_path: Path) -> None:
    with local_service(tmp_path / "state", "--pretend-gpus", "1") as service:
        people = [
            subprocess.Popen([sys.executable, "-c", SUBMITS, service.address.place], stdout=subprocess.PIPE, text=True)
            for _ in range(PEOPLE)
        ]
        told = [line for each in people for line in each.communicate(timeout=4 * PATIENCE)[0].split()]
        assert [each.returncode for each in people] == [0] * PEOPLE
        assert len(told) == len(set(told)) == PEOPLE * EACH
        there: list[str] = []
        cursor: dict[str, str] = {}
        with service.client() as client:
            while not there or cursor:
                page = client.get("/jobs", {"limit": 500, **cursor})
                there += [each["id"] for each in page["jobs"]]
                cursor = {"cursor": page["next"]} if page.get("next") else {}
        assert sorted(there) == sorted(told), "all are there, once"


def test_of_two_services_on_one_database_the_second_refuses_or_waits(
    tmp_path: Path,
    postgres_server: PostgresServer,  # noqa: F811
) -> None:
    database = postgres_server.new_database()
    with local_service(tmp_path / "one", "--pretend-gpus", "1", "--db", database) as first:
        second = begin(tmp_path / "two", "--pretend-gpus", "1", "--db", database, "--wait", "0")
        assert second.process.wait(PATIENCE) == 5
        assert f"is served by process {first.process.pid}" in second.log.read_text()
        waits = begin(tmp_path / "two", "--pretend-gpus", "1", "--db", database, "--wait", "10m")
        try:
            number = submit(first, "true")
            until(in_state(first, number, "COMPLETED"))
            assert "serves on" not in waits.log.read_text()
            first.kill()
            waits.wait_until_ready()
            assert job(waits, number)["state"] == "COMPLETED"
        finally:
            end(waits)
