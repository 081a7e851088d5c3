"""`explain`: the story of a workload, true to what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirab.model.events import Outcome, WorkloadCancelled
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.reasons import InOrder
from mirab.model.units import HOUR, MINUTE
from mirab.study.journalfile import JournalFile
from mirab.study.story import explain, story
from mirab.study.storytext import tell
from tests.study_page.records import SMALL, TRACE, ended, small_record, started, submitted, workload


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record.jsonl.gz"
    small_record(path)
    return path


def test_each_wait_with_its_blockers(record: Path) -> None:
    told = story(record, "big")
    first, second = told["waits"]
    assert [(spell["reason"]["type"], spell["held_s"]) for spell in first["blockers"]] == [
        ("NoFreeGpus", 3600),
        ("ShareSpent", 7200),
        ("HoldsNodes", 3600),
    ]
    assert (first["wait_s"], first["after"], first["end"]) == (4 * 3600, "submitted", "started")
    assert (second["wait_s"], second["after"], second["end"]) == (3590, "PREEMPTED", "started")


def test_the_numbers_are_those_recorded(record: Path) -> None:
    spent = story(record, "big")["waits"][0]["blockers"][1]
    assert spent["reason"] == {
        "type": "ShareSpent", "ratio": 1.44, "first": "vision", "first_ratio": 0.7, "nodes_free": 4,
    }  # fmt: skip
    assert (spent["records"], spent["ahead_at_first"], spent["ahead"], spent["head"]) == (2, 1, 0, "big")


def test_the_blocked_head_of_its_queue_is_told_to_those_behind(record: Path) -> None:
    behind = story(record, "big")["waits"][0]["blockers"][0]
    assert (behind["head"], behind["ahead"]) == ("older", 1)
    assert "older next" in explain(record, "big")


def test_who_started_meanwhile(record: Path) -> None:
    assert story(record, "big")["waits"][0]["started_meanwhile"] == [
        {"account": "language", "started": 1, "slots": 32, "lowest_ratio": None, "highest_ratio": None},
        {"account": "vision", "started": 1, "slots": 2, "lowest_ratio": 0.66, "highest_ratio": 0.66},
    ]


def test_a_preemption_names_for_whom_by_which_rule_and_what_was_lost(record: Path) -> None:
    told = story(record, "big")
    run = told["runs"][0]
    assert run["nodes"] == ["n[000-001]", "n[004-005]", "n007"]
    assert run["stop"]["reason"]["beneficiary"] == "rival"
    assert run["stop"]["beneficiary_started_s"] == 9 * 3600 + 10
    assert (run["outcome"], run["lost_s"], run["lost_slot_h"]) == ("PREEMPTED", 2700, 30.0)
    assert told["totals"] == {
        "wait_s": 4 * 3600 + 3590, "first_wait_s": 4 * 3600, "ran_s": 4 * 3600 + 10 + 7200, "attempts": 2,
        "preemptions": 1, "lost_slot_h": 30.0,
    }  # fmt: skip
    text = explain(record, "big")
    assert "stopped for rival of vision" in text and "1.24 against 0.71" in text
    assert "minimum over since day 1 07:00:00" in text


def test_who_made_room(record: Path) -> None:
    made = story(record, "rival")["runs"][0]["made_room"]
    assert [(each["run_id"], each["account"]) for each in made] == [("big.1", "language")]


def test_those_who_made_room_are_counted_by_rule(record: Path) -> None:
    text = " ".join(explain(record, "rival").split())
    assert "made room: 1 run (0 had no minimum, 1 was past its own; 24.0 GPU-hours at stake): big.1 of language" in text


def test_a_remedy_is_told_once(record: Path) -> None:
    told = story(record, "big")
    told["waits"][1]["blockers"] = told["waits"][0]["blockers"]
    assert tell(told).count("a larger share would") == 1


@pytest.mark.parametrize(
    "name, state, end",
    [("dreamer", "rejected", "rejected"), ("quitter", "gave up", "gave up"), ("older", "COMPLETED", "started")],
)
def test_other_ends(record: Path, name: str, state: str, end: str) -> None:
    told = story(record, name)
    assert (told["state"], told["waits"][-1]["end"]) == (state, end)
    assert explain(record, name).endswith(".\n")


def test_what_goes_on_where_the_record_ends(record: Path) -> None:
    assert story(record, "rival")["state"] == "running"
    assert "still running where the record ends" in explain(record, "rival")


def test_lines_fit_a_terminal(record: Path) -> None:
    for name in ("big", "rival", "dreamer", "quitter", "older"):
        assert max(len(line) for line in explain(record, name).splitlines()) <= 100


def test_the_story_is_json(record: Path) -> None:
    told = story(record, "big")
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_an_unknown_workload_is_answered_with_the_nearest(record: Path) -> None:
    with pytest.raises(LookupError, match=r"no workload 'bigg' in .*The nearest are big, "):
        story(record, "bigg")


def test_a_run_id_is_no_workload_but_leads_to_it(record: Path) -> None:
    with pytest.raises(LookupError, match=r"The nearest are passer, "):
        explain(record, "passer.1")


@pytest.mark.parametrize(("outcome", "resume", "cancelled", "state"), [
    (Outcome.NODE_FAIL, True, False, "waiting"),
    (Outcome.NODE_FAIL, False, False, "NODE_FAIL"),
    (Outcome.PREEMPTED, False, False, "PREEMPTED"),
    (Outcome.LAUNCH_FAILED, False, False, "waiting"),
    (Outcome.PREEMPTED, True, True, "PREEMPTED"),
])  # fmt: skip
def test_who_goes_back_to_the_queue(
    tmp_path: Path, outcome: Outcome, resume: bool, cancelled: bool, state: str
) -> None:
    lone = workload("lone", "language", SMALL, 0, resume=resume)
    path = tmp_path / "lone.jsonl"
    journal = JournalFile(path, TRACE, Policy())
    start = started("lone", 1, 1, InOrder(lone.account, 0.5, True), 2, 15 * MINUTE)
    journal.append(submitted(lone), Plan(0, 1, (start,)))
    given_up = [WorkloadCancelled(HOUR, lone.id)] if cancelled else []
    journal.append([*given_up, ended(2 * HOUR, "lone", 1, outcome)], Plan(2 * HOUR, 3))
    journal.close()
    assert story(path, "lone")["state"] == state
