"""What the pages cost the service: each page's requests on a live one with many nodes and jobs.

python -m bench.pages [--nodes 1000] [--jobs 10000] [--rounds 20]
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from mirab.cli.localservice import LocalService, local_service

CLUSTER = """\
cluster:
  name: bench
  pools:
    gpu: {{nodes: {nodes}, gpus_per_node: 8, gpu_type: H100, cpus_per_node: 64}}
budgets:
{accounts}
"""
SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (16, 8), (64, 8))
ACCOUNTS = 15
AT_ONCE = 500
PAGES: dict[str, tuple[str, ...]] = {
    "Now": ("/", "/api/v1/now"),
    "Queue": ("/api/v1/jobs?state=RUNNING,COMPLETING,PENDING&limit=50",),
    "Queue, ended": ("/api/v1/jobs?state=COMPLETED,FAILED&limit=50&newest=true",),
    "Job": ("/api/v1/jobs/1_0", "/api/v1/chronicle?about=1_0&limit=100"),
    "Accounts": ("/api/v1/share", "/api/v1/budgets", "/api/v1/trend"),
    "Nodes": ("/api/v1/nodes", "/api/v1/chronicle?topic=nodes&limit=20"),
    "Decisions": ("/api/v1/chronicle?limit=40",),
    "Decisions, found nothing": ("/api/v1/chronicle?limit=40&topic=budgets",),
}


class Unix(http.client.HTTPConnection):
    """HTTP over the service's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def fill(service: LocalService, jobs: int) -> None:
    """Arrays of every size for every account, far more than fit."""
    with service.client() as client:
        for number in range(0, jobs, AT_ONCE):
            nodes, gpus = SIZES[number // AT_ONCE % len(SIZES)]
            client.post(
                "/jobs",
                {"account": f"team{number // AT_ONCE % ACCOUNTS:02}", "argv": ["sleep", "100000"], "nodes": nodes,
                 "gpus_per_node": gpus, "min_runtime": "15m", "array": f"0-{min(AT_ONCE, jobs - number) - 1}"},
            )  # fmt: skip


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
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mirab-bench-") as name:
        folder = Path(name)
        accounts = "\n".join(f"  team{number:02}: {{share: 6%}}" for number in range(ACCOUNTS))
        (folder / "cluster.yaml").write_text(CLUSTER.format(nodes=given.nodes, accounts=accounts), "utf-8")
        flags = ("--cluster", str(folder / "cluster.yaml"), "--backend", "null", "--log-format", "json")
        with local_service(folder / "state", *flags) as service:
            fill(service, given.jobs)
            sleep(3)
            measure(service, given.rounds)


def measure(service: LocalService, rounds: int) -> None:
    connection = Unix(service.address.place)
    print(f"{'page':26} {'p50 ms':>8} {'max ms':>8} {'KiB':>8}")
    for page, addresses in PAGES.items():
        times, size = [], 0
        for _ in range(rounds):
            found = [ask(connection, address) for address in addresses]
            times.append(sum(took for took, _ in found))
            size = sum(count for _, count in found)
            sleep(1.1 if page == "Now" else 0)
        print(f"{page:26} {median(times) * 1e3:8.1f} {max(times) * 1e3:8.1f} {size / 1024:8.1f}")
    print(json.dumps({"rounds": rounds}))


if __name__ == "__main__":
    main()
