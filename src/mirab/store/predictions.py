"""Forecasts that were given, kept to be compared with what happened. They stand among the store's `meta`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, select

from mirab.model.records import JobState
from mirab.model.units import Instant, WorkloadId
from mirab.store.database import told
from mirab.store.store import Store
from mirab.store.tables import jobs, meta, runs
from mirab.store.writing import put_meta

PREFIX = "forecast "
KEPT = 5_000
"""So many are kept, the newest."""
_AT_ONCE = 400


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was said of one wait: the first forecast for this attempt. p50, p90: None = later than it looked."""

    workload: WorkloadId
    attempt: int
    kind: str
    at: Instant
    p50: Instant | None
    p90: Instant | None
    bound: Instant | None = None
    after_90: Instant | None = None

    @property
    def key(self) -> str:
        return f"{PREFIX}{self.workload}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class Fate:
    """What came of it. `ended_at`: it ended without that attempt; both None = it still waits."""

    prediction: Prediction
    started_at: Instant | None
    ended_at: Instant | None


class Predictions:
    """Read and written beside the journal; a store that is restored brings them along."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(self, new: Iterable[Prediction]) -> None:
        """Put down what is said of waits about which nothing was said before, and forget the oldest."""
        with told(self._store.database), self._store.database.writer.begin() as connection:
            for each in new:
                put_meta(connection, each.key, json.dumps(asdict(each)))
            there = _all(connection)
            for old in sorted(there, key=lambda each: each.at)[: max(0, len(there) - KEPT)]:
                connection.execute(delete(meta).where(meta.c.key == old.key))

    def all(self) -> list[Prediction]:
        with told(self._store.database), self._store.database.reader.connect() as connection:
            return _all(connection)

    def fates(self) -> list[Fate]:
        """Each prediction with what is known of it now."""
        with told(self._store.database), self._store.database.reader.connect() as connection:
            said = _all(connection)
            started = _started(connection, said)
            ended = _ended(connection, {each.workload for each in said})
        return [Fate(each, started.get(each.key), ended.get(each.workload)) for each in said]


def _all(connection: Connection) -> list[Prediction]:
    query = select(meta.c.value).where(meta.c.key >= PREFIX, meta.c.key < PREFIX[:-1] + "!")
    return [Prediction(**json.loads(text)) for text in connection.execute(query).scalars()]


def _started(connection: Connection, said: Sequence[Prediction]) -> dict[str, Instant]:
    found = {}
    for begin in range(0, len(said), _AT_ONCE):
        ids = [each.key.removeprefix(PREFIX) for each in said[begin : begin + _AT_ONCE]]
        for run_id, at in connection.execute(select(runs.c.id, runs.c.decided_at).where(runs.c.id.in_(ids))):
            found[PREFIX + run_id] = at
    return found


def _ended(connection: Connection, workloads: Collection[WorkloadId]) -> dict[WorkloadId, Instant]:
    found, ids = {}, sorted(workloads)
    states = [state.value for state in JobState if state.ended]
    for begin in range(0, len(ids), _AT_ONCE):
        some = jobs.c.id.in_(ids[begin : begin + _AT_ONCE])
        query = select(jobs.c.id, jobs.c.ended_at).where(some, jobs.c.state.in_(states), jobs.c.ended_at.is_not(None))
        for job_id, at in connection.execute(query):
            found[WorkloadId(job_id)] = at
    return found
