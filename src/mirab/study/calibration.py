"""How far forecasts can be trusted: what was said, against what happened.

A p90 holds if the workload started by it. Whoever gave up before it tells nothing and is left out; whoever gave up, or
still waits, behind it shows that it did not hold. Where the contract names the latest instant of the start there is
nothing to guess, and p50 and p90 are often the same: such waits are judged by that bound alone, and counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mirab.model.units import SECOND, Instant
from mirab.study.demand import CLASSES


@dataclass(frozen=True, slots=True)
class Outcome:
    """One forecast and what came of it.

    Attributes:
        at: when it was made; p50, p90: what it said, None = later than it looked.
        started_at: when it started; None = not yet, or never.
        seen_until: up to when that is known: it gave up, or now.
        bound: the latest instant of the start that the contract named; None = none.
        after_50, after_90: p50 and p90 are not before, where they were not given.
    """

    kind: str
    at: Instant
    p50: Instant | None
    p90: Instant | None
    started_at: Instant | None
    seen_until: Instant
    bound: Instant | None = None
    after_50: Instant | None = None
    after_90: Instant | None = None

    def held(self, said: Instant | None, after: Instant | None = None) -> bool | None:
        """Whether it started by then; None = nobody can know (yet). `after`: what was said instead of an instant."""
        if said is None:
            started_before = after is not None and self.started_at is not None and self.started_at <= after
            return True if started_before else None
        if self.started_at is not None:
            return self.started_at <= said
        return False if self.seen_until > said else None

    @property
    def stretch(self) -> float | None:
        """p90 over the actual wait, both from the forecast on; None = it never started, or p90 was not given."""
        if self.started_at is None or self.p90 is None or self.started_at <= self.at:
            return None
        return (self.p90 - self.at) / (self.started_at - self.at)


def scores(outcomes: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """By class, ``all`` among them: how many were judged, how often p50 and p90 held, and how far p90 stretched."""
    found: dict[str, list[Outcome]] = {name: [] for name in CLASSES}
    for each in outcomes:
        found["all"].append(each)
        found[each.kind].append(each)
    return {name: score(group) for name, group in found.items() if group}


def score(group: Sequence[Outcome]) -> dict[str, Any]:
    """Of one group; shares are None where nothing can be judged."""
    free = [each for each in group if each.bound is None]
    by_50 = [held for each in free if (held := each.held(each.p50, each.after_50)) is not None]
    by_90 = [held for each in free if (held := each.held(each.p90, each.after_90)) is not None]
    by_bound = [held for each in group if (held := each.held(each.bound)) is not None]
    stretches = [stretch for each in free if (stretch := each.stretch) is not None]
    waits = [(each.started_at - each.at) / SECOND for each in free if each.started_at is not None]
    return {
        "forecasts": len(free),
        "judged": len(by_90),
        "p50_held": _share(by_50),
        "p90_held": _share(by_90),
        "p90_over_wait": round(median(stretches), 2) if stretches else None,
        "without_p90": sum(each.p90 is None for each in free),
        "wait_p50_s": round(median(waits), 1) if waits else None,
        "bounds": len(by_bound),
        "bounds_held": _share(by_bound),
    }


def _share(held: Sequence[bool]) -> float | None:
    return round(sum(held) / len(held), 4) if held else None
