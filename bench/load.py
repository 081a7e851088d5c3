"""The service under load: many jobs wait, many people submit and look.

    python -m bench.load [--waiting 20000] [--accounts 500] [--nodes 1024] [--rate 100] [--seconds 60]
                         [--db sqlite|postgres|URL] [--json FILE]

A service of its own with the null backend, in a temporary folder; the generator runs on the same cores. Submissions are
sent at fixed instants whether or not earlier ones were answered, and each latency counts from the instant at which it
was due, so a stall is felt by all that come in it. Beside them somebody looks at `ls` and `share` twice a second each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

from mirab.cli.client import Client, new_key
from mirab.cli.localservice import LocalService, local_service

SENDERS = 24
LOOKS_PER_SECOND = 2.0
TOGETHER = 4
"""Nodes whose runs end at the same time: about two nodes become free each second."""
TARGETS = {"submit": 150.0, "ls": 200.0, "ls --account": 200.0, "share": 200.0}
"""Milliseconds that the 99th of a hundred should stay under."""
DECISION_TARGET = 10.0


@dataclass(slots=True)
class Sample:
    """Latencies in milliseconds, and what went wrong."""

    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def at(self, part: float) -> float:
        return nearest_rank(self.took, part)

    def numbers(self) -> dict[str, float]:
        return {"count": len(self.took), "failed": len(self.failed), "median_ms": self.at(0.5),
                "p99_ms": self.at(0.99), "max_ms": max(self.took, default=0.0)}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=20_000)
    parser.add_argument("--accounts", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=1_024)
    parser.add_argument("--rate", type=float, default=100.0, help="submissions a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--db", default="sqlite", help="sqlite, postgres (a server of its own), or a URL")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    with tempfile.TemporaryDirectory(prefix="mirab-load-") as folder, database(options.db) as url:
        found = loaded(Path(folder), url, options)
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


@contextmanager
def database(which: str) -> Iterator[str]:
    """The URL of an empty database; "" = SQLite in the state folder."""
    if which == "sqlite":
        yield ""
    elif which == "postgres":
        from tests.live.postgres import serve

        for server in serve():
            yield server.new_database()
    else:
        yield which


def loaded(folder: Path, url: str, options: argparse.Namespace) -> dict[str, Any]:
    cluster = folder / "cluster.yaml"
    cluster.write_text(cluster_file(options.nodes, options.accounts), encoding="utf-8")
    flags = ["--cluster", str(cluster), "--backend", "null", "--log-level", "debug", "--log-format", "json"]
    with local_service(folder / "state", *flags, *(["--db", url] if url else [])) as service:
        filled = fill(service, options)
        seen, before, own = last_seq(service), cpu_s(service), time.process_time()
        samples = generate(service, options)
        used = {"service": (cpu_s(service) - before) / options.seconds,
                "generator": (time.process_time() - own) / options.seconds}  # fmt: skip
        memory = memory_mib(service)
        decisions = decision_times(service, after=seen)
    return {
        "db": options.db,
        "fill_s": filled,
        "waiting": options.waiting,
        "memory_mib": memory,
        "cores": used,
        "decisions": decisions,
        **{name: sample.numbers() for name, sample in samples.items()},
        "failures": [text for sample in samples.values() for text in sample.failed][:5],
    }


def cluster_file(nodes: int, accounts: int) -> str:
    """Programs of ten projects each, with equal shares."""
    lines = ["cluster:", "  pools:", f'    gpu: {{nodes: "n[0-{nodes - 1}]", gpus_per_node: 8}}', "budgets:"]
    programs = max(1, ceil(accounts / 10))
    for program in range(programs):
        lines += [f"  p{program}:", f"    share: {100 / programs:.4f}%", "    children:"]
        lines += [f"      a{number}: {{share: 10%}}" for number in range(min(10, accounts - 10 * program))]
    return "\n".join(lines) + "\n"


# --- what waits before the measurement -------------------------------------------------------------------------------
def fill(service: LocalService, options: argparse.Namespace) -> float:
    """Runs that end all the time on every node, and a queue behind them."""
    chance = Random(1)
    began = time.perf_counter()
    with service.client() as client:
        for first in range(0, options.nodes, TOGETHER):
            tasks = min(TOGETHER, options.nodes - first)
            seconds = 30 + chance.randrange(600)
            client.post("/jobs", request(account(first // TOGETHER % options.accounts), 8, "4h", seconds,
                                         f"0-{tasks - 1}"), key=new_key())  # fmt: skip
        per_account = max(1, options.waiting // options.accounts)
        for number in range(options.accounts):
            body = request(account(number), chance.choice((1, 2, 4, 8)), chance.choice(("0", "10m", "1h", "8h")),
                           600, f"0-{per_account - 1}")  # fmt: skip
            client.post("/jobs", body, key=new_key())
    return time.perf_counter() - began


def account(number: int) -> str:
    return f"p{number // 10}/a{number % 10}"


def request(account: str, gpus: int, minimum: str, seconds: int, array: str = "") -> dict[str, Any]:
    return {"account": account, "name": "load", "argv": ["sleep", str(seconds)], "cwd": "/", "gpus_per_node": gpus,
            "min_runtime": minimum, "array": array, "environment": {"HOME": "/", "PATH": "/usr/bin:/bin"}}  # fmt: skip


# --- the load ---------------------------------------------------------------------------------------------------------
def generate(service: LocalService, options: argparse.Namespace) -> dict[str, Sample]:
    """Submissions from many hands at fixed instants, and two people who look."""
    samples = {name: Sample() for name in TARGETS}
    due: SimpleQueue[float | None] = SimpleQueue()
    begin = time.perf_counter() + 0.5
    senders = [threading.Thread(target=send, args=(service, due, samples["submit"], number, options.accounts))
               for number in range(SENDERS)]  # fmt: skip
    lookers = [
        threading.Thread(target=look, args=(service, begin, options.seconds, samples[name], ask))
        for name, ask in looks(options.accounts).items()
    ]
    for thread in (*senders, *lookers):
        thread.start()
    for number in range(int(options.rate * options.seconds)):
        at = begin + number / options.rate
        time.sleep(max(0.0, at - time.perf_counter()))
        due.put(at)
    for _ in senders:
        due.put(None)
    for thread in (*senders, *lookers):
        thread.join()
    return samples


def send(service: LocalService, due: SimpleQueue[float | None], sample: Sample, seed: int, accounts: int) -> None:
    chance = Random(seed)
    with service.client() as client:
        while (at := due.get()) is not None:
            body = request(account(chance.randrange(accounts)), chance.choice((1, 1, 2, 4, 8)),
                           chance.choice(("0", "15m", "1h")), 60)  # fmt: skip
            noted(sample, at, lambda body=body: client.post("/jobs", body, key=new_key()))  # type: ignore[misc]


def looks(accounts: int) -> dict[str, Callable[[Client, Random], object]]:
    return {
        "ls": lambda client, _: client.get("/jobs", {"limit": 100}),
        "ls --account": lambda client, chance: client.get(
            "/jobs", {"limit": 100, "state": "PENDING", "account": account(chance.randrange(accounts))}
        ),
        "share": lambda client, _: client.get("/share", {}),
    }


def look(service: LocalService, begin: float, seconds: float, sample: Sample, ask: Callable[[Client, Random], object]) -> None:  # fmt: skip  # noqa: E501
    chance = Random(7)
    with service.client() as client:
        for number in range(int(seconds * LOOKS_PER_SECOND)):
            at = begin + number / LOOKS_PER_SECOND
            time.sleep(max(0.0, at - time.perf_counter()))
            noted(sample, at, lambda: ask(client, chance))


def noted(sample: Sample, at: float, ask: Callable[[], object]) -> None:
    try:
        ask()
    except Exception as error:
        sample.failed.append(f"{type(error).__name__}: {error}")
        return
    sample.took.append((time.perf_counter() - at) * 1_000)


# --- what the service says of itself ----------------------------------------------------------------------------------
def told(service: LocalService) -> Iterator[dict[str, Any]]:
    for line in service.log.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def last_seq(service: LocalService) -> int:
    return max((line["seq"] for line in told(service) if line["event"] == "decided"), default=0)


def decision_times(service: LocalService, after: int) -> dict[str, float]:
    lines = [line for line in told(service) if line["event"] == "decided" and line["seq"] > after]
    decide = [line["decide_ms"] for line in lines]
    append = [line["append_ms"] for line in lines]
    return {
        "count": len(lines),
        "actions": sum(line["actions"] for line in lines),
        "decide_median_ms": nearest_rank(decide, 0.5),
        "decide_p99_ms": nearest_rank(decide, 0.99),
        "append_median_ms": nearest_rank(append, 0.5),
        "append_p99_ms": nearest_rank(append, 0.99),
        "append_max_ms": max(append, default=0.0),
    }


def memory_mib(service: LocalService) -> float:
    status = Path(f"/proc/{service.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) / 1024 if found else 0.0


def cpu_s(service: LocalService) -> float:
    """CPU time of the service so far, in seconds."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def nearest_rank(values: Sequence[float], part: float) -> float:
    return sorted(values)[max(0, ceil(len(values) * part) - 1)] if values else float("nan")


def show(found: dict[str, Any]) -> None:
    print(f"{found['db']}: {found['waiting']:,} waiting (filled in {found['fill_s']:.0f} s), peak memory "
          f"{found['memory_mib']:.0f} MiB; of a core the service takes {found['cores']['service']:.0%}, the generator "
          f"{found['cores']['generator']:.0%}")  # fmt: skip
    print(f"{'':14}{'count':>8}{'failed':>8}{'median ms':>11}{'p99 ms':>9}{'max ms':>9}{'target':>9}")
    for name, target in TARGETS.items():
        row = found[name]
        print(f"{name:14}{row['count']:8}{row['failed']:8}{row['median_ms']:11.1f}{row['p99_ms']:9.1f}"
              f"{row['max_ms']:9.1f}{target:9.0f}")  # fmt: skip
    made = found["decisions"]
    print(f"{made['count']} decisions with {made['actions']} actions: decide {made['decide_median_ms']:.1f} ms median "
          f"(target {DECISION_TARGET:.0f}), {made['decide_p99_ms']:.1f} p99; record {made['append_median_ms']:.1f} "
          f"median, {made['append_p99_ms']:.1f} p99, {made['append_max_ms']:.0f} most")  # fmt: skip
    for text in found["failures"]:
        print(f"failed: {text}")


if __name__ == "__main__":
    sys.exit(main())
