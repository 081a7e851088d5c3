"""What the pages, `why` and `when` cost the service: each page's requests on a live one with many nodes and jobs.

    python -m bench.pages [--nodes 1024] [--jobs 20000] [--days 30] [--rounds 20]

First a month of its life is made (`bench.month`), then `--jobs` more are submitted, which wait. First content is the
page's first answer with data; all = every request that the page makes, one after the other on one connection.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from bench.month import month
from mirab.cli.client import Client
from mirab.cli.localservice import LocalService, local_service
from mirab.study.forecast import RUNS

SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (16, 8), (64, 8))
AT_ONCE = 500
PAGES: dict[str, tuple[str, ...]] = {
    "Now": ("/", "/api/v1/now"),
    "Queue": ("/api/v1/jobs?state=RUNNING,COMPLETING,PENDING&limit=50",),
    "Queue, ended": ("/api/v1/jobs?state=COMPLETED,FAILED&limit=50&newest=true",),
    "Job that waits": ("/api/v1/jobs/{waits}", "/api/v1/chronicle?about={waits}&limit=100"),
    "Job that ended": ("/api/v1/jobs/{ended}", "/api/v1/chronicle?about={ended}&limit=100"),
    "Accounts": ("/api/v1/share", "/api/v1/budgets", "/api/v1/trend"),
    "Account": ("/api/v1/share/{account}", "/api/v1/budgets", "/api/v1/trend?account={account}"),
    "Nodes": ("/api/v1/nodes", "/api/v1/chronicle?topic=nodes&limit=20"),
    "Decisions": ("/api/v1/chronicle?limit=40",),
    "Decisions of an account": ("/api/v1/chronicle?limit=40&about={account}",),
    "Decisions, found nothing": ("/api/v1/chronicle?limit=40&topic=budgets",),
}
ANSWERS: dict[str, str] = {
    "why, recorded": "/api/v1/jobs/{each}/why?whatif=false",
    "why, with rehearsals": "/api/v1/jobs/{each}/why",
    "why, of one that ended": "/api/v1/jobs/{ended}/why",
    "when": "/api/v1/jobs/{each}/when",
}
"""`each`: another job that waits in each round, so that nothing is answered from what was kept."""


class Unix(http.client.HTTPConnection):
    """HTTP over the service's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def fill(service: LocalService, jobs: int, accounts: Sequence[str]) -> list[str]:
    """Arrays of every size for every account, far more than fit; returns their ids."""
    made: list[str] = []
    with service.client() as client:
        for number in range(0, jobs, AT_ONCE):
            nodes, gpus = SIZES[number // AT_ONCE % len(SIZES)]
            answer = client.post(
                "/jobs",
                {"account": accounts[number // AT_ONCE % len(accounts)], "argv": ["sleep", "100000"], "nodes": nodes,
                 "gpus_per_node": gpus, "min_runtime": "15m", "array": f"0-{min(AT_ONCE, jobs - number) - 1}"},
            )  # fmt: skip
            made.append(answer["job"])
    return made


def ask(connection: Unix, address: str) -> tuple[float, int]:
    """Seconds until the whole answer is there, and its bytes."""
    begun = perf_counter()
    connection.request("GET", address)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{address}: {answer.status} {body[:300]!r}")
    return perf_counter() - begun, len(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_024)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--month", type=Path, help="A state folder that `bench.month` has filled; it is copied.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mirab-bench-") as name:
        state = Path(name) / "state"
        if given.month:
            shutil.copytree(given.month, state)
        else:
            state.mkdir()
            print(f"{month(state, given.nodes, given.days):,} records of {given.days} days", flush=True)
        with local_service(state, "--backend", "null", "--log-format", "json", "--log-level", "warning") as service:
            measure(service, given.jobs, given.rounds)


def measure(service: LocalService, jobs: int, rounds: int) -> None:
    with service.client() as client:
        tree = [each["path"] for each in client.get("/share")["accounts"]]
        leaves = [path for path in tree if not any(other.startswith(f"{path}/") for other in tree)]
        (ended,) = client.get("/jobs", {"state": "COMPLETED", "limit": 1, "newest": "true"})["jobs"]
        arrays = fill(service, jobs, leaves)
        wait_for_a_forecast(client, arrays[-1])
        waiting = client.get("/jobs", {"state": "PENDING", "limit": 500})["jobs"]
    names = {"waits": waiting[0]["id"], "ended": ended["id"], "account": leaves[0]}
    connection = Unix(service.address.place)
    print(f"{'page':26} {'first p50':>9} {'first max':>9} {'all p50':>9} {'all max':>9} {'KiB':>8}   (ms)")
    for page, addresses in PAGES.items():
        rows, size = [], 0
        for _ in range(rounds):
            found = [ask(connection, address.format(**names)) for address in addresses]
            api = [took for (took, _), address in zip(found, addresses, strict=True) if address.startswith("/api")]
            rows.append((api[0], sum(took for took, _ in found)))
            size = sum(count for _, count in found)
            sleep(1.1 if page == "Now" else 0)
        told([page, *summed([first for first, _ in rows]), *summed([every for _, every in rows])], size)
    step = max(1, len(waiting) // (rounds + 1))
    for what, address in ANSWERS.items():
        times, size = [], 0
        for turn in range(rounds):
            took, size = ask(connection, address.format(each=waiting[turn * step]["id"], **names))
            times.append(took)
        told([what, *summed(times), *summed(times)], size)
    print(json.dumps({"rounds": rounds, "jobs": jobs}))


def wait_for_a_forecast(client: Client, array: str) -> None:
    """Until a batch knows the last that came in."""
    job = f"{array}_0"
    for _ in range(60):
        answer = client.get(f"/jobs/{job}/when")
        if answer["runs"] >= RUNS:
            print(f"when: {answer['runs']} runs forward took {answer['took_s']} s in the background", flush=True)
            return
        sleep(2)
    print(f"when: {answer['runs']} runs forward, and no more within two minutes: the machine is busy", flush=True)


def summed(times: list[float]) -> tuple[float, float]:
    return median(times) * 1e3, max(times) * 1e3


def told(row: list[Any], size: int) -> None:
    print(f"{row[0]:26}" + "".join(f" {value:9.1f}" for value in row[1:]) + f" {size / 1024:8.1f}", flush=True)


if __name__ == "__main__":
    main()
