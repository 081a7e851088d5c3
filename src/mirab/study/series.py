"""How things went over time: averages over equal steps, for the pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from mypy_extensions import mypyc_attr

from mirab.model.units import HOUR, UNIT, WHOLE, Instant
from mirab.study.owed import Leaf
from mirab.study.period import Period
from mirab.study.pyramid import Usage

RATIO_PLACES = 4


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Series:
    """Totals noted at the end of each step, and read as averages between them.

    Attributes:
        ratios: by leaf, the ratio (U + K) / E that the scheduler itself held at the end of each step;
            `ratios_missing`: a step has ended and they have not been noted yet.
    """

    def __init__(self, period: Period) -> None:
        self._period = period
        self._rows: list[tuple[int, ...]] = [(0,) * 6]
        self.ratios: dict[str, list[float | None]] = {}
        self.ratios_missing = False

    @property
    def noted(self) -> int:
        """How many steps are complete."""
        return len(self._rows) - 1

    def note(self, usage: Usage, lost: int, preemptions: int) -> None:
        """A step ends here. `lost`: slot-milliseconds so far."""
        self._rows.append((usage.capacity_time, usage.busy_time, usage.demand_time, usage.held_time, lost, preemptions))
        self.ratios_missing = True

    def note_ratio(self, path: str, value: float | None) -> None:
        """The ratio of a leaf, for every step that has ended since the last."""
        known = self.ratios.setdefault(path, [])
        shown = None if value is None or value == float("inf") else round(value, RATIO_PLACES)
        known.extend([shown] * (self.noted - len(known)))

    def report(self, installed: int, leaves: Iterable[Leaf]) -> dict[str, Any]:
        """The `series` part of the report; steps that the replay did not reach are left out."""
        ends = self._period.steps[: self.noted]
        begins = (self._period.starts_at, *ends)[: len(ends)]
        capacity, busy, demand, held, lost, preemptions = self._differences()
        return {
            "step_s": self._period.step / 1000,
            "t_s": [begin / 1000 for begin in begins],
            "installed": [installed] * len(ends),
            "schedulable": _averages(capacity, begins, ends),
            "busy": _averages(busy, begins, ends),
            "demand": _averages(demand, begins, ends),
            "held_idle": _averages(held, begins, ends),
            "lost": [round(amount / HOUR, 3) for amount in lost],
            "preemptions": preemptions,
            "accounts": {leaf.path: self._account(leaf, begins, ends) for leaf in leaves},
        }

    def _differences(self) -> list[list[int]]:
        columns = list(zip(*self._rows, strict=True))
        return [[after - before for before, after in pairwise(column)] for column in columns]

    def _account(self, leaf: Leaf, begins: Sequence[Instant], ends: Sequence[Instant]) -> dict[str, Any]:
        steps = [leaf.between(begin, end) for begin, end in zip(begins, ends, strict=True)]
        spans = [end - begin for begin, end in zip(begins, ends, strict=True)]
        ratios = self.ratios.get(leaf.path, [])
        return {
            "ratio": [*ratios, *[None] * (len(ends) - len(ratios))],
            "owed": [_units(step.owed, span) for step, span in zip(steps, spans, strict=True)],
            "delivered": [_units(step.within, span) for step, span in zip(steps, spans, strict=True)],
        }


def _averages(amounts: Sequence[int], begins: Sequence[Instant], ends: Sequence[Instant]) -> list[float]:
    return [
        round(amount / (end - begin), 2) if end > begin else 0.0
        for amount, begin, end in zip(amounts, begins, ends, strict=True)
    ]


def _units(amount: int, span: int) -> float:
    """A scaled charge over a span as an average number of charge units."""
    return round(amount / (WHOLE * UNIT * span), 2) if span else 0.0
