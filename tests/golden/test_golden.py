"""Decisions on small traces, checked in: a change of any of them has to be meant.

`pytest tests/golden --update-golden` writes them anew; read the diff before committing it.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import pytest

from mirab.model.policy import named
from mirab.model.units import HOUR
from tests.golden.decisionlog import decision_log

LOGS = Path(__file__).parent / "logs"
CASES = [
    ("two-teams", "budget"),
    ("two-teams", "priority"),
    ("sick-nodes", "budget"),
    ("two-types", "budget"),
    ("two-types", "fair-tree"),
]
SHOWN = 40


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_decisions_are_as_recorded(name: str, policy: str, request: pytest.FixtureRequest) -> None:
    got = decision_log(name, replace(named(policy), window=12 * HOUR))
    path = LOGS / f"{name}.{policy}.log"
    if request.config.getoption("--update-golden"):
        path.write_text("\n".join(got) + "\n", encoding="utf-8")
    recorded = path.read_text(encoding="utf-8").splitlines()
    if got != recorded:
        pytest.fail(explained(recorded, got, path.name), pytrace=False)


def explained(recorded: list[str], got: list[str], name: str) -> str:
    """The first differences, with a line of context, for a person."""
    diff = list(difflib.unified_diff(recorded, got, f"recorded {name}", "decided now", lineterm="", n=1))
    more = [f"... and {len(diff) - SHOWN} more lines"] if len(diff) > SHOWN else []
    how = "If this is meant: pytest tests/golden --update-golden, and read the diff."
    return "\n".join(["decisions have changed", *diff[:SHOWN], *more, how])


def test_a_difference_is_shown_as_a_diff() -> None:
    said = explained(["a", "b", "c"], ["a", "x", "c"], "some.log")
    assert "-b" in said.splitlines()
    assert "+x" in said.splitlines()
    assert "--update-golden" in said
