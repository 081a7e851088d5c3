"""A full disk under a running service: it says so, applies nothing, loses nothing, and goes on by itself."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.cli.localservice import LocalService, local_service
from tests.live.test_serve import PATIENCE, in_state, submit, until

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("this machine does not let us mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=False)


def readiness(service: LocalService) -> str:
    """ "" = ready, else the sentence."""
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(service.address.place)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    told: dict[str, Any] = json.loads(answer.read())
    connection.close()
    return "" if answer.status == 200 else str(told["detail"])


def test_a_full_disk(small_disk: Path) -> None:
    with local_service(small_disk / "state", "--pretend-gpus", "2") as service:
        done = submit(service, "true", output="/dev/null")
        until(in_state(service, done, "COMPLETED"))
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb") as file:
            while True:
                file.write(b"\0" * 65_536)
                file.flush()
        got: list[str] = []
        asking = threading.Thread(target=lambda: got.append(submit(service, "true", output="/dev/null")), daemon=True)
        asking.start()
        until(lambda: "full" in readiness(service))
        assert not got, "nothing is promised that is not recorded"
        with service.client() as client:
            assert [each["state"] for each in client.get("/jobs", {})["jobs"]] == ["COMPLETED"], "what is recorded"
            assert client.get(f"/jobs/{done}/why", {})["state"] == "COMPLETED"
            assert client.get("/share", {})["accounts"], "who only looks is answered meanwhile"
        filler.unlink()
        asking.join(PATIENCE)
        until(in_state(service, got[0], "COMPLETED"))
        assert readiness(service) == ""
        with service.client() as client:
            assert len(client.get("/jobs", {})["jobs"]) == 2
