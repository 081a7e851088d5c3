"""The pictures of the page, each with the sentence over it and the table behind it."""

from __future__ import annotations

from collections.abc import Sequence

from mirab.model.units import SECOND
from mirab.study import charts, formats
from mirab.study.catalogue import BY_KEY, CAUSE_WORDS, CLASS_WORDS, Report, account_name
from mirab.study.formats import ABSENT, Names, plural, span
from mirab.study.pagehead import Part, Subject
from mirab.study.reportparts import (
    CONTRACT_NOTE,
    classes_in,
    contract_columns,
    contract_rows,
    delivered_changes,
    ledger_notes,
    ledgers_of,
    split_accounts,
)
from mirab.study.svg import bar
from mirab.study.tables import Table

_BARS, _RATIOS, _MORE_RATIOS, _CHANGES, _SHAPES, _DAYS = 16, 12, 24, 12, 12, 62
"""How much is shown before the rest is folded away or left to the tables."""


# --- the cluster ---------------------------------------------------------------------------------------------------
def capacity(of: Subject) -> Part:
    height = 130 if of.several else 190
    pictures = [
        {"label": label, "number": number, "told": _occupancy_told(report),
         "svg": charts.occupancy(report, f"occ{number}", label, of.names, height)}
        for number, label, report in of.pairs()
    ]  # fmt: skip
    return {
        "pictures": pictures,
        "demand": charts.demand(of.reports, "demand", of.labels, of.names),
        "table": _days_table(of),
        "empty": not of.first["series"]["t_s"],
    }


def _occupancy_told(report: Report) -> str:
    measures = [BY_KEY[key] for key in ("availability", "occupancy", "occupancy_of_demand")]
    known = [measure for measure in measures if measure.value(report) is not None]
    return ", ".join(f"{measure.name.lower()} {measure.written(report)}" for measure in known)


def _days_table(of: Subject) -> Table:
    """Averages over days, or over longer stretches of a long log."""
    steps, most = of.first["series"], _days(of.first)
    found = charts.bins(steps, most)
    columns = [found.mean(steps[name]) for name in ("installed", "schedulable", "demand")]
    heads = ["from", "installed", "fit for work", "asked for"]
    for _, label, report in of.pairs():
        heads += [f"busy, {label}" if of.several else "busy", "held" if not of.several else f"held, {label}"]
        own = charts.bins(report["series"], most)
        columns += [own.mean(report["series"][name]) for name in ("busy", "held_idle")]
    rows = [
        [of.names.at(round(found.edges[place] * SECOND)), *(_cell(column, place) for column in columns)]
        for place in range(len(found))
    ]
    return Table(heads, rows)


def _cell(column: Sequence[float], place: int) -> str:
    return formats.count(column[place]) if place < len(column) else ABSENT


# --- budgets -------------------------------------------------------------------------------------------------------
def budgets(of: Subject) -> Part:
    ranked = split_accounts(of.first["by_account"], len(of.first["by_account"]))[0]
    rows = [_account_row(path, account, of, ranked[0][1]["owed"] or 0) for path, account in ranked]
    fold = len(rows) if len(rows) <= _BARS + 2 else _BARS
    return {
        "notes": ledger_notes(ledgers_of(of.first)),
        "rows": rows[:fold],
        "more": rows[fold:],
        "changes": [_changes(number, label, report, of) for number, label, report in of.pairs()[1:]],
        "ratios": _ratios([path for path, _ in ranked], of),
        "table": _accounts_table(ranked, of),
    }


def _account_row(path: str, account: Report, of: Subject, most: float) -> Part:
    ratios = [report["by_account"].get(path, {}).get("delivered_ratio") for report in of.reports]
    picture = charts.ratio_strip(ratios) if of.several else charts.owed_bar(account, most)
    told = f"of {formats.hours(account['owed'])} {of.names.slot}-h" if not of.several else ""
    tip = ", ".join(f"{label} {formats.percent(ratio)}" for label, ratio in zip(of.labels, ratios, strict=True))
    return {
        "name": account_name(path),
        "value": formats.percent(ratios[0]),
        "told": told,
        "tip": tip,
        "picture": picture,
    }


def _changes(number: int, label: str, report: Report, of: Subject) -> Part:
    """Who gains and who loses under another policy, against the first."""
    found = delivered_changes(report, of.first)
    most = max((abs(change) for _, change in found), default=0)
    half = _CHANGES // 2
    shown = found if len(found) <= _CHANGES + 2 else [*found[:half], *found[-half:]]
    gains = sum(change >= 0.01 for _, change in found)
    losses = sum(change <= -0.01 for _, change in found)
    return {
        "number": number,
        "label": label,
        "told": f"{plural(gains, 'account')} {'gains' if gains == 1 else 'gain'} a point or more, "
        f"{losses:,} {'loses' if losses == 1 else 'lose'}",
        "left_out": len(found) - len(shown),
        "rows": [
            {"name": account_name(path), "value": formats.points(change), "picture": charts.change_bar(change, most)}
            for path, change in shown
        ],
    }


def _ratios(paths: Sequence[str], of: Subject) -> Part:
    pictured = paths[: _RATIOS + _MORE_RATIOS]
    top = charts.ratio_top(of.reports, pictured)
    shown = [
        {"name": account_name(path), "told": _share(path, of),
         "svg": charts.ratio_over_time(of.reports, path, f"ratio{place}", of.labels, of.names, top)}
        for place, path in enumerate(pictured)
    ]  # fmt: skip
    fold = len(shown) if len(shown) <= _RATIOS + 3 else _RATIOS
    rows = [[account_name(path), *_ratio_cells(path, of)] for path in paths]
    heads = ["account"]
    for label in of.labels:
        heads += [f"{word}, {label}" if of.several else word for word in ("lowest", "mean", "highest", "last")]
    return {
        "shown": shown[:fold],
        "more": shown[fold:],
        "top": f"{top:g}",
        "known": any(
            value is not None for report in of.reports for path in pictured for value in charts.ratios(report, path)
        ),
        "left_out": len(paths) - len(shown),
        "table": Table(heads, rows),
    }


def _share(path: str, of: Subject) -> str:
    return f"share {formats.percent(of.first['by_account'][path]['share'])}"


def _ratio_cells(path: str, of: Subject) -> list[str]:
    cells = []
    for report in of.reports:
        series = report["series"]["accounts"].get(path, {}).get("ratio", [])
        known = [value for value in series if value is not None]
        found = [min(known), sum(known) / len(known), max(known), known[-1]] if known else [None] * 4
        cells += [formats.ratio(value) for value in found]
    return cells


def _accounts_table(ranked: Sequence[tuple[str, Report]], of: Subject) -> Table:
    if not of.several:
        hour = f"{of.names.slot}-h"
        heads = ["account", "share", f"owed, {hour}", "delivered", "ratio", "charged", "uncharged", "stopped",
                 f"lost, {hour}", "median wait", "p90 wait"]  # fmt: skip
        return Table(heads, [[account_name(path), *_account_cells(account)] for path, account in ranked])
    heads = [
        "account",
        "share",
        *(f"delivered, {label}" for label in of.labels),
        *(f"p90 wait, {label}" for label in of.labels),
    ]
    rows = []
    for path, account in ranked:
        found = [report["by_account"].get(path) for report in of.reports]
        ratios = [formats.percent(each["delivered_ratio"] if each else None) for each in found]
        waits = [span(each["waits"]["p90_s"] if each else None) for each in found]
        rows.append([account_name(path), formats.percent(account["share"]), *ratios, *waits])
    return Table(heads, rows)


def _account_cells(account: Report) -> list[str]:
    return [
        formats.percent(account["share"]),
        formats.hours(account["owed"]),
        formats.hours(account["delivered"]),
        formats.percent(account["delivered_ratio"]),
        formats.hours(account["charged"]),
        formats.hours(account["uncharged"]),
        formats.count(account["preempted"]),
        formats.hours(account["lost"]),
        span(account["waits"]["p50_s"]),
        span(account["waits"]["p90_s"]),
    ]


# --- waits, preemption, nodes --------------------------------------------------------------------------------------
def waits(of: Subject) -> Part:
    top = charts.wait_top(of.reports)
    shown: list[Part] = []
    rows: list[list[str]] = []
    for name in classes_in(of.reports):
        found = [report["metrics"]["waits"].get(name, {}) for report in of.reports]
        progress = [report["metrics"]["first_progress"].get(name, {}) for report in of.reports]
        shown.append(
            {
                "name": name,
                "words": CLASS_WORDS.get(name, ""),
                "count": plural(found[0].get("count") or 0, "workload"),
                "svg": charts.wait_curves(of.reports, name, f"wait-{len(shown)}", of.labels, top),
                "rows": [
                    {"number": number, "label": label, "p50": span(each.get("p50_s")), "p90": span(each.get("p90_s"))}
                    for (number, label, _), each in zip(of.pairs(), found, strict=True)
                ],
            }
        )
        for label, each, first in zip(of.labels, found, progress, strict=True):
            spans = [span(each.get(key)) for key in ("mean_s", "p50_s", "p90_s", "p99_s", "max_s")]
            counts = [formats.count(each.get("count")), formats.count(each.get("started"))]
            rows.append([f"{name}, {label}" if of.several else name, *counts, *spans, span(first.get("p90_s"))])
    heads = ["class", "submitted", "started", "mean", "median", "p90", "p99", "longest", "first progress, p90"]
    return {"shown": shown, "table": Table(heads, rows), "contracts": _contracts(of), "contract_note": CONTRACT_NOTE}


def _contracts(of: Subject) -> Table:
    rows = [
        (f"{name}, {label}" if of.several else name, *cells)
        for label, report in zip(of.labels, of.reports, strict=True)
        for name, *cells in contract_rows(report)
    ]
    return Table(contract_columns(of.reports[0]), rows)


def preemption(of: Subject) -> Part:
    tops = {what: charts.stops_top(of.reports, what) for what in ("preemptions", "lost")}
    pictures = []
    for number, label, report in of.pairs():
        if report["metrics"]["preemptions"] or sum(report["series"]["lost"]):
            svgs = [charts.stops(report, f"{what}{number}", label, of.names, what, top) for what, top in tops.items()]
            pictures.append({"label": label, "number": number, "told": _stops_told(report), "svgs": svgs})
    quiet = [label for _, label, report in of.pairs() if not report["metrics"]["preemptions"]]
    causes = sorted({cause for report in of.reports for cause in report["metrics"]["preemptions_by_cause"]})
    counts = [[cause, *(formats.count(r["metrics"]["preemptions_by_cause"].get(cause, 0)) for r in of.reports)]
              for cause in causes]  # fmt: skip
    return {
        "pictures": pictures,
        "quiet": quiet,
        "causes": [_cause(cause, of) for cause in causes],
        "table": Table(["cause", *of.labels], counts),
        "days": _stops_table(of),
    }


def _stops_table(of: Subject) -> Table:
    heads, columns = ["from"], []
    for _, label, report in of.pairs():
        found = charts.bins(report["series"], _days(report))
        columns += [found.total(report["series"][name]) for name in ("preemptions", "lost")]
        heads += [
            f"{word}, {label}" if of.several else word for word in ("runs stopped", f"{of.names.slot}-hours lost")
        ]
    found = charts.bins(of.first["series"], _days(of.first))
    rows = [
        [of.names.at(round(found.edges[place] * SECOND)), *(_cell(column, place) for column in columns)]
        for place in range(len(found))
    ]
    return Table(heads, rows)


def _days(report: Report) -> int:
    """How many rows a table over time has: one a day, if those are not too many."""
    series = report["series"]
    return min(_DAYS, max(1, round(len(series["t_s"]) * float(series["step_s"]) / 86400)))


def _stops_told(report: Report) -> str:
    metrics = report["metrics"]
    lost = formats.percent(metrics["lost_ratio"])
    return f"{plural(metrics['preemptions'] or 0, 'run')} stopped, {lost} of the allocated time lost"


def _cause(cause: str, of: Subject) -> Part:
    counts = [report["metrics"]["preemptions_by_cause"].get(cause, 0) for report in of.reports]
    every = [sum(report["metrics"]["preemptions_by_cause"].values()) for report in of.reports]
    most = max(every, default=0) or 1
    rows = [
        {
            "label": label,
            "number": number,
            "value": formats.count(count),
            "picture": bar([(0, count / most, f"p{number} solid")]),
        }
        for (number, label, _), count in zip(of.pairs(), counts, strict=True)
        if count
    ]
    return {"name": cause, "words": CAUSE_WORDS.get(cause, ""), "rows": rows}


def fragmentation(of: Subject) -> list[Part]:
    """Free capacity that charged work could not use, by the smallest shape that waited."""
    shapes = sorted({shape for report in of.reports for shape in report["metrics"]["fragmentation_by_shape"]})
    found = [(shape, [report["metrics"]["fragmentation_by_shape"].get(shape) or 0.0 for report in of.reports])
             for shape in shapes]  # fmt: skip
    most_shown = _SHAPES // 2 if of.several else _SHAPES
    found = sorted((each for each in found if max(each[1])), key=lambda each: (-max(each[1]), each[0]))[:most_shown]
    most = max((max(parts) for _, parts in found), default=0) or 1
    return [
        {
            "name": _shape_words(shape, of.names),
            "rows": [
                {"label": label, "number": number, "value": formats.percent(part, 2),
                 "picture": bar([(0, part / most, f"p{number} solid")])}
                for (number, label, _), part in zip(of.pairs(), parts, strict=True)
            ],
        }
        for shape, parts in found
    ]  # fmt: skip


def _shape_words(shape: str, names: Names) -> str:
    """``16x8`` as people say it."""
    nodes, _, each = shape.partition("x")
    if not (nodes.isdigit() and each.isdigit()):
        return shape
    return names.slots(int(each)) if nodes == "1" else f"{int(nodes):,} × {names.slots(int(each))}"
