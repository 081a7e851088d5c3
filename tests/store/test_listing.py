"""What `ls` asks for: conditions, pages that hold still, and that the indices are used."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from mirab.model.events import Outcome, WorkloadCancelled
from mirab.model.records import AuditEntry, Grant, JobState, TokenRow
from mirab.model.units import WorkloadId
from mirab.store import Store, StoreError
from tests.store.makers import ended, plan, shape, spec, start, started, submitted


def ids(store: Store, **conditions: Any) -> list[str]:
    return [job.id for job in store.jobs(**conditions)[0]]


@pytest.fixture
def filled(store: Store) -> Store:
    """Six jobs of three accounts in all stages of life."""
    store.lead()
    accounts = ["a", "a/b", "a/b/c", "a.b", "a0", "z"]
    facts = tuple(
        submitted(
            str(number), number, account=account, user="eve" if number % 2 else "bob", label="x" if number == 4 else ""
        )
        for number, account in enumerate(accounts, 1)
    )
    writes = [spec(str(n), array_job="5" if n > 4 else None, array_task=n if n > 4 else None) for n in range(1, 7)]
    store.append(facts, plan(10, start("1.1", 0, 1), start("2.1", 2), start("3.1", 3)), writes)
    store.append((started("1.1", 20), ended("2.1", 30, Outcome.PREEMPTED), ended("3.1", 30)), plan(30))
    store.append((WorkloadCancelled(40, WorkloadId("6")),), plan(40))
    return store


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ({}, "123456"),
        ({"newest_first": True}, "654321"),
        ({"states": [JobState.PENDING]}, "245"),
        ({"states": [JobState.PENDING, JobState.RUNNING, JobState.COMPLETING]}, "1245"),
        ({"states": [JobState.COMPLETED, JobState.CANCELLED]}, "36"),
        ({"states": [JobState.COMPLETED, JobState.RUNNING]}, "13"),
        ({"states": []}, ""),
        ({"user": "eve"}, "135"),
        ({"account": "a"}, "123"),
        ({"account": "a/b"}, "23"),
        ({"account": "a/b/"}, "23"),
        ({"account": "a."}, ""),
        ({"account": "a.b"}, "4"),
        ({"node": "n0"}, "1"),
        ({"node": "n2"}, ""),
        ({"node": "n3"}, "3"),
        ({"node": "n"}, ""),
        ({"label": "x"}, "4"),
        ({"ids": ["5", "1", "99"]}, "15"),
        ({"ids": []}, ""),
        ({"array_job": "5"}, "56"),
        ({"user": "bob", "account": "a/b", "states": [JobState.PENDING]}, "2"),
    ],
)
def test_conditions(filled: Store, conditions: dict[str, Any], found: str) -> None:
    assert ids(filled, **conditions) == list(found)


def test_counts_name_every_state(filled: Store) -> None:
    counts = filled.counts()
    assert set(counts) == {state.value for state in JobState}
    assert {state: count for state, count in counts.items() if count} == {
        "PENDING": 3, "RUNNING": 1, "COMPLETED": 1, "CANCELLED": 1,
    }  # fmt: skip


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_hold_still_while_jobs_come_and_go(store: Store, newest_first: bool) -> None:
    store.lead()
    store.append(tuple(submitted(str(number), 1) for number in range(1, 31)), plan(1))
    seen: list[str] = []
    cursor = None
    active = [JobState.PENDING]
    turn = 0
    while True:
        page, cursor = store.jobs(states=active, after=cursor, limit=4, newest_first=newest_first)
        seen += [job.id for job in page]
        if cursor is None:
            break
        turn += 1
        gone = WorkloadCancelled(2, WorkloadId(seen[-1]))
        store.append((gone, submitted(str(100 + turn), 2)), plan(2))
    assert len(seen) == len(set(seen))
    first = [str(number) for number in range(1, 31)]
    assert [name for name in seen if int(name) < 100] == (first[::-1] if newest_first else first)


def test_a_page_that_is_just_full_is_the_last(filled: Store) -> None:
    page, cursor = filled.jobs(limit=6)
    assert (len(page), cursor) == (6, None)


@pytest.mark.parametrize("cursor", ["", "x", "bzU=;", "\u00e9", "bm9uZQ", "Zzk5", "b-1", "bzE_"])
def test_a_cursor_that_is_none(filled: Store, cursor: str) -> None:
    with pytest.raises(ValueError, match="no cursor of this list"):
        filled.jobs(after=cursor)


def test_a_cursor_of_the_other_direction(filled: Store) -> None:
    _, cursor = filled.jobs(limit=2)
    with pytest.raises(ValueError, match="no cursor"):
        filled.jobs(after=cursor, newest_first=True)


def test_an_empty_page_is_not_asked_for(filled: Store) -> None:
    with pytest.raises(StoreError, match="1 or more"):
        filled.jobs(limit=0)


def test_runs_and_what_is_not_there(filled: Store) -> None:
    assert [(run.id, run.outcome, run.node_names) for run in filled.runs("2")] == [("2.1", "PREEMPTED", ("n2",))]
    assert filled.runs("99") == []
    assert filled.job("99") is None
    assert filled.spec("99") is None


def test_decisions_about_a_job_or_a_node(filled: Store) -> None:
    def found(**named: Any) -> list[int]:
        return [seq for seq, _, _ in filled.decisions(**named)]

    assert found() == [3, 2, 1]
    assert found(after=0) == [1, 2, 3]
    assert found(after=1, limit=1) == [2]
    assert found(before=3, limit=1) == [2]
    assert found(mentioning="6") == [3, 1]
    assert found(mentioning="3", after=1) == [2]
    assert found(mentioning="n7") == []


def test_tokens(store: Store) -> None:
    token = TokenRow("t1", "d" * 64, "eve", (Grant("admin"), Grant("manager", "a/b")), 5, "root", note="first")  # type: ignore[arg-type]
    store.write([token])
    assert store.token("d" * 64) == token
    assert store.token("e" * 64) is None
    from dataclasses import replace

    revoked = replace(token, revoked_at=9)
    store.write([revoked])
    assert store.tokens() == [revoked]


def test_the_audit_log_is_paged(store: Store) -> None:
    entries = [AuditEntry(n, "eve" if n % 2 else "bob", "here", "submit", str(n), after=str(n)) for n in range(7)]
    store.write(entries)
    page, cursor = store.audit(limit=3)
    assert page == entries[:3:-1]
    rest, end = store.audit(limit=10, after=cursor)
    assert (page + rest, end) == (entries[::-1], None)
    assert store.audit(who="bob", limit=2)[0] == [entries[6], entries[4]]
    assert store.audit(target="3", action="submit")[0] == [entries[3]]
    assert store.audit(action="cancel") == ([], None)
    with pytest.raises(ValueError, match="no cursor"):
        store.audit(after="17")


INDEXED = [
    ("states", {"states": [JobState.PENDING]}, "jobs_by_state"),
    ("active", {"states": [JobState.PENDING, JobState.RUNNING]}, "jobs_by_"),
    ("user", {"user": "eve"}, "jobs_by_user"),
    ("account", {"account": "a"}, "jobs_by_account"),
    ("label", {"label": "x"}, "jobs_by_label"),
    ("array", {"array_job": "5"}, "jobs_by_array"),
    ("node", {"node": "n0"}, "placements"),
]


@pytest.mark.parametrize(("conditions", "index"), [case[1:] for case in INDEXED], ids=[case[0] for case in INDEXED])
def test_no_list_reads_all_jobs(sqlite_urls: Any, opened: Any, conditions: dict[str, Any], index: str) -> None:
    """What SQLite says that it would do, which does not depend on how much there is."""
    from sqlalchemy import event

    from tests.store.makers import put_beginning

    store = put_beginning(opened(sqlite_urls()))
    asked: list[tuple[str, Any]] = []

    @event.listens_for(store.database.reader, "before_cursor_execute")
    def remember(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    store.jobs(**conditions)
    statement, parameters = asked[-1]
    with store.database.reader.connect() as connection:
        steps = [str(row[3]) for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert any(index in step for step in steps), steps
    assert not any(step.startswith("SCAN jobs") and "INDEX" not in step for step in steps), steps


def test_twenty_thousand_waiting_jobs_are_not_written_again(store: Store) -> None:
    """Only what changes is written: counted, not timed."""
    store.lead()
    store.append(tuple(submitted(str(number), 1, shape=shape()) for number in range(2_000)), plan(1))
    from sqlalchemy import event

    written: list[str] = []

    @event.listens_for(store.database.writer, "before_cursor_execute")
    def remember(_: Any, __: Any, statement: str, parameters: Any, ___: Any, many: bool) -> None:
        written.extend([statement.split()[0]] * (len(parameters) if many else 1))

    store.append((submitted("x", 2),), plan(2, start("7.1")))
    assert sum(word in ("INSERT", "UPDATE") for word in written) < 15
    with store.database.reader.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM jobs")).scalar() == 2_001
