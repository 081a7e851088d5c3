"""The pictures of the page: from the parts of a JSON report to SVG."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from mirab.model.units import DAY, HOUR, SECOND
from mirab.study import formats
from mirab.study.catalogue import Report
from mirab.study.formats import Names, span
from mirab.study.svg import Plot, Scale, bar, nice_top, strip

_WIDE, _SMALL = 240, 120
"""Most steps in a picture as wide as the page, and in one of many small ones."""
_HITS = 120
_DAY_STEPS = (1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365)
_HOUR_STEPS = (1, 2, 3, 6, 12, 24)
_WAIT_TICKS = ((1, "≤ 1 s"), (60, "1 min"), (3600, "1 h"), (86400, "1 d"), (86400 * 30, "30 d"))
_WAIT_TOPS = (3600, 6 * 3600, 86400, 3 * 86400, 10 * 86400, 30 * 86400, 100 * 86400)
_WAIT_HITS = 32
_RATIO_TOP = 3.0


@dataclass(frozen=True, slots=True)
class Bins:
    """Neighbouring steps of a series taken together, so that a picture has no more steps than it can show.

    Attributes:
        edges: the begins of the bins and the end of the last, in seconds.
        size: steps in a bin.
    """

    edges: tuple[float, ...]
    size: int

    def __len__(self) -> int:
        return max(0, len(self.edges) - 1)

    def mean(self, values: Sequence[float]) -> list[float]:
        return [sum(group) / len(group) for group in self._groups(values)]

    def total(self, values: Sequence[float]) -> list[float]:
        return [sum(group) for group in self._groups(values)]

    def last(self, values: Sequence[float | None]) -> list[float | None]:
        return [group[-1] for group in self._groups(values)]

    def _groups(self, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        for begin in range(0, len(values), self.size):
            yield values[begin : begin + self.size]


def bins(series: Report, most: int) -> Bins:
    """At most `most` bins of equal length; the last may be shorter."""
    begins = series["t_s"]
    size = max(1, -(-len(begins) // most))
    if not begins:
        return Bins((), size)
    return Bins((*begins[::size], begins[-1] + series["step_s"]), size)


def period(reports: Sequence[Report]) -> tuple[float, float]:
    """Begin and end of the measured time, in seconds."""
    told = reports[0]["input"]
    return told["starts_s"], max(told["ends_s"], told["starts_s"] + 1)


def time_ticks(names: Names, begin_s: float, end_s: float, most: int = 6) -> list[tuple[float, str]]:
    """At most `most` round instants between two, with their names: days, or hours where there are few days."""
    hourly = end_s - begin_s < 3 * DAY / SECOND
    unit, steps = (HOUR, _HOUR_STEPS) if hourly else (DAY, _DAY_STEPS)
    begin, end = round(begin_s * SECOND), round(end_s * SECOND)
    step = next((each * unit for each in steps if (end - begin) / (each * unit) <= most), (end - begin) // most + 1)
    offset = names.since_midnight()
    first = -(-(begin + offset) // step) * step - offset
    return [(at / SECOND, names.at(at)[-5:] if hourly else names.day(at)) for at in range(first, end, step)]


def _time_plot(key: str, title: str, told: str, reports: Sequence[Report], names: Names, y: Scale, height: int) -> Plot:
    """An empty plot over the measured time, with its days written below."""
    begin, end = period(reports)
    plot = Plot(key, title, told, Scale(begin, end), y, height)
    for at, label in time_ticks(names, begin, end):
        plot.upright(at, label)
    return plot


# --- the cluster ---------------------------------------------------------------------------------------------------
def occupancy(report: Report, key: str, label: str, names: Names, height: int) -> Markup:
    """Busy, idle under holds, idle, and out of service, one above the other, up to what is installed."""
    series, metrics = report["series"], report["metrics"]
    grouped = bins(series, _WIDE)
    busy, held = grouped.mean(series["busy"]), grouped.mean(series["held_idle"])
    fit, installed = grouped.mean(series["schedulable"]), grouped.mean(series["installed"])
    top = max([*installed, report["input"]["slots"], 1])
    told = (
        f"Under {label}, {formats.percent(metrics['occupancy'])} of the {names.many} fit for work were busy on "
        f"average, {formats.percent(metrics['availability'])} of those installed were fit for work."
    )
    plot = _time_plot(key, f"Occupancy over time under {label}", told, [report], names, Scale(0, top), height)
    plot.band(grouped.edges, [0.0] * len(grouped), busy, "busy")
    plot.band(grouped.edges, busy, [a + b for a, b in zip(busy, held, strict=True)], "held")
    plot.band(grouped.edges, fit, installed, "out")
    plot.steps(grouped.edges, busy, "busy-edge")
    plot.steps(grouped.edges, fit, "fit-edge")
    plot.level(top, names.slots(round(top)), "axis")
    plot.level(top / 2, formats.count(top / 2))
    plot.level(0, "", "axis")
    _occupancy_hits(plot, series, names)
    return plot.svg()


def _occupancy_hits(plot: Plot, series: Report, names: Names) -> None:
    grouped = bins(series, _HITS)
    columns = [grouped.mean(series[name]) for name in ("busy", "schedulable", "held_idle", "demand")]
    for place, (busy, fit, held, demand) in enumerate(zip(*columns, strict=True)):
        begin, end = grouped.edges[place : place + 2]
        text = (
            f"{formats.count(busy)} of {formats.count(fit)} fit for work busy, {formats.count(held)} idle under holds"
        )
        plot.hit(begin, end, f"{_when(begin, names)}: {text}, {formats.count(demand)} asked for")


def _when(at_s: float, names: Names) -> str:
    return names.at(round(at_s * SECOND))


def demand(reports: Sequence[Report], key: str, labels: Sequence[str], names: Names) -> Markup:
    """What was asked for, running or waiting, as a multiple of what is installed."""
    slots = max(reports[0]["input"]["slots"], 1)
    grouped = [bins(report["series"], _WIDE) for report in reports]
    curves = [
        [value / slots for value in each.mean(report["series"]["demand"])]
        for each, report in zip(grouped, reports, strict=True)
    ]
    highest = max((max(curve, default=0) for curve in curves), default=0)
    told = f"At most {formats.times(highest)} the installed {names.many} were asked for at a time."
    top = nice_top(max(highest, 1.2))
    plot = _time_plot(key, "Demand over time", told, reports, names, Scale(0, top), 120)
    plot.level(0, "", "axis")
    plot.level(1, "1×", "limit", right=True)
    plot.level(top, f"{top:g}×")
    if len(curves) == 1:
        plot.band(grouped[0].edges, [0.0] * len(curves[0]), curves[0], "wanted")
    for number, (each, curve) in enumerate(zip(grouped, curves, strict=True), 1):
        plot.steps(each.edges, curve, f"p{number}")
    _hits(plot, grouped[0].edges, [curve for curve in curves if len(curve) == len(curves[0])], labels, names)
    return plot.svg()


def _hits(
    plot: Plot, edges: Sequence[float], curves: Sequence[Sequence[float | None]], labels: Sequence[str], names: Names
) -> None:
    """What each curve says, a stretch of time at a time."""
    count = len(curves[0]) if curves else 0
    size = max(1, -(-count // _HITS))
    for place in range(0, count, size):
        parts = [
            f"{label} {formats.ABSENT if curve[place] is None else f'{curve[place]:,.2f}'}"
            for label, curve in zip(labels, curves, strict=False)
        ]
        end = edges[min(place + size, count)]
        plot.hit(edges[place], end, f"{_when(edges[place], names)}: {', '.join(parts)}")


# --- budgets -------------------------------------------------------------------------------------------------------
def owed_bar(account: Report, most: float) -> Markup:
    """Delivered inside owed, on a common scale; what is missing is hatched; a stroke at 95 %."""
    owed, part = account["owed"] or 0, account["delivered_ratio"]
    if not owed or not most or part is None:
        return bar([])
    whole = owed / most
    return bar([(0, whole, "owed"), (0, whole * part, "got")], [(whole * 0.95, "goal")])


def ratio_strip(ratios: Sequence[float | None]) -> Markup:
    """Delivered of owed under each policy, from nothing to all; a stroke at 95 %."""
    marks = [(number, min(ratio, 1.0)) for number, ratio in enumerate(ratios, 1) if ratio is not None]
    return strip(marks[::-1], [(0.95, "goal")])


def change_bar(change: float, most: float) -> Markup:
    """A gain to the right of the middle, a loss to the left."""
    size = abs(change) / most / 2 if most else 0
    part = (0.5, 0.5 + size, "gain") if change >= 0 else (0.5 - size, 0.5, "loss")
    return bar([part], [(0.5, "middle")], foot=False)


def ratio_top(reports: Sequence[Report], paths: Sequence[str]) -> float:
    """A common scale for the ratios of several accounts: from 2 to `_RATIO_TOP`, beyond which lines are cut off."""
    known = [value for report in reports for path in paths for value in ratios(report, path) if value is not None]
    return min(_RATIO_TOP, max(2.0, nice_top(max(known, default=1.0))))


def ratios(report: Report, path: str) -> Sequence[float | None]:
    found: Sequence[float | None] = report["series"]["accounts"].get(path, {}).get("ratio", [])
    return found


def ratio_over_time(
    reports: Sequence[Report], path: str, key: str, labels: Sequence[str], names: Names, top: float
) -> Markup:
    """(usage + commitment) / entitlement of one account; 1 is just its share."""
    grouped = [bins(report["series"], _SMALL) for report in reports]
    curves = [each.last(ratios(report, path)) for each, report in zip(grouped, reports, strict=True)]
    last = [next((value for value in reversed(curve) if value is not None), None) for curve in curves]
    told = ", ".join(f"{label} {formats.ratio(value)}" for label, value in zip(labels, last, strict=True))
    plot = Plot(
        key, f"Ratio of {path} over time", f"At the end: {told}.", Scale(*period(reports)), Scale(0, top), 92, 4, 4
    )
    plot.zone(0, 1, "below")
    plot.level(0, "", "axis")
    plot.level(1, "", "limit")
    for number, (each, curve) in reversed(list(enumerate(zip(grouped, curves, strict=True), 1))):
        plot.line(list(zip(each.edges[1:], curve, strict=False)), f"p{number}")
    edges = grouped[0].edges
    size = max(1, len(curves[0]) // 24)
    for place in range(0, len(curves[0]), size):
        values = ", ".join(
            f"{label} {formats.ratio(curve[place] if place < len(curve) else None)}"
            for label, curve in zip(labels, curves, strict=True)
        )
        plot.hit(edges[place], edges[min(place + size, len(curves[0]))], f"{_when(edges[place], names)}: {values}")
    return plot.svg()


# --- waits ---------------------------------------------------------------------------------------------------------
def wait_top(reports: Sequence[Report]) -> float:
    """The longest wait of all, rounded up, in seconds: the common end of the wait pictures."""
    longest = max(
        (each["wait_s"][-1] for report in reports for each in report["distributions"].values() if each["wait_s"]),
        default=0.0,
    )
    return next((float(at) for at in _WAIT_TOPS if at >= longest), longest)


def wait_curves(reports: Sequence[Report], name: str, key: str, labels: Sequence[str], top: float) -> Markup:
    """The part of a class that had started after a time, on a logarithmic axis; marks at the median and p90."""
    told = []
    for report, label in zip(reports, labels, strict=True):
        found = report["metrics"]["waits"].get(name, {})
        told.append(f"{label}: median {span(found.get('p50_s'))}, p90 {span(found.get('p90_s'))}")
    axis = Scale(1, top, log=True)
    plot = Plot(key, f"Waits of class {name}", "; ".join(told) + ".", axis, Scale(0, 100), 158, 8)
    for height, label in ((0, ""), (50, "50 %"), (90, "90 %"), (100, "")):
        plot.level(height, label, "grid" if height else "axis", right=True)
    for at, label in _WAIT_TICKS:
        if at <= top:
            plot.upright(at, label)
    for number, report in reversed(list(enumerate(reports, 1))):
        quantiles = report["distributions"].get(name, {}).get("wait_s") or []
        curve = [(max(value, 1.0), float(place)) for place, value in enumerate(quantiles)]
        plot.line([*curve, *([(top, 100.0)] if curve else [])], f"p{number}")
        for place in (50, 90):
            if place < len(quantiles):
                plot.mark(number, max(quantiles[place], 1.0), place)
    _wait_hits(plot, axis, [report["distributions"].get(name, {}).get("wait_s") or [] for report in reports], labels)
    return plot.svg()


def _wait_hits(plot: Plot, axis: Scale, quantiles: Sequence[Sequence[float]], labels: Sequence[str]) -> None:
    """Which part had started within a time, from the percentiles."""
    for place in range(_WAIT_HITS):
        begin, end = axis.value(place / _WAIT_HITS), axis.value((place + 1) / _WAIT_HITS)
        parts = [
            f"{label} {formats.percent(max(0, bisect_right(found, end) - 1) / 100, 0)}"
            for label, found in zip(labels, quantiles, strict=True)
            if found
        ]
        plot.hit(begin, end, f"started within {span(end)}: {', '.join(parts)}")


# --- preemption ----------------------------------------------------------------------------------------------------
def stops(report: Report, key: str, label: str, names: Names, what: str, top: float) -> Markup:
    """``preemptions`` or ``lost`` slot-hours in each step, as columns."""
    series = report["series"]
    grouped = bins(series, _SMALL)
    values = grouped.total(series[what])
    word = "runs stopped" if what == "preemptions" else f"{names.slot}-hours lost"
    told = f"Under {label}, {formats.count(sum(values))} {word} in all."
    plot = _time_plot(key, f"{word.capitalize() if what == 'preemptions' else word} over time under {label}", told,
                      [report], names, Scale(0, top), 110)  # fmt: skip
    plot.level(top, formats.count(top))
    plot.level(0, "", "axis")
    plot.columns(grouped.edges, values, f"column {what}")
    for place, value in enumerate(values):
        begin, end = grouped.edges[place : place + 2]
        plot.hit(begin, end, f"{_when(begin, names)}, {span(end - begin)}: {formats.count(value)} {word}")
    return plot.svg()


def stops_top(reports: Sequence[Report], what: str) -> float:
    """A common scale for the policies."""
    return nice_top(
        max((max(bins(r["series"], _SMALL).total(r["series"][what]), default=0) for r in reports), default=0)
    )
