"""A ledger that is lost or new, in a folder where jobs of another have run: nothing of theirs is taken for its own."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mirab.backends.local import rundir
from mirab.backends.local.leftovers import living
from mirab.cli.client import new_key
from mirab.cli.doctorlive import _answers
from mirab.cli.localservice import LocalService, begin, end
from tests.live.test_serve import PATIENCE, until
from tests.live.test_trouble import readiness

pytestmark = pytest.mark.slow


def submit(service: LocalService, script: str) -> str:
    body = {"argv": ["/bin/sh", "-c", script], "cwd": str(service.folder), "gpus_per_node": 1, "grace": "1s"}
    with service.client() as client:
        client.patience = PATIENCE
        number: str = client.post("/jobs", body, key=new_key())["ids"][0]
        return number


def job(service: LocalService, number: str) -> dict[str, Any]:
    with service.client() as client:
        found: dict[str, Any] = client.get(f"/jobs/{number}")
        return found


def forget(folder: Path) -> None:
    for path in folder.glob("mirab.db*"):
        path.unlink()


def started(folder: Path) -> LocalService:
    service = begin(folder, "--pretend-gpus", "8")
    service.wait_until_ready()
    return service


def test_a_new_ledger_gives_no_number_again_and_refuses_while_runs_of_another_go_on(tmp_path: Path) -> None:
    service = started(tmp_path / "state")
    try:
        old = submit(service, "exit 7")
        until(lambda: job(service, old)["state"] == "FAILED")
        going_on = submit(service, "sleep 600")
        shim_file = service.folder / "runs" / going_on / "1" / rundir.SHIM
        until(lambda: [run for run, _ in living(service.folder)] == [f"{going_on}.1"])
        service.kill()
        forget(service.folder)
        service = begin(service.folder, "--pretend-gpus", "8")
        assert service.process.wait(PATIENCE) == 1
        said = service.log.read_text()
        assert "1 runs go on in" in said and f"{going_on}.1 (process " in said
        shim = rundir.read_json(str(shim_file))
        assert shim is not None
        os.kill(shim["pid"], signal.SIGTERM)
        until(lambda: not list(living(service.folder)))
        service = started(service.folder)
        new = submit(service, "exit 9")
        until(lambda: job(service, new)["state"] == "FAILED")
        assert int(new) > int(going_on)
        assert job(service, new)["exit_code"] == 9, "its own end, and not that of the first job of the lost ledger"
    finally:
        end(service)


def lacks(service: LocalService) -> dict[str, str]:
    """What `mirab doctor` finds wrong with a service."""
    with service.client() as client:
        return {each["what"]: each["found"] for each in _answers(client) if not each["ok"]}


def test_a_ledger_that_is_removed_under_the_service_takes_no_job_until_it_is_back(tmp_path: Path) -> None:
    service = started(tmp_path / "state")
    try:
        first = submit(service, "true")
        until(lambda: job(service, first)["state"] == "COMPLETED")
        ledger, aside = service.folder / "mirab.db", service.folder / "aside"
        assert readiness(service) == ""
        ledger.rename(aside)
        assert "mirab.db, or the -wal beside it, has been removed or replaced" in readiness(service), "before any write"
        assert "removed or replaced" in lacks(service)["its decisions"]
        with ThreadPoolExecutor(1) as waiting:
            answer = waiting.submit(submit, service, "exit 3")
            until(lambda: "removed or replaced while it is in use" in service.log.read_text())
            assert not answer.done(), "nobody is told that a job is taken which no file holds"
            assert not ledger.exists(), "nobody makes an empty ledger in its place"
            aside.rename(ledger)
            number = answer.result(PATIENCE)
        until(lambda: readiness(service) == "")  # what was known of the store counts for a second
        assert lacks(service) == {}
        until(lambda: job(service, number)["state"] == "FAILED")
        assert job(service, number)["exit_code"] == 3
    finally:
        end(service)
