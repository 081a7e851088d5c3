"""SVG by hand: elements with everything escaped, scales, and a plot whose text keeps its size while its lines stretch.

A plot is as wide as the page gives it. Lines and areas live in an inner picture of 1,000 by 1,000 units that is
stretched to fit; text, marks and columns stand outside it, at percentages of the width, so that letters never shrink
on a phone. Colours are classes, never attributes: the style sheet knows light, dark and paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from mirab.study.formats import printable

_UNITS = 1000
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)


def tag(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """An element. ``class_`` is class, ``_`` in a name is ``-``; attributes that are None are left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(_number(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup(f"<{name}{told}>{inner}</{name}>" if inner else f"<{name}{told}/>")


def _number(value: str | float) -> str:
    """A number with at most two decimals, and none that say nothing."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def percent_of(fraction: float) -> str:
    return f"{_number(fraction * 100)}%"


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to the fraction of the way from `low` to `high`, on a logarithmic way if asked; cut off at both ends."""

    low: float
    high: float
    log: bool = False

    def value(self, fraction: float) -> float:
        """The value that lies a fraction of the way."""
        if self.log:
            return math.exp(math.log(self.low) + (math.log(self.high) - math.log(self.low)) * fraction)
        return self.low + (self.high - self.low) * fraction

    def at(self, value: float) -> float:
        if self.high <= self.low:
            return 0.0
        if self.log:
            value, low, high = (math.log(max(each, 1e-9)) for each in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


def nice_top(value: float) -> float:
    """The smallest round number that is not below the value: one of `_ROUND` times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND if step * power >= value * 0.999999)


MARKS = {
    1: "M0 -4A4 4 0 1 1 0 4A4 4 0 1 1 0 -4Z",
    2: "M-3.6 -3.6H3.6V3.6H-3.6Z",
    3: "M0 -4.6L4.4 3.4H-4.4Z",
    4: "M0 -5L4.4 0L0 5L-4.4 0Z",
    5: "M0 4.6L4.4 -3.4H-4.4Z",
    6: "M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
}
"""A shape for each policy, to tell them apart without colour: circle, square, triangle, diamond, triangle on its tip,
plus."""


def mark(number: int, x: str, y: float) -> Markup:
    """The shape of policy `number` around a point."""
    return tag("svg", tag("path", d=MARKS[number]), x=x, y=y, overflow="visible", class_=f"mark p{number}")


class Plot:
    """Axes and what is drawn on them. Later layers lie over earlier ones.

    Args:
        key: unique on the page.
        title, description: what the picture is, and what it shows, for those who cannot see it.
        height: of the whole picture in pixels; `top` and `bottom` are left free for text.
    """

    def __init__(
        self, key: str, title: str, description: str, x: Scale, y: Scale, height: int, top: int = 18, bottom: int = 22
    ) -> None:
        self._key, self._title, self._description = key, title, description
        self._x, self._y = x, y
        self._height, self._top, self._bottom = height, top, bottom
        self._paths: list[Markup] = []
        self._behind: list[Markup] = []
        self._before: list[Markup] = []
        self._hits: list[Markup] = []

    def x(self, value: float) -> str:
        return percent_of(self._x.at(value))

    def y(self, value: float) -> float:
        """Pixels from the upper edge."""
        return self._top + (1 - self._y.at(value)) * (self._height - self._top - self._bottom)

    def line(self, points: Iterable[tuple[float, float | None]], kind: str) -> None:
        """A line through the points; it breaks where a value is absent."""
        drawn = "".join(self._run(run) for run in _runs(points))
        if drawn:
            self._paths.append(tag("path", d=drawn, class_=f"ln {kind}", vector_effect="non-scaling-stroke"))

    def _run(self, run: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in (self._inner(*point) for point in run))

    def band(self, edges: Sequence[float], lows: Sequence[float], highs: Sequence[float], kind: str) -> None:
        """Steps between two heights: value i holds from edge i to edge i + 1."""
        if not highs:
            return
        upper = self._steps(edges, highs)
        lower = self._steps(edges, lows)[::-1]
        drawn = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in [*upper, *lower]) + "Z"
        self._paths.append(tag("path", d=drawn, class_=f"band {kind}"))

    def steps(self, edges: Sequence[float], values: Sequence[float], kind: str) -> None:
        """The upper edge of a band, as a line."""
        if values:
            drawn = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in self._steps(edges, values))
            self._paths.append(tag("path", d=drawn, class_=f"ln {kind}", vector_effect="non-scaling-stroke"))

    def _steps(self, edges: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
        corners: list[tuple[float, float]] = []
        for place, value in enumerate(values):
            for edge in (edges[place], edges[place + 1]):
                point = self._inner(edge, value)
                if len(corners) > 1 and corners[-1][1] == corners[-2][1] == point[1]:
                    corners.pop()
                corners.append(point)
        return corners

    def _inner(self, x: float, y: float) -> tuple[float, float]:
        return round(self._x.at(x) * _UNITS, 1), round((1 - self._y.at(y)) * _UNITS, 1)

    def columns(self, edges: Sequence[float], values: Sequence[float], kind: str) -> None:
        """An upright bar for each value, from the foot."""
        foot = self.y(self._y.low)
        for place, value in enumerate(values):
            left, right = self._x.at(edges[place]), self._x.at(edges[place + 1])
            gap = (right - left) * 0.18
            height = foot - self.y(value)
            if height > 0:
                self._behind.append(
                    tag("rect", x=percent_of(left + gap / 2), y=foot - height, width=percent_of(right - left - gap),
                        height=height, class_=kind)
                )  # fmt: skip

    def zone(self, low: float, high: float, kind: str) -> None:
        """A stretch of the height, over the whole width."""
        top = self.y(high)
        self._behind.append(tag("rect", x="0", y=top, width="100%", height=self.y(low) - top, class_=kind))

    def level(self, value: float, label: str = "", kind: str = "grid", right: bool = False) -> None:
        """A horizontal line, with its value over its beginning, or under its end if `right` and there is room."""
        at = self.y(value)
        self._behind.append(tag("line", x1="0", x2="100%", y1=at, y2=at, class_=kind))
        if label and right:
            under = at + 13 if at + 16 < self._height - self._bottom else at - 4
            self._before.append(tag("text", label, x="100%", y=under, class_="tick halo", text_anchor="end"))
        elif label:
            self._before.append(tag("text", label, x="0", y=at - 4, class_="tick halo"))

    def upright(self, value: float, label: str = "", kind: str = "grid") -> None:
        """A vertical line, with its value written below."""
        at = self.x(value)
        foot = self._height - self._bottom
        self._behind.append(tag("line", x1=at, x2=at, y1=self._top, y2=foot, class_=kind))
        if label:
            place = self._x.at(value)
            anchor = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
            self._before.append(tag("text", label, x=at, y=foot + 15, class_="tick", text_anchor=anchor))

    def mark(self, number: int, x: float, y: float) -> None:
        self._before.append(mark(number, self.x(x), self.y(y)))

    def hit(self, begin: float, end: float, text: str) -> None:
        """A part of the width that tells its numbers when it is pointed at."""
        width = percent_of(self._x.at(end) - self._x.at(begin))
        self._hits.append(
            tag("rect", tag("title", text), x=self.x(begin), y="0", width=width, height=self._height, class_="hit")
        )

    def svg(self) -> Markup:
        inner = tag(
            "svg", *self._paths, x="0", y=self._top, width="100%", height=self._height - self._top - self._bottom,
            viewBox=f"0 0 {_UNITS} {_UNITS}", preserveAspectRatio="none",
        )  # fmt: skip
        return tag(
            "svg",
            tag("title", self._title, id=f"{self._key}-t"),
            tag("desc", self._description, id=f"{self._key}-d"),
            *self._behind, inner, *self._before, *self._hits,
            role="img", aria_labelledby=f"{self._key}-t {self._key}-d", class_="plot", width="100%",
            height=self._height,
        )  # fmt: skip


def _runs(points: Iterable[tuple[float, float | None]]) -> Iterator[list[tuple[float, float]]]:
    for present, run in groupby(points, key=lambda point: point[1] is not None):
        if present:
            yield [(x, y) for x, y in run if y is not None]


def bar(parts: Sequence[tuple[float, float, str]], ticks: Sequence[tuple[float, str]] = (), height: int = 12,
        foot: bool = True) -> Markup:  # fmt: skip
    """A lying bar, hidden from those who are read its numbers anyway.

    Args:
        parts: (from, to, class) as fractions of the width; a thin stroke at its foot shows also a bar of nothing.
        ticks: (where, class) of upright strokes over it.
    """
    drawn = [tag("line", x1="0.5", x2="0.5", y1="0", y2=height, class_="foot")] if foot else []
    drawn += [
        tag("rect", x=percent_of(begin), y="1", width=percent_of(max(0.0, end - begin)), height=height - 2, class_=kind)
        for begin, end, kind in parts
    ]
    drawn += [tag("line", x1=percent_of(at), x2=percent_of(at), y1="0", y2=height, class_=kind) for at, kind in ticks]
    return tag("svg", *drawn, class_="bar", width="100%", height=height, aria_hidden="true", focusable="false")


def strip(marks: Sequence[tuple[int, float]], ticks: Sequence[tuple[float, str]] = (), height: int = 16) -> Markup:
    """A lying line from 0 to 1 with the shapes of the policies on it."""
    middle = height / 2
    drawn = [tag("line", x1="0", x2="100%", y1=middle, y2=middle, class_="track")]
    drawn += [
        tag("line", x1=percent_of(at), x2=percent_of(at), y1="2", y2=height - 2, class_=kind) for at, kind in ticks
    ]
    drawn += [mark(number, percent_of(at), middle) for number, at in marks]
    return tag("svg", *drawn, class_="strip", width="100%", height=height, aria_hidden="true", focusable="false")
