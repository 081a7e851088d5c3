"""A grid of settings: its points, and the reports of all of them in one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from mirab.model.policy import Policy
from mirab.model.settings import parse_assignment, with_texts
from mirab.study.catalogue import BY_KEY, HEADLINES, Report, best, differing_settings
from mirab.study.reportparts import input_section, scene
from mirab.study.tables import Section, Table

MOST_POINTS = 10_000
ACROSS = 10
"""Points that stand side by side; more stand one below the other."""


def grid(policies: Sequence[Policy], assignments: Iterable[str]) -> list[Policy]:
    """Every policy with every combination of ``name=value,value,...``; the last name varies fastest.

    Raises:
        ValueError: no such setting, a value of the wrong form, a name given twice, or more than `MOST_POINTS` points.
    """
    axes: dict[str, list[str]] = {}
    for assignment in assignments:
        name, values = parse_assignment(assignment)
        if name in axes:
            raise ValueError(f"{name} is given twice: write all its values in one list, {name}=a,b,c")
        axes[name] = [value.strip() for value in values.split(",")]
    count = len(policies)
    for values_of_one in axes.values():
        count *= len(values_of_one)
    if count > MOST_POINTS:
        raise ValueError(f"a grid of {count:,} points is more than {MOST_POINTS:,}: leave some values out")
    points = [
        with_texts(policy, dict(zip(axes, values, strict=True)))
        for policy in policies
        for values in product(*axes.values())
    ]
    return list(dict.fromkeys(points))


def sweep_sections(reports: Sequence[Report]) -> list[Section]:
    """One column for each point and one line for each headline measure; or turned round, where points are many."""
    varied = differing_settings(reports)
    measures = [BY_KEY[key] for key in HEADLINES]
    marks = [best(measure, reports) for measure in measures]
    settings = [[_written(report["policy"].get(key)) for report in reports] for key in varied]
    values = [
        [f"{measure.written(report)}{'*' if mark else ' '}" for report, mark in zip(reports, row, strict=True)]
        for measure, row in zip(measures, marks, strict=True)
    ]
    names = [str(number) for number in range(1, len(reports) + 1)]
    if any(report["policy"]["name"] != reports[0]["policy"]["name"] for report in reports):
        varied, settings = ["policy", *varied], [[report["policy"]["name"] for report in reports], *settings]
    titles, rows = [*varied, *(measure.name for measure in measures)], [*settings, *values]
    if len(reports) <= ACROSS:
        table = Table(["point", *names], [[title, *row] for title, row in zip(titles, rows, strict=True)])
    else:
        table = Table(
            ["point", *titles], [[name, *cells] for name, cells in zip(names, zip(*rows, strict=True), strict=True)]
        )
    return [
        Section(f"Sweep of {reports[0]['input']['name']}: {len(reports)} points", notes=scene(reports[0])),
        Section(
            "Points", table, ["* is best, where they differ. Single replays scatter: look for regions, not for cells."]
        ),
        input_section(reports[0]),
    ]


def _written(value: object) -> str:
    return "none" if value is None else str(value)
