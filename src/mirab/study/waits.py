"""How long people waited: every submission counts, also those that never started."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from mirab.model.units import Duration
from mirab.study.demand import CLASSES


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Waits:
    """Waits by class, in milliseconds, and how many of them ended in what was waited for."""

    __slots__ = ("_spans", "_started")

    def __init__(self) -> None:
        self._spans = {name: array("q") for name in CLASSES[1:]}
        self._started = dict.fromkeys(CLASSES[1:], 0)

    def add(self, kind: str, span: Duration, *, reached: bool) -> None:
        """One workload's wait. Not `reached`: its user gave up, or it still waits."""
        self._spans[kind].append(span)
        if reached:
            self._started[kind] += 1

    def copy(self) -> Waits:
        twin = Waits()
        twin._spans = {name: spans[:] for name, spans in self._spans.items()}
        twin._started = dict(self._started)
        return twin

    def sorted_spans(self) -> dict[str, Sequence[Duration]]:
        """Ascending waits of every class, `all` among them."""
        spans = {name: sorted(found) for name, found in self._spans.items()}
        return {"all": sorted(span for found in spans.values() for span in found), **spans}

    def summary(self, spans: dict[str, Sequence[Duration]]) -> dict[str, dict[str, float | int | None]]:
        """The `waits` part of the report, from `sorted_spans`."""
        started = {"all": sum(self._started.values()), **self._started}
        return {name: summarise(spans[name], started[name]) for name in CLASSES}


def summarise(ascending: Sequence[Duration], started: int) -> dict[str, float | int | None]:
    """Count, mean and nearest-rank percentiles, in seconds."""
    count = len(ascending)
    return {
        "count": count,
        "started": started,
        "mean_s": round(sum(ascending) / count / 1000, 3) if count else None,
        "p50_s": percentile_s(ascending, 50),
        "p90_s": percentile_s(ascending, 90),
        "p99_s": percentile_s(ascending, 99),
        "max_s": percentile_s(ascending, 100),
    }


def percentile_s(ascending: Sequence[Duration], percent: int) -> float | None:
    """Nearest rank: the smallest value that at least `percent` per cent of all do not exceed, in seconds."""
    if not ascending:
        return None
    rank = max(1, -(-percent * len(ascending) // 100))
    return ascending[rank - 1] / 1000


def quantiles_s(ascending: Sequence[Duration]) -> list[float | None]:
    """The percentiles 0, 1, ... 100 of a distribution, in seconds; empty if there is nothing."""
    return [percentile_s(ascending, percent) for percent in range(101)] if ascending else []
