"""The measures equal a slow, obvious recomputation from lists, on random histories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.model.units import DAY, HOUR, UNIT
from mirab.study.demand import Wanted
from mirab.study.measures import Measures
from tests.examples import examples
from tests.naive import amounts as naive
from tests.naive.history import History, told
from tests.naive.homes import pool_named
from tests.study.histories import random_history
from tests.study.scene import BUDGET

WINDOW = 2 * DAY


def both(random: Random, steps: int) -> tuple[dict[str, Any], History]:
    """The report of the measures, and the history that the naive functions look at."""
    trace, cycles = random_history(random, steps)
    measures = Measures(trace, replace(BUDGET, window=WINDOW))
    for facts, plan in cycles:
        measures.append(facts, plan)
    return measures.report(), told(trace, cycles)


def near(value: float | None, expected: Fraction, places: int = 6) -> bool:
    return value is not None and abs(value - expected) <= Fraction(6, 10 ** (places + 1))


def same_ratio(value: float | None, part: Fraction, whole: Fraction) -> bool:
    return near(value, part / whole) if whole else value is None


def leaves_in(report: dict[str, Any], history: History) -> list[str]:
    names = {"", *(pool.name for pool in history.pools)}
    known = {
        f"{name}:{leaf}" if name else leaf
        for _, budgets in history.budgets
        for name in names
        if not name or pool_named(budgets, name)
        for leaf in naive.leaves_of(budgets, name)
    }
    assert known <= set(report["by_account"])
    return list(report["by_account"])


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 45))
def test_owed_and_delivered(random: Random, steps: int) -> None:
    report, history = both(random, steps)
    metrics, leaves = report["metrics"], leaves_in(report, history)
    windows = naive.windows(history, WINDOW)
    owed = {leaf: sum((naive.owed(history, leaf, *each) for each in windows), Fraction(0)) for leaf in leaves}
    got = {leaf: sum((naive.delivered(history, leaf, *each) for each in windows), Fraction(0)) for leaf in leaves}
    judged = [leaf for leaf in leaves if owed[leaf]]
    assert same_ratio(metrics["delivered_ratio"], sum(got.values(), Fraction(0)), sum(owed.values(), Fraction(0)))
    assert metrics["accounts"] == len(judged)
    assert metrics["accounts_at_95"] == sum(got[leaf] >= owed[leaf] * Fraction(95, 100) for leaf in judged)
    if judged:
        assert near(metrics["delivered_ratio_worst"], min(got[leaf] / owed[leaf] for leaf in judged))
    for leaf in leaves:
        assert same_ratio(report["by_account"][leaf]["delivered_ratio"], got[leaf], owed[leaf])


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 45))
def test_the_whole_period(random: Random, steps: int) -> None:
    report, history = both(random, steps)
    starts, ends = history.trace.starts_at, history.trace.ends_at
    hours = Fraction(1, UNIT * HOUR)
    owed = got = inside = allocated = Fraction(0)
    for leaf in leaves_in(report, history):
        row = report["by_account"][leaf]
        leaf_owed = naive.owed(history, leaf, starts, ends)
        charged = naive.usage(history, leaf, starts, ends)
        uncharged = naive.uncharged(history, leaf, starts, ends)
        assert near(row["owed"], leaf_owed * hours, 3)
        assert near(row["charged"], charged * hours, 3)
        assert near(row["uncharged"], uncharged * hours, 3)
        owed += leaf_owed
        got += naive.delivered(history, leaf, starts, ends)
        inside += naive.within(history, leaf, starts, ends)
        allocated += charged + uncharged
    assert same_ratio(report["metrics"]["delivered_ratio_period"], got, owed)
    assert same_ratio(report["metrics"]["unallocated_ratio"], allocated - inside, allocated)


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 45))
def test_the_pyramid(random: Random, steps: int) -> None:
    report, history = both(random, steps)
    metrics = report["metrics"]
    starts, ends = history.trace.starts_at, history.trace.ends_at

    def over(rate: Callable[[History, int], Fraction]) -> Fraction:
        return naive.integral(history, lambda at: rate(history, at), starts, ends)

    capacity, busy = over(naive.capacity), over(naive.busy)
    installed = Fraction(sum(pool.slots for pool in history.pools) * (ends - starts))
    assert same_ratio(metrics["availability"], capacity, installed)
    assert same_ratio(metrics["occupancy"], busy, capacity)
    assert same_ratio(metrics["occupancy_of_demand"], busy, over(naive.demand_served))
    assert same_ratio(metrics["held_idle_ratio"], over(naive.held_idle), capacity)
    assert same_ratio(metrics["fragmentation_ratio"], over(naive.fragmented), capacity)
    assert same_ratio(metrics["lost_ratio"], Fraction(naive.lost(history, starts, ends)), busy)


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 60))
def test_waits(random: Random, steps: int) -> None:
    report, history = both(random, steps)
    told_waits, expected = report["metrics"]["waits"]["all"], naive.waits(history)
    assert told_waits["count"] == len(expected)
    assert told_waits["started"] == sum(fate.first_start is not None for fate in history.fates.values())
    if expected:
        for percent, key in ((50, "p50_s"), (90, "p90_s"), (99, "p99_s"), (100, "max_s")):
            assert told_waits[key] == naive.nearest_rank(expected, percent) / 1000
        assert told_waits["mean_s"] == pytest.approx(sum(expected) / len(expected) / 1000, abs=0.001)


@given(
    st.lists(st.tuples(st.integers(1, 15), st.integers(0, 20)), max_size=8),
    st.lists(st.integers(0, 20), min_size=4, max_size=4),
)
def test_what_pools_can_serve_is_the_largest_flow(claims: list[tuple[int, int]], room: list[int]) -> None:
    wanted = Wanted()
    for accepted, amount in claims:
        wanted.add(accepted, amount)
    sets = [(frozenset(pool for pool in range(4) if accepted >> pool & 1), amount) for accepted, amount in claims]
    assert wanted.servable(room) == naive.served(sets, room)
