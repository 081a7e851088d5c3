"""Several replays at a time give what one after the other gives; whoever dies is told of; nobody is left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mirab.cli import parallel
from mirab.cli.exits import UnusableError
from mirab.logs.detect import load
from mirab.logs.options import LoadOptions
from mirab.model.policy import POLICIES, Policy
from mirab.model.trace import Trace
from mirab.study.sweep import grid
from tests.cli.conftest import Mirab
from tests.cli.signals import HEARING


def points(text: str) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = json.loads(text)["reports"]
    return [{key: value for key, value in report.items() if key != "performance"} for report in reports]


def test_the_order_and_the_bytes_do_not_depend_on_how_many_work(mirab: Mirab, log: Path, cluster: Path) -> None:
    words = [
        "sweep",
        log,
        "--cluster",
        cluster,
        "--set",
        "window=1d,7d",
        "--set",
        "min_runtime_cap=10m,8h",
        "--json",
        "-",
    ]
    one, two = (points(mirab(*words, "--jobs", jobs).out) for jobs in ("1", "2"))
    assert one == two
    assert [(report["policy"]["window"], report["policy"]["min_runtime_cap"]) for report in one] == [
        ("1d", "10m"), ("1d", "8h"), ("7d", "10m"), ("7d", "8h"),
    ]  # fmt: skip


def test_the_table_has_a_column_for_each_point(mirab: Mirab, log: Path, cluster: Path) -> None:
    said = mirab("sweep", log, "--cluster", cluster, "--set", "window=1d,7d", "--policies", "budget,fifo")
    assert said.code == 0
    rows = {line.split("  ")[1]: line.split() for line in said.out.splitlines() if line.startswith("  ")}
    assert rows["policy"][1:] == ["budget", "budget", "fifo", "fifo"]
    assert rows["window"][1:] == ["1d", "7d", "1d", "7d"]


def test_many_points_stand_below_each_other(mirab: Mirab, log: Path, cluster: Path) -> None:
    hours = ",".join(f"{hour}h" for hour in range(1, 13))
    said = mirab("sweep", log, "--cluster", cluster, "--set", f"min_runtime_cap={hours}", "--jobs", "1")
    assert said.code == 0
    assert [line for line in said.out.splitlines() if line.startswith("  12") and "12h" in line]


@pytest.mark.parametrize(
    ("setting", "told"),
    [("window=1d,x", "write a duration"), ("windw=1d", "did you mean"), ("window=", "write a duration")],
)
def test_a_grid_that_makes_no_sense(mirab: Mirab, log: Path, setting: str, told: str) -> None:
    said = mirab("sweep", log, "--set", setting)
    assert said.code == 2
    assert told in said.sentence


def test_grids() -> None:
    assert len(grid([Policy(), POLICIES["fifo"]], ["window=1d,2d", "margin=0,5%,10%"])) == 12
    assert grid([Policy()], ["window=7d,7d"]) == [Policy()]
    with pytest.raises(ValueError, match="given twice"):
        grid([Policy()], ["window=1d", "window=2d"])
    with pytest.raises(ValueError, match="more than"):
        grid(
            [Policy()],
            [f"holds_max={','.join(map(str, range(1, 201)))}", f"drains_max={','.join(map(str, range(1, 101)))}"],
        )


def dies(*_: object, **__: object) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def fails(*_: object, **__: object) -> dict[str, Any]:
    raise ZeroDivisionError("in a worker")


@pytest.fixture
def trace(log: Path, cluster: Path) -> Trace:
    return load(log, LoadOptions(cluster=cluster))


@pytest.mark.parametrize(("work", "error"), [(dies, UnusableError), (fails, ZeroDivisionError)])
def test_a_worker_that_dies_or_fails_ends_the_command(
    trace: Trace, monkeypatch: pytest.MonkeyPatch, work: Any, error: type[Exception]
) -> None:
    monkeypatch.setattr(parallel, "measured", work)
    with pytest.raises(error):
        parallel.measured_all(trace, [Policy(), POLICIES["fifo"]], jobs=2)
    deadline = time.monotonic() + 180  # the pool's own thread takes leave of them too, so that no join here is sure
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_who_stops_the_command_stops_the_workers_too(tmp_path: Path, number: signal.Signals, code: int) -> None:
    mirab = [sys.executable, "-m", "mirab"]
    subprocess.run([*mirab, "synth", "--nodes", "64", "--days", "60", "--out", "in"], cwd=tmp_path, check=True)
    words = ["sweep", "in/workloads.csv.gz", "--cluster", "in/cluster.yaml", "--set", "window=1d,7d", "--jobs", "2"]
    with subprocess.Popen(
        [*HEARING, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 180
        while len(children(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        assert process.poll() is None, process.communicate()
        workers = children(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=180)
    assert (process.returncode, out, err.strip()) == (code, "", "")
    assert len(workers) == 2
    deadline = time.monotonic() + 180
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if alive(pid)]


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and whom nobody has asked for its code does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(mirab: Mirab, log: Path, cluster: Path) -> None:
    distributed = pytest.importorskip("dask.distributed", reason="Dask is not installed")
    words = ["sweep", log, "--cluster", cluster, "--set", "window=1d,7d", "--json", "-"]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
    ) as there:
        by_dask = mirab(*words, "--dask", there.scheduler_address)
    assert by_dask.code == 0, by_dask.err
    assert points(by_dask.out) == points(mirab(*words, "--jobs", "1").out)
