"""The record of a real replay holds all that the decisions were made of: folded again, each plan comes out the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirab.core.decide import decide
from mirab.core.state import State
from mirab.model.policy import named
from mirab.model.trace import Trace
from mirab.sim.engine import replay
from mirab.sim.synthetic import SynthOptions, synthesize
from mirab.study.journalfile import JournalFile, cycles, read_header, records
from mirab.study.measures import Measures
from mirab.study.page import html_page
from mirab.study.report import text_report
from mirab.study.story import explain, story


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthesize(SynthOptions(nodes=16, days=2))


@pytest.fixture(scope="module", params=["budget", "priority"])
def record(request: pytest.FixtureRequest, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("records") / f"{request.param}.jsonl.gz"
    policy = named(request.param)
    with JournalFile(path, trace, policy) as journal:
        replay(trace, policy, journals=[journal])
    return path


def test_each_plan_comes_out_the_same(record: Path) -> None:
    header = read_header(record)
    state = State(header.cluster, header.budgets, header.policy)
    count = 0
    for facts, plan in records(record):
        for fact in facts:
            state.fold(fact)
        state.advance(plan.at)
        assert decide(state, plan.at) == plan
        state.commit(plan)
        count += 1
    assert count > 500


def test_every_workload_has_a_story_that_adds_up(record: Path, trace: Trace) -> None:
    told = 0
    for arrival in list(trace.arrivals)[::40]:
        found = story(record, arrival.workload.id)
        json.dumps(found, allow_nan=False)
        assert found["waits"][0]["from_s"] == arrival.workload.submitted_at / 1000
        assert len(found["waits"]) == found["totals"]["attempts"] + (found["waits"][-1]["end"] != "started")
        for wait in found["waits"]:
            assert sum(spell["held_s"] for spell in wait["blockers"]) <= wait["wait_s"] + 0.001
        for run, wait in zip(found["runs"], found["waits"], strict=False):
            assert wait["until_s"] == run["decided_s"]
        text = explain(record, arrival.workload.id)
        assert max(len(line) for line in text.splitlines()) <= 100 and "None" not in text
        told += 1
    assert told > 10


def test_the_longest_wait_of_the_measures_has_its_story(trace: Trace, tmp_path: Path) -> None:
    """Two readings of one replay: the measures while it ran, the story from its record."""
    policy = named("budget")
    measures = Measures(trace, policy)
    with JournalFile(tmp_path / "r.jsonl", trace, policy) as journal:
        replay(trace, policy, journals=[measures, journal], attach=measures.attach)
    report = measures.report()
    waited: dict[str, float] = {}
    for cycle in cycles(tmp_path / "r.jsonl"):
        for fact in cycle["facts"]:
            if fact["type"] == "WorkloadSubmitted":
                waited[fact["workload"]["id"]] = -fact["at"]
            elif fact["type"] == "WorkloadCancelled":
                waited[fact["workload_id"]] += fact["at"]
            elif fact["type"] == "RunStarted" and fact["run_id"].endswith(".1"):
                waited[fact["run_id"][:-2]] += fact["at"]
    longest = max(waited, key=lambda name: waited[name])
    told = story(tmp_path / "r.jsonl", longest)
    assert told["totals"]["first_wait_s"] == report["metrics"]["waits"]["all"]["max_s"] > 0
    assert sum(spell["held_s"] for spell in told["waits"][0]["blockers"]) == pytest.approx(told["waits"][0]["wait_s"])


def test_report_and_page_of_a_real_replay(trace: Trace) -> None:
    policy = named("budget")
    measures = Measures(trace, policy)
    replay(trace, policy, journals=[measures], attach=measures.attach)
    report = measures.report()
    for text in (text_report(report), html_page([report])):
        assert report["input"]["name"] in text and ">None<" not in text and " None" not in text
