"""The answer to a what-if as one HTML page, in the look of the page of a replay. Nothing is loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from mirab.study import formats
from mirab.study.catalogue import CLASS_WORDS, account_name
from mirab.study.formats import slot_word
from mirab.study.page import asset, environment, security_policy
from mirab.study.pagehead import Part
from mirab.study.reportparts import classes_in, grouped, scene
from mirab.study.svg import MARKS, Scale, nice_top, percent_of, strip, tag
from mirab.study.tables import Table
from mirab.study.whatif import ALL, ASPECTS, Aspect, Json
from mirab.study.whatiftext import (
    BY_KEY,
    WORDS,
    cost_cells,
    cost_heads,
    cost_told,
    difference,
    exception_told,
    lede,
    method,
    rows,
    share_cell,
    title,
    whatif_sections,
    word,
    written,
)

_SHOWN = 24
_LONGEST_WAIT = 86400.0 * 10
_CELLS = ("delivered", "used", "kept", "wait_p50_s", "wait_p90_s", "lost")


def whatif_page(found: Json) -> str:
    """The page. The same answer gives the same bytes."""
    style, script = asset("page.css") + asset("whatif.css"), asset("page.js")
    reports = [found["reports"]["present"], found["reports"]["proposed"]]
    busy = rows(found)
    return environment().get_template("whatif.html.j2").render(
        found=found,
        title=title(found),
        lede=lede(found),
        scene=scene(reports[0])[0],
        unit=slot_word(found["unit"], 1),
        style=Markup(style),
        script=Markup(script),
        policy=security_policy(style, script),
        changes=[section.table for section in whatif_sections(found) if section.title == "What differs"],
        exceptions=[_exception(each, found) for each in found["exceptions"]],
        gains=_changes(busy, "delivered", found),
        used=_changes(busy, "used", found),
        waits=_waits([found["all"], *busy[:_SHOWN]]),
        lost=_changes(busy, "lost", found),
        table=_table(found, busy),
        classes=_classes(reports),
        measures=_measures(reports),
        method=method(found),
        marks=MARKS,
    )  # fmt: skip


# --- differences ------------------------------------------------------------------------------------------------------
def _changes(busy: Sequence[Json], key: str, found: Json) -> list[Part]:
    """A bar for each account: the difference, its spread, and whether it is more than luck."""
    aspect = BY_KEY[key]
    known = [row for row in busy if row[key]["difference"] is not None]
    most = nice_top(max((_reach(row[key]) for row in known), default=0))
    ranked = sorted(known, key=lambda row: (-row[key]["difference"] * aspect.better, row["account"]))
    return [
        {
            "name": account_name(row["account"]),
            "share": share_cell(row),
            "told": difference(aspect, row, found["unit"]),
            "verdict": row[key]["verdict"],
            "picture": _bar(aspect, row[key], most),
        }
        for row in _ends(ranked)
    ]


def _reach(told: Json) -> float:
    """How far from nothing its bar and spread reach; one spread far wider than all else is cut off."""
    return float(
        max(abs(told["difference"]), min(abs(told["difference"]) + (told["spread"] or 0), told["spread"] or 0))
    )


def _ends(ranked: Sequence[Json]) -> Sequence[Json]:
    """Those at both ends, where there are too many to show."""
    half = _SHOWN // 2
    return ranked if len(ranked) <= _SHOWN else [*ranked[:half], *ranked[-half:]]


def _bar(aspect: Aspect, told: Json, most: float) -> Markup:
    """From the middle to the right is for the better, to the left for the worse; the stroke is the spread."""
    scale = Scale(-most, most)
    value = told["difference"] * aspect.better
    spread = told["spread"] or 0.0
    begin, end = sorted((0.5, scale.at(value)))
    kind = {"better": "gain", "worse": "loss"}.get(told["verdict"], "noise")
    low, high = percent_of(scale.at(value - spread)), percent_of(scale.at(value + spread))
    drawn = [
        tag("rect", x=percent_of(begin), y="2", width=percent_of(end - begin), height="8", class_=kind),
        tag("line", x1="50%", x2="50%", y1="0", y2="12", class_="middle"),
        tag("line", x1=low, x2=high, y1="6", y2="6", class_="spread"),
    ]
    return tag("svg", *drawn, class_="bar", width="100%", height="12", aria_hidden="true", focusable="false")


# --- waits ------------------------------------------------------------------------------------------------------------
def _waits(busy: Sequence[Json]) -> list[Part]:
    """Where nine of ten had started, on a logarithmic line, present and proposed."""
    aspect = BY_KEY["wait_p90_s"]
    longest = max((value or 0 for row in busy for value in _both(row)), default=0)
    scale = Scale(1, max(60.0, min(longest, _LONGEST_WAIT)), log=True)
    return [
        {
            "name": "all accounts" if row["account"] == ALL else account_name(row["account"]),
            "told": " → ".join(written(aspect, value) for value in _both(row)),
            "verdict": row["wait_p90_s"]["verdict"],
            "picture": strip([(number, scale.at(max(1.0, value))) for number, value in enumerate(_both(row), 1)
                              if value is not None][::-1]),
        }
        for row in busy
    ]  # fmt: skip


def _both(row: Json) -> tuple[float | None, float | None]:
    return row["wait_p90_s"]["before"], row["wait_p90_s"]["after"]


# --- tables -----------------------------------------------------------------------------------------------------------
def _table(found: Json, busy: Sequence[Json]) -> Table:
    """Every number of every account."""
    heads = ["account", "share", "owed", "owed, proposed"]
    for aspect in ASPECTS:
        heads += [aspect.name, f"{aspect.name}, proposed", "difference"]
    lines = [_line(row, found) for row in (found["all"], *busy)]
    return Table([*heads, "verdict"], lines)


def _line(row: Json, found: Json) -> list[str]:
    cells = ["all accounts" if row["account"] == ALL else account_name(row["account"]), share_cell(row)]
    cells += [formats.hours(value) for value in row["owed"].values()]
    for key in _CELLS:
        aspect = BY_KEY[key]
        cells += [written(aspect, row[key]["before"]), written(aspect, row[key]["after"]), difference(aspect, row, "")]
    return [*cells, word(row)]


def _classes(reports: Sequence[Json]) -> Table:
    """Waits by class of workload, present and proposed."""
    lines = []
    for name in classes_in(reports):
        cells = [
            formats.span(report["metrics"]["waits"].get(name, {}).get(key))
            for key in ("p50_s", "p90_s", "p99_s")
            for report in reports
        ]
        lines.append([f"{name}: {CLASS_WORDS.get(name, '')}", *cells])
    heads = [f"{part}{when}" for part in ("median", "p90", "p99") for when in ("", ", proposed")]
    return Table(["class", *heads], lines)


def _measures(reports: Sequence[Json]) -> Table:
    """The measures of both replays, without a verdict: the spread is known for accounts only."""
    lines = [
        [measure.name, *(measure.written(report) for report in reports)]
        for _, measures in grouped(reports)
        for measure in measures
    ]
    return Table(["measure", "present", "proposed"], lines)


def _exception(tried: Json, found: Json) -> Part:
    lines = [
        [account_name(each["account"]), *cost_cells(each), WORDS[each["verdict"]]] for each in tried["cost"]
    ]  # fmt: skip
    return {
        "name": f"{tried['id']}: {tried['kind']} for {tried['account']}",
        "told": exception_told(tried, found),
        "cost": cost_told(tried, found),
        "table": Table([*cost_heads(found)[:-1], "verdict"], lines),
    }
