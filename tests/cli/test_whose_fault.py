"""A file that is damaged is called so, with the place; a fault of mirab is never put on the file that was read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mirab.logs import detect
from mirab.study import gates as gates_module
from mirab.study import outcome as outcome_module
from mirab.study import storytext
from mirab.study.recordform import wrong_in_record
from mirab.study.reportform import wrong_in_reports
from tests.cli.conftest import Mirab

FAULT = "mirab: a fault in mirab itself (TypeError: of our own). Run the same command with MIRAB_TRACEBACK=1"
ODD = "is not a report as this version of mirab writes it: "


def broken(*_: object, **__: object) -> NoReturn:
    raise TypeError("of our own")


@pytest.fixture
def record(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> Path:
    path = tmp_path / "record.jsonl"
    assert mirab("sim", log, "--cluster", cluster, "--journal", path).code == 0
    return path


@pytest.fixture
def gates(mirab: Mirab, tmp_path: Path) -> Path:
    path = tmp_path / "gates.yaml"
    path.write_text(mirab("gate", "--example").out, encoding="utf-8")
    return path


# --- records ----------------------------------------------------------------------------------------------------------
def test_a_damaged_record_is_named_with_its_line(mirab: Mirab, record: Path) -> None:
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    record.write_text("".join([*lines[:2], '{"facts": a\n', *lines[2:]]), encoding="utf-8")
    said = mirab("explain", record, "a")
    assert said.code == 1
    assert said.sentence == f"mirab: {record}:3: this line of the record is damaged. Record it again with --journal."
    record.write_text(re.sub(r'"min_runtime":\d+', '"min_runtime":[]', "".join(lines)), encoding="utf-8")
    assert re.match(rf"mirab: {record}:\d+: this line of the record is damaged", mirab("explain", record, "a").sentence)


def test_a_fault_in_the_telling_is_not_put_on_the_record(
    mirab: Mirab, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storytext, "tell", broken)
    said = mirab("explain", record, "a")
    assert said.code == 1
    assert said.sentence.startswith(FAULT)
    monkeypatch.setenv("MIRAB_TRACEBACK", "1")
    assert "in broken" in mirab("explain", record, "a").err


def test_each_value_of_another_type_is_found_in_a_record(record: Path, tmp_path: Path) -> None:
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    assert wrong_in_record(record) is None
    copy, tried = tmp_path / "copy.jsonl", 0
    for number, line in enumerate(lines, 1):
        for mark in ('"at":', '"node":', '"run_id":', '"workload_id":', '"id":', '"type":', '"reason":', '"share":'):
            if mark in line:
                spoilt = line.replace(mark, f'{mark}{{"x":[]}},"spoilt":', 1)
                copy.write_text("".join([*lines[: number - 1], spoilt, *lines[number:]]), encoding="utf-8")
                wrong = wrong_in_record(copy)
                assert wrong is not None and wrong.startswith(f"{copy}:{number}: "), (mark, line)
                tried += 1
    assert tried > 20


# --- reports ----------------------------------------------------------------------------------------------------------
def spoil(report: Path, *keys: str, value: object) -> None:
    whole = part = json.loads(report.read_text(encoding="utf-8"))
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    report.write_text(json.dumps(whole), encoding="utf-8")


def test_a_report_with_an_odd_part_is_named_with_the_place(mirab: Mirab, report: Path, gates: Path) -> None:
    spoil(report, "by_account", "red", value=7)
    for words in (("gate", report, "--gates", gates), ("outcome", report, report)):
        said = mirab(*words)
        assert said.code == 1
        assert said.sentence == f"mirab: {report} {ODD}by_account.red is a number, not an object; make it anew."


def test_a_report_of_another_version_says_so(mirab: Mirab, report: Path) -> None:
    spoil(report, "mirab", value="0.0.7")
    spoil(report, "by_account", "red", value=7)
    assert f"report.json {ODD}mirab 0.0.7 made it, and this is " in mirab("outcome", report, report).sentence


@pytest.mark.parametrize(("module", "name", "command"), [(gates_module, "findings", "gate"),
                                                         (outcome_module, "outcome", "outcome")])  # fmt: skip
def test_a_fault_in_the_judging_is_not_put_on_the_report(
    mirab: Mirab, report: Path, gates: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, command: str
) -> None:
    monkeypatch.setattr(module, name, broken)
    more = ("--gates", gates) if command == "gate" else (report,)
    said = mirab(command, report, *more)
    assert said.code == 1
    assert said.sentence.startswith(FAULT)


def test_what_is_whole_has_nothing_wrong(mirab: Mirab, report: Path, log: Path, cluster: Path, tmp_path: Path) -> None:
    several, tried = tmp_path / "several.json", tmp_path / "tried.json"
    mirab("compare", log, "--cluster", cluster, "--policies", "budget,fifo", "--json", several)
    mirab("whatif", "--log", log, "--cluster", cluster, "--set", "window=1d", "--json", tried)
    for path in (report, several, tried):
        assert wrong_in_reports(json.loads(path.read_text(encoding="utf-8"))) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda told: told["metrics"].pop("waits"), "it has no metrics.waits"),
        (lambda told: told["metrics"].update(useful_ratio=[]), "metrics.useful_ratio is a list, not a number"),
        (lambda told: told["input"].update(notes=3), "input.notes is a number, not a list"),
        (lambda told: told["by_account"].update(red=None), "by_account.red is null, not an object"),
        (lambda told: told.update(exceptions=[1]), "exceptions[] is a number, not an object"),
        (lambda told: told.update(reports=[dict(told)], labels=[]), "labels are not one for each report"),
        (lambda told: told.update(reports=[8]), "reports[0] is a number, not an object"),
    ],
)
def test_what_is_wrong_in_a_report(report: Path, change: Any, told: str) -> None:
    whole = json.loads(report.read_text(encoding="utf-8"))
    change(whole)
    assert wrong_in_reports(whole) == told


# --- logs -------------------------------------------------------------------------------------------------------------
def test_a_fault_in_the_reading_of_a_log_is_not_put_on_the_log(
    mirab: Mirab, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(*_: object) -> NoReturn:
        raise ValueError("min() arg is an empty sequence")

    monkeypatch.setattr(detect, "assemble", reading)
    assert mirab("sim", log).sentence.startswith("mirab: a fault in mirab itself (ValueError: min() arg is an empty")
