"""The page of measures names every key of the report, and no key that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mirab.study.causes import CAUSES
from mirab.study.demand import CLASSES
from mirab.study.replays import replay_report
from tests.study.scene import BUDGET
from tests.study.small import small_trace

PAGE = (Path(__file__).parents[2] / "docs/reference/measures.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"[a-z][a-z0-9_]*", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
OPEN = {"fragmentation_by_shape", "preemptions_by_cause", "policy", "dropped"}
"""Parts whose own keys are not fixed, or are told elsewhere."""


def keys(tree: dict[str, Any]) -> set[str]:
    found = set()
    for key, value in tree.items():
        found.add(key)
        if isinstance(value, dict) and key not in OPEN:
            found |= keys(value)
    return found


def test_every_key_is_described() -> None:
    report = replay_report(small_trace(), BUDGET)
    named = {key: report[key] for key in ("metrics", "series", "performance")}
    row = report["by_account"]["red"]
    accounts = named["series"].pop("accounts")
    missing = (keys(named) | keys(row) | keys(accounts["red"])) - WORDS
    assert not missing


def test_every_class_and_cause_is_described() -> None:
    assert all(f"`{name}`" in PAGE for name in (*CLASSES, *CAUSES))


def test_every_described_measure_is_there() -> None:
    """The first cell of each row of the tables about `metrics`."""
    metrics = keys(replay_report(small_trace(), BUDGET)["metrics"])
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE.split("## By account")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)(?:[.`])", row)]
    assert named
    assert [name for name in named if name not in metrics | set(CLASSES) | set(CAUSES) | {"start"}] == []
