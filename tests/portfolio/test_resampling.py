"""What is called noise, and how often that is wrong."""

from __future__ import annotations

import random
from statistics import stdev

import pytest

from mirab.study.resampling import (
    LUCK,
    Draw,
    block_days,
    draw_days,
    freedom,
    outside,
    quantile,
    spreads,
    standard_error,
)

DAYS = 30


def called(series: dict[str, list[float]], draws: list[Draw]) -> list[str]:
    """The names whose sum is called more than noise."""
    sums = {name: sum(values) for name, values in series.items()}
    errors = {name: standard_error([weighted(draw, values) for draw in draws], len(values))
              for name, values in series.items()}  # fmt: skip
    widths = spreads(sums, errors, freedom(DAYS))
    return [name for name in series if abs(sums[name]) > widths[name]]


def weighted(draw: Draw, values: list[float]) -> float:
    return sum(weight * value for weight, value in zip(draw.weights, values, strict=True))


def chance_series(rng: random.Random, names: int, memory: float = 0.2) -> dict[str, list[float]]:
    """Differences by day that are luck alone, each day a little like the one before."""
    found = {}
    for number in range(names):
        value, values = 0.0, []
        for _ in range(DAYS):
            value = memory * value + rng.gauss(0, 1)
            values.append(value)
        found[str(number)] = values
    return found


def test_draws_are_the_same_for_the_same_log_and_hold_as_many_days() -> None:
    assert draw_days(DAYS, 16) == draw_days(DAYS, 16)
    assert draw_days(DAYS, 16, seed=2) != draw_days(DAYS, 16)
    assert all(sum(draw.weights) == DAYS for draw in draw_days(DAYS, 16))
    assert len(draw_days(DAYS, 5_000)) < len(draw_days(DAYS, 16))


def test_days_come_in_blocks_of_neighbours() -> None:
    assert (block_days(1), block_days(8), block_days(30), block_days(365)) == (1, 2, 3, 7)
    drawn = [
        sum(1 for day in range(DAYS) if draw.weights[day] and draw.weights[day - 1]) for draw in draw_days(DAYS, 16)
    ]
    assert min(drawn) >= DAYS // 3 // 2


@pytest.mark.parametrize(
    ("chance", "degrees", "value"), [(0.05, 9, 2.262), (0.05, 2, 4.303), (0.01, 14, 2.977), (0.001, 30, 3.646)]
)
def test_students_t_is_that_of_the_tables(chance: float, degrees: float, value: float) -> None:
    assert quantile(chance, degrees) == pytest.approx(value, abs=0.002)
    assert outside(value, degrees) == pytest.approx(chance, rel=0.002)
    assert outside(0, degrees) == pytest.approx(1)


def test_the_standard_error_is_that_of_a_sum_of_days() -> None:
    rng = random.Random(3)
    values = [rng.gauss(5, 2) for _ in range(200)]
    draws = draw_days(200, 16)
    found = standard_error([weighted(draw, values) for draw in draws], 200)
    assert found == pytest.approx(stdev(values) * 200**0.5, rel=0.15)


def test_a_difference_is_beyond_its_spread_just_when_it_is_called() -> None:
    differences = {"a": 10.0, "b": -9.0, "c": 1.5, "d": 0.1, "e": 3.0}
    widths = spreads(differences, {**dict.fromkeys("abcd", 1.0), "e": 0.0}, 14)
    assert [name for name in "abcd" if abs(differences[name]) > widths[name]] == ["a", "b"]
    assert widths["e"] == 0
    alone = spreads({"c": 2.5, "d": 0.1}, {"c": 1.0, "d": 1.0}, 14)
    assert alone["c"] > 2.0


def test_nothing_moves_nothing_is_called() -> None:
    assert spreads({"a": 0.0}, {"a": 0.0}, 14) == {"a": 0.0}
    assert spreads({}, {}, 14) == {}


def test_luck_is_seldom_called_a_change() -> None:
    """Of sixteen accounts in which nothing happens: a log in which any is called is as rare as was promised."""
    rng = random.Random(5)
    draws = draw_days(DAYS, 16)[:200]
    wrong = sum(bool(called(chance_series(rng, 16), draws)) for _ in range(60))
    assert wrong <= 60 * LUCK * 2


def test_a_real_shift_is_found_among_accounts_in_which_nothing_happens() -> None:
    rng = random.Random(6)
    draws = draw_days(DAYS, 16)[:200]
    found = 0
    for _ in range(20):
        series = chance_series(rng, 16)
        series["0"] = [value + 1.3 for value in series["0"]]
        found += "0" in called(series, draws)
    assert found >= 18
