"""docs/scenarios.md names a test for each line, the tests exist, and no scenario file is left out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
LINES = ROOT / "tests" / "scenarios" / "lines"


def test_every_line_has_a_row() -> None:
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", TABLE, re.MULTILINE)]
    assert rows == list(range(1, 50))


def test_every_test_that_is_named_exists() -> None:
    for named in re.findall(r"`([\w./-]+\.(?:txt|py))`", TABLE):
        path = ROOT / named if "/" in named else LINES / named
        assert path.exists(), f"docs/scenarios.md names {named}, which is not there"


def test_every_scenario_file_is_named() -> None:
    for path in LINES.iterdir():
        assert f"`{path.name}`" in TABLE, f"docs/scenarios.md does not name {path.name}"


def test_each_file_says_which_line_it_is_about() -> None:
    for path in LINES.glob("[0-9]*.txt"):
        number = int(path.name[:2])
        assert path.read_text(encoding="utf-8").startswith(f"Line {number}"), path.name
