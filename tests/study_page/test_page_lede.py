"""The first sentences of the page: what a reader takes away must read as a sentence whatever the numbers are."""

from __future__ import annotations

from typing import Any

import pytest

from mirab.study.pagehead import lede, subject
from tests.study_page.made_up import report


def said(*waits: tuple[float, float]) -> str:
    """The lede of as many policies as there are medians and nine-in-tens of waits, in seconds."""
    names = ("budget", "fair-tree", "fifo")[: len(waits)]
    return lede(subject([waited(name, *wait) for name, wait in zip(names, waits, strict=True)]))


def waited(policy: str, median: float, late: float) -> dict[str, Any]:
    made = report(policy)
    made["metrics"]["waits"]["all"] |= {"p50_s": median, "p90_s": late}
    return made


@pytest.mark.parametrize(
    ("waits", "sentence"),
    [
        ([(0, 0)], "Half of all workloads started at once, nine of ten at once."),
        ([(60, 7200)], "Half of all workloads started within 1 min, nine of ten within 2 h."),
        ([(0, 60), (0, 60)], "started at once, as under fair-tree; nine of ten within 1 min, as under fair-tree."),
        (
            [(0, 60), (0, 90), (0, 90)],
            "at once, as under the others; nine of ten within 1 min, against 1.5 min under the",
        ),
        ([(0, 60), (5, 90), (9, 99)], "started at once, against 5 s (fair-tree) to 9 s (fifo) under the others;"),
    ],
)
def test_waits(waits: list[tuple[float, float]], sentence: str) -> None:
    assert sentence in said(*waits)
