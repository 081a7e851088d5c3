"""What goes into the tables with a record: changed jobs and runs, and what was to be written with the facts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Table, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from mirab.model.codec import decode
from mirab.model.policy import Policy
from mirab.model.records import AuditEntry, IdempotentReply, JobSpec, TokenRow, Write
from mirab.model.resources import Cluster
from mirab.store import rows
from mirab.store.rows import Columns
from mirab.store.tables import audit, jobs, journal, mentions, meta, placements, replies, runs, specs, tokens
from mirab.store.views import Changes, Entry, JobBook

CLUSTER_NOW, POLICY_NOW = "cluster now", "policy now"
"""Under which keys of `meta` stands what has changed since the ledger began."""

_UPDATE_JOB = update(jobs).where(jobs.c.id == bindparam("of_id"))
_UPDATE_RUN = update(runs).where(runs.c.id == bindparam("of_id"))


@cache
def insert(dialect: str, table: Table) -> Any:
    """An INSERT that can say what to do about a row that is there already. Made once: building one costs as much as
    executing it.
    """
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)


@cache
def insert_new(dialect: str, table: Table) -> Insert:
    """Rows that are not there yet; those that are stay as they are."""
    made: Insert = insert(dialect, table).on_conflict_do_nothing()
    return made


@cache
def upsert(dialect: str, table: Table, key: str) -> Insert:
    """Rows of which one with the same key is replaced. A number that the engine gives out stays."""
    statement = insert(dialect, table)
    changed = {
        each.name: statement.excluded[each.name]
        for each in table.columns
        if each.name != key and not (each.primary_key and each.autoincrement is True)
    }
    made: Insert = statement.on_conflict_do_update(index_elements=[key], set_=changed)
    return made


def put_changes(connection: Connection, seq: int, changes: Changes) -> None:
    dialect = connection.dialect.name
    new = [rows.job_columns(entry) for entry in changes.new.values()]
    if new:
        connection.execute(upsert(dialect, jobs, "id"), new)
    _update(connection, _UPDATE_JOB, [rows.job_columns(entry) for entry in changes.changed.values()])
    begun = [rows.run_columns(run) for run, is_new in changes.runs.values() if is_new]
    if begun:
        connection.execute(upsert(dialect, runs, "id"), begun)
    _update(connection, _UPDATE_RUN, [rows.run_columns(run) for run, is_new in changes.runs.values() if not is_new])
    if changes.placements:
        placed = [{"node": node, "workload_id": job, "attempt": attempt} for node, job, attempt in changes.placements]
        connection.execute(insert_new(dialect, placements), placed)
    for key, value in ((CLUSTER_NOW, changes.cluster), (POLICY_NOW, changes.policy)):
        if value is not None:
            put_meta(connection, key, rows.to_json(value))
    if changes.mentions:
        spoken = [{"about": rows.storable(about), "seq": seq} for about in changes.mentions]
        connection.execute(insert(dialect, mentions), spoken)


def put_meta(connection: Connection, key: str, value: str) -> None:
    """Put it down, whatever was there."""
    connection.execute(upsert(connection.dialect.name, meta, "key"), {"key": key, "value": value})


def _update(connection: Connection, statement: Any, changed: list[Columns]) -> None:
    if changed:
        for columns in changed:
            columns["of_id"] = columns.pop("id")
        connection.execute(statement, changed)


def put_writes(connection: Connection, writes: Iterable[Write]) -> None:
    """What belongs to facts, or stands for itself: an answer that was given stands, a spec or token is replaced."""
    dialect = connection.dialect.name
    by_table: dict[type, list[Columns]] = {}
    for write in writes:
        by_table.setdefault(type(write), []).append(_COLUMNS[type(write)](write))
    for kind, columns in by_table.items():
        if kind is JobSpec:
            connection.execute(upsert(dialect, specs, "workload_id"), columns)
        elif kind is TokenRow:
            connection.execute(upsert(dialect, tokens, "id"), columns)
        elif kind is IdempotentReply:
            connection.execute(insert_new(dialect, replies), columns)
        else:
            connection.execute(insert(dialect, audit), columns)


_COLUMNS: dict[type, Any] = {
    JobSpec: rows.spec_columns,
    TokenRow: rows.token_columns,
    IdempotentReply: rows.reply_columns,
    AuditEntry: rows.audit_columns,
}


def load_book(connection: Connection, cluster: Cluster, policy: Policy) -> JobBook:
    """The book as it stands after the last record, from the tables.

    `cluster`, `policy`: those that the ledger began with.
    """
    last = connection.execute(select(journal.c.at).order_by(journal.c.seq.desc()).limit(1)).scalar()
    present = select(runs).join(jobs, (runs.c.workload_id == jobs.c.id) & (runs.c.attempt == jobs.c.attempt))
    going = present.where(jobs.c.ended.is_(False), jobs.c.state != "PENDING")
    by_job = {row["workload_id"]: rows.run_row(row) for row in connection.execute(going).mappings()}
    active = select(jobs).where(jobs.c.ended.is_(False)).order_by(jobs.c.ordinal)
    entries: list[Entry] = [rows.entry_of(row, by_job.get(row["id"])) for row in connection.execute(active).mappings()]
    now = dict(
        connection.execute(select(meta.c.key, meta.c.value).where(meta.c.key.in_((CLUSTER_NOW, POLICY_NOW)))).all()
    )
    if CLUSTER_NOW in now:
        cluster = decode(json.loads(now[CLUSTER_NOW]))
    if POLICY_NOW in now:
        policy = decode(json.loads(now[POLICY_NOW]))
    return JobBook(cluster, policy, last or 0, entries)
