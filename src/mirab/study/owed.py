"""What each leaf was owed and what it got: exact integrals, moved on only when something of the leaf changes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import truediv
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from mirab.model.units import HOUR, UNIT, WHOLE, AccountPath, Charge, ChargeRate, Duration, Instant
from mirab.study.demand import Wanted

ScaledCharge = int
"""Charge times `WHOLE`: shares are parts of `WHOLE`, so what is owed is exact only in these."""

AT_95 = (95, 100)


class Mark(NamedTuple):
    """Cumulative amounts of a leaf at one instant."""

    owed: ScaledCharge = 0
    charged: Charge = 0
    repeated: Charge = 0
    within: ScaledCharge = 0
    uncharged: Charge = 0
    lost: int = 0
    full_time: Duration = 0


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Leaf:
    """One leaf of the tree of accounts, and all that is counted for it.

    Attributes:
        share: its part of the whole cluster now, in parts of `WHOLE`.
        wanted: charge rates of its charged workloads that run or could start.
        pending_rate: that of those which wait.
        charged_rate, uncharged_rate: what runs now.
        charged: usage: the integral of the charged rate, less what was credited for hardware failures.
        owed_rate: min(S C, demand) now, times `WHOLE`.
        within: integral of what ran inside the owed rate.
        unmet: integral of (owed rate - charged rate) / pending rate: what one milli-unit that waited all the time
            was owed and did not get.
        given_up: owed to workloads whose users gave up.
        repeated: charge of charged work that had to be done again, save what was credited.
        lost: slot-milliseconds lost to preemption; `preempted`: how often.
        full: its demand is at least its share now; `full_time`: for how long it was.
        waits: how long its workloads waited for their first start; `asked`: when each of them was submitted.
    """

    __slots__ = (
        "asked", "at", "charged", "charged_rate", "full", "full_time", "given_up", "lost", "marks", "owed",
        "owed_rate", "path", "pending_rate", "preempted", "repeated", "share", "uncharged", "uncharged_rate", "unmet",
        "waits", "wanted", "within",
    )  # fmt: skip

    def __init__(self, path: AccountPath, share: int, at: Instant) -> None:
        self.path = path
        self.share = share
        self.at = at
        self.wanted = Wanted()
        self.pending_rate: ChargeRate = 0
        self.charged_rate: ChargeRate = 0
        self.uncharged_rate: ChargeRate = 0
        self.owed_rate: ScaledCharge = 0
        self.owed: ScaledCharge = 0
        self.within: ScaledCharge = 0
        self.unmet: ScaledCharge = 0
        self.charged: Charge = 0
        self.uncharged: Charge = 0
        self.repeated: Charge = 0
        self.given_up: ScaledCharge = 0
        self.lost: int = 0
        self.preempted = 0
        self.marks: dict[Instant, Mark] = {}
        self.full = False
        self.full_time: Duration = 0
        self.waits = array("q")
        self.asked = array("q")

    def settle(self, now: Instant) -> None:
        """Move the integrals on to `now`. To be called before a rate changes."""
        span = now - self.at
        if not span:
            return
        self.at = now
        owed_rate, running = self.owed_rate, self.charged_rate * WHOLE
        self.owed += owed_rate * span
        self.charged += self.charged_rate * span
        self.uncharged += self.uncharged_rate * span
        if self.full:
            self.full_time += span
        if running < owed_rate:
            self.within += running * span
            if self.pending_rate:
                self.unmet += (owed_rate - running) * span // self.pending_rate
        else:
            self.within += owed_rate * span

    def reckon(self, capacity: Sequence[ChargeRate], whole: ChargeRate) -> None:
        """Work out the owed rate anew: min(S C, what the accepted pools could serve of the demand)."""
        promised = self.share * whole
        servable = self.wanted.servable(capacity) * WHOLE
        self.full = promised <= servable
        self.owed_rate = promised if self.full else servable

    def mark(self, now: Instant) -> None:
        self.settle(now)
        self.marks[now] = self.so_far()

    def so_far(self) -> Mark:
        """Everything since the period began, up to the last `settle`."""
        return Mark(self.owed, self.charged, self.repeated, self.within, self.uncharged, self.lost, self.full_time)

    def between(self, begin: Instant, end: Instant) -> Mark:
        """What was added between two marks. A leaf unknown at a mark had nothing then."""
        early, late = self.marks.get(begin, _NOTHING), self.marks.get(end, _NOTHING)
        return Mark(*(after - before for after, before in zip(late, early, strict=True)))


_NOTHING = Mark()


def delivered(got: Mark) -> ScaledCharge:
    """min(charged usage, owed) over a window; what was credited for earlier windows does not make it negative."""
    return max(0, min(got.charged * WHOLE, got.owed))


def useful(got: Mark) -> ScaledCharge:
    """What was delivered, without the work that had to be repeated."""
    return max(0, delivered(got) - got.repeated * WHOLE)


class Verdict(NamedTuple):
    """Sums over the windows of one leaf."""

    owed: ScaledCharge
    delivered: ScaledCharge
    useful: ScaledCharge


def verdict(leaf: Leaf, windows: Sequence[tuple[Instant, Instant]]) -> Verdict:
    """Owed, delivered and useful of a leaf, each summed over the windows."""
    got = [leaf.between(begin, end) for begin, end in windows]
    return Verdict(sum(each.owed for each in got), sum(map(delivered, got)), sum(map(useful, got)))


def unit_hours(amount: Charge) -> float:
    """Charge as people read it: GPU-hours of weight 1, to the thousandth."""
    return round(amount / (UNIT * HOUR), 3)


def scaled_unit_hours(amount: ScaledCharge) -> float:
    hours: float = truediv(amount, WHOLE * UNIT * HOUR)
    return round(hours, 3)


def slot_hours(amount: int) -> float:
    """Slot-milliseconds as slot-hours, to the thousandth."""
    return round(amount / HOUR, 3)


def ratio(part: int, whole: int) -> float | None:
    """A quotient of integers to six places; None where there is nothing to divide by."""
    return round(part / whole, 6) if whole else None


def seconds(span: Duration | None) -> float | None:
    return None if span is None else span / 1000
