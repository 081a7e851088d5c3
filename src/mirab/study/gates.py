"""Are the gates met? One finding for each gate and each thing that it looks at: the number found, the one needed.

A number that the report does not have is not met; where there was nothing to measure, as with deadlines that nobody
named, the gate is met and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from mirab.model.settings import parse_setting
from mirab.study import formats
from mirab.study.catalogue import BY_KEY, Report, account_name
from mirab.study.formats import plural, span
from mirab.study.gatesfile import FIVE, Decision, Gate, Gates

Json: TypeAlias = dict[str, Any]

AGAIN = "the report does not tell: make it anew with this version of mirab"
NOTHING = "nothing has happened by which it could be measured"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What one gate found of one subject.

    Attributes:
        subject: the account, class, exception or decision that it is about; ``""`` = the whole.
        found, needed: for people; `value`, `limit`: the numbers, None where there are none.
    """

    gate: str
    check: str
    met: bool
    found: str
    needed: str
    subject: str = ""
    value: float | None = None
    limit: float | None = None

    def json(self) -> Json:
        return {
            "gate": self.gate, "check": self.check, "subject": self.subject, "met": self.met, "found": self.found,
            "needed": self.needed, "value": self.value, "limit": self.limit,
        }  # fmt: skip

    @property
    def told(self) -> str:
        """The numbers in a few words."""
        about = f"{self.subject} " if self.subject else ""
        return f"{about}{self.found}" + (f" (needs {self.needed})" if self.needed else "")


def findings(
    gates: Gates, report: Report, present: Report | None = None, scenario: str = "", *, decisions: bool = True
) -> list[Finding]:
    """Every finding, in the order of the file.

    Args:
        report: of `mirab sim --json`, or one of those in a comparison.
        present: what the proposal is compared with.
        scenario: the stock scenario that was replayed, ``""`` = none; gates that are for others are left out.
        decisions: whether the five decisions are looked at; once is enough for several reports of one policy.
    """
    found: list[Finding] = []
    for gate in gates.gates:
        here = not gate.scenarios or scenario in gate.scenarios
        if here and (decisions or gate.kind.name != "decisions"):
            found += _found(gate, gates, report, present)
    return found


def _found(gate: Gate, gates: Gates, report: Report, present: Report | None) -> list[Finding]:
    if gate.compares and present is None:
        return [_no(gate, "there is no present to compare with", "--present, or a report of both")]
    if gate.kind.name == "decisions":
        return list(_decisions(gate, gates.decisions, report))
    return list(_CHECKS.get(gate.kind.name, _measure)(gate, report, present))


def _yes(gate: Gate, found: str, needed: str = "", subject: str = "") -> Finding:
    return Finding(gate.name, gate.kind.name, True, found, needed, subject)


def _no(gate: Gate, found: str, needed: str = "", subject: str = "") -> Finding:
    return Finding(gate.name, gate.kind.name, False, found, needed, subject)


# --- numbers ----------------------------------------------------------------------------------------------------------
def _measure(gate: Gate, report: Report, present: Report | None) -> Iterator[Finding]:
    """A measure of the catalogue, by its key."""
    measure = BY_KEY[gate.kind.name]
    before = None if present is None else measure.judged(present)
    yield from _limited(gate, measure.judged(report), before, absent=_absent(report, measure.key))


def _metric(key: str) -> Callable[[Gate, Report, Report | None], Iterator[Finding]]:
    def check(gate: Gate, report: Report, present: Report | None) -> Iterator[Finding]:
        yield from _limited(gate, _at(report, key), _at(present, key), absent=_absent(report, key))

    return check


def _at(report: Report | None, key: str) -> Any:
    found: Any = None if report is None else report["metrics"]
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _absent(report: Report, key: str) -> str:
    """Why there is no such number."""
    above, _, last = key.rpartition(".")
    beside = _at(report, above) if above else report["metrics"]
    return NOTHING if isinstance(beside, dict) and last in beside else AGAIN


def _limited(
    gate: Gate, value: float | None, before: float | None, subject: str = "", absent: str = AGAIN
) -> Iterator[Finding]:
    """The number against each limit of the gate. `absent`: what is said where there is none."""
    if value is None:
        yield _no(gate, absent, subject=subject)
        return
    for name, limit in gate.limits.items():
        bound = limit
        if name == "worse_by_at_most":
            if before is None:
                yield _no(gate, "the present has no such number", subject=subject)
                continue
            bound = _worst(gate, before, limit)
        least = name == "at_least" or (name == "worse_by_at_most" and _more_is_better(gate))
        met = value >= bound if least else value <= bound
        needed = f"{'at least' if least else 'at most'} {_written(gate, bound)}"
        if name == "worse_by_at_most" and before is not None:
            needed += f", present {_written(gate, before)}"
        yield Finding(gate.name, gate.kind.name, met, _written(gate, value), needed, subject, value, bound)


def _worst(gate: Gate, before: float, by: float) -> float:
    """The worst value that is still within the gate."""
    if gate.relative:
        return before * (1 + by)
    return before - by if _more_is_better(gate) else before + by


def _more_is_better(gate: Gate) -> bool:
    measure = BY_KEY.get(gate.kind.name)
    return gate.kind.name == "deadlines" or (measure is not None and measure.better > 0)


def _written(gate: Gate, value: float) -> str:
    if gate.kind.unit == "span":
        return span(value)
    return formats.count(value) if gate.kind.unit == "count" else formats.percent(value)


# --- checks of their own ----------------------------------------------------------------------------------------------
def _sustained(gate: Gate, report: Report, _: Report | None) -> Iterator[Finding]:
    """One finding for each account that fell short; one for all where none did."""
    accounts = report["by_account"]
    if any("sustained" not in account for account in accounts.values()):
        yield _no(gate, AGAIN)
        return
    known = {path: account["sustained"] for path, account in accounts.items() if account["sustained"]["windows"]}
    if not known:
        yield _yes(gate, "no account had sustained demand")
        return
    limit = gate.limits["at_least"]
    short = [path for path in sorted(known) if known[path]["lowest"] < limit]
    for path in short:
        yield from _limited(gate, known[path]["lowest"], None, account_name(path))
    if not short:
        worst = min(known, key=lambda path: (known[path]["lowest"], path))
        told = f"{plural(len(known), 'account')} with sustained demand, the least got"
        found = f"{told} {formats.percent(known[worst]['lowest'])}"
        needed = f"at least {formats.percent(limit)}"
        yield Finding(gate.name, gate.kind.name, True, found, needed, "", known[worst]["lowest"], limit)


def _deadlines(gate: Gate, report: Report, present: Report | None) -> Iterator[Finding]:
    told = _at(report, "deadlines")
    if told is not None and not told["count"]:
        yield _yes(gate, "no workload named a deadline")
        return
    yield from _limited(gate, _part_met(report), _part_met(present))


def _part_met(report: Report | None) -> float | None:
    told = _at(report, "deadlines")
    return told["met"] / told["count"] if told and told["count"] else None


def _debug(gate: Gate, report: Report, present: Report | None) -> Iterator[Finding]:
    yield from _wait(gate, "debug", report, present)


def _gangs(gate: Gate, report: Report, present: Report | None) -> Iterator[Finding]:
    for name in gate.classes:
        yield from _wait(gate, name, report, present)


def _wait(gate: Gate, name: str, report: Report, present: Report | None) -> Iterator[Finding]:
    """A percentile of the waits of a class."""
    told = _at(report, f"waits.{name}")
    if told is not None and not told["count"]:
        yield _yes(gate, "had no workload", subject=name)
        return
    key = f"waits.{name}.{gate.percentile}_s"
    yield from _limited(gate, _at(report, key), _at(present, key), f"{name} {gate.percentile}")


def _exceptions(gate: Gate, report: Report, _: Report | None) -> Iterator[Finding]:
    """No exception without an end, none in force past it, none longer than allowed."""
    held = report.get("exceptions")
    if held is None:
        yield _no(gate, AGAIN)
        return
    wrong = [finding for each in held for finding in _exception(gate, each, report["input"]["ends_s"])]
    yield from wrong
    if not wrong:
        yield _yes(gate, f"{plural(len(held), 'exception')}, each with its end" if held else "there are no exceptions")


def _exception(gate: Gate, held: Json, now_s: float) -> Iterator[Finding]:
    name = f"{held.get('id', '?')} of {held.get('account', '?')}"
    begin, end = held.get("begin_s"), held.get("end_s")
    if end is None:
        yield _no(gate, "has no end", "an end", name)
        return
    if held.get("in_force") and end <= now_s:
        yield _no(gate, f"is in force {span(now_s - end)} past its end", "an end that holds", name)
    if gate.longest is not None and begin is not None and end - begin > gate.longest:
        yield Finding(gate.name, gate.kind.name, False, f"lasts {span(end - begin)}", f"at most {span(gate.longest)}",
                      name, end - begin, gate.longest)  # fmt: skip


_CHECKS: dict[str, Callable[[Gate, Report, Report | None], Iterable[Finding]]] = {
    "sustained-demand": _sustained,
    "lost-work": _metric("lost_ratio"),
    "deadlines": _deadlines,
    "debug-wait": _debug,
    "starvation": _metric("starvation_s"),
    "large-gangs": _gangs,
    "contracts": _metric("contract_violations"),
    "exceptions": _exceptions,
}


# --- the five decisions -----------------------------------------------------------------------------------------------
def _decisions(gate: Gate, decisions: dict[str, Decision] | Any, report: Report) -> Iterator[Finding]:
    """All five, or none: each that is not stated, owned, dated, or not what the policy does."""
    wrong = []
    for name in FIVE:
        lacks = list(_lacking(decisions.get(name, Decision()), report))
        if lacks:
            wrong.append(_no(gate, ", ".join(lacks), subject=name))
    yield from wrong
    if not wrong:
        yield _yes(gate, "all five are stated, owned and dated")


def _lacking(decision: Decision, report: Report) -> Iterator[str]:
    if not decision.says:
        yield "not stated"
    if not decision.owner:
        yield "no owner"
    if not _is_date(decision.date):
        yield "no date" if not decision.date else f"{decision.date!r} is not a date such as 2026-11-02"
    for name, decided in decision.settings.items():
        held = report["policy"].get(name)
        if _setting(name, held) != decided:
            yield f"the policy has {name} {'none' if held is None else held}, which is not what was decided"


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _setting(name: str, held: object) -> object:
    """A setting of a report as the model holds it: durations are written there with units."""
    if not isinstance(held, str):
        return held
    try:
        return parse_setting(name, held)
    except ValueError:
        return held


# --- several ----------------------------------------------------------------------------------------------------------
def failures_told(found: Iterable[Finding]) -> str:
    """The sentence of an error: which gates are not met, and by what numbers."""
    failed: dict[str, list[Finding]] = {}
    for finding in found:
        if not finding.met:
            failed.setdefault(finding.gate, []).append(finding)
    shown = "; ".join(_failure(gate, each) for gate, each in failed.items())
    return f"{plural(len(failed), 'gate')} {'is' if len(failed) == 1 else 'are'} not met: {shown}"


def _failure(gate: str, failed: list[Finding]) -> str:
    more = f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
    return f"{gate}: {' and '.join(finding.told for finding in failed[:_SHOWN])}{more}"
