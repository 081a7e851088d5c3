"""`mirab serve` as people start and stop it, with real processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mirab.backends.local import rundir
from mirab.cli.client import new_key
from mirab.cli.exits import UnreachableError
from mirab.cli.localservice import LocalService, begin, end, local_service
from tests.live.postgres import PostgresServer, postgres_server  # noqa: F401

PATIENCE = 180.0
"""A net: what has not happened by then never will."""
Found = TypeVar("Found")
UNTIL_TOLD = "while [ ! -e go ]; do sleep 0.05; done"
"""What runs for as long as a test wants it to."""
pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    with local_service(tmp_path / "state", "--pretend-gpus", "8") as running:
        yield running


def mirab(service: LocalService, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MIRAB_SERVER": str(service.address)}
    return subprocess.run([sys.executable, "-m", "mirab", *words], env=environment, capture_output=True, text=True,
                          check=False, timeout=PATIENCE, cwd=service.folder)  # fmt: skip


def submit(service: LocalService, script: str, **wishes: Any) -> str:
    body = {"argv": ["/bin/sh", "-c", script], "cwd": str(service.folder), "gpus_per_node": 1, "grace": "1s",
            "environment": {"PATH": os.environ["PATH"]}, **wishes}  # fmt: skip
    with service.client() as client:
        client.patience = PATIENCE
        job: str = client.post("/jobs", body, key=new_key())["ids"][0]
        return job


def job(service: LocalService, number: str) -> dict[str, Any]:
    with service.client() as client:
        found: dict[str, Any] = client.get(f"/jobs/{number}")
        return found


def ratio(service: LocalService, account: str) -> float:
    with service.client() as client:
        accounts = client.get("/share")["accounts"]
    return next(float(each["ratio"]) for each in accounts if each["path"] == account)


def until(happened: Callable[[], Found]) -> Found:
    """The first true answer. A service that says that it cannot answer now is asked again, as people do."""
    give_up = time.monotonic() + PATIENCE
    said = ""
    while time.monotonic() < give_up:
        try:
            if found := happened():
                return found
        except UnreachableError as error:
            said = str(error)
        time.sleep(0.05)
    raise AssertionError(f"it did not happen; {said}")


def in_state(service: LocalService, number: str, state: str) -> Callable[[], bool]:
    return lambda: bool(job(service, number)["state"] == state)


def test_a_laptop_user_runs_something_without_reading_anything(service: LocalService) -> None:
    done = mirab(service, "run", "--gpus-per-node", "1", "--", "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; exit 3")
    assert done.returncode == 3, done.stderr
    assert done.stdout == "on 0\n"
    assert "everyone" in mirab(service, "share").stdout
    said = service.log.read_text()
    assert said.count("Token of the administrator") == 1
    assert "mirab serves on unix://" in said


def test_the_token_is_shown_once_and_never_in_a_structured_line(service: LocalService) -> None:
    end(service)
    again = begin(service.folder)
    try:
        again.wait_until_ready()
        lines = service.log.read_text().splitlines()
        with_token = [line for line in lines if "mirab_" in line and not line.startswith("{")]
        assert len(with_token) == 1
        secret = with_token[0].rsplit(" ", 1)[1]
        assert not [line for line in lines if line.startswith("{") and secret in line]
        with again.client(secret) as client:
            assert client.get("/whoami")["grants"][0]["role"] == "admin"
    finally:
        end(again)


def test_a_run_without_progress_is_told_to_those_who_listen(service: LocalService) -> None:
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(service.address.place)
    connection.request("GET", "/api/v1/events")
    stream = connection.getresponse()
    number = submit(service, "sleep 600", progress="1s")
    for line in stream:
        if b'"no-progress"' in line:
            break
    told = json.loads(line.removeprefix(b"data: "))
    assert (told["job"], told["run"], told["account"]) == (number, f"{number}.1", "everyone")
    assert "has shown no checkpoint for" in told["why"]
    connection.close()


def test_runs_outlive_the_service_and_are_found_again(service: LocalService) -> None:
    number = submit(service, f"{UNTIL_TOLD}; echo done; exit 4")
    until(in_state(service, number, "RUNNING"))
    service.process.terminate()
    assert service.process.wait(PATIENCE) == 0, "told to stop, it ended in order"
    (service.folder / "go").touch()
    until((service.folder / "runs" / number / "1" / rundir.EXIT).exists)
    again = begin(service.folder)
    try:
        again.wait_until_ready()
        until(in_state(again, number, "FAILED"))
        found = job(again, number)
        assert (found["exit_code"], found["attempt"]) == (4, 1)
        assert (service.folder / f"mirab-{number}.out").read_text() == "done\n"
    finally:
        end(again)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as others")
def test_who_has_no_account_here_runs_as_the_one_that_was_named_for_them() -> None:
    with tempfile.TemporaryDirectory(prefix="mirab-t-") as name:
        os.chmod(name, 0o755)
        with local_service(Path(name) / "state", "--pretend-gpus", "1", "--run-as", "nobody") as service:
            with service.client() as client:
                made = client.post("/tokens", {"user": "ghost", "grants": [{"role": "researcher"}]})
            script = 'test "$(id -un)" = nobody && test "$(id -Gn)" = "$(id -gn)" && exit 7'
            body = {"argv": ["/bin/sh", "-c", script], "cwd": "/", "output": "/dev/null", "gpus_per_node": 1}
            with service.client(made["token"]) as client:
                number = client.post("/jobs", body, key=new_key())["ids"][0]
            until(in_state(service, number, "FAILED"))
            found = job(service, number)
            assert (found["user"], found["exit_code"]) == ("ghost", 7)


def test_stopping_does_not_wait_for_those_who_only_listen(service: LocalService) -> None:
    number = submit(service, "sleep 600")
    follower = subprocess.Popen([sys.executable, "-m", "mirab", "await", number], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL,
                                env={**os.environ, "MIRAB_SERVER": str(service.address)})  # fmt: skip
    try:
        until(in_state(service, number, "RUNNING"))
        service.process.terminate()
        assert service.process.wait(PATIENCE) == 0
    finally:
        follower.kill()
        follower.wait()


def test_told_twice_it_leaves_at_once_and_nothing_is_lost(service: LocalService) -> None:
    number = submit(service, UNTIL_TOLD)
    until(in_state(service, number, "RUNNING"))
    service.process.send_signal(signal.SIGINT)
    service.process.send_signal(signal.SIGINT)
    service.process.wait(PATIENCE)
    (service.folder / "go").touch()
    again = begin(service.folder)
    try:
        again.wait_until_ready()
        until(in_state(again, number, "COMPLETED"))
        assert job(again, number)["attempt"] == 1
    finally:
        end(again)


def test_a_second_service_on_the_same_folder_refuses(service: LocalService) -> None:
    second = begin(service.folder, "--wait", "0")
    assert second.process.wait(PATIENCE) == 5
    assert f"process {service.process.pid}" in service.log.read_text()
    assert mirab(service, "ls").returncode == 0, "the first goes on"


def test_wrong_settings_are_a_sentence_and_code_2(tmp_path: Path) -> None:
    for flags, says in (
        (("--listen", "nowhere"), "HOST:PORT"),
        (("--policy", "bugdet", "--pretend-gpus", "1"), "bugdet"),
        (("--socket", "none", "--listen", "none", "--pretend-gpus", "1"), "no way in"),
    ):
        done = subprocess.run([sys.executable, "-m", "mirab", "serve", "--state-dir", str(tmp_path / "s"), *flags],
                              capture_output=True, text=True, check=False, timeout=PATIENCE)  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_owed_debug_work_starts_at_once_on_a_full_cluster(tmp_path: Path) -> None:
    """Victims past their minimums that stop at once make room; how fast, `bench.contract` measures."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "cluster: {pools: {gpu: {nodes: [a], gpus_per_node: 4}}}\n"
        "budgets: {red: {share: 50%}, blue: {share: 50%}}\n"
        "policy: {window: 10m, margin: 0%, commitment_floor: 1s}\n"
    )
    with local_service(tmp_path / "state", "--cluster", str(cluster)) as service:
        ids = [submit(service, "sleep 600", account="red", min_runtime="1s") for _ in range(4)]
        for number in ids:
            until(in_state(service, number, "RUNNING"))
        until(lambda: ratio(service, "red") > 1.005)
        debug = submit(service, "true", account="blue", min_runtime="1s")
        until(in_state(service, debug, "COMPLETED"))
        states = sorted(job(service, number)["state"] for number in ids)
        assert states.count("RUNNING") >= 3, "more was stopped than was needed"
        assert sum(job(service, number)["preemptions"] for number in ids) == 1


def test_postgres_goes_away_under_load_and_comes_back(
    tmp_path: Path,
    postgres_server: PostgresServer,  # noqa: F811
) -> None:
    flags = ("--pretend-gpus", "8", "--db", postgres_server.new_database())
    with local_service(tmp_path / "state", *flags) as service:
        first = [submit(service, "sleep 0.3") for _ in range(10)]
        postgres_server.restart(signal.SIGQUIT)
        last = [submit(service, "true") for _ in range(10)]
        for number in first + last:
            until(in_state(service, number, "COMPLETED"))
        assert len(set(first + last)) == 20
        assert all(job(service, number)["attempt"] == 1 for number in first + last)
