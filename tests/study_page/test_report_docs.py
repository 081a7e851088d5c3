"""The pages about the report and the record say what the code does."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from mirab.study.catalogue import CAUSE_WORDS, MEASURES
from mirab.study.demand import CLASSES
from tests.study_page.records import small_record

DOCS = Path(__file__).parents[2] / "docs"
READING = (DOCS / "howto" / "read-the-report.md").read_text("utf-8")
RECORD = (DOCS / "reference" / "record.md").read_text("utf-8")


def test_every_measure_class_and_cause_is_explained() -> None:
    text = " ".join(READING.split())
    for measure in MEASURES:
        name = "Waits are to the first start" if measure.key.startswith("waits.") else measure.name.split(",")[0]
        assert name in text, measure.name
    for name in CLASSES:
        assert f"`{name}`" in text, name
    for cause, words in CAUSE_WORDS.items():
        assert f"| {cause} |" in READING, cause
        assert words.split()[-1] in READING


def test_the_numbers_of_the_institute_are_those_compared_with() -> None:
    text = " ".join(READING.split())
    for told in ("98 % of what was owed", "13 of 15", "worst at 90 %", "18 % beyond", "30 s", "24 s", "1.8 h", "74 %"):
        assert told in text


def test_the_lines_of_the_record_are_real(tmp_path: Path) -> None:
    small_record(tmp_path / "r.gz")
    lines = gzip.decompress((tmp_path / "r.gz").read_bytes()).decode().splitlines()
    shown = re.findall(r"```json\n(.+?)\n```", RECORD, re.DOTALL)
    assert len(shown) == 2
    for example in shown:
        assert json.loads(example) in [json.loads(line) for line in lines]
    for key in json.loads(lines[0]):
        assert f"`{key}`" in RECORD
