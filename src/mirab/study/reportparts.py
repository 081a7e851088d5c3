"""What the text report, the comparison and the page tell alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mirab.study import formats
from mirab.study.catalogue import GROUPS, MEASURES, Measure, Report, absent, labels
from mirab.study.demand import CLASSES
from mirab.study.formats import ABSENT, Names, plural, slot_word, span
from mirab.study.tables import Section, Table

_ACCOUNTS = 20
"""Accounts with a row of their own; the others are summed up in one."""
_LINES = 5
_NOTES = 12


def scene(report: Report) -> list[str]:
    told = report["input"]
    origin = told["origin_unix_s"]
    names = Names(None if origin is None else round(origin * 1000), told["unit"])
    begin, end = (names.at(round(told[key] * 1000)) for key in ("starts_s", "ends_s"))
    return [
        f"{plural(told['used'], 'workload')} of {plural(len(busy_accounts(report['by_account'])), 'account')} on "
        f"{names.slots(told['slots'])} of {plural(told['nodes'], 'node')}, "
        f"{span(told['ends_s'] - told['starts_s'])} from {begin} to {end}"
        f"{names.zone_note(round(told['starts_s'] * 1000))}."
    ]


def input_section(report: Report) -> Section:
    told = report["input"]
    rows = [(f"{reason} ({_first_lines(each['lines'])})", formats.count(each["count"]))
            for reason, each in told["dropped"].items()]  # fmt: skip
    dropped = "none dropped" if not rows else f"{plural(_rows_lost(report), 'row')} dropped:"
    notes = [f"inferred: {note}" for note in told["notes"][:_NOTES]]
    if len(told["notes"]) > _NOTES:
        notes.append(f"and {plural(len(told['notes']) - _NOTES, 'further note')}, all of them in the JSON report")
    return Section(f"Input: {rows_used(report)}, {dropped}", Table(("reason", "rows"), rows), notes)


def rows_used(report: Report) -> str:
    """How many rows of the log are workloads; and of how many, where copies were laid over the log."""
    told = report["input"]
    whole = told["rows"] - _rows_lost(report)
    copies = "" if whole == told["used"] else f" as {plural(told['used'], 'workload')}"
    return f"{formats.count(whole)} of {plural(told['rows'], 'row')} used{copies}"


def _rows_lost(report: Report) -> int:
    return sum(each["count"] for each in report["input"]["dropped"].values())


def _first_lines(lines: Sequence[int]) -> str:
    if not lines:
        return "no line known"
    shown = ", ".join(str(line) for line in lines[:_LINES])
    return f"{'line' if len(lines) == 1 else 'first lines'} {shown}"


def performance_sections(*reports: Report) -> Iterator[Section]:
    named = zip(labels(reports), reports, strict=True)
    told = [_performance(label, report) for label, report in named if report["performance"].get("wall_s") is not None]
    if told:
        yield Section("Computing it took", notes=told)


def _performance(label: str, report: Report) -> str:
    found = report["performance"]
    text = f"{label}: {span(found['wall_s'])}"
    if found.get("workloads_per_s") is not None:
        text += f", {formats.count(found['workloads_per_s'])} workloads a second"
    if found.get("passes") is not None:
        text += f", {formats.count(found['passes'])} passes"
    if found.get("peak_rss_mib") is not None:
        text += f", {formats.count(found['peak_rss_mib'])} MiB at the peak"
    return text


def grouped(reports: Sequence[Report]) -> Iterator[tuple[str, list[Measure]]]:
    for group, question in GROUPS.items():
        measures = [measure for measure in MEASURES if measure.group == group and not absent(measure, reports)]
        if measures:
            yield question, measures


def institute_written(measure: Measure) -> str:
    """What the institute reported, in its own words for counts."""
    if measure.institute is None:
        return ""
    return "13 of 15" if measure.kind == "of" else measure.write(measure.institute)


def classes_in(reports: Sequence[Report]) -> list[str]:
    """The classes that any workload belongs to, in the usual order; further ones as they come."""
    found = reports[0]["metrics"]["waits"]
    order = [name for name in CLASSES if name in found] + [name for name in found if name not in CLASSES]
    return [name for name in order if any(submitted(report, name) for report in reports)]


CONTRACT_NOTE = (
    "Work without a minimum is not charged: it takes what no charged work can use. Never started: the part of the work "
    "that was asked for whose users gave up before it began, or that still waits."
)


def contract_columns(report: Report) -> Sequence[str]:
    asked = f"asked, {slot_word(report['input']['unit'], 1)}-h"
    return "class", "minimum", "submitted", "started", "median", "p90", asked, "never started"


def contract_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Charged and uncharged work of each class apart; nothing where all is of one kind."""
    found = report["metrics"].get("by_contract", {})
    if len(found) < 2 or not all(rows["all"]["count"] for rows in found.values()):
        return
    for name in classes_in([report]):
        for contract, word in (("charged", "yes"), ("uncharged", "none")):
            row = found[contract][name]
            if row["count"]:
                counts = [formats.count(row[key]) for key in ("count", "started")]
                asked, lost = row["work"], row["work_unstarted"]
                part = formats.percent(lost / asked) if asked else ABSENT
                yield name, word, *counts, span(row["p50_s"]), span(row["p90_s"]), formats.hours(asked), part


def submitted(report: Report, name: str) -> int:
    count: int = report["metrics"]["waits"].get(name, {}).get("count", 0)
    return count


def split_accounts(
    by_account: Report, most: int = _ACCOUNTS
) -> tuple[list[tuple[str, Report]], list[tuple[str, Report]]]:
    """The accounts that are owed most, and the rest; none is folded alone."""
    ranked = sorted(
        busy_accounts(by_account).items(), key=lambda each: (-(each[1]["owed"] or 0), -each[1]["share"], each[0])
    )
    most = len(ranked) if len(ranked) <= most + 1 else most
    return ranked[:most], ranked[most:]


def share_of_all(account: Report) -> float:
    """What can be added up: its share of all pools, where `share` is of those of its ledger."""
    share: float = account["share_of_all"] if "share_of_all" in account else account["share"]
    return share


def ledger_notes(ledgers: Iterable[str]) -> list[str]:
    """What tells accounts of several ledgers apart, by the names of these; nothing where there is but the main one."""
    own = [f"{name}:" for name in ledgers if name]
    if not own:
        return []
    those = "that pool" if len(own) == 1 else "those pools"
    return [
        f"Accounts that begin with {' or '.join(own)} have shares of {those} alone; the shares of all others are of "
        "the other pools."
    ]


def ledgers_of(report: Report) -> list[str]:
    """The names of its ledgers; none where the budgets name no pools."""
    return [each["name"] for each in report["input"].get("ledgers", ())]


def busy_accounts(by_account: Report) -> Report:
    """All accounts but those made for the own work of an inner account that had none."""
    return {
        path: account
        for path, account in by_account.items()
        if not path.endswith("/*") or account["waits"]["count"] or account["charged"] or account["uncharged"]
    }


def summed(accounts: Sequence[Report]) -> Report:
    """Several accounts as one; what cannot be added up is absent."""
    total: Report = {
        key: sum(account[key] or 0 for account in accounts)
        for key in ("owed", "delivered", "charged", "uncharged", "lost", "preempted")
    }
    total["share"] = sum(share_of_all(account) for account in accounts)
    judged = [account for account in accounts if account["delivered_ratio"] is not None and account["owed"]]
    owed = sum(account["owed"] for account in judged)
    got = sum(account["owed"] * account["delivered_ratio"] for account in judged)
    total["delivered_ratio"] = got / owed if owed else None
    count = sum(account["waits"]["count"] for account in accounts)
    return total | {"waits": {"count": count, "p50_s": None, "p90_s": None}}


def delivered_changes(report: Report, base: Report) -> list[tuple[str, float]]:
    """Change of the delivered ratio of every account that both know, the largest gain first."""
    changes = []
    for path, account in report["by_account"].items():
        ours, theirs = account["delivered_ratio"], base["by_account"].get(path, {}).get("delivered_ratio")
        if ours is not None and theirs is not None:
            changes.append((path, ours - theirs))
    return sorted(changes, key=lambda each: (-each[1], each[0]))


def against_institute(measure: Measure, report: Report) -> str:
    """The difference from what the institute reported, and whether it is better."""
    value = measure.judged(report)
    verdict = {1: " better", -1: " worse", 0: ""}[measure.verdict(value, measure.institute)]
    return measure.difference(value, measure.institute) + verdict


def setting_written(value: object) -> str:
    """A policy's setting as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ABSENT if value is None else str(value)
