"""The head of the page and its tables of numbers: the result in sentences, the first measures, and all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mirab.model.units import SECOND
from mirab.study.catalogue import (
    BY_KEY,
    HEADLINES,
    MEASURES,
    Measure,
    Report,
    absent,
    best,
    differing_settings,
    labels,
)
from mirab.study.formats import Names, plural
from mirab.study.reportparts import against_institute, grouped, institute_written, setting_written
from mirab.study.svg import bar
from mirab.study.tables import Table

AT_ONCE_S = 0.5
"""A wait that is written as 0 s."""

Part: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """The replays of a page, and how they are called."""

    reports: Sequence[Report]
    labels: Sequence[str]
    names: Names

    @property
    def first(self) -> Report:
        return self.reports[0]

    @property
    def several(self) -> bool:
        return len(self.reports) > 1

    def pairs(self) -> list[tuple[int, str, Report]]:
        """Number from 1, label, report."""
        return [(place + 1, self.labels[place], report) for place, report in enumerate(self.reports)]


def subject(reports: Sequence[Report]) -> Subject:
    origin = reports[0]["input"]["origin_unix_s"]
    names = Names(None if origin is None else round(origin * SECOND), reports[0]["input"]["unit"])
    return Subject(reports, labels(reports), names)


# --- the head ------------------------------------------------------------------------------------------------------
def lede(of: Subject) -> str:
    """The result in a few sentences; what is absent is left out."""
    told = [_delivered_sentence(of), _waits_sentence(of), _lost_sentence(of)]
    return " ".join(sentence for sentence in told if sentence)


def _delivered_sentence(of: Subject) -> str:
    key = BY_KEY["delivered_ratio"]
    if key.value(of.first) is None:
        return "No budget was owed anything: nothing was submitted, or the log is shorter than three days."
    promised = f"{of.names.slot}-time that budgets promised and accounts asked for"
    text = f"{key.written(of.first)} of the {promised} was delivered"
    if of.several:
        return f"Under {of.labels[0]}, {text}; {_others(key, of)}."
    at_95, worst = BY_KEY["accounts_at_95"].written(of.first), BY_KEY["delivered_ratio_worst"].written(of.first)
    return f"{text}; {at_95} accounts got at least 95 %, the worst got {worst}."


def _others(measure: Measure, of: Subject) -> str:
    """The value of the one other policy, or the span of those of several."""
    known = [
        (value, label, report) for _, label, report in of.pairs()[1:] if (value := measure.judged(report)) is not None
    ]
    if not known:
        return "the others have no such number"
    low, high = min(known, key=lambda each: each[0]), max(known, key=lambda each: each[0])
    if len(known) == 1:
        return f"{measure.written(low[2])} under {low[1]}"
    if measure.written(low[2]) == measure.written(high[2]):
        return f"{measure.written(low[2])} under the others"
    ends = " to ".join(f"{measure.written(report)} ({label})" for _, label, report in (low, high))
    return f"{ends} under the others"


def _waits_sentence(of: Subject) -> str:
    median, late = BY_KEY["waits.all.p50_s"], BY_KEY["waits.all.p90_s"]
    if median.value(of.first) is None:
        return ""
    text = f"Half of all workloads started {_within(median, of)}"
    if of.several:
        return f"{text}, {_against(median, of)}; nine of ten {_within(late, of)}, {_against(late, of)}."
    return f"{text}, nine of ten {_within(late, of)}."


def _within(wait: Measure, of: Subject) -> str:
    return "at once" if (wait.value(of.first) or 0) < AT_ONCE_S else f"within {wait.written(of.first)}"


def _against(wait: Measure, of: Subject) -> str:
    """What the other policies make of it."""
    if all(wait.written(report) == wait.written(of.first) for report in of.reports):
        return f"as under {of.labels[1] if len(of.reports) == 2 else 'the others'}"
    return f"against {_others(wait, of)}"


def _lost_sentence(of: Subject) -> str:
    lost, broken = BY_KEY["lost_ratio"], BY_KEY["contract_violations"]
    if of.several or lost.value(of.first) is None:
        return ""
    count = broken.value(of.first) or 0
    contracts = "no contract was broken" if not count else f"{plural(round(count), 'contract')} broken"
    return f"Preemption cost {lost.written(of.first)} of the allocated time, and {contracts}."


def cards(of: Subject) -> list[Part]:
    """The measures that a reader looks for first, of one replay."""
    return [
        {
            "name": measure.name,
            "value": measure.written(of.first),
            "note": measure.note,
            "institute": institute_written(measure),
            "against": against_institute(measure, of.first) if measure.institute is not None else "",
        }
        for measure in map(BY_KEY.__getitem__, HEADLINES)
        if not absent(measure, of.reports)
    ]


def panels(of: Subject) -> list[Part]:
    """The same, side by side: a bar with its number for each policy, and which is best."""
    measures = [BY_KEY[key] for key in (*HEADLINES, "repairs_needing_human", "starvation_s", "fragmentation_ratio")]
    return [_panel(measure, of) for measure in measures if not absent(measure, of.reports)]


def _panel(measure: Measure, of: Subject) -> Part:
    values = [measure.judged(report) for report in of.reports]
    known = [*(value for value in values if value is not None), measure.institute or 0.0]
    most = 1.0 if measure.kind in ("percent", "of") and measure.better > 0 else max(known)
    marks = best(measure, of.reports)
    ticks = [(measure.institute / most, "goal")] if measure.institute and most else []
    rows = []
    for (number, label, report), value, mark in zip(of.pairs(), values, marks, strict=True):
        length = value / most if value is not None and most else 0.0
        kind = f"p{number} {'solid' if mark or not any(marks) else 'pale'}"
        rows.append(
            {"label": label, "number": number, "value": measure.written(report), "best": mark,
             "bar": bar([(0, length, kind)], ticks, 12)}
        )  # fmt: skip
    better = {1: "more is better", -1: "less is better", 0: ""}[measure.better]
    return {"name": measure.name, "note": measure.note, "better": better, "rows": rows,
            "institute": institute_written(measure)}  # fmt: skip


# --- all measures, and the input -----------------------------------------------------------------------------------
def measures(of: Subject) -> list[Part]:
    """Every measure in a table, in groups."""
    return [{"question": question, "rows": [_measure_row(measure, of) for measure in found]}
            for question, found in grouped(of.reports)]  # fmt: skip


def _measure_row(measure: Measure, of: Subject) -> Part:
    cells = [
        {"value": measure.written(report), "best": mark, "change": _change(measure, report, of)}
        for report, mark in zip(of.reports, best(measure, of.reports), strict=True)
    ]
    against = "" if of.several or measure.institute is None else against_institute(measure, of.first)
    return {
        "name": measure.name,
        "note": measure.note,
        "cells": cells,
        "institute": institute_written(measure),
        "against": against,
    }


def _change(measure: Measure, report: Report, of: Subject) -> str:
    verdict = measure.verdict(measure.judged(report), measure.judged(of.first))
    sign = {1: "▲ ", -1: "▼ ", 0: ""}[verdict]
    return f"{sign}{measure.change(report, of.first)}" if verdict else ""


def settings(of: Subject) -> Table:
    """Every setting of the policies; with several, those in which they differ."""
    keys = differing_settings(of.reports) if of.several else [key for key in of.first["policy"] if key != "name"]
    rows = [[key, *(setting_written(report["policy"].get(key)) for report in of.reports)] for key in keys]
    return Table(["setting", *of.labels], rows)


def absent_measures(of: Subject) -> list[str]:
    return [measure.name for measure in MEASURES if absent(measure, of.reports)]
