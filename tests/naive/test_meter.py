"""The core's meter equals the naive one for windows that only move forward."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirab.core.meter import Meter
from tests.naive.meter import NaiveMeter

CHANGES = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["rate", "step", "ask"]), st.integers(-3, 9)), max_size=40
)


@given(CHANGES, st.integers(1, 12))
def test_a_window_holds_what_was_added_in_it(changes: list[tuple[int, str, int]], length: int) -> None:
    fast, slow, now = Meter(0, 2), NaiveMeter(0, 2), 0
    for pause, kind, amount in changes:
        now += pause
        if kind == "rate":
            fast.set_rate(now, abs(amount))
            slow.rates.append((now, abs(amount)))
        elif kind == "step":
            fast.add(now, amount)
            slow.steps.append((now, amount))
        else:
            assert fast.between(now - length, now) == slow.between(now - length, now)
    assert fast.between(now - length, now) == slow.between(now - length, now)


def test_a_meter_that_has_forgotten_old_segments_still_knows_the_window() -> None:
    """Three thousand changes of rate, far more than are kept."""
    fast, slow = Meter(0, 2), NaiveMeter(0, 2)
    for now in range(1, 3001):
        fast.set_rate(now, now % 7)
        slow.rates.append((now, now % 7))
        if now % 100 == 0:
            assert fast.between(now - 50, now) == slow.between(now - 50, now)
