"""Several replays of the same arrivals side by side, as the sections of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirab.study import formats
from mirab.study.catalogue import (
    MEASURES,
    Measure,
    Report,
    account_name,
    best,
    differing_settings,
    labels,
    repairs_against_priority,
)
from mirab.study.formats import ABSENT, plural, span
from mirab.study.reportparts import (
    classes_in,
    delivered_changes,
    grouped,
    input_section,
    institute_written,
    performance_sections,
    scene,
    setting_written,
    share_of_all,
    split_accounts,
    summed,
)
from mirab.study.tables import Section, Table, columns_of

_LABEL = 12
"""Longest name of a policy at the head of a column; longer ones get a letter and are told below."""


def comparison_sections(reports: Sequence[Report]) -> list[Section]:
    """The parts of the comparison, for `tables.plain` or `tables.draw`."""
    names = labels(reports)
    heads, legend = _heads(names)
    return [
        Section(f"Replay of {reports[0]['input']['name']}: {', '.join(names)}", notes=[*scene(reports[0]), *legend]),
        _side_by_side_section(reports, heads),
        *_differences_section(reports, heads),
        _waits_compared_section(reports, heads),
        _accounts_compared_section(reports, heads),
        _settings_section(reports, heads),
        input_section(reports[0]),
        *performance_sections(*reports),
    ]


def _heads(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Heads of the columns, and what they stand for if they are letters."""
    if all(columns_of(name) <= _LABEL for name in names):
        return list(names), []
    letters = [chr(ord("A") + place % 26) * (1 + place // 26) for place in range(len(names))]
    return letters, [f"{letter} = {name}" for letter, name in zip(letters, names, strict=True)]


def _side_by_side_section(reports: Sequence[Report], heads: Sequence[str]) -> Section:
    pair = len(reports) == 2
    columns = ["", *heads, *([f"{heads[1]} − {heads[0]}"] if pair else []), "institute"]
    rows: list[list[str]] = []
    for group, measures in grouped(reports):
        rows.append([group, *[""] * (len(columns) - 1)])
        for measure in measures:
            marks = best(measure, reports)
            cells = [_marked(measure.written(report), mark) for report, mark in zip(reports, marks, strict=True)]
            if pair:
                cells.append(_change(measure, reports[1], reports[0]))
            rows.append([f"  {measure.name}", *cells, institute_written(measure)])
    return Section("Side by side", Table(columns, rows), ["* is best, where they differ.", *_repairs_notes(reports)])


def _marked(text: str, mark: bool) -> str:
    return f"{text}*" if mark else f"{text} "


def _change(measure: Measure, report: Report, base: Report) -> str:
    """The difference and whether it is for the better, since more is not always more."""
    verdict = measure.verdict(measure.judged(report), measure.judged(base))
    return measure.change(report, base) + {1: " better", -1: " worse", 0: ""}[verdict]


def _repairs_notes(reports: Sequence[Report]) -> Iterator[str]:
    """The institute's last number is a comparison with the regime before."""
    priority = next((report for report in reports if report["policy"]["order"] == "priority"), None)
    if priority is None:
        return
    for report, name in zip(reports, labels(reports), strict=True):
        change = None if report is priority else repairs_against_priority(report, priority)
        if change is not None:
            yield (
                f"Repairs that needed a human under {name}: {formats.percent(abs(change), 0)} "
                f"{'fewer' if change <= 0 else 'more'} than under priority (the institute: 74 % fewer)."
            )


def _differences_section(reports: Sequence[Report], heads: Sequence[str]) -> Iterator[Section]:
    """Needed only where the differences do not fit beside the values."""
    if len(reports) < 3:
        return
    rows = []
    for measure in MEASURES:
        cells = [_arrowed(measure, report, reports[0]) for report in reports[1:]]
        if any(cell[-1] in "▼▲" for cell in cells):
            rows.append([measure.name, *cells])
    notes = [f"▲ better than {heads[0]}, ▼ worse."] if rows else ["There are none."]
    yield Section(f"Differences from {heads[0]}", Table(["", *heads[1:]], rows), notes)


def _arrowed(measure: Measure, report: Report, base: Report) -> str:
    verdict = measure.verdict(measure.judged(report), measure.judged(base))
    return f"{measure.change(report, base)} {'▼ ▲'[verdict + 1]}"


def _waits_compared_section(reports: Sequence[Report], heads: Sequence[str]) -> Section:
    rows: list[list[str]] = []
    for name in classes_in(reports):
        for key, word in (("p50_s", "median"), ("p90_s", "p90"), ("p99_s", "p99")):
            cells = [span(report["metrics"]["waits"].get(name, {}).get(key)) for report in reports]
            rows.append([f"{name} {word}", *cells])
    return Section("Waits to the first start, by class", Table(["", *heads], rows), [] if rows else ["Nothing waited."])


def _accounts_compared_section(reports: Sequence[Report], heads: Sequence[str]) -> Section:
    pair = len(reports) == 2
    shown, others = split_accounts(reports[0]["by_account"])
    columns = ["account", "share", *heads, *([f"{heads[1]} − {heads[0]}"] if pair else [])]
    rows = []
    for path, account in shown:
        ratios = [report["by_account"].get(path, {}).get("delivered_ratio") for report in reports]
        rows.append([account_name(path), formats.percent(account["share"]), *_ratio_cells(ratios, pair)])
    if others:
        ratios = [summed([r["by_account"][path] for path, _ in others if path in r["by_account"]])["delivered_ratio"]
                  for r in reports]  # fmt: skip
        share = sum(share_of_all(account) for _, account in others)
        rows.append([plural(len(others), "other account"), formats.percent(share), *_ratio_cells(ratios, pair)])
    notes = [
        _gains_and_losses(report, reports[0], head, heads[0])
        for report, head in zip(reports[1:], heads[1:], strict=True)
    ]
    return Section("Delivered of owed, by account", Table(columns, rows), notes if rows else ["No account had work."])


def _gains_and_losses(report: Report, base: Report, head: str, base_head: str) -> str:
    """How many accounts gain or lose a point or more, and which most."""
    changes = delivered_changes(report, base)
    gains = [each for each in changes if each[1] >= 0.01]
    losses = [each for each in reversed(changes) if each[1] <= -0.01]
    told = []
    for word, found in (("gain", gains), ("lose", losses)):
        verb = word if len(found) != 1 else f"{word}s"
        most = f" (most: {account_name(found[0][0])}, {formats.points(found[0][1])})" if found else ""
        told.append(f"{plural(len(found), 'account')} {verb}{most}")
    return f"{head} against {base_head}: {', '.join(told)}; by a point or more."


def _ratio_cells(ratios: Sequence[float | None], pair: bool) -> list[str]:
    cells = [formats.percent(ratio) for ratio in ratios]
    if pair:
        first, second = ratios
        cells.append(ABSENT if first is None or second is None else formats.points(second - first))
    return cells


def _settings_section(reports: Sequence[Report], heads: Sequence[str]) -> Section:
    keys = differing_settings(reports)
    rows = [[key, *(setting_written(report["policy"].get(key)) for report in reports)] for key in keys]
    notes = [] if rows else ["All settings are the same."]
    return Section("Settings in which the policies differ", Table(["setting", *heads], rows), notes)
