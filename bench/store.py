"""The store on both engines, side by side: appends, group commit, lists over 20,000 waiting jobs, recovery.

    python -m bench.store [--seconds 5] [--waiting 20000] [--journal 100000] [--engines sqlite,postgresql] [--json FILE]

PostgreSQL is started for the bench on a free port, with its usual care for the disk (fsync on), in a temporary folder
on the same disk as SQLite's file. Each commit is on disk when it counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from sqlalchemy import text as sql
from tests.live.postgres import serve

from bench.tables import columns
from mirab.model.codec import encode
from mirab.model.events import Event, Outcome, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Plan, Start
from mirab.model.reasons import InOrder
from mirab.model.records import JobSpec, JobState
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import AccountPath, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.store import Store, open_store

NODES = 1_024
ACCOUNTS = 500
PER_RECORD = 7
"""Jobs that are submitted, started and ended in one record of the long journal: a cycle's worth."""
WHY = InOrder(AccountPath("p1/q1"), 0.5, True)
ENVIRONMENT = tuple((f"VARIABLE_{number}", "some value of usual length") for number in range(40))


@dataclass(frozen=True, slots=True)
class Row:
    """One number of one engine."""

    what: str
    engine: str
    found: float
    unit: str


def workload(number: int) -> Workload:
    account = AccountPath(f"p{number % 20}/q{number % ACCOUNTS}")
    user = UserName(f"user{number % 997}")
    return Workload(WorkloadId(str(number)), number, account, user, Shape(1, 1 + number % 8, min_runtime=900_000))


def spec(number: int) -> JobSpec:
    return JobSpec(WorkloadId(str(number)), f"train-{number}", ("python", "train.py"), environment=ENVIRONMENT)


def submission(number: int) -> WorkloadSubmitted:
    return WorkloadSubmitted(number, workload(number))


def start(number: int) -> Start:
    given = Allocation(0, 1 << number % NODES, 1 + number % 8)
    return Start(RunId(f"{number}.1"), WorkloadId(str(number)), given, 900_000, WHY)


def prepared(url: str) -> Store:
    nodes = tuple(NodeName(f"node{number:04d}") for number in range(NODES))
    store = open_store(url)
    store.put_meta("cluster", json.dumps(encode(Cluster("bench", (Pool("gpu", nodes, 8),)))))
    store.lead()
    return store


def timed_for(seconds: float, work: Callable[[int], object]) -> list[float]:
    """How long each call took, in seconds, for about so long."""
    spans: list[float] = []
    until = perf_counter() + seconds
    while (begun := perf_counter()) < until:
        work(len(spans))
        spans.append(perf_counter() - begun)
    return spans


def at(spans: list[float], part: float) -> float:
    """Nearest rank, in milliseconds."""
    return sorted(spans)[min(len(spans) - 1, int(part * len(spans)))] * 1_000


def appends(store: Store, seconds: float, group: int) -> Iterator[tuple[str, float, str]]:
    """Submissions, `group` in one commit."""
    first = store.next_job_number() * 1_000

    def append(turn: int) -> None:
        numbers = range(first + turn * group, first + (turn + 1) * group)
        store.append([submission(number) for number in numbers], Plan(turn, 0), [spec(number) for number in numbers])

    spans = timed_for(seconds, append)
    name = f"{group} submission{'s' if group > 1 else ''} in a commit"
    yield f"{name}: submissions", len(spans) * group / sum(spans), "/s"
    yield f"{name}: median commit", at(spans, 0.5), "ms"
    yield f"{name}: p99 commit", at(spans, 0.99), "ms"


def over_waiting(store: Store, seconds: float, waiting: int) -> Iterator[tuple[str, float, str]]:
    """Small records and lists while many jobs wait."""
    first = 10**9
    for number in range(first, first + waiting, 1_000):
        batch = range(number, min(number + 1_000, first + waiting))
        store.append([submission(each) for each in batch], Plan(0, 0), [spec(each) for each in batch])

    def cycle(turn: int) -> None:
        number = first + turn
        store.append([RunStarted(1, RunId(f"{number - 1}.1"))] if turn else [], Plan(1, 0, (start(number),)))

    name = f"with {waiting:,} waiting"
    spans = timed_for(seconds, cycle)
    yield f"{name}: a start and a RunStarted, median", at(spans, 0.5), "ms"
    yield f"{name}: a start and a RunStarted, p99", at(spans, 0.99), "ms"
    lists: tuple[tuple[str, Callable[[int], object]], ...] = (
        ("ls, 100 active", lambda _: store.jobs(states=[JobState.PENDING, JobState.RUNNING])),
        ("ls of a user", lambda turn: store.jobs(user=f"user{turn % 997}", states=[JobState.PENDING])),
        ("ls of a program", lambda turn: store.jobs(account=f"p{turn % 20}")),
        ("ls of a node", lambda turn: store.jobs(node=f"node{turn % NODES:04d}")),
        ("counts by state", lambda _: store.counts()),
    )
    for what, ask in lists:
        spans = timed_for(seconds / 5, ask)
        yield f"{name}: {what}, median", at(spans, 0.5), "ms"
        yield f"{name}: {what}, p99", at(spans, 0.99), "ms"


def long_journal(store: Store, count: int) -> Iterator[tuple[str, float, str]]:
    """A journal of many jobs that came and went: writing it, reading it back, and taking up the lead again."""
    begun = perf_counter()
    before: list[int] = []
    for first in range(1, count + 1, PER_RECORD):
        numbers = list(range(first, min(first + PER_RECORD, count + 1)))
        facts: list[Event] = [RunEnded(first, RunId(f"{each}.1"), Outcome.COMPLETED, 0, 0) for each in before]
        facts += [submission(each) for each in numbers]
        store.append(facts, Plan(first, 0, tuple(start(each) for each in numbers)), [spec(each) for each in numbers])
        store.append([RunStarted(first, RunId(f"{each}.1")) for each in numbers], Plan(first, 0))
        before = numbers
    yield f"journal of {count:,} jobs: written", perf_counter() - begun, "s"
    begun = perf_counter()
    records = sum(1 for _ in store.records())
    span = perf_counter() - begun
    yield f"journal of {count:,} jobs: read and decoded", span, "s"
    yield f"journal of {count:,} jobs: records", records / span, "/s"
    yield f"journal of {count:,} jobs: all that is stored", size(store) / count / 1_000, "kB/job"
    begun = perf_counter()
    store.counts()
    yield f"after {count:,} jobs: counts by state", (perf_counter() - begun) * 1_000, "ms"
    begun = perf_counter()
    store.jobs(states=[JobState.PENDING, JobState.RUNNING])
    yield f"after {count:,} jobs: ls of what is active", (perf_counter() - begun) * 1_000, "ms"


def size(store: Store) -> int:
    """Bytes of the whole store, its indices and the environments of jobs (here 2 kB each) included."""
    asked = {
        "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "postgresql": "SELECT pg_database_size(current_database())",
    }
    with store.database.reader.connect() as connection:
        return int(connection.execute(sql(asked[store.kind])).scalar_one())


@contextmanager
def places(engine: str, folder: Path) -> Iterator[Callable[[], str]]:
    """URLs of empty places."""
    if engine == "sqlite":
        names = iter(range(1_000))
        yield lambda: f"sqlite:///{folder}/{next(names)}.db"
    else:
        servers = serve()
        server = next(servers)
        try:
            yield server.new_database
        finally:
            servers.close()  # type: ignore[attr-defined]


def measure(engine: str, seconds: float, waiting: int, journal: int) -> list[Row]:
    folder = Path(tempfile.mkdtemp(prefix="mirab-bench-"))
    rows: list[Row] = []
    benches: tuple[Callable[[Store], Iterator[tuple[str, float, str]]], ...] = (
        lambda store: appends(store, seconds, 1),
        lambda store: appends(store, seconds, 100),
        lambda store: over_waiting(store, seconds, waiting),
        lambda store: long_journal(store, journal),
    )
    try:
        with places(engine, folder) as new_url:
            for bench in benches:
                store = prepared(new_url())
                rows += [Row(what, engine, found, unit) for what, found, unit in bench(store)]
                if bench is benches[-1]:
                    store.dispose()
                    rows.append(
                        Row("the lead taken up again, with all that is active", engine, _taken_up(store.url), "s")
                    )
                store.dispose()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def _taken_up(url: str) -> float:
    begun = perf_counter()
    store = open_store(url)
    store.lead()
    store.append((), Plan(0, 0))
    span = perf_counter() - begun
    store.dispose()
    return span


def text(rows: list[Row]) -> str:
    engines = list(dict.fromkeys(row.engine for row in rows))
    found = {(row.what, row.engine): f"{row.found:,.2f} {row.unit}" for row in rows}
    names = list(dict.fromkeys(row.what for row in rows))
    return columns(
        [["", *engines], *([name, *(found.get((name, engine), "") for engine in engines)] for name in names)]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--waiting", type=int, default=20_000)
    parser.add_argument("--journal", type=int, default=100_000)
    parser.add_argument("--engines", default="sqlite,postgresql")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for engine in options.engines.split(","):
        rows += measure(engine, options.seconds, options.waiting, options.journal)
    print(text(rows))
    if options.json:
        options.json.write_text(
            json.dumps([{name: getattr(row, name) for name in Row.__slots__} for row in rows], indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
