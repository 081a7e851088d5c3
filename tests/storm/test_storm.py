"""Storms by the seed. A failure names its seed: `Storm(SEED).run()` plays it again."""

from __future__ import annotations

import pytest

from tests.storm.storm import Storm

FEW = range(30)
MANY = range(1000, 1600)


def weather(seed: int, base: str = "budget") -> None:
    try:
        outcome = Storm(seed, base).run()
    except Exception as error:
        raise AssertionError(f"storm {seed} under {base}: {type(error).__name__}: {error}") from error
    assert not outcome.unfinished, f"storm {seed} under {base}: never came to an end: {outcome.unfinished}"


@pytest.mark.parametrize("seed", FEW)
def test_a_storm_breaks_no_rule_and_ends(seed: int) -> None:
    weather(seed)


@pytest.mark.parametrize("base", ["fifo", "priority", "fair-tree", "quota"])
@pytest.mark.parametrize("seed", range(100, 103))
def test_a_storm_under_another_policy(seed: int, base: str) -> None:
    weather(seed, base)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(MANY.start, MANY.stop, 50))
def test_many_storms(first: int) -> None:
    for seed in range(first, first + 50):
        weather(seed)


def test_storms_are_storms() -> None:
    """The few that are always run do crash, preempt and decide enough to mean something."""
    outcomes = [Storm(seed).run() for seed in range(12)]
    assert sum(outcome.crashes for outcome in outcomes) > 20
    assert sum(outcome.preemptions for outcome in outcomes) > 20


def test_one_seed_is_one_storm() -> None:
    first, second = Storm(3), Storm(3)
    assert first.run() == second.run()
    assert first.line.journal == second.line.journal
