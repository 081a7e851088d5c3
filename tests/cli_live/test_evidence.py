"""`mirab why` and `mirab when` at the terminal, against a stand-in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Mirab
from tests.cli_live.double import Answer, Asked, Double, job, problem

WHY: dict[str, Any] = {
    "id": "7", "state": "PENDING", "at": "2026-03-01T12:00:00Z", "headline": "needs 4 nodes",
    "blockers": [
        {"code": "Behind", "fact": "1 workload goes before it, 6 next", "action": "They start first", "reason": {},
         "about": "", "removes": ["6"]},
        {"code": "Resources", "fact": "needs 4 nodes", "action": "Ask for fewer", "reason": {}, "about": "6",
         "removes": []},
    ],
    "ahead": [
        {"account": "blue", "ratio": 0.83, "used_h": 12.0, "committed_h": 1.0, "entitled_h": 15.0, "waiting_jobs": 2,
         "first_job": "9", "mine": False, "runs": 0, "entries": []},
        {"account": "red/a", "ratio": 1.21, "used_h": 20.0, "committed_h": 0.0, "entitled_h": 16.0, "waiting_jobs": 1,
         "first_job": "7", "mine": True, "runs": 5,
         "entries": [{"run": "3.1", "user": "ann", "gpu_h": 11.0, "running": False}]},
    ],
    "level_at": "2026-03-01T17:40:00Z", "level": "red/a stands at 1.21 of its share, blue at 0.83 goes first",
    "whatif": [{"change": "with a minimum of 1 h instead of 8 h", "decision": "start",
                "sentence": "it would start now"}],
    "in_vain": ["with 2 nodes instead of 4"], "story": None, "text": "",
}  # fmt: skip
WHEN: dict[str, Any] = {
    "id": "7", "state": "PENDING", "kind": "large", "sentence": "of 50 runs, half start it by 13:10",
    "because": "it hangs most on what comes in", "trust": "of 100 past forecasts, 91 % held", "runs": 50, "age_s": 8.0,
}  # fmt: skip
CALIBRATION: dict[str, Any] = {
    "classes": {"all": {"forecasts": 120, "judged": 100, "p50_held": 0.52, "p90_held": 0.91, "p90_over_wait": 2.04,
                        "without_p90": 3, "wait_p50_s": 240.0, "bounds": 20, "bounds_held": 1.0}},
    "kept": 140, "since": None, "note": "Held: it started by then.",
}  # fmt: skip


def answering(asked: Asked) -> Answer | None:
    match asked.method, asked.path.strip("/").split("/"):
        case "GET", ["jobs", "7", "why"]:
            return Answer(WHY)
        case "GET", ["jobs", "7", "when"]:
            return Answer(WHEN)
        case "POST", ["when"]:
            return Answer({**WHEN, "id": ""})
        case "GET", ["calibration"]:
            return Answer(CALIBRATION)
        case _, ["jobs", "8", _]:
            return problem(404, "there is no job 8")
    return None


@pytest.fixture
def evidence(double: Double) -> Double:
    double.jobs = {"7": job("7")}
    double.special = answering
    return double


def test_why_ranks_the_blockers_and_labels_what_was_rehearsed(mirab: Mirab, evidence: Double) -> None:
    out = mirab("why", "7").out
    assert "7 is waiting" in out
    assert "  1. 1 workload goes before it, 6 next [Behind]\n     -> They start first" in out
    assert "  2. of 6, first of its queue: needs 4 nodes [Resources]" in out
    assert "Rehearsed now on a copy of the scheduler, not promised:\n  with a minimum of 1 h" in out
    assert "no help: with 2 nodes instead of 4." in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("blue", "red/a"))]
    assert rows[0][:2] == ["blue", "0.83"]
    assert " ".join(rows[1]).endswith("5 runs: 3.1 of ann 11 h ...")
    assert json.loads(mirab("why", "7", "--json").out)["jobs"] == [WHY]


def test_why_in_a_hurry_asks_for_no_rehearsal(mirab: Mirab, evidence: Double) -> None:
    mirab("why", "7", "--quick")
    assert evidence.requests("GET", "/jobs/7/why")[-1].query == {"whatif": ["false"]}


def test_why_tells_a_story_as_it_came(mirab: Mirab, evidence: Double) -> None:
    story = {**WHY, "blockers": [], "text": "7 of ann\n\nIn short: finished.\n"}
    evidence.special = lambda asked: Answer(story) if asked.path.endswith("why") else None
    assert mirab("why", "7").out == "7 of ann\n\nIn short: finished.\n"


def test_when_of_a_job_says_what_it_hangs_on(mirab: Mirab, evidence: Double) -> None:
    lines = mirab("when", "7").out.splitlines()
    assert lines[0] == "7: of 50 runs, half start it by 13:10"
    assert lines[1:] == [
        "  it hangs most on what comes in",
        "  of 100 past forecasts, 91 % held",
        "  looked forward 8 s ago",
    ]


def test_when_of_a_job_that_has_just_come_in_tells_at_once_what_stands_in(mirab: Mirab, double: Double) -> None:
    stand_in = {**WHEN, "stands_in": "6", "sentence": "job 6 stands in: of 50 runs, half start it by 14:00"}
    double.jobs = {"7": job("7")}
    double.special = lambda asked: (
        Answer(stand_in if asked.query == {"wait": ["0"]} else WHEN) if asked.path.endswith("when") else None
    )
    supposed = mirab("when", "--gpus", "2")
    assert "job 6 stands in" in supposed.err and supposed.out.startswith("7: of 50 runs, half start it by 13:10")
    told = mirab("when", "7")
    assert told.err.startswith("7: job 6 stands in: of 50 runs, half start it by 14:00")
    assert told.out.startswith("7: of 50 runs, half start it by 13:10")
    alone = mirab("when", "7", "--json")
    assert (alone.err, json.loads(alone.out)["jobs"]) == ("", [WHEN])


def test_when_of_a_request_takes_submits_options_and_sends_no_environment(mirab: Mirab, evidence: Double) -> None:
    said = mirab("when", "-A", "red/a", "--nodes", "2", "--gpus", "16", "--min-runtime", "2h")
    assert said.out.startswith("of 50 runs")
    (asked,) = evidence.requests("POST", "/when")
    body = asked.body
    assert (body["account"], body["nodes"], body["gpus_per_node"]) == ("red/a", 2, 8)
    assert (body["min_runtime"], body["environment"]) == ("7200s", {})


def test_when_calibration_is_a_table(mirab: Mirab, evidence: Double) -> None:
    lines = mirab("when", "--calibration").out.splitlines()
    assert lines[1].split() == ["all", "120", "100", "52", "%", "91", "%", "2.0", "3", "4", "min", "20", "100", "%"]
    assert lines[2] == "Held: it started by then."
    assert json.loads(mirab("when", "--calibration", "--json").out) == CALIBRATION


def test_wrong_questions(mirab: Mirab, evidence: Double) -> None:
    assert mirab("when").code == 2
    assert mirab("when", "7", "--gpus", "2").code == 2
    assert mirab("why").code == 2
    assert mirab("why", "8").code == 3
