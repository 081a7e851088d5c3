"""What was predicted beside what happened: a what-if or a report, and the report of the time after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from mirab.study.catalogue import MEASURES, Report, account_name
from mirab.study.formats import ABSENT, percent, span
from mirab.study.reportparts import ledgers_of
from mirab.study.tables import Section, Table

Json: TypeAlias = dict[str, Any]

LENGTHS = ("makespan_s",)
"""Measures that hang on the length of the log."""
TOLERANCE = 0.10
"""A part of what was predicted: so much is nobody's surprise, whatever the spread was."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """A number of an account: `better` as in the catalogue; `least`: a difference smaller than this is none."""

    key: str
    name: str
    better: int
    least: float
    write: Callable[[float], str]
    value: Callable[[Json, float], float | None]
    spread_of: str
    per_day: bool


def _used(account: Json, days: float) -> float | None:
    total: float = account["charged"] + account["uncharged"]
    return total / days


def _lost(account: Json, days: float) -> float | None:
    lost: float = account["lost"]
    return lost / days


def _at(*keys: str) -> Callable[[Json, float], float | None]:
    def value(account: Json, _: float) -> float | None:
        found: Any = account
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found  # type: ignore[no-any-return]

    return value


def _hours(value: float) -> str:
    return f"{value:,.1f}"


ASPECTS = (
    Aspect("kept", "delivered of owed", +1, 0.02, percent, _at("delivered_ratio"), "kept", False),
    Aspect("used_per_day_h", "used a day, GPU-h", 0, 1.0, _hours, _used, "used", True),
    Aspect("wait_p50_s", "median wait", -1, 60.0, span, _at("waits", "p50_s"), "wait_p50_s", False),
    Aspect("wait_p90_s", "p90 wait", -1, 60.0, span, _at("waits", "p90_s"), "wait_p90_s", False),
    Aspect("lost_per_day_h", "lost a day, GPU-h", -1, 0.5, _hours, _lost, "lost", True),
)


def outcome(prediction: Json, happened: Report) -> Json:
    """Prediction and outcome as JSON with stable keys.

    Args:
        prediction: the JSON of a what-if, whose proposal is meant, or a report.
        happened: the report of the time after.

    Raises:
        ValueError: the prediction is neither.
    """
    predicted, present, spreads = _read(prediction)
    names = list(dict.fromkeys([*predicted["by_account"], *happened["by_account"]]))
    before = present if present is None or ledgers_of(present) == ledgers_of(predicted) else None
    return {
        "predicted": _said(predicted),
        "happened": _said(happened),
        "tolerance": TOLERANCE,
        "measures": list(_measures(predicted, present, happened)),
        "accounts": [row for name in names for row in _account(name, predicted, before, happened, spreads)],
    }


def _read(prediction: Json) -> tuple[Report, Report | None, Mapping[str, Json]]:
    """The report that was predicted, that of the present (None = it has none), and rows of the what-if by account."""
    reports = prediction.get("reports")
    if isinstance(reports, dict) and {"present", "proposed"} <= set(reports):
        return reports["proposed"], reports["present"], {row["account"]: row for row in prediction["accounts"]}
    if {"metrics", "by_account", "input"} <= set(prediction):
        return prediction, None, {}
    raise ValueError("it is neither a what-if nor a report: give the --json of mirab whatif or mirab sim")


def _said(report: Report) -> Json:
    return {"log": report["input"]["name"], "policy": report["policy"]["name"], "days": round(_days(report), 3)}


def _days(report: Report) -> float:
    length: float = report["input"]["ends_s"] - report["input"]["starts_s"]
    return max(length, 1.0) / 86_400


def _measures(predicted: Report, present: Report | None, happened: Report) -> Iterator[Json]:
    for measure in MEASURES:
        said, found = measure.judged(predicted), measure.judged(happened)
        if measure.kind == "count" or measure.key in LENGTHS or said is None or found is None:
            continue
        before = None if present is None else measure.judged(present)
        least = 60.0 if measure.kind == "span" else 0.02
        yield {
            "measure": measure.key, "name": measure.name, "present": before, "predicted": said, "happened": found,
            "verdict": _verdict(said, found, measure.better, least, 0.0),
            "told": [ABSENT if each is None else measure.write(each) for each in (before, said, found)],
        }  # fmt: skip


def _account(
    name: str, predicted: Report, present: Report | None, happened: Report, spreads: Mapping[str, Json]
) -> Iterator[Json]:
    for aspect in ASPECTS:
        before, said, found = (_value(aspect, name, report) for report in (present, predicted, happened))
        if said is None and found is None:
            continue
        width = spreads.get(name, {}).get(aspect.spread_of, {}).get("spread") or 0.0
        width = width / _days(predicted) if aspect.per_day else width
        verdict = "unknown" if said is None or found is None else _verdict(said, found, aspect.better, aspect.least,
                                                                           width)  # fmt: skip
        yield {
            "account": name, "aspect": aspect.key, "name": aspect.name, "present": before, "predicted": said,
            "happened": found, "spread": width or None, "verdict": verdict,
            "told": [ABSENT if each is None else aspect.write(each) for each in (before, said, found)],
        }  # fmt: skip


def _value(aspect: Aspect, name: str, report: Report | None) -> float | None:
    account = None if report is None else report["by_account"].get(name)
    return None if account is None or report is None else aspect.value(account, _days(report))


def _verdict(said: float, found: float, better: int, least: float, spread: float) -> str:
    """``as predicted``, ``better``, ``worse``, or ``more`` and ``less`` of what is neither good nor bad."""
    difference = found - said
    if abs(difference) <= max(spread, least, TOLERANCE * abs(said)):
        return "as predicted"
    if not better:
        return "more" if difference > 0 else "less"
    return "better" if difference * better > 0 else "worse"


# --- for people -------------------------------------------------------------------------------------------------------
def outcome_sections(found: Json) -> list[Section]:
    """The parts of the text, for `tables.plain` or `tables.draw`."""
    judged = [row for row in found["accounts"] if row["verdict"] != "unknown"]
    held = sum(row["verdict"] == "as predicted" for row in judged)
    said, was = found["predicted"], found["happened"]
    lede = (f"{held} of {len(judged)} numbers of accounts came as predicted, within the spread of the prediction or a "
            f"tenth of it. Predicted on {said['log']} ({said['days']:,.0f} days), happened on {was['log']} "
            f"({was['days']:,.0f} days).")  # fmt: skip
    columns = ("", "present", "predicted", "happened", "")
    whole = [(row["name"], *row["told"], row["verdict"]) for row in found["measures"]]
    rows: list[tuple[str, ...]] = []
    for account, aspects in groupby(found["accounts"], key=lambda row: row["account"]):
        rows.append((account_name(account), "", "", "", ""))
        rows += [(f"  {row['name']}", *row["told"], row["verdict"]) for row in aspects]
    return [
        Section("Predicted and happened", notes=[lede]),
        Section("By account", Table(columns, rows)),
        Section("The whole", Table(columns, whole)),
    ]
