"""Owed and delivered over the window, hour by hour, and when what is still owed will have aged out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mirab.model.accounts import covers
from mirab.model.units import HOUR, UNIT, WHOLE, AccountPath, Instant
from mirab.service.views.accruals import Accruals, Totals, totals_at
from mirab.service.views.moments import iso
from mirab.study.owed import scaled_unit_hours

Part = dict[str, Any]
Step = tuple[Instant, Instant, int, int]
"""Begin, end, owed and charged (both times `WHOLE`) of one stretch between two marks."""
_NOTHING = Totals()


class Age(NamedTuple):
    """A debt (charge times `WHOLE`), and when it leaves the window: from, and entirely by."""

    debt: int
    leaves_from: Instant
    gone_by: Instant

    def with_(self, other: Age) -> Age:
        return Age(self.debt + other.debt, min(self.leaves_from, other.leaves_from), max(self.gone_by, other.gone_by))


def ages(books: Accruals, now: Instant) -> dict[str, Part]:
    """Of each account whose window holds a debt: how much, and from when to when it leaves the window."""
    found: dict[str, Age] = {}
    for path in books.where.ledger.leaves:
        age = _age(list(_steps(books, path, now)), books.window)
        if age is None:
            continue
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            above = "/".join(names[:depth])
            found[above] = found[above].with_(age) if above in found else age
    return {
        path: {"debt_h": scaled_unit_hours(age.debt), "leaves_from": iso(age.leaves_from), "gone_by": iso(age.gone_by)}
        for path, age in found.items()
    }


def series(books: Accruals, below: str | None, now: Instant) -> list[Part]:
    """GPUs owed and GPUs charged, averaged over each step, of an account and all below it (None = of all)."""
    leaves = [path for path in books.where.ledger.leaves if below is None or covers(below, path)]
    total: list[Step] = []
    for path in leaves:
        own = list(_steps(books, path, now))
        total = _added(total, own) if total else own
    return [
        {"at": iso(begin), "hours": round((end - begin) / HOUR, 3), "owed": _rate(owed, end - begin),
         "charged": _rate(charged, end - begin)}
        for begin, end, owed, charged in total
    ]  # fmt: skip


def _rate(amount: int, span: int) -> float:
    """Charge over a time as GPUs of weight 1."""
    return round(max(0, amount) / (WHOLE * UNIT * span), 3) if span else 0.0


def _steps(books: Accruals, path: AccountPath, now: Instant) -> Iterator[Step]:
    """What a leaf was owed and charged between the marks that the window sees, the last one cut at `now`."""
    now = max(now, books.where.clock)
    begin = books.since(now)
    marks = [(at, noted) for at, noted in books.marks if at >= begin]
    ends = [(at, noted.get(path, _NOTHING)) for at, noted in marks]
    leaf = books.where.ledger.leaves[path]
    if not ends or now > ends[-1][0]:
        ends.append((now, totals_at(leaf, now)))
    for (early, before), (late, after) in pairwise(ends):
        yield early, late, after.owed - before.owed, (after.charged - before.charged) * WHOLE


def _added(some: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    """Two accounts' steps as one; the marks are the same for all."""
    return [
        (begin, end, owed + other[2], charged + other[3])
        for (begin, end, owed, charged), other in zip(some, others, strict=True)
    ]


def _age(steps: Sequence[Step], window: int) -> Age | None:
    """The debt is what was owed and not charged; the youngest shortfalls that add up to it are those still unpaid.

    They leave the window one window after they came about. None = there is no debt.
    """
    debt = unpaid = sum(owed - charged for _, _, owed, charged in steps)
    if debt <= 0:
        return None
    unmet = [(begin, end, owed - charged) for begin, end, owed, charged in reversed(steps) if owed > charged]
    oldest = unmet[0][0]
    for begin, _, short in unmet:
        if unpaid <= 0:
            break
        oldest = begin
        unpaid -= short
    return Age(debt, oldest + window, unmet[0][1] + window)
