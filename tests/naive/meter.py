"""A cumulative amount as the list of all that was ever said about it."""

from __future__ import annotations


class NaiveMeter:
    """Rates from instants on, and steps at instants."""

    def __init__(self, x: int, rate: int) -> None:
        self.rates = [(x, rate)]
        self.steps: list[tuple[int, int]] = []

    def rate_at(self, x: int) -> int:
        return [rate for since, rate in self.rates if since <= x][-1] if x >= self.rates[0][0] else 0

    def between(self, start: int, end: int) -> int:
        """Millisecond by millisecond, and the steps in (start, end]."""
        return sum(self.rate_at(x) for x in range(start, end)) + sum(by for x, by in self.steps if start < x <= end)
