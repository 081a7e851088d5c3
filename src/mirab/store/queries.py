"""Reading what people look at: each function is one or two statements on a connection."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, literal_column, or_, select

from mirab.model.records import AuditEntry, IdempotentReply, JobRow, JobSpec, JobState, RunRow, TokenRow
from mirab.store import rows
from mirab.store.errors import StoreError
from mirab.store.tables import audit, jobs, journal, mentions, placements, replies, runs, specs, tokens

_ENDED = frozenset(state for state in JobState if state.ended)


def job(connection: Connection, workload_id: str) -> JobRow | None:
    found = connection.execute(select(jobs).where(jobs.c.id == workload_id)).mappings().first()
    return None if found is None else rows.job_row(found)


def page_of_jobs(
    connection: Connection, conditions: list[ColumnElement[bool]], after: str | None, limit: int, newest_first: bool
) -> tuple[list[JobRow], str | None]:
    """Jobs in the order of their recording, behind a cursor, and the cursor of the next page (None = no more).

    The order of a job never changes, so a page neither repeats nor leaves out what was there all the time.

    Raises:
        ValueError: the cursor is none of ours, or of a list in the other direction.
    """
    query = select(jobs).where(*conditions).limit(limit + 1)
    query = query.order_by(jobs.c.ordinal.desc() if newest_first else jobs.c.ordinal)
    if after is not None:
        place = _place(after, newest_first)
        query = query.where(jobs.c.ordinal < place if newest_first else jobs.c.ordinal > place)
    found = connection.execute(query).mappings().all()
    more = len(found) > limit
    page = found[:limit]
    return [rows.job_row(row) for row in page], _cursor(page[-1]["ordinal"], newest_first) if more else None


def _cursor(ordinal: int, newest_first: bool) -> str:
    return urlsafe_b64encode(f"{'n' if newest_first else 'o'}{ordinal}".encode()).decode().rstrip("=")


def _place(cursor: str, newest_first: bool) -> int:
    try:
        place = int(urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))[1:])
    except ValueError:
        return _no_cursor(cursor)
    return place if cursor == _cursor(place, newest_first) and 0 <= place < rows.LARGEST else _no_cursor(cursor)


def _no_cursor(cursor: str) -> int:
    raise ValueError(f"{cursor[:40]!r} is no cursor of this list: begin again without one")


def job_conditions(
    states: Collection[JobState] | None = None,
    user: str | None = None,
    accounts: Collection[str] | None = None,
    node: str | None = None,
    ids: Collection[str] | None = None,
    array_job: str | None = None,
    label: str | None = None,
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [] if states is None else _in_states(states)
    if user is not None:
        found.append(jobs.c.user == user)
    if accounts is not None:
        found.append(or_(*(_of_subtree(account) for account in accounts)))
    if node is not None:
        found.append(_on_node(node))
    if ids is not None:
        found.append(jobs.c.id.in_(list(ids)))
    if array_job is not None:
        found.append(jobs.c.array_job == array_job)
    if label is not None:
        found.append(jobs.c.label == label)
        found += [jobs.c.label != literal_column("''")] if label else []  # the index is about those that have one
    return found


def _of_subtree(account: str) -> ColumnElement[bool]:
    low = rows.subtree_key(account.strip("/"))
    return and_(jobs.c.account >= low, jobs.c.account < low[:-1] + "0")


def _in_states(states: Collection[JobState]) -> list[ColumnElement[bool]]:
    wanted = sorted({state.value for state in states})
    ended = {state in _ENDED for state in states}
    if len(wanted) == 1:
        return [jobs.c.state == wanted[0]]
    found: list[ColumnElement[bool]] = [jobs.c.state.in_(wanted)]
    return [jobs.c.ended == (True in ended), *found] if len(ended) == 1 else found


def _on_node(node: str) -> ColumnElement[bool]:
    """Jobs whose present or last run is or was on the node; one that is back in the queue is on none."""
    here = exists().where(
        placements.c.node == node, placements.c.workload_id == jobs.c.id, placements.c.attempt == jobs.c.attempt
    )
    return and_(
        jobs.c.id.in_(select(placements.c.workload_id).where(placements.c.node == node)),
        here,
        jobs.c.state != "PENDING",
    )


def counts(connection: Connection) -> dict[str, int]:
    """Jobs by state; every state is there."""
    query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
    return {state.value: 0 for state in JobState} | {row[0]: row[1] for row in connection.execute(query)}


def spec(connection: Connection, workload_id: str) -> JobSpec | None:
    found = connection.execute(select(specs.c.spec).where(specs.c.workload_id == workload_id)).scalar()
    return None if found is None else rows.spec_of(found)


def progress_intervals(connection: Connection) -> dict[str, int]:
    """Those that jobs declared, in one pass over all jobs that ever were."""
    query = select(specs.c.workload_id, specs.c.spec).where(specs.c.spec.contains('"progress_interval":'))
    found = ((row.workload_id, rows.spec_of(row.spec).progress_interval) for row in connection.execute(query))
    return {workload: interval for workload, interval in found if interval}


def runs_of(connection: Connection, workload_id: str) -> list[RunRow]:
    query = select(runs).where(runs.c.workload_id == workload_id).order_by(runs.c.attempt)
    return [rows.run_row(row) for row in connection.execute(query).mappings()]


def token(connection: Connection, digest: str) -> TokenRow | None:
    found = connection.execute(select(tokens.c.token).where(tokens.c.digest == digest)).scalar()
    return None if found is None else rows.token_of(found)


def all_tokens(connection: Connection) -> list[TokenRow]:
    query = select(tokens.c.token).order_by(tokens.c.created_at, tokens.c.id)
    return [rows.token_of(text) for text in connection.execute(query).scalars()]


def reply(connection: Connection, key: str, who: str) -> IdempotentReply | None:
    query = select(replies).where(replies.c.who == rows.storable(who), replies.c.key == rows.storable(key))
    found = connection.execute(query).mappings().first()
    return None if found is None else rows.reply_of(found)


def audit_entries(
    connection: Connection, after: str | None, limit: int, who: str | None, action: str | None, target: str | None
) -> tuple[list[AuditEntry], str | None]:
    """A page, newest first, and the cursor of the next (None = no more).

    Raises:
        ValueError: the cursor is none of ours.
    """
    query = select(audit).order_by(audit.c.id.desc()).limit(limit + 1)
    given: tuple[tuple[Any, str | None], ...] = ((audit.c.who, who), (audit.c.action, action), (audit.c.target, target))
    for column, value in given:
        if value is not None:
            query = query.where(column == rows.storable(value))
    if after is not None:
        query = query.where(audit.c.id < _place(after, True))
    found = connection.execute(query).mappings().all()
    entries = [AuditEntry(row["at"], **{name: row[name] for name in rows.AUDIT_TEXTS}) for row in found[:limit]]
    return entries, _cursor(found[limit - 1]["id"], True) if len(found) > limit else None


def decisions(
    connection: Connection, after: int | None, before: int | None, limit: int, mentioning: str | None
) -> list[tuple[int, str, str]]:
    """Records as text: the first behind `after`, oldest first; else the last before `before`, newest first."""
    query: Select[Any] = select(journal.c.seq, journal.c.facts, journal.c.plan)
    number: ColumnElement[int] = journal.c.seq
    if mentioning is not None:
        number = mentions.c.seq
        query = query.join(mentions, mentions.c.seq == journal.c.seq).where(mentions.c.about == mentioning)
    if after is not None:
        query = query.where(number > after)
    if before is not None:
        query = query.where(number < before)
    backwards = after is None
    found = connection.execute(query.order_by(number.desc() if backwards else number).limit(limit)).all()
    return [(row[0], row[1], row[2]) for row in found]


def require_limit(limit: int) -> None:
    if limit < 1:
        raise StoreError(f"a page of {limit} entries makes no sense: ask for 1 or more")
