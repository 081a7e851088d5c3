"""Owed and delivered, kept live, are the measures of a replay of the same facts; and a restart changes nothing."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.model.accounts import Budgets
from mirab.model.events import ClusterChanged, Event, PolicyChanged
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.resources import Cluster
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, NodeName
from mirab.service.views.accruals import Accruals, Got
from mirab.service.views.ledger import LiveLedger, fingerprint
from mirab.study.measures import Measures
from mirab.study.owed import delivered
from tests.examples import examples
from tests.service.house import BOB, EVE, Bench
from tests.study.histories import OLD, ONE_POOL, TREES, random_history

POLICY = Policy(window=2 * DAY)


def taken_in(cluster: Cluster, budgets: Budgets, cycles: list[tuple[list[Event], Plan]], until: int) -> Accruals:
    """The books after everything up to an instant. What happens at that very instant changes no integral up to it."""
    books = Accruals(cluster, budgets, POLICY, 0)
    for seq, (facts, plan) in enumerate(cycles, 1):
        if plan.at > until:
            break
        books.append(seq, facts, plan)
    return books


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 60))
def test_the_live_books_equal_the_measures_at_every_midnight(random: Random, steps: int) -> None:
    trace, cycles = random_history(random, steps)
    trace = replace(trace, starts_at=0, ends_at=max(trace.ends_at, cycles[-1][1].at))
    measures = Measures(trace, POLICY)
    for facts, plan in cycles:
        measures.append(facts, plan)
    for begin, end in measures.period.windows:
        if end % DAY:
            continue
        books = taken_in(trace.cluster, trace.budgets, cycles, end)
        found = books.got(end)
        assert books.since(end) == begin
        for path, leaf in measures.ledger.leaves.items():
            marks = leaf.between(begin, end)
            assert found.get(path, Got(0, 0)) == Got(marks.owed, delivered(marks)), f"{path} over {begin}..{end}"


@settings(max_examples=examples(30), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 60), st.integers(0, 60))
def test_what_is_put_away_in_the_middle_goes_on_alike(random: Random, steps: int, middle: int) -> None:
    trace, cycles = random_history(random, steps)
    whole = Accruals(trace.cluster, trace.budgets, POLICY, 0)
    parted = Accruals(trace.cluster, trace.budgets, POLICY, 0)
    for seq, (facts, plan) in enumerate(cycles, 1):
        whole.append(seq, facts, plan)
        if seq == middle:
            parted = pickle.loads(pickle.dumps(parted))
        parted.append(seq, facts, plan)
        parted.append(seq, facts, plan)
    at = cycles[-1][1].at + 17 * MINUTE
    assert parted.got(at) == whole.got(at)


@settings(max_examples=examples(30), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 60), st.integers(0, 60))
def test_a_cluster_that_grows_by_nothing_changes_nothing(random: Random, steps: int, middle: int) -> None:
    trace, cycles = random_history(random, steps)
    plain = Accruals(trace.cluster, trace.budgets, POLICY, 0)
    upset = Accruals(trace.cluster, trace.budgets, POLICY, 0)
    for seq, (facts, plan) in enumerate(cycles, 1):
        plain.append(seq, facts, plan)
        news: list[Event] = [ClusterChanged(plan.at, trace.cluster)] if seq == middle else []
        upset.append(seq, [*facts, *news], plan)
    at = cycles[-1][1].at + 17 * MINUTE
    assert upset.got(at) == plain.got(at)


def test_marks_are_forgotten_when_no_window_sees_them() -> None:
    books = Accruals(ONE_POOL, TREES[0], POLICY, 0)
    books.append(1, [], Plan(60 * DAY, 0))
    assert len(books._marks) <= 2 * 24 + 2
    assert books.since(60 * DAY) == 58 * DAY
    books.append(2, [PolicyChanged(60 * DAY, Policy(window=DAY))], Plan(60 * DAY, 0))
    assert books.since(60 * DAY) == 59 * DAY


def test_a_larger_cluster_owes_more() -> None:
    larger = Cluster("one", (replace(OLD, nodes=(*OLD.nodes, NodeName("o3"))),))
    books = Accruals(ONE_POOL, TREES[0], POLICY, 0)
    books.append(1, [ClusterChanged(HOUR, larger)], Plan(HOUR, 0))
    assert sum(books.where.usage.charge_capacity()) == larger.charge_units
    assert books.cluster == larger


# --- beside a service -----------------------------------------------------------------------------------------------
def test_the_ledger_catches_up_then_hears_and_survives_a_crash(bench: Bench, tmp_path: Path) -> None:
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h")
    bench.submit(BOB, account="vision", gpus_per_node=4, min_runtime="1h")
    ledger = LiveLedger(bench.live, tmp_path / "ledger")
    assert ledger.got(bench.live.now()) is None, "it does not know yet, and says so"
    ledger.catch_up()
    bench.wait(HOUR)
    now = bench.live.now()
    got = ledger.got(now)
    assert got is not None
    whole = 8_160 * HOUR * WHOLE
    assert got["llm"] == Got(whole // 2, whole // 2), "half of 8 GPUs and 16 cores was owed, and delivered"  # type: ignore[index]
    assert got["vision/*"] == Got(whole // 8, 0), "what its children leave is a quarter of vision's half"  # type: ignore[index]
    assert ledger.keep(always=True)
    bench.crash()
    again = LiveLedger(bench.live, tmp_path / "ledger")
    assert again.accruals is not None and again.accruals.seq == ledger.accruals.seq  # type: ignore[union-attr]
    again.catch_up()
    assert again.got(now) == got


def test_a_cache_is_of_the_version_that_runs_whatever_has_been_installed_since(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint.cache_clear()
    ledger = LiveLedger(bench.live, tmp_path / "ledger")
    ledger.catch_up()
    bench.submit(gpus_per_node=4, min_runtime="1h")
    monkeypatch.setattr("mirab.service.views.ledger.files", lambda _: Path("/the/new/version"))
    assert ledger.keep(always=True)
    monkeypatch.undo()
    fingerprint.cache_clear()
    assert pickle.loads((tmp_path / "ledger").read_bytes())[0] == fingerprint()


def test_a_cache_of_another_version_or_ledger_is_left_aside(bench: Bench, tmp_path: Path) -> None:
    cache = tmp_path / "ledger"
    for data in (b"", b"nonsense", pickle.dumps(("another version", 1)), pickle.dumps(7)):
        cache.write_bytes(data)
        ledger = LiveLedger(bench.live, cache)
        assert ledger.accruals is not None and ledger.accruals.seq == 0
        ledger.catch_up()
        assert ledger.ready
