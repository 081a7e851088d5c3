"""Cumulative amounts over a sliding window: exact, piecewise linear, no sampling."""

from __future__ import annotations

from math import isqrt

from mypy_extensions import mypyc_attr

from mirab.model.units import MINUTE, Charge, ChargeRate, Duration, Instant

_COMPACT_AFTER = 512


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Meter:
    """An amount that grows at a rate which changes now and then.

    The abscissa x is usually time in milliseconds; entitlement is metered against cumulative capacity instead, so
    that a change of capacity need not touch every account. One segment is kept for each change of rate that some
    window can still see: queries with a rising `start` cost O(1) amortised.
    """

    __slots__ = (
        "_head", "_head_rate", "_head_total", "_head_x", "_more", "_next_x", "_rate", "_rates", "_total", "_totals",
        "_x", "_xs",
    )  # fmt: skip

    def __init__(self, x: int, rate: int = 0) -> None:
        self._keep([x], [0], [rate])

    def _keep(self, xs: list[int], totals: list[int], rates: list[int]) -> None:
        self._xs, self._totals, self._rates = xs, totals, rates
        self._x, self._total, self._rate = xs[-1], totals[-1], rates[-1]
        self._stand_at(0)

    def _stand_at(self, head: int) -> None:
        """The window begins in that segment: it and the last one are kept at hand, since all questions are of them."""
        self._head = head
        self._head_x, self._head_total, self._head_rate = self._xs[head], self._totals[head], self._rates[head]
        self._more = head + 1 < len(self._xs)
        self._next_x = self._xs[head + 1] if self._more else self._head_x

    @property
    def rate(self) -> int:
        return self._rate

    @property
    def steady(self) -> bool:
        """Whether the rate never changed."""
        return len(self._xs) == 1

    def set_rate(self, x: int, rate: int) -> None:
        """From x on it grows at `rate` (x never falls)."""
        if x == self._x:
            self._rates[-1] = self._rate = rate
            if not self._more:
                self._head_rate = rate
        else:
            self._append(x, self._total + self._rate * (x - self._x), rate)

    def change_rate(self, x: int, delta: int) -> None:
        self.set_rate(x, self._rate + delta)

    def add(self, x: int, amount: int) -> None:
        """A step at x, such as a credit (negative)."""
        self._append(x, self.total(x) + amount, self._rate)

    def _append(self, x: int, total: int, rate: int) -> None:
        self._xs.append(x)
        self._totals.append(total)
        self._rates.append(rate)
        self._x, self._total, self._rate = x, total, rate
        if not self._more:
            self._more, self._next_x = True, x

    def total(self, x: int) -> int:
        """The cumulative amount at x, not before the last change."""
        return self._total + self._rate * (x - self._x)

    def before(self, start: int) -> int:
        """The cumulative amount at `start`; `start` never falls from call to call. 0 before the first segment."""
        if self._more and self._next_x <= start:
            self._move(start)
        behind = start - self._head_x
        return self._head_total + self._head_rate * behind if behind > 0 else self._head_total

    def _move(self, start: int) -> None:
        """The window begins at `start` now; what lies far before it is forgotten."""
        xs, head = self._xs, self._head
        count = len(xs)
        while head + 1 < count and xs[head + 1] <= start:
            head += 1
        if head > _COMPACT_AFTER and head * 2 > count:
            del xs[:head], self._totals[:head], self._rates[:head]
            head = 0
        self._stand_at(head)

    def between(self, start: int, end: int) -> int:
        """What was added in (start, end]; `end` not before the last change."""
        return self._total + self._rate * (end - self._x) - self.before(start)

    def absorb(self, other: Meter) -> None:
        """From now on the sum of both: of what lies inside a window nothing is lost, in either."""
        changes = sorted([*self._changes(), *other._changes()], key=_when)
        xs, totals, rates = [changes[0][0]], [0], [changes[0][2]]
        for x, step, turn in changes[1:]:
            if x == xs[-1] and not step:
                rates[-1] += turn
            else:
                totals.append(totals[-1] + rates[-1] * (x - xs[-1]) + step)
                xs.append(x)
                rates.append(rates[-1] + turn)
        self._keep(xs, totals, rates)

    def _changes(self) -> list[tuple[int, int, int]]:
        """(x, step, change of the rate) from the segment on in which the window begins."""
        xs, totals, rates, head = self._xs, self._totals, self._rates, self._head
        found = [(xs[head], 0, rates[head])]
        for place in range(head + 1, len(xs)):
            grown = rates[place - 1] * (xs[place] - xs[place - 1])
            found.append((xs[place], totals[place] - totals[place - 1] - grown, rates[place] - rates[place - 1]))
        return found


def _when(change: tuple[int, int, int]) -> int:
    return change[0]


DECAY_PERIOD: Duration = 5 * MINUTE
"""Usage decays in steps of this length, as Slurm's PriorityCalcPeriod does."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class DecayedMeter:
    """Usage that halves every `half_life`, decayed once each `DECAY_PERIOD` (Slurm's PriorityDecayHalfLife).

    Has `Meter`'s interface as far as usage needs it; the start of the window is ignored: decay and window are two
    different settings.
    """

    __slots__ = ("_factor", "_period", "_rate", "_value", "_x")

    def __init__(self, x: int, half_life: Duration) -> None:
        self._factor = decay_factor(half_life)
        self._period = x // DECAY_PERIOD
        self._x = x
        self._value = 0.0
        self._rate = 0

    @property
    def rate(self) -> int:
        return self._rate

    def set_rate(self, x: int, rate: int) -> None:
        self._settle(x)
        self._rate = rate

    def change_rate(self, x: int, delta: int) -> None:
        self.set_rate(x, self._rate + delta)

    def add(self, x: int, amount: int) -> None:
        self._settle(x)
        self._value = max(0.0, self._value + amount)

    def between(self, start: int, end: int) -> int:
        return int(self._at(end)[0])

    def absorb(self, x: int, other: DecayedMeter) -> None:
        """From x on the sum of both, which halve in the same time."""
        self._settle(x)
        self._value += other._at(x)[0]
        self._rate += other._rate

    def _settle(self, x: int) -> None:
        self._value, self._period = self._at(x)
        self._x = x

    def _at(self, x: int) -> tuple[float, int]:
        """(value at x, number of the decay period); asking changes nothing, so it does not matter who asks when."""
        value, last, period = self._value, self._x, self._period
        periods = x // DECAY_PERIOD - period
        if periods:
            boundary = (period + 1) * DECAY_PERIOD
            value = (value + self._rate * (boundary - last)) * self._factor
            kept = _power(self._factor, periods - 1)
            grown = self._rate * DECAY_PERIOD * self._factor * (1.0 - kept) / (1.0 - self._factor)
            value = value * kept + grown
            period += periods
            last = period * DECAY_PERIOD
        return value + self._rate * (x - last), period


def add_up(meter: Meter | DecayedMeter, other: Meter | DecayedMeter, now: Instant) -> None:
    """The first is the sum of both from now on. They forget alike."""
    if isinstance(meter, Meter) and isinstance(other, Meter):
        meter.absorb(other)
    elif isinstance(meter, DecayedMeter) and isinstance(other, DecayedMeter):
        meter.absorb(now, other)


def usage_meter(now: Instant, half_life: Duration | None) -> Meter | DecayedMeter:
    return DecayedMeter(now, half_life) if half_life else Meter(now)


def decay_factor(half_life: Duration) -> float:
    """2 to the power of -(period / half life), from integer square roots: the same bits on every machine."""
    scale = 1 << 120
    result, root, fraction = scale, scale // 2, DECAY_PERIOD % half_life
    whole = DECAY_PERIOD // half_life
    for _ in range(60):
        fraction *= 2
        root = isqrt(root * scale)
        if fraction >= half_life:
            fraction -= half_life
            result = result * root // scale
    return (result >> whole) / scale


def _power(base: float, exponent: int) -> float:
    """By squaring: only multiplications, which round alike everywhere (libm's pow does not)."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Commitment:
    """What running work has been promised and has not used yet: the sum of rate x (until - now).

    Kept as two sums, so that the value at any instant costs one multiplication. What has run out is taken away by
    `State.advance` when its instant comes.
    """

    __slots__ = ("amount", "rate")

    def __init__(self) -> None:
        self.rate: ChargeRate = 0
        self.amount: Charge = 0

    def add(self, rate: ChargeRate, until: Instant) -> None:
        self.rate += rate
        self.amount += rate * until

    def shift(self, other: Commitment, sign: int = 1) -> None:
        """What the other has been promised counts here too (+1), or no more (-1)."""
        self.rate += sign * other.rate
        self.amount += sign * other.amount

    def at(self, now: Instant) -> Charge:
        return self.amount - self.rate * now
