"""Proving the read models: the journal is folded anew, and each row has to be what comes out; or they are made anew."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, Table, delete, select

from mirab.model.codec import decode
from mirab.model.events import Event, WorkloadSubmitted
from mirab.model.policy import Policy
from mirab.model.records import JobSpec
from mirab.model.units import WorkloadId
from mirab.store import forms, journal, rows
from mirab.store.database import Database, told
from mirab.store.errors import CorruptStoreError
from mirab.store.leading import alone
from mirab.store.tables import jobs, mentions, meta, placements, runs, specs
from mirab.store.views import Changes, JobBook
from mirab.store.writing import put_changes

NAMED = 10
"""So many differences are told one by one."""
_TOLD = 500


@dataclass(slots=True)
class Checked:
    """What was looked at, and what is wrong with it, each a sentence."""

    records: int = 0
    jobs: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


def check(database: Database) -> Checked:
    """Compare the engine's own view of its files, the journal's checksums, and each row of the read models.

    Everything is of one instant; a service may go on meanwhile.
    """
    found = Checked()
    with told(database), database.snapshot() as connection, connection.begin():
        forms.require_newest(forms.form_of(connection, database.name), database.name)
        found.wrong += database.has_changed_by_hand(connection)
        expected = Expected()
        try:
            for changes in folded(connection):
                found.records += 1
                expected.take(found.records, changes)
        except CorruptStoreError as error:
            found.wrong.append(str(error))
            return found
        found.jobs, found.runs = len(expected.jobs), len(expected.runs)
        found.wrong += expected.compare(connection)
    return found


def rebuild_alone(database: Database) -> int:
    """Make the read models anew from the journal, in one transaction; returns how many records it has.

    Raises:
        StoreBusyError: a service runs on it.
        CorruptStoreError: the journal itself is damaged; nothing was changed.
    """
    count = 0
    with told(database), alone(database), database.writer.begin() as connection:
        forms.require_newest(forms.form_of(connection, database.name), database.name)
        for table in (jobs, runs, placements, mentions):
            connection.execute(delete(table))
        for changes in folded(connection):
            count += 1
            put_changes(connection, count, changes)
    return count


def folded(connection: Connection) -> Iterator[Changes]:
    """What each record changes, from the first on."""
    book: JobBook | None = None
    for record in journal.rows(connection):
        facts, plan = journal.read(record)
        if book is None:
            book = first_book(connection)
        changes = book.fold(facts, plan, _specs(connection, facts))
        if record.at != book.now:
            raise CorruptStoreError(
                f"record {record.seq} of the journal says instant {record.at}, and holds {book.now}"
            )
        yield changes


def first_book(connection: Connection) -> JobBook:
    """The book before the first record."""
    began = dict(connection.execute(select(meta.c.key, meta.c.value)).all())
    if "cluster" not in began:
        raise CorruptStoreError("the journal has records, and nothing says on which cluster it began")
    policy = decode(json.loads(began["policy"])) if "policy" in began else Policy()
    return JobBook(decode(json.loads(began["cluster"])), policy)


def _specs(connection: Connection, facts: Iterable[Event]) -> dict[WorkloadId, JobSpec]:
    ids = [fact.workload.id for fact in facts if isinstance(fact, WorkloadSubmitted)]
    found: dict[WorkloadId, JobSpec] = {}
    for first in range(0, len(ids), _TOLD):
        query = select(specs.c.workload_id, specs.c.spec).where(specs.c.workload_id.in_(ids[first : first + _TOLD]))
        found |= {row[0]: rows.spec_of(row[1]) for row in connection.execute(query)}
    return found


class Expected:
    """What the tables should hold, kept as digests, so that a million jobs fit into memory."""

    def __init__(self) -> None:
        self.jobs: dict[str, bytes] = {}
        self.runs: dict[str, bytes] = {}
        self.placements = 0
        self.mentions = 0

    def take(self, seq: int, changes: Changes) -> None:
        for entry in (*changes.new.values(), *changes.changed.values()):
            columns = rows.job_columns(entry)
            self.jobs[columns["id"]] = _digest(columns, rows.JOB_COLUMNS)
        for run, _ in changes.runs.values():
            self.runs[run.id] = _digest(rows.run_columns(run), rows.RUN_COLUMNS)
        for node, workload_id, attempt in changes.placements:
            self.placements += _sum(node, workload_id, attempt)
        for about in changes.mentions:
            self.mentions += _sum(rows.storable(about), seq)

    def compare(self, connection: Connection) -> list[str]:
        wrong = list(_differences(connection, jobs, rows.JOB_COLUMNS, self.jobs, "job"))
        wrong += _differences(connection, runs, rows.RUN_COLUMNS, self.runs, "run")
        if _summed(connection, placements, "node", "workload_id", "attempt") != self.placements:
            wrong.append("what is kept about which run had which node is not what the journal says")
        if _summed(connection, mentions, "about", "seq") != self.mentions:
            wrong.append("what is kept about which record speaks of what is not what the journal says")
        return wrong


def _digest(columns: Mapping[Any, Any], names: tuple[str, ...]) -> bytes:
    return blake2b(repr([columns[name] for name in names]).encode(), digest_size=12).digest()


def _sum(*values: object) -> int:
    """Of a row, so that sums over rows are equal in whatever order they come."""
    text = repr(values).encode()
    return crc32(text) << 32 | crc32(text[::-1])


def _summed(connection: Connection, table: Table, *names: str) -> int:
    query = select(*(table.c[name] for name in names)).execution_options(yield_per=journal.BATCH)
    return sum(_sum(*row) for row in connection.execute(query))


def _differences(
    connection: Connection, table: Table, names: tuple[str, ...], expected: dict[str, bytes], what: str
) -> Iterator[str]:
    """The first of them one by one, the rest as a number."""
    left = dict(expected)
    wrong: list[str] = []
    query = select(table).execution_options(yield_per=journal.BATCH)
    for row in connection.execute(query).mappings():
        digest = left.pop(row["id"], None)
        if digest is None:
            wrong.append(f"{what} {row['id']} is in the table, and the journal does not know it")
        elif digest != _digest(row, names):
            wrong.append(f"{what} {row['id']} is not as the journal says")
    wrong += [f"{what} {name} is missing in the table" for name in left]
    yield from wrong[:NAMED]
    if len(wrong) > NAMED:
        yield f"and {len(wrong) - NAMED:,} more {what}s"
