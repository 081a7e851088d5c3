"""The text report and the comparison: complete, true, and inside the width."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from mirab.study.catalogue import BY_KEY, MEASURES, best, labels
from mirab.study.demand import CLASSES
from mirab.study.report import report_sections, text_comparison, text_report
from mirab.study.tables import Section, Table, columns_of, draw, fitted, plain
from tests.study_page.made_up import HOSTILE, TEAMS, empty_report, report

ALL = ("budget", "priority", "fifo", "fair-tree", "quota")


def _line(text: str, begin: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(begin))


def test_every_measure_of_the_report_is_in_the_catalogue() -> None:
    known = {key.split(".")[0] for key in BY_KEY} | {measure.of.split(".")[0] for measure in MEASURES}
    apart = {"preemptions_by_cause", "fragmentation_by_shape", "waits", "first_progress", "by_contract"}
    assert set(report()["metrics"]) <= known | apart


def test_one_replay_tells_all_there_is() -> None:
    made = report()
    text = text_report(made)
    for measure in MEASURES:
        if measure.key != "utilization":
            assert _line(text, measure.name).split(measure.name)[1].strip().startswith(measure.written(made))
    for name in (*CLASSES, *TEAMS):
        assert _line(text, name)
    assert "41,250 of 41,300 rows used, 50 rows dropped" in text
    assert "no submit time (first lines 12, 90, 1044, 1045, 7001)" in text
    assert "inferred: minimums from the log" in text
    assert "reclaim: made room for an account further below its share" in text
    assert "16x8 0.21 %" in text
    assert "Utilization is absent" in text


def test_each_number_stands_beside_what_the_institute_reported() -> None:
    text = text_report(report() | {"metrics": report()["metrics"] | {"delivered_ratio": 0.9712, "occupancy": 0.99}})
    assert " ".join(_line(text, "Owed and delivered").split()).endswith("97.1 % 98.0 % −0.9 pt worse")
    assert " ".join(_line(text, "Occupancy ").split()).endswith("99.0 % 98.0 % +1.0 pt better")
    assert "13 of 15" in _line(text, "Accounts at 95 %")


def test_two_replays_side_by_side_with_the_size_of_the_difference() -> None:
    first, second = report("budget"), report("priority")
    text = text_comparison([first, second])
    assert "priority − budget" in text
    worst = _line(text, "Worst account")
    assert worst.split("%")[0].endswith("95.8 ") and "*" in worst and "pt worse" in worst
    assert "93 % fewer than under priority (the institute: 74 % fewer)" in " ".join(text.split())
    assert "priority against budget: 0 accounts gain, 15 accounts lose (most: platform/infra, −36.8 pt)" in text


def test_more_than_two_get_a_table_of_differences() -> None:
    text = text_comparison([report(name) for name in ALL])
    assert "Differences from budget" in text
    assert "▼" in _line(text[text.index("Differences from budget") :], "Owed and delivered")


@pytest.mark.parametrize("accounts", [(), ("only",), HOSTILE, tuple(f"lab/team{n:03}" for n in range(500))])
@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_the_width(accounts: tuple[str, ...], width: int) -> None:
    made = report(accounts=accounts, days=2)
    for text in (text_report(made, width), text_comparison([made, report("fifo", accounts, days=2)], width)):
        assert max(columns_of(line) for line in text.splitlines()) <= width
        assert all(char == "\n" or char.isprintable() for char in text)


def test_many_accounts_are_folded_and_nothing_is_lost() -> None:
    made = report(accounts=[f"lab/team{n:03}" for n in range(500)], days=2)
    text = text_report(made)
    others = _line(text, "480 other accounts")
    owed = sorted((account["owed"] for account in made["by_account"].values()), reverse=True)
    assert f"{sum(owed[20:]):,.0f}" in others


def test_a_replay_of_nothing_is_told_as_such() -> None:
    text = text_report(empty_report())
    assert "Nothing was submitted." in text and "No account had work." in text and "Nothing was preempted." in text
    assert "None" not in text and "nan" not in text
    assert "None" not in text_comparison([empty_report(), empty_report("fifo")])


def test_policies_of_one_name_are_told_apart_by_their_settings() -> None:
    day, week = report(), report()
    day["policy"] = day["policy"] | {"window": "1d"}
    assert labels([day, week, report("fifo")]) == ["budget window=1d", "budget window=7d", "fifo"]
    assert labels([week, week]) == ["budget (1)", "budget (2)"]
    assert "A = budget window=1d" in text_comparison([day, week])


def test_best_is_marked_only_where_there_is_a_difference() -> None:
    same, other = report("budget"), report("priority")
    assert best(BY_KEY["contract_violations"], [same, other]) == [False, False]
    assert best(BY_KEY["waits.all.p50_s"], [same, other]) == [True, False]
    assert best(BY_KEY["repairs"], [same, other]) == [False, False]


def test_a_terminal_gets_the_same_words() -> None:
    from rich.console import Console

    out = io.StringIO()
    draw(report_sections(report(accounts=["[red]team[/red]", "\x1b[31mescape"])), Console(file=out, width=100))
    text = out.getvalue()
    assert "Occupancy of demand" in text and "[red]team[/red]" in text and "\x1b[31mescape" not in text


@pytest.mark.parametrize("width", [20, 60, 80, 250])
def test_a_narrow_terminal_cuts_no_number_and_folds_no_heading(width: int) -> None:
    from rich.console import Console

    out = io.StringIO()
    draw(report_sections(made := report()), Console(file=out, width=width))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    for measure in MEASURES:
        if measure.key != "utilization":
            assert any(f" {measure.written(made)}" in line for line in lines), measure.name
    if width >= 80:
        assert "  Was the cluster there, and in use?" in lines
        assert max(columns_of(line) for line in lines) <= width


@pytest.mark.parametrize(
    "text, width, told",
    [("short", 8, "short"), ("a" * 20, 7, "aaa…aaa"), ("数据数据数据", 7, "数…数据"), ("abcdef", 1, "…")],
)
def test_long_names_keep_both_ends(text: str, width: int, told: str) -> None:
    assert columns_of(fitted(text, width)) <= width
    assert fitted(text, width) == told or width == 7


def test_a_wordy_table_is_folded() -> None:
    rows = [("key", "5", "word " * 40)]
    text = plain([Section("Title", Table(("a", "b", "meaning"), rows, wordy=True))], 80)
    assert max(len(line) for line in text.splitlines()) <= 80 and text.count("word") == 40


def test_the_same_report_gives_the_same_text() -> None:
    made: Any = report()
    assert text_report(made) == text_report(report())


def test_a_calendar_is_told_with_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(days=7)
    made["input"]["origin_unix_s"] = 1_507_500_000.0
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert "7 d from 2017-10-09 00:00 to 2017-10-16 00:00 (CEST)" in " ".join(text_report(made).split())
    finally:
        monkeypatch.undo()
        time.tzset()


def test_copies_laid_over_the_log_are_no_rows_of_it() -> None:
    made = report()
    made["input"] |= {"rows": 600, "used": 1_684, "dropped": {"asks for no GPU": {"count": 179, "lines": [9, 12]}}}
    assert "Input: 421 of 600 rows used as 1,684 workloads, 179 rows dropped:" in text_report(made)
