"""Gate reports that are kept: who signed off what, when, on which report and which gates; and whether that still holds.

A kept report carries the hashes of what it was made from, and one of itself. That shows a slip of the hand or of a
file, not a forger, who would work out the hash anew: keep it where only those may write who may sign.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from mirab import __version__
from mirab.study.catalogue import Report, labels
from mirab.study.gates import Finding, failures_told
from mirab.study.gatesfile import FIVE, Gates
from mirab.study.tables import Section, Table

Json: TypeAlias = dict[str, Any]

DIGEST = "digest"


@dataclass(frozen=True, slots=True)
class Judged:
    """One report and what the gates found in it; `scenario`: which stock scenario it is of."""

    report: Report
    findings: Sequence[Finding]
    scenario: str = ""


def judgement(judged: Sequence[Judged], gates: Gates) -> Json:
    """The gate report as JSON: `met`, and the findings by report."""
    found = [finding for each in judged for finding in each.findings]
    return {
        "mirab": __version__,
        "met": all(finding.met for finding in found),
        "reports": [
            {
                "scenario": each.scenario or None,
                "log": each.report["input"]["name"],
                "policy": labels([each.report])[0],
                "findings": [finding.json() for finding in each.findings],
            }
            for each in judged
        ],
        "decisions": {
            name: {"says": held.says, "owner": held.owner, "date": held.date}
            for name in FIVE
            if (held := gates.decisions.get(name)) is not None
        },
    }


def kept(told: Json, sources: Mapping[str, tuple[str, bytes]], signed: tuple[str, str] | None) -> Json:
    """What is written to a file that is kept.

    Args:
        sources: what it was made from: role -> (name, content).
        signed: (by whom, when), or None where it was not signed off.
    """
    made = {
        **told,
        "signed": None if signed is None else {"by": signed[0], "at": signed[1]},
        "sources": {role: {"name": name, "sha256": digest(content)} for role, (name, content) in sources.items()},
    }
    return {**made, DIGEST: _digest_of(made)}


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def _digest_of(made: Json) -> str:
    return digest(json.dumps(made, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode())


def broken(made: Json, sources: Mapping[str, bytes]) -> list[str]:
    """What of a kept report does not hold any more; nothing if all does.

    Args:
        sources: role -> the content as it is now, of those that are at hand.
    """
    if not isinstance(made.get("sources"), dict) or DIGEST not in made:
        return ["it is no kept gate report"]
    wrong = []
    if _digest_of({key: value for key, value in made.items() if key != DIGEST}) != made[DIGEST]:
        wrong.append("it was changed after it was kept")
    for role, content in sources.items():
        known = made["sources"].get(role)
        if known is None:
            wrong.append(f"it was made without a {role}")
        elif digest(content) != known["sha256"]:
            wrong.append(f"the {role} {known['name']} is another one now")
    return wrong


# --- for people -------------------------------------------------------------------------------------------------------
def gate_sections(judged: Sequence[Judged]) -> list[Section]:
    """The findings of each report in a table, those that are not met marked."""
    return [_section(each) for each in judged]


def _section(judged: Judged) -> Section:
    rows = [(each.gate, "met" if each.met else "NOT MET", each.told) for each in judged.findings]
    name = judged.scenario or judged.report["input"]["name"]
    title = f"Gates on {name}, policy {labels([judged.report])[0]}"
    return Section(title, Table(("gate", "", "found"), rows, wordy=True))


def all_failures(judged: Iterable[Judged]) -> str:
    """The sentence about every gate that is not met, by scenario where there are several; ``""`` if all are."""
    parts = []
    for each in judged:
        if not all(finding.met for finding in each.findings):
            told = failures_told(each.findings)
            parts.append(f"{each.scenario}: {told}" if each.scenario else told)
    return ". ".join(parts)
