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

    __slots__ = ("_head", "_rates", "_totals", "_xs")

    def __init__(self, x: int, rate: int = 0) -> None:
        self._xs = [x]
        self._totals = [0]
        self._rates = [rate]
        self._head = 0

    @property
    def rate(self) -> int:
        return self._rates[-1]

    @property
    def steady(self) -> bool:
        """Whether the rate never changed."""
        return len(self._xs) == 1

    def set_rate(self, x: int, rate: int) -> None:
        """From x on it grows at `rate` (x never falls)."""
        last = self._xs[-1]
        if x == last:
            self._rates[-1] = rate
            return
        self._totals.append(self._totals[-1] + self._rates[-1] * (x - last))
        self._xs.append(x)
        self._rates.append(rate)

    def change_rate(self, x: int, delta: int) -> None:
        self.set_rate(x, self._rates[-1] + delta)

    def add(self, x: int, amount: int) -> None:
        """A step at x, such as a credit (negative)."""
        self._totals.append(self.total(x) + amount)
        self._rates.append(self._rates[-1])
        self._xs.append(x)

    def total(self, x: int) -> int:
        """The cumulative amount at x, not before the last change."""
        return self._totals[-1] + self._rates[-1] * (x - self._xs[-1])

    def before(self, start: int) -> int:
        """The cumulative amount at `start`; `start` never falls from call to call. 0 before the first segment."""
        xs, head = self._xs, self._head
        count = len(xs)
        while head + 1 < count and xs[head + 1] <= start:
            head += 1
        if head > _COMPACT_AFTER and head * 2 > count:
            del xs[:head], self._totals[:head], self._rates[:head]
            head = 0
        self._head = head
        behind = start - xs[head]
        return self._totals[head] + self._rates[head] * behind if behind > 0 else self._totals[head]

    def between(self, start: int, end: int) -> int:
        """What was added in (start, end]; `end` not before the last change."""
        xs, head = self._xs, self._head
        if head + 1 < len(xs) and xs[head + 1] <= start:
            before = self.before(start)
        else:
            before = self._totals[head]
            if start > xs[head]:
                before += self._rates[head] * (start - xs[head])
        return self._totals[-1] + self._rates[-1] * (end - xs[-1]) - before


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

    def at(self, now: Instant) -> Charge:
        return self.amount - self.rate * now
