"""The clock of the service goes on evenly whatever is done to the wall clock."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.model.units import DAY, HOUR, SECOND, Instant
from mirab.service.clock import SLEW, LiveClock

EPOCH: Instant = 1_700_000_000_000


@dataclass
class Watches:
    """A wall clock that people set, and one that nobody can."""

    wall: int = EPOCH
    elapsed: int = 5_000

    def pass_(self, span: int) -> None:
        self.wall += span
        self.elapsed += span

    def clock(self, floor: Instant = 0) -> LiveClock:
        return LiveClock(floor, lambda: self.wall, lambda: self.elapsed)


def test_it_is_the_wall_clock() -> None:
    watches = Watches()
    clock = watches.clock()
    watches.pass_(90 * SECOND)
    assert clock.now() == EPOCH + 90 * SECOND


@pytest.mark.parametrize("after", ["elapsed", "wall"])
def test_a_thread_that_is_kept_between_two_readings_is_no_step_of_the_clock(after: str) -> None:
    """The processor is given to others just then, for three seconds, at the start and later."""
    watches, kept = Watches(), [3 * SECOND]

    def read(clock: str) -> int:
        seen: int = getattr(watches, clock)
        if kept and clock == after:
            watches.pass_(kept.pop())
        return seen

    clock = LiveClock(0, lambda: read("wall"), lambda: read("elapsed"))
    assert clock.now() == watches.wall
    kept.append(3 * SECOND)
    assert clock.now() == watches.wall
    assert clock.offset() == 0


def test_set_back_by_an_hour_it_goes_on_and_an_hour_lasts_an_hour() -> None:
    watches = Watches()
    clock = watches.clock()
    before = clock.now()
    watches.wall -= HOUR
    watches.pass_(HOUR)
    lasted = clock.now() - before
    assert HOUR - HOUR // SLEW <= lasted <= HOUR


def test_set_forward_by_a_day_no_minimum_ends_early() -> None:
    watches = Watches()
    clock = watches.clock()
    before = clock.now()
    watches.wall += DAY
    assert clock.now() - before <= 1
    watches.pass_(8 * HOUR)
    assert 8 * HOUR <= clock.now() - before <= 8 * HOUR + 8 * HOUR // SLEW


def test_a_restart_follows_a_step_forward_at_once() -> None:
    watches = Watches()
    last = watches.clock().now()
    watches.wall += DAY
    assert watches.clock(floor=last).now() == watches.wall


def test_a_restart_never_begins_before_the_last_record() -> None:
    watches = Watches()
    last = watches.clock().now()
    watches.wall -= DAY
    clock = watches.clock(floor=last)
    assert clock.now() == last
    watches.pass_(HOUR)
    assert last + HOUR - HOUR // SLEW <= clock.now() <= last + HOUR


def test_in_the_end_it_agrees_again() -> None:
    watches = Watches()
    clock = watches.clock()
    watches.wall += 10 * SECOND
    for _ in range(4_000):
        watches.pass_(SECOND)
        clock.now()
    assert clock.offset() == 0


@given(st.lists(st.tuples(st.integers(0, 10 * SECOND), st.integers(-DAY, DAY)), max_size=50))
def test_it_never_goes_back_and_keeps_its_pace(steps: list[tuple[int, int]]) -> None:
    watches = Watches()
    clock = watches.clock()
    begun = last = clock.now()
    passed = 0
    for span, step in steps:
        watches.pass_(span)
        watches.wall += step
        passed += span
        now = clock.now()
        assert now >= last
        last = now
    assert abs(last - begun - passed) <= passed // SLEW + 1
