"""The report of a replay as compact text; `text_comparison` for several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirab.study import formats
from mirab.study.catalogue import BY_KEY, CAUSE_WORDS, Measure, Report, account_name
from mirab.study.comparison import comparison_sections
from mirab.study.formats import plural, slot_word, span
from mirab.study.reportparts import (
    CONTRACT_NOTE,
    against_institute,
    classes_in,
    contract_columns,
    contract_rows,
    grouped,
    input_section,
    institute_written,
    ledger_notes,
    ledgers_of,
    performance_sections,
    scene,
    split_accounts,
    summed,
)
from mirab.study.tables import WIDTH, Section, Table, plain


def text_report(report: Report, width: int = WIDTH) -> str:
    """One replay as text of at most `width` columns."""
    return plain(report_sections(report), width)


def text_comparison(reports: Sequence[Report], width: int = WIDTH) -> str:
    """Several replays of the same arrivals side by side; the differences are those from the first."""
    return plain(comparison_sections(reports), width)


def report_sections(report: Report) -> list[Section]:
    """The parts of the text report, for `tables.plain` or `tables.draw`."""
    return [
        Section(f"Replay of {report['input']['name']} under policy {report['policy']['name']}", notes=scene(report)),
        _measures_section(report),
        _waits_section(report),
        *_contracts_section(report),
        _stops_section(report),
        _accounts_section(report),
        input_section(report),
        *performance_sections(report),
    ]


def _measures_section(report: Report) -> Section:
    rows: list[tuple[str, ...]] = []
    for group, measures in grouped([report]):
        rows.append((group, "", "", ""))
        rows += [_measure_row(measure, report) for measure in measures]
    notes = []
    if BY_KEY["utilization"].value(report) is None:
        notes.append("Utilization is absent: the log has no measured GPU activity.")
    notes.append(
        "Institute: what was reported after a month by the institute that first described such rules; better or worse "
        "is this replay against it."
    )
    return Section("Measures", Table(("", "here", "institute", "difference"), rows), notes)


def _measure_row(measure: Measure, report: Report) -> tuple[str, ...]:
    theirs = measure.institute
    if theirs is None:
        return (f"  {measure.name}", measure.written(report), "", "")
    return (
        f"  {measure.name}",
        measure.written(report),
        institute_written(measure),
        against_institute(measure, report),
    )


def _waits_section(report: Report) -> Section:
    waits, progress = report["metrics"]["waits"], report["metrics"]["first_progress"]
    columns = ("class", "submitted", "started", "median", "p90", "p99", "longest", "progress p90")
    rows = []
    for name in classes_in([report]):
        row = waits[name]
        spans = [span(row[key]) for key in ("p50_s", "p90_s", "p99_s", "max_s")]
        first = span(progress.get(name, {}).get("p90_s"))
        rows.append((name, formats.count(row["count"]), formats.count(row["started"]), *spans, first))
    return Section("Waits to the first start, by class", Table(columns, rows), [
        "All submissions count: those who gave up with their wait until then, those still waiting with their wait "
        "so far. Progress: until the first confirmed checkpoint or the end."
    ] if rows else ["Nothing was submitted."])  # fmt: skip


def _contracts_section(report: Report) -> Iterator[Section]:
    rows = list(contract_rows(report))
    if rows:
        yield Section("The same with a minimum and without one", Table(contract_columns(report), rows), [CONTRACT_NOTE])


def _stops_section(report: Report) -> Section:
    metrics = report["metrics"]
    causes = sorted(metrics["preemptions_by_cause"].items(), key=lambda cause: (-cause[1], cause[0]))
    rows = [
        (f"{cause}: {CAUSE_WORDS.get(cause, 'other')}", formats.count(number)) for cause, number in causes if number
    ]
    notes = [f"Lost: {formats.percent(metrics['lost_ratio'])} of all allocated time."]
    shapes = [(shape, part) for shape, part in metrics["fragmentation_by_shape"].items() if part]
    if shapes:
        worst = sorted(shapes, key=lambda each: (-each[1], each[0]))[:6]
        told = ", ".join(f"{shape} {formats.percent(part, 2)}" for shape, part in worst)
        each = slot_word(report["input"]["unit"])
        notes.append(f"Free, not held, and too scattered while these waited (nodes x {each}), of the capacity: {told}.")
    if not rows:
        notes.insert(0, "Nothing was preempted.")
    return Section("Preemption and lost work", Table(("why runs were stopped", "times"), rows), notes)


def _accounts_section(report: Report) -> Section:
    hour = f"{slot_word(report['input']['unit'], 1)}-h"
    columns = ("account", "share", "owed", "delivered", "ratio", "median", "p90", "stopped", "lost")
    shown, others = split_accounts(report["by_account"])
    rows = [_account_row(account_name(path), account) for path, account in shown]
    if others:
        rows.append(_account_row(f"{plural(len(others), 'other account')}", summed([each for _, each in others])))
    notes = [
        f"Owed and delivered in {hour} over the whole log; the ratio is judged at each midnight over the window. "
        "Median and p90 are waits; stopped and lost are preemptions and the work they cost.",
        *ledger_notes(ledgers_of(report)),
    ]
    return Section("Owed and delivered, by account", Table(columns, rows), notes if rows else ["No account had work."])


def _account_row(name: str, account: Report) -> tuple[str, ...]:
    waits = account["waits"]
    return (
        name,
        formats.percent(account["share"]),
        formats.hours(account["owed"]),
        formats.hours(account["delivered"]),
        formats.percent(account["delivered_ratio"]),
        span(waits["p50_s"]),
        span(waits["p90_s"]),
        formats.count(account["preempted"]),
        formats.hours(account["lost"]),
    )
