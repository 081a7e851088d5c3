"""A service that only observes: what it tells of jobs is what their engine did, not what it would have done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirab.model.events import Outcome, PolicyChanged, RunAdopted, RunEnded
from mirab.model.policy import Policy
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, MINUTE, RunId, WorkloadId
from mirab.service.api.bus import Record
from mirab.service.api.history import list_decisions
from mirab.service.api.stream import Filter
from mirab.service.inbox import Entry
from mirab.service.metrics import Metrics
from mirab.service.views.answers import Answers
from mirab.service.views.views import Views
from tests.service.house import ROOT, Bench


@pytest.fixture
def observing(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, policy=Policy(mode="observe"))
    yield made
    made.close()


def begins(bench: Bench, job: str) -> None:
    """The engine starts it by itself, on the second node."""
    given, at = Allocation(0, 0b10, 4), bench.engine.at
    bench.engine.facts.append(RunAdopted(at, RunId(f"{job}.1"), WorkloadId(job), given, at, HOUR))
    bench.settle()


def ends(bench: Bench, job: str) -> None:
    bench.engine.facts.append(RunEnded(bench.engine.at, RunId(f"{job}.1"), Outcome.COMPLETED))
    bench.settle()


def test_a_story_tells_the_start_that_was(observing: Bench) -> None:
    (job,) = observing.submit(gpus_per_node=4, min_runtime="1h")
    observing.wait(10 * MINUTE)
    answers = Answers(observing.live, observing.desk)
    waits = answers.why(job)
    assert waits is not None and waits.story is None, "it waits, whatever is advised"
    assert "mirab only observes" in waits.headline and not waits.whatif
    told = Views(observing.live, observing.desk).detail(job)
    assert told is not None and told.reason == "Advised"
    begins(observing, job)
    observing.wait(HOUR)
    runs = answers.why(job)
    assert runs is not None and runs.story is not None
    [run] = runs.story["runs"]
    assert run["nodes"] == ["n1"] and "the engine started it by itself" in runs.text
    assert "waited 10 min, then started" in runs.text
    ends(observing, job)
    over = answers.why(job)
    assert over is not None and "waited 10 min in all, ran 1 h in 1 attempt" in over.text


def test_why_a_job_runs_is_not_what_was_advised(observing: Bench) -> None:
    (job,) = observing.submit(gpus_per_node=4, min_runtime="1h")
    begins(observing, job)
    told = Views(observing.live, observing.desk).detail(job)
    assert told is not None and told.state == "RUNNING"
    assert "the engine started it by itself" in told.model_dump_json()


def test_metrics_count_no_advice(observing: Bench) -> None:
    metrics = Metrics(observing.live)
    observing.decider._after = metrics.after_cycle
    observing.submit(gpus_per_node=4, min_runtime="1h")
    observing.wait(MINUTE)
    assert b'kind="Start"' not in metrics.render()[0]


def test_the_chronicle_calls_advice_advice_and_a_deed_a_deed(observing: Bench) -> None:
    views = Views(observing.live, observing.desk)

    def told(job: str) -> list[str]:
        views.ledger.catch_up()
        found = views.chronicle(None, 50, (), job)
        return [line["text"] for entry in found["entries"] for line in entry["lines"] if line["what"] == "start"]

    (job,) = observing.submit(gpus_per_node=4, min_runtime="1h")
    assert told(job) and all(text.startswith("advice alone: starts on ") for text in told(job))
    observing.wait(MINUTE)
    observing.live.send(lambda state, now: Entry((PolicyChanged(now, replace(state.policy, mode="enforce")),)))
    observing.settle()
    assert observing.states()[job] == "RUNNING"
    assert told(job)[0].startswith("starts on "), "the newest first"
    assert told(job)[-1].startswith("advice alone: ")


def test_a_stream_of_events_tells_of_no_start_that_was_only_advised(observing: Bench) -> None:
    (job,) = observing.submit(gpus_per_node=4, min_runtime="1h")
    begins(observing, job)
    views = Views(observing.live, observing.desk)
    views.ledger.catch_up()
    heard = Filter(observing.store, job, None, advice=views.observed_at)
    news = [each for record in observing.store.records() for each in heard.wanted(Record(*record))]
    assert [each.data["what"] for each in news if each.kind == "job"] == ["submitted", "started"]


def test_a_decision_over_the_wire_says_whether_it_was_advice(observing: Bench) -> None:
    observing.submit(gpus_per_node=4, min_runtime="1h")
    views = Views(observing.live, observing.desk)
    views.ledger.catch_up()
    parts: Any = SimpleNamespace(store=observing.store, views=views)
    told = list_decisions(ROOT, parts).decisions
    assert told and all(each.advice for each in told)
