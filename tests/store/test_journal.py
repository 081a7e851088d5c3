"""The journal of both engines: one transaction, numbers without a hole, nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from mirab.model.records import AuditEntry, IdempotentReply, Write
from mirab.store import LostLeadError, Store, StoreError
from tests.store.conftest import NewUrl
from tests.store.makers import ended, plan, put_beginning, recorded_world, spec, start, started, submitted


def test_what_is_recorded_comes_back_as_it_was(new_url: NewUrl, opened: Callable[[str], Store]) -> None:
    cluster, policy, records = recorded_world(4)
    store = put_beginning(opened(new_url()), cluster, policy)
    store.lead()
    for facts, decided in records:
        store.append(facts, decided)
    again = opened(store.url)
    assert [(facts, decided) for _, facts, decided in again.records()] == records
    assert [seq for seq, _, _ in again.records(after=len(records) - 3)] == list(
        range(len(records) - 2, len(records) + 1)
    )
    assert again.last()[0] == len(records)


def test_records_are_read_in_batches_without_an_end_in_between(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.store.journal.BATCH", 3)
    store.lead()
    for number in range(7):
        store.append((), plan(number))
    assert [seq for seq, _, _ in store.records()] == [1, 2, 3, 4, 5, 6, 7]
    assert [seq for seq, _, _ in store.records(after=6)] == [7]


def test_an_empty_store_has_no_last_record(store: Store) -> None:
    assert store.last() == (0, 0)
    assert list(store.records()) == []


def test_last_is_a_floor_for_the_clock_even_if_the_clock_was_set_back(store: Store) -> None:
    store.lead()
    store.append((submitted("1", 9_000),), plan(8_000))
    assert store.last() == (1, 9_000)
    store.append((), plan(10))
    assert store.last() == (2, 9_000)


def test_who_does_not_lead_cannot_append(store: Store) -> None:
    with pytest.raises(LostLeadError, match="take the lead first"):
        store.append((), plan(0))


def test_the_first_record_needs_a_cluster(new_url: NewUrl, opened: Callable[[str], Store]) -> None:
    store = opened(new_url())
    store.lead()
    with pytest.raises(StoreError, match="does not know its cluster"):
        store.append((), plan(0))


def test_facts_writes_and_views_are_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.lead()

    def fails(*_: Any) -> None:
        raise RuntimeError("in the midst of it")

    with monkeypatch.context() as patch:
        patch.setattr("mirab.store.store.put_changes", fails)
        with pytest.raises(RuntimeError):
            store.append((submitted("1"),), plan(1), [spec("1"), AuditEntry(1, "eve", "here", "submit", "1")])
    assert (store.last(), store.spec("1"), store.audit()) == ((0, 0), None, ([], None))
    store.lead()
    assert store.append((submitted("1"),), plan(1), [spec("1")]) == 1
    assert store.spec("1") == spec("1")


def test_a_second_opening_goes_on_where_the_first_ended(store: Store, opened: Callable[[str], Store]) -> None:
    store.lead()
    store.append((submitted("1", 5),), plan(5, start("1.1", 2)))
    store.append((started("1.1", 7),), plan(7))
    store.dispose()
    again = opened(store.url)
    again.lead()
    assert again.append((ended("1.1", 2_000, exit_code=3),), plan(2_000)) == 3
    job = again.job("1")
    assert job is not None
    assert (job.state.value, job.exit_code, job.started_at, job.node_names) == ("COMPLETED", 3, 7, ("n2",))
    assert [run.outcome for run in again.runs("1")] == ["COMPLETED"]


def test_text_that_a_database_cannot_hold_does_not_stop_the_journal(store: Store) -> None:
    store.lead()
    wild = "a\0b\ud800c\U0001f600\n'\";--"
    facts = (submitted("1", user=wild, label=wild, account=f"a/{wild}"),)
    writes: list[Write] = [
        spec("1", name=wild, environment=(("X", wild),)),
        AuditEntry(1, wild, wild, wild, wild, wild, wild, wild),
        IdempotentReply(wild, wild, 1, "digest", wild),
    ]
    store.append(facts, plan(1), writes)
    job = store.job("1")
    assert job is not None
    assert job.name == "a\ufffdb\ufffdc\U0001f600\n'\";--"
    assert [found for _, found, _ in store.records()] == [facts]
    kept = store.spec("1")
    assert kept is not None
    assert kept.environment == (("X", wild),)
    answer = store.reply(wild, wild)
    assert answer is not None
    assert answer.reply == wild


def test_numbers_that_no_database_holds_do_not_stop_it_either(store: Store) -> None:
    store.lead()
    huge = 1 << 80
    store.append(
        (submitted("1", shape=submitted("x").workload.shape._replace(time_limit=huge, min_runtime=huge)),), plan(1)
    )
    job = store.job("1")
    assert job is not None
    assert job.time_limit == (1 << 63) - 1
    assert next(store.records())[1][0].workload.shape.time_limit == huge  # type: ignore[union-attr]


def test_ten_megabytes_of_environment(store: Store) -> None:
    store.lead()
    big = spec("1", environment=(("BIG", "x" * 10_000_000),))
    store.append((submitted("1"),), plan(1), [big])
    assert store.spec("1") == big


def test_a_record_that_is_not_as_it_was_written_is_named(store: Store) -> None:
    store.lead()
    for number in range(3):
        store.append((), plan(number))
    with store.database.writer.begin() as connection:
        connection.execute(text("UPDATE journal SET plan = replace(plan, '1', '2') WHERE seq = 2"))
    with pytest.raises(StoreError, match=r"record 2 of the journal is damaged.*mirab db restore"):
        list(store.records())


def test_a_hole_in_the_journal_is_named(store: Store) -> None:
    store.lead()
    for number in range(3):
        store.append((), plan(number))
    with store.database.writer.begin() as connection:
        connection.execute(text("DELETE FROM journal WHERE seq = 2"))
    with pytest.raises(StoreError, match="record 2 is missing"):
        list(store.records())


def test_a_record_of_another_mirab_is_said_to_be_one(store: Store) -> None:
    from mirab.store.journal import Record

    store.lead()
    with store.database.writer.begin() as connection:
        record = Record(1, 0, 1, '[{"type":"Unheard"}]', '{"type":"Plan","at":0,"based_on":0}')
        connection.execute(
            text("INSERT INTO journal VALUES (:seq, :at, :epoch, :checksum, :facts, :plan)"), record.columns()
        )
    with pytest.raises(StoreError, match="'Unheard' is not a type"):
        list(store.records())


# --- beside the journal -----------------------------------------------------------------------------------------------
def test_meta_is_put_down_once(store: Store) -> None:
    store.put_meta("budgets", "b")
    store.put_meta("budgets", "b")
    with pytest.raises(StoreError, match="began with another budgets"):
        store.put_meta("budgets", "c")
    assert store.meta("budgets") == "b"
    assert store.meta("nothing") is None


@pytest.mark.parametrize("value", ["nonsense", "{}", '{"type": "Budget", "name": "a", "share": 1}'])
def test_a_cluster_that_cannot_be_read_back_is_not_taken(
    value: str, new_url: NewUrl, opened: Callable[[str], Store]
) -> None:
    with pytest.raises(StoreError, match="'cluster'"):
        opened(new_url()).put_meta("cluster", value)


def test_two_snapshots_are_kept_and_the_newest_that_fits_is_found(store: Store) -> None:
    assert store.snapshot("a") is None
    for seq, fingerprint in ((1, "a"), (5, "b"), (9, "a"), (9, "a")):
        store.put_snapshot(seq, fingerprint, f"state {seq}".encode() * 1_000)
    assert store.snapshot("a") == (9, b"state 9" * 1_000)
    assert store.snapshot("b") == (5, b"state 5" * 1_000)
    store.put_snapshot(12, "c", b"")
    assert store.snapshot("b") is None
    assert store.snapshot("c") == (12, b"")


def test_no_job_number_is_given_twice(store: Store, opened: Callable[[str], Store]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    other = opened(store.url)
    with ThreadPoolExecutor(8) as threads:
        given = list(threads.map(lambda number: (store, other)[number % 2].next_job_number(), range(450)))
    given.append(opened(store.url).next_job_number())
    assert len(set(given)) == len(given)
    assert min(given) == 1


def test_numbers_that_were_not_used_are_given_back_at_a_graceful_end(
    store: Store, opened: Callable[[str], Store]
) -> None:
    first, second = opened(store.url), opened(store.url)
    assert [first.next_job_number() for _ in range(3)] == [1, 2, 3]
    first.dispose()
    assert second.next_job_number() == 4
    third = opened(store.url)
    assert third.next_job_number() == 104
    second.dispose()
    assert opened(store.url).next_job_number() == 204


def test_numbers_that_jobs_of_another_ledger_had_are_skipped(store: Store) -> None:
    assert store.next_job_number() == 1
    store.skip_job_numbers(700)
    assert [store.next_job_number() for _ in range(2)] == [701, 702]
    store.skip_job_numbers(5)
    assert store.next_job_number() > 702, "it never counts backwards"


def test_the_first_answer_to_a_request_stands(store: Store) -> None:
    store.write([IdempotentReply("k", "eve", 1, "d", "first"), IdempotentReply("k", "bob", 1, "d", "his")])
    store.write([IdempotentReply("k", "eve", 2, "d", "second")])
    found = store.reply("k", "eve")
    assert found is not None
    assert found.reply == "first"
    assert store.forget_replies(2) == 2
    assert store.reply("k", "eve") is None
