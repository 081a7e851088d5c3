"""The store: an append-only journal of facts and plans, and what people read of it, in SQLite or PostgreSQL."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Event as Signal
from threading import Lock
from typing import TypeVar

from sqlalchemy import Connection, delete, insert, select, update

from mirab.model.codec import decode
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.records import (
    AuditEntry,
    IdempotentReply,
    JobRow,
    JobSpec,
    JobState,
    RunRow,
    TokenRow,
    Write,
)
from mirab.model.resources import Cluster
from mirab.model.units import Instant
from mirab.store import forms, queries
from mirab.store import journal as records
from mirab.store.database import Database, open_database, told
from mirab.store.errors import LostLeadError, StoreError, UnreachableStoreError
from mirab.store.journal import Record
from mirab.store.leading import Lead, last_record
from mirab.store.tables import counters, journal, meta, replies, snapshots
from mirab.store.views import JobBook
from mirab.store.writing import load_book, put_changes, put_writes

Found = TypeVar("Found")

NUMBERS_AT_ONCE = 100
"""Job numbers that are reserved at once: a crash leaves out the rest of them, and none is ever given twice."""
SNAPSHOTS_KEPT = 2


def open_store(url: str) -> Store:
    """The store at a URL: ``sqlite:////path/mirab.db`` or ``postgresql://user@host/database``.

    An empty place gets its tables.

    Raises:
        StoreError: it cannot be used so; the message says why and what to do. A form that is older or newer than what
            this version serves is one, a file system on which SQLite loses data another.
    """
    database = open_database(url)
    try:
        with told(database):
            with database.reader.connect() as connection:
                form = forms.form_of(connection, database.name)
            if form is None:
                _, form = forms.migrate(database)
            forms.require_newest(form, database.name)
    except BaseException:
        database.close()
        raise
    return Store(url, database)


class Store:
    """A journal and its read models.

    One thread appends; all others read and write beside it, each on a connection of its own. A read that fails
    because the database does not answer is an `UnreachableStoreError`.

    Attributes:
        kind: ``sqlite`` or ``postgresql``.
        name: the place, for sentences, without a password.
        on_trouble: told a sentence once when an append does not succeed for now, and "" when it does again.
    """

    def __init__(self, url: str, database: Database) -> None:
        self.url = url
        self.kind = database.kind
        self.name = database.name
        self.database = database
        self.on_trouble: Callable[[str], None] = _keep_quiet
        self._closing = Signal()
        self._lead: Lead | None = None
        self._book: JobBook | None = None
        self._numbers = iter(range(0))
        self._numbering = Lock()

    # --- the journal --------------------------------------------------------------------------------------------------
    def lead(self, wait: float = 0) -> int:
        """Become the only decider, and return the epoch: how often anybody has.

        `wait`: how many seconds to wait for one that leads already.

        Raises:
            StoreBusyError: another leads; the message names it.
        """
        leading = Lead(self.database, self._closing, self._told)
        leading.take(wait)
        self._lead, self._book = leading, None
        return leading.epoch

    def append(self, facts: Sequence[Event], plan: Plan, writes: Sequence[Write] = ()) -> int:
        """Record facts, plan, what they change for people to read, and `writes`, in one transaction.

        Returns the record's number. While the database is locked, full or gone it keeps trying, and says so once.

        Raises:
            LostLeadError: another leads by now, or this store never led: nothing was written.
            StoreClosedError: the store was closed while it kept trying.
            CorruptStoreError: what is stored is damaged.
            TypeError: a fact or plan that has no form in a record: nothing was written.
        """
        lead = self._leading()
        facts_text, plan_text = records.written(facts, plan)
        book = self._book or self._open_book()
        self._lead = self._book = None  # put back when it is written: a book that is ahead of the journal is of no use
        changes = book.fold(facts, plan, {write.workload_id: write for write in writes if isinstance(write, JobSpec)})
        record = Record(lead.seq + 1, max(lead.at, book.now), lead.epoch, facts_text, plan_text)

        def work(connection: Connection) -> None:
            connection.execute(insert(journal), record.columns())
            put_writes(connection, writes)
            put_changes(connection, record.seq, changes)

        try:
            lead.write(work, record.seq)
        except BaseException:
            lead.drop()
            raise
        lead.seq, lead.at = record.seq, record.at
        self._lead, self._book = lead, book
        return record.seq

    def _told(self, trouble: str) -> None:
        self.on_trouble(trouble)

    def _leading(self) -> Lead:
        if self._lead is None:
            raise LostLeadError(f"nobody decides on {self.name} here: take the lead first")
        return self._lead

    def _open_book(self) -> JobBook:
        cluster, policy = self.meta("cluster"), self.meta("policy")
        if cluster is None:
            raise StoreError(f"{self.name} does not know its cluster yet: it is put down before the first record")
        return self._read(lambda connection: load_book(connection, _cluster(cluster), _policy(policy)))

    def records(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...], Plan]]:
        """Number, facts and plan of each record behind `after`, in order, read as they are asked for.

        Raises:
            CorruptStoreError: a record is missing or damaged.
        """
        while found := self._read(partial(records.batch, after=after)):
            for record in found:
                yield record.seq, *records.read(record)
            after = found[-1].seq

    def last(self) -> tuple[int, Instant]:
        """Number and instant of the last record, (0, 0) = none. No clock of the service may stand before it."""
        return self._read(last_record)

    def decisions(
        self, after: int | None = None, before: int | None = None, limit: int = 100, mentioning: str | None = None
    ) -> list[tuple[int, str, str]]:
        """Number, facts and plan (JSON) of records: the first behind `after`, oldest first, if that is given, else the
        last ones (before `before`), newest first.

        `mentioning`: only those that speak of this workload or node.
        """
        queries.require_limit(limit)
        return self._read(lambda connection: queries.decisions(connection, after, before, limit, mentioning))

    # --- snapshots and what the ledger began with ---------------------------------------------------------------------
    def put_snapshot(self, seq: int, fingerprint: str, data: bytes) -> None:
        """Keep the bytes of a state after record `seq`, made by a program with this fingerprint; drop older ones."""
        packed = zlib.compress(data, 1)

        def work(connection: Connection) -> None:
            connection.execute(delete(snapshots).where(snapshots.c.seq == seq, snapshots.c.fingerprint == fingerprint))
            connection.execute(insert(snapshots), {"seq": seq, "fingerprint": fingerprint, "data": packed})
            kept = select(snapshots.c.seq).order_by(snapshots.c.seq.desc()).limit(SNAPSHOTS_KEPT)
            connection.execute(delete(snapshots).where(snapshots.c.seq.not_in(kept)))

        self._change(work)

    def snapshot(self, fingerprint: str) -> tuple[int, bytes] | None:
        """The newest snapshot that a program with this fingerprint made: after which record, and the bytes."""
        query = select(snapshots.c.seq, snapshots.c.data).where(snapshots.c.fingerprint == fingerprint)
        found = self._read(lambda connection: connection.execute(query.order_by(snapshots.c.seq.desc())).first())
        return None if found is None else (found[0], zlib.decompress(found[1]))

    def meta(self, key: str) -> str | None:
        """What the ledger began with; ``cluster`` and ``policy`` are JSON in the form of `mirab.model.codec`."""
        return self._read(lambda connection: connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar())

    def put_meta(self, key: str, value: str) -> None:
        """Put it down once.

        Raises:
            StoreError: there is another value, or ``cluster`` or ``policy`` is not JSON in the form of the codec.
        """
        _check_meta(key, value)

        def work(connection: Connection) -> None:
            there = connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()
            if there is None:
                connection.execute(insert(meta), {"key": key, "value": value})
            elif there != value:
                raise StoreError(f"{self.name} began with another {key}: it cannot be changed, only by facts")

        self._change(work)

    # --- what people read ---------------------------------------------------------------------------------------------
    def job(self, workload_id: str) -> JobRow | None:
        return self._read(lambda connection: queries.job(connection, workload_id))

    def jobs(
        self,
        *,
        states: Collection[JobState] | None = None,
        user: str | None = None,
        account: str | None = None,
        formerly: Collection[str] = (),
        node: str | None = None,
        ids: Collection[str] | None = None,
        array_job: str | None = None,
        label: str | None = None,
        after: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> tuple[list[JobRow], str | None]:
        """A page of jobs for which all that is given holds, in the order of their recording, and the next cursor.

        `account`: that account and all below it, and what is on record for those of `formerly`.
        `node`: the present or last run is or was there. `after`: a cursor.

        Raises:
            ValueError: `after` is no cursor of such a list.
        """
        queries.require_limit(limit)
        accounts = None if account is None else (account, *formerly)
        conditions = queries.job_conditions(states, user, accounts, node, ids, array_job, label)
        return self._read(lambda connection: queries.page_of_jobs(connection, conditions, after, limit, newest_first))

    def counts(self) -> dict[str, int]:
        """Jobs by state; every state is there."""
        return self._read(queries.counts)

    def spec(self, workload_id: str) -> JobSpec | None:
        return self._read(lambda connection: queries.spec(connection, workload_id))

    def progress_intervals(self) -> dict[str, int]:
        """Within which jobs declared to show progress, in milliseconds; who declared none is absent."""
        return self._read(queries.progress_intervals)

    def runs(self, workload_id: str) -> list[RunRow]:
        """Its attempts, the first first."""
        return self._read(lambda connection: queries.runs_of(connection, workload_id))

    def token(self, digest: str) -> TokenRow | None:
        return self._read(lambda connection: queries.token(connection, digest))

    def tokens(self) -> list[TokenRow]:
        return self._read(queries.all_tokens)

    def reply(self, key: str, who: str) -> IdempotentReply | None:
        """What was answered to that user's request with that Idempotency-Key."""
        return self._read(lambda connection: queries.reply(connection, key, who))

    def audit(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        who: str | None = None,
        action: str | None = None,
        target: str | None = None,
    ) -> tuple[list[AuditEntry], str | None]:
        """A page of the changes that people made, newest first, and the cursor of the next page.

        Raises:
            ValueError: `after` is no cursor of such a list.
        """
        queries.require_limit(limit)
        return self._read(lambda connection: queries.audit_entries(connection, after, limit, who, action, target))

    # --- writing beside the journal -----------------------------------------------------------------------------------
    def write(self, writes: Sequence[Write]) -> None:
        """Write what belongs to no facts, in one transaction."""
        self._change(lambda connection: put_writes(connection, writes))

    def next_job_number(self) -> int:
        """A number that no job had; none is ever given twice, whatever happens to the service."""
        with self._numbering:
            number = next(self._numbers, None)
            if number is None:
                self._numbers = iter(self._reserve(NUMBERS_AT_ONCE))
                number = next(self._numbers)
            return number

    def _reserve(self, count: int) -> range:
        raised = update(counters).where(counters.c.name == "job").values(value=counters.c.value + count)
        ends: list[int] = []
        self._change(lambda connection: ends.append(_returned(connection, raised.returning(counters.c.value))))
        return range(ends[-1] - count, ends[-1])

    def skip_job_numbers(self, last: int) -> None:
        """Give none up to `last` any more: jobs had them that this ledger knows nothing of (it is new, or restored)."""
        with self._numbering:
            self._numbers = iter(range(0))
        behind = update(counters).where(counters.c.name == "job", counters.c.value <= last).values(value=last + 1)
        self._change(lambda connection: connection.execute(behind))

    def _give_back(self) -> None:
        """Numbers that were reserved and not used, where nobody has reserved others since."""
        with self._numbering:
            left, self._numbers = list(self._numbers), iter(range(0))
        if left:
            unused = update(counters).where(counters.c.name == "job", counters.c.value == left[-1] + 1)
            with suppress(StoreError):
                self._change(lambda connection: connection.execute(unused.values(value=left[0])))

    def forget_replies(self, before: Instant) -> int:
        """Drop the answers that are kept for repeated requests and are older; returns how many."""
        gone: list[int] = []
        old = delete(replies).where(replies.c.at < before)
        self._change(lambda connection: gone.append(connection.execute(old).rowcount))
        return gone[-1]

    def dispose(self) -> None:
        """Close everything and give up the lead; an append that keeps trying ends with `StoreClosedError`."""
        self._closing.set()
        self._give_back()
        if self._lead is not None:
            self._lead.drop()
        self._lead = self._book = None
        self.database.close()

    def trouble(self) -> str:
        """Ask whether it answers: "" = yes, else why not, as a sentence."""
        try:
            self._read(lambda connection: connection.execute(select(counters.c.value).limit(1)).first())
        except StoreError as error:
            return str(error)
        return ""

    def _read(self, work: Callable[[Connection], Found]) -> Found:
        with told(self.database), self.database.reader.connect() as connection:
            return work(connection)

    def _change(self, work: Callable[[Connection], object]) -> None:
        if astray := self.database.astray(None):
            raise UnreachableStoreError(astray)
        with told(self.database), self.database.writer.begin() as connection:
            work(connection)


def _returned(connection: Connection, statement: object) -> int:
    return int(connection.execute(statement).scalar_one())  # type: ignore[call-overload]


def _keep_quiet(_: str) -> None:
    pass


def _check_meta(key: str, value: str) -> None:
    if key == "cluster":
        _cluster(value)
    elif key == "policy":
        _policy(value)


def _cluster(text: str) -> Cluster:
    cluster = _decoded("cluster", text)
    if not isinstance(cluster, Cluster):
        raise StoreError("what the store keeps as 'cluster' is not a cluster")
    return cluster


def _policy(text: str | None) -> Policy:
    policy = Policy() if text is None else _decoded("policy", text)
    if not isinstance(policy, Policy):
        raise StoreError("what the store keeps as 'policy' is not a policy")
    return policy


def _decoded(key: str, text: str) -> object:
    try:
        return decode(json.loads(text))
    except ValueError as error:
        raise StoreError(f"what the store keeps as {key!r} cannot be read: {error}") from error
