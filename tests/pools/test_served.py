"""`mirab serve` with real processes on pretended GPUs of two types: idle ones are lent, and given back to who paid."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mirab
from mirab.cli.client import new_key
from mirab.cli.localservice import LocalService, local_service

pytestmark = pytest.mark.slow

PATIENCE = 180.0
"""Seconds until a test gives up on what takes half a minute."""
CAMPUS = """\
cluster:
  pools:
    a100: {nodes: "a[1-2]", gpus_per_node: 2, gpu_type: a100}
    h100: {nodes: "h[1-2]", gpus_per_node: 2, gpu_type: h100}
policy: {base: budget, window: 20s, margin: 0%, commitment_floor: 1s}
budgets:
  climate: {share: 50%}
  genome: {share: 50%}
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalService]:
    monkeypatch.setenv("PYTHONPATH", str(Path(mirab.__file__).parents[1]))
    (tmp_path / "campus.yaml").write_text(CAMPUS)
    with local_service(tmp_path / "state", "--cluster", str(tmp_path / "campus.yaml")) as running:
        yield running


def command(service: LocalService, *words: str) -> str:
    environment = {**os.environ, "MIRAB_SERVER": str(service.address)}
    done = subprocess.run([sys.executable, "-m", "mirab", *words], env=environment, capture_output=True, text=True,
                          check=False, timeout=PATIENCE, cwd=service.folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit(service: LocalService, account: str) -> str:
    body = {
        "argv": ["sleep", "300"], "cwd": str(service.folder), "gpus_per_node": 2, "gpu_types": ["h100"],
        "account": account, "min_runtime": "1s", "grace": "1s", "environment": {"PATH": os.environ["PATH"]},
    }  # fmt: skip
    with service.client() as client:
        job: str = client.post("/jobs", body, key=new_key())["ids"][0]
        return job


def get(service: LocalService, address: str) -> dict[str, Any]:
    with service.client() as client:
        found: dict[str, Any] = client.get(address)
        return found


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.2)


def test_idle_gpus_of_who_paid_are_lent_and_come_back(service: LocalService) -> None:
    """Genome runs on all H100s; as climate, which paid for them, wants two, a run gives way past its minimum."""
    command(service, "budget", "set", "h100:climate=100%", "--reason", "the grant paid")
    lent = [submit(service, "genome") for _ in range(2)]
    until(lambda: all(get(service, f"/jobs/{job}")["state"] == "RUNNING" for job in lent))
    climate = submit(service, "climate")
    until(lambda: get(service, f"/jobs/{climate}")["state"] == "RUNNING")
    states = sorted(get(service, f"/jobs/{job}")["state"] for job in lent)
    assert states == ["PENDING", "RUNNING"]
    rows = {each["path"]: each for each in get(service, "/share")["accounts"]}
    assert (rows["h100:climate"]["running_gpus"], rows["h100:genome"]["running_gpus"]) == (2, 2)
    assert rows["climate"]["running_gpus"] == rows["genome"]["running_gpus"] == 0
    stopped = next(job for job in lent if get(service, f"/jobs/{job}")["state"] == "PENDING")
    told = " ".join(command(service, "why", stopped, "--quick").split())
    assert f"stopped for {climate} of h100:climate" in told
    assert "It is charged to h100:genome: only pool h100, which has shares of its own, could hold it." in told
    text = command(service, "share")
    assert "All other pools (a100), 4 GPUs:" in text and "Pool h100, 4 GPUs:" in text
