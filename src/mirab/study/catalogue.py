"""Every measure as people meet it: its name, how it is written, which way is better, and what the institute reported.

The text report, the page and the documentation are made from this one list; a test holds it against the JSON report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mirab.study import formats

Report: TypeAlias = dict[str, Any]

CLASS_WORDS = {
    "all": "every class",
    "session": "with a person attached",
    "debug": "at most 2 GPUs, minimum at most 15 min",
    "small": "at most 8 GPUs",
    "medium": "9 to 32 GPUs",
    "large": "33 to 128 GPUs",
    "huge": "more than 128 GPUs",
}

CAUSE_WORDS = {
    "reclaim": "made room for an account further below its share",
    "uncharged": "had no minimum and made room for charged work",
    "hold": "made room for a gang whose nodes were held",
    "priority": "made room for a higher priority",
    "drain": "node went to repair",
    "reservation": "a reservation began",
    "start-timeout": "did not begin to run in time",
    "unasked": "stopped by the engine, unasked",
}


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of the report.

    Attributes:
        key: where it stands under ``metrics``, with dots.
        kind: ``percent``, ``span`` (seconds), ``count``, or ``of`` (a count of the measure `of`).
        better: +1 more is better, -1 less is, 0 neither.
        institute: what the institute of DESIGN section 5 reported after a month; `institute_before`: before it.
    """

    key: str
    group: str
    name: str
    kind: str
    better: int
    note: str
    of: str = ""
    institute: float | None = None
    institute_before: float | None = None

    def value(self, report: Report) -> float | None:
        """The number itself; None where the report has none."""
        found: float | None = _find(report, self.key)
        return found

    def judged(self, report: Report) -> float | None:
        """The number by which reports are compared: a count of something as its part of the whole."""
        value = self.value(report)
        if self.kind != "of" or value is None:
            return value
        whole = _find(report, self.of)
        return value / whole if whole else None

    def written(self, report: Report) -> str:
        value = self.value(report)
        if value is not None and self.kind == "of":
            return f"{formats.count(value)} of {formats.count(_find(report, self.of))}"
        return self.write(value)

    def write(self, value: float | None) -> str:
        """A value of this kind for people; of a part, the percentage."""
        write = {"span": formats.span, "count": formats.count}.get(self.kind, formats.percent)
        return write(value)

    def difference(self, value: float | None, other: float | None) -> str:
        """`value` minus `other`, with its size."""
        if value is None or other is None:
            return formats.ABSENT
        if self.kind == "span":
            return formats.signed_span(value - other)
        return (formats.signed_count if self.kind == "count" else formats.points)(value - other)

    def change(self, report: Report, base: Report) -> str:
        """How far `report` is from `base`, with its size; counts of the same whole as a difference of counts."""
        if self.kind == "of" and _find(report, self.of) == _find(base, self.of):
            value, other = self.value(report), self.value(base)
            return formats.ABSENT if value is None or other is None else formats.signed_count(value - other)
        return self.difference(self.judged(report), self.judged(base))

    def verdict(self, value: float | None, other: float | None) -> int:
        """+1: `value` is better than `other`; -1: worse; 0: the same as written, or neither is better."""
        if not self.better or value is None or other is None or self.write(value) == self.write(other):
            return 0
        if self.difference(value, other).startswith("±"):
            return 0
        return self.better if value > other else -self.better


def _find(report: Report, key: str) -> Any:
    found: Any = report["metrics"]
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


GROUPS = {
    "capacity": "Was the cluster there, and in use?",
    "budgets": "Did everyone get what was promised?",
    "waits": "How long did people wait?",
    "stops": "What did preemption cost?",
    "nodes": "Nodes, holds and deadlines",
}
"""The levels of the pyramid first: each means something only where the one before it holds."""

MEASURES: tuple[Measure, ...] = (
    Measure("availability", "capacity", "Availability", "percent", +1, "schedulable part of the installed GPU-time"),
    Measure("occupancy", "capacity", "Occupancy", "percent", +1, "allocated part of the schedulable GPU-time",
            institute=0.98, institute_before=0.98),
    Measure("occupancy_of_demand", "capacity", "Occupancy of demand", "percent", +1,
            "allocated part of what could have been used: an empty queue is nobody's fault"),
    Measure("utilization", "capacity", "Utilization", "percent", +1,
            "measured activity of the allocated GPUs, where the log has a source for it"),
    Measure("delivered_ratio", "budgets", "Owed and delivered", "percent", +1,
            "delivered part of what budgets promised and accounts asked for, at each midnight over the window",
            institute=0.98),
    Measure("delivered_ratio_worst", "budgets", "Worst account", "percent", +1,
            "the same, of the account with the least", institute=0.90),
    Measure("accounts_at_95", "budgets", "Accounts at 95 % or more", "of", +1,
            "accounts that got 95 % of what they were owed", of="accounts", institute=13 / 15),
    Measure("delivered_ratio_period", "budgets", "Delivered, whole period", "percent", +1,
            "the same over the whole log at once instead of by window"),
    Measure("useful_ratio", "budgets", "Delivered and kept", "percent", +1,
            "delivered, without work that had to be repeated"),
    Measure("owed_given_up", "budgets", "Owed, but given up", "percent", -1,
            "part of what was owed that was for workloads whose users gave up"),
    Measure("unallocated_ratio", "budgets", "Beyond what was owed", "percent", 0,
            "part of all allocated time that nobody was owed: bursts and uncharged work", institute=0.18),
    Measure("waits.all.p50_s", "waits", "Wait, median", "span", -1, "half of all submissions started sooner",
            institute=24, institute_before=300),
    Measure("waits.all.p90_s", "waits", "Wait, p90", "span", -1, "nine of ten submissions started sooner",
            institute=6480, institute_before=10080),
    Measure("waits.debug.p90_s", "waits", "Wait of debug, p90", "span", -1,
            "nine of ten small short workloads started sooner", institute=30, institute_before=7200),
    Measure("first_progress.all.p90_s", "waits", "First progress, p90", "span", -1,
            "until the first confirmed checkpoint or the end"),
    Measure("starvation_s", "waits", "Longest starvation", "span", -1,
            "longest time that a workload was first of an account below its share, and waited"),
    Measure("preemptions", "stops", "Preemptions", "count", -1,
            "runs stopped by the scheduler; node failures are none"),
    Measure("lost_ratio", "stops", "Lost work", "percent", -1,
            "work since the last checkpoint at each preemption, and restarts, of all allocated time"),
    Measure("contract_violations", "stops", "Broken contracts", "count", -1,
            "runs stopped inside their minimum by anything but hardware; must be 0"),
    Measure("fragmentation_ratio", "nodes", "Fragmentation", "percent", -1,
            "free and not held while charged work waits, of the capacity"),
    Measure("held_idle_ratio", "nodes", "Idle under holds", "percent", -1, "kept free for gangs, of the capacity"),
    Measure("repairs", "nodes", "Repairs", "count", 0, "times that a sick node was to be emptied"),
    Measure("repairs_needing_human", "nodes", "Repairs that needed a human", "count", -1,
            "a run on the sick node had not stopped by cap and grace"),
    Measure("deadlines.met", "nodes", "Deadlines met", "of", +1,
            "of the workloads that named one", of="deadlines.count"),
    Measure("rejected", "nodes", "Rejected", "count", 0, "workloads that could never run as asked"),
    Measure("makespan_s", "nodes", "Makespan", "span", 0, "from the first submission to the last end"),
)  # fmt: skip

BY_KEY = {measure.key: measure for measure in MEASURES}

HEADLINES = (
    "delivered_ratio", "delivered_ratio_worst", "accounts_at_95", "occupancy_of_demand", "waits.all.p50_s",
    "waits.all.p90_s", "waits.debug.p90_s", "lost_ratio", "contract_violations",
)  # fmt: skip
"""The measures that a reader looks for first."""

INSTITUTE_REPAIRS = -0.74
"""Repairs that needed a human, against the regime of priorities before (DESIGN section 5)."""


def absent(measure: Measure, reports: Sequence[Report]) -> bool:
    """Whether no report has this measure, so that a row for it would only take room."""
    if measure.kind == "of" and not any(_find(report, measure.of) for report in reports):
        return True
    return all(measure.value(report) is None for report in reports)


def best(measure: Measure, reports: Sequence[Report]) -> list[bool]:
    """Which reports are best in this measure; none where all are the same as written."""
    values = [measure.judged(report) for report in reports]
    known = [value for value in values if value is not None]
    if not measure.better or len(known) < 2:
        return [False] * len(values)
    top = max(known) if measure.better > 0 else min(known)
    marks = [value is not None and measure.write(value) == measure.write(top) for value in values]
    return [False] * len(values) if sum(marks) == len(known) else marks


def repairs_against_priority(report: Report, priority: Report) -> float | None:
    """Change of the repairs that needed a human: -0.74 = 74 % fewer."""
    ours, theirs = (_find(each, "repairs_needing_human") for each in (report, priority))
    return ours / theirs - 1 if theirs and ours is not None else None


def account_name(path: str) -> str:
    """An account as people name it; the implicit child of an inner account is its own work."""
    return f"{path[:-2]} (own work)" if path.endswith("/*") else path


def labels(reports: Sequence[Report]) -> list[str]:
    """What each report is called among the others: its policy, and the settings that tell it from its namesakes."""
    policies = [report["policy"] for report in reports]
    names = [str(policy["name"]) for policy in policies]
    found = []
    for policy, name in zip(policies, names, strict=True):
        namesakes = [other for other in policies if other["name"] == name]
        told = [f"{key}={policy[key]}" for key in policy if any(other.get(key) != policy[key] for other in namesakes)]
        found.append(" ".join([name, *told]))
    return [f"{name} ({place})" if found.count(name) > 1 else name for place, name in enumerate(found, 1)]


def differing_settings(reports: Sequence[Report]) -> list[str]:
    """Settings that are not the same in all reports, in the order of the policy's fields."""
    policies = [report["policy"] for report in reports]
    return [
        key for key in policies[0] if key != "name" and any(other.get(key) != policies[0][key] for other in policies)
    ]
