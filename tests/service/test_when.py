"""When: forecasts kept beside the service, told for jobs and for requests, and compared with what happened."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from mirab.cli.when import held, lines_of
from mirab.model.events import Outcome
from mirab.model.units import DAY, HOUR, MINUTE, SECOND, WorkloadId
from mirab.service.desk.errors import DeskError
from mirab.service.forecaster import Forecaster
from mirab.service.views.answers import Answers
from mirab.store.predictions import KEPT, Prediction, Predictions
from mirab.study.forecast import Forecast
from mirab.study.forecastwords import assumption_sentence, when_sentence
from mirab.study.formats import Names
from tests.service.house import ADA, EVE, Bench, form


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a p90, and quick on a machine that is busy."""
    monkeypatch.setattr("mirab.service.lookahead.RUNS", 12)


@pytest.fixture
def answers(bench: Bench) -> Answers:
    return Answers(bench.live, bench.desk)


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def with_a_past(bench: Bench, jobs: int = 14) -> None:
    """Jobs of half an hour that ran one after the other."""
    for _ in range(jobs):
        (job,) = bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="15m", time_limit="2h")
        bench.wait(HOUR // 2)
        bench.end(job)


def one_waits(bench: Bench) -> tuple[str, str]:
    """A running job that has both nodes, of a kind that always ran for half an hour, and one that wants them."""
    (runs,) = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="15m", time_limit="2h")
    (waits,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="1h", time_limit="2h")
    return runs, waits


def test_a_job_that_waits_is_told_when(bench: Bench, answers: Answers) -> None:
    with_a_past(bench)
    runs, waits = one_waits(bench)
    before, seq = children(), bench.store.last()
    batch = answers.forecaster.refresh()
    assert set(batch.forecasts) == {waits}
    told = batch.forecasts[WorkloadId(waits)]
    assert told.runs in range(10, 13)
    assert told.p50 is not None and told.p90 is not None
    assert abs(told.p50 - bench.engine.at - HOUR // 2) < MINUTE
    answer = answers.when(waits, 0)
    assert answer is not None
    assert (answer.runs, answer.kind, answer.id) == (told.runs, "small", waits)
    assert answer.because
    assert "half start it by" in answer.sentence
    assert (children(), bench.store.last()) == (before, seq), "nothing is left over, and nothing was recorded"
    assert "looked forward" in "\n".join(lines_of(json.loads(answer.model_dump_json())))
    running = answers.when(runs, 0)
    assert running is not None
    assert running.sentence.startswith("it runs since")


def test_jobs_without_a_forecast_say_so(bench: Bench, answers: Answers) -> None:
    (held_back,) = bench.submit(hold=True)
    (ended,) = bench.submit()
    bench.end(ended)
    _, waits = one_waits(bench)
    told = {job: answers.when(job, 0) for job in (held_back, ended, waits)}
    assert [each.sentence for each in told.values() if each is not None] == [
        "it is held: it queues from when it is released, and has no forecast before",
        "it has ended (COMPLETED)",
        "its forecast is being worked out: ask again in a moment",
    ]
    assert answers.when("99", 0) is None


def test_one_that_came_in_since_is_looked_at_for_itself(bench: Bench, answers: Answers) -> None:
    """Nobody waits for the next batch: its own runs are made when it is asked about, and kept until then."""
    one_waits(bench)
    answers.forecaster.refresh()
    (late,) = bench.submit(ADA, gpus_per_node=4, min_runtime="1h")
    assert late not in answers.forecaster.latest.kinds
    told = answers.when(late, 8)
    assert told is not None
    assert told.runs in range(10, 13)
    assert (told.id, told.kind) == (late, "small")
    assert answers.when(late, 8) == told, "the same runs"
    answers.forecaster.refresh()
    assert late in answers.forecaster.latest.kinds


def test_until_it_has_been_looked_at_the_nearest_in_the_last_batch_stands_in(bench: Bench, answers: Answers) -> None:
    _, waits = one_waits(bench)
    (other,) = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h", time_limit="2h")
    answers.forecaster.refresh()
    (late,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="1h", time_limit="2h")
    told = answers.when(late, 0)
    assert told is not None
    assert (told.id, told.stands_in, told.runs) == (late, waits, 12), "of its own account, though the other came later"
    assert (
        told.sentence.startswith("until it has been looked at for itself") and f"job {waits} stands in" in told.sentence
    )
    assert told.bound is None and "at the latest" not in told.sentence
    own = answers.when(late, 8)
    assert own is not None
    assert (own.stands_in, own.runs) == ("", 12)
    assert answers.when(late, 0) == own.model_copy(update={"age_s": 0}), "its own, now that there is one"
    bench.desk.cancel(ADA, [waits])
    bench.settle()
    (later,) = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="1h", time_limit="2h")
    distant = answers.when(later, 0)
    assert distant is not None
    assert distant.stands_in == other, "no other of its account waits: one of its class"


@pytest.mark.slow
def test_a_request_that_nobody_submitted(bench: Bench, answers: Answers) -> None:
    with_a_past(bench)
    one_waits(bench)
    (waits,) = bench.submit(ADA, gpus_per_node=4, min_runtime="1h")
    seq = bench.store.last()
    answer = answers.suppose(EVE, form(account="llm", gpus_per_node=2, min_runtime="2h"))
    assert (answer.id, answer.runs in range(10, 13)) == ("", True)
    assert (answer.p50 is not None, answer.stands_in) == (True, "")
    near = answers.suppose(EVE, form(account="llm", gpus_per_node=2, nodes=2, min_runtime="2h"), 0)
    assert near.stands_in == "" and near.runs in range(10, 13), "there is no look forward to take one from"
    answers.forecaster.refresh()
    near = answers.suppose(EVE, form(account="llm", gpus_per_node=2, nodes=2, min_runtime="2h"), 0)
    assert (near.stands_in, near.id) == (waits, "")
    assert "looked forward" in "\n".join(lines_of(json.loads(near.model_dump_json())))
    empty = answers.suppose(ADA, form(gpus_per_node=0, cpus_per_node=1))
    assert (empty.assumption, empty.p90 is None) == ("none", False)
    for patience in (0, 8):
        assert answers.suppose(ADA, form(hold=True), patience).sentence.startswith("it would be held")
    cores = answers.suppose(ADA, form(gpus_per_node=0, cpus_per_node=1), 0)
    assert cores.stands_in == "", "whoever waits for GPUs does not stand in for who asks for none"
    with pytest.raises(DeskError, match="no account"):
        answers.suppose(ADA, form(account="vision/vidoe"))
    assert bench.store.last() == seq


@pytest.mark.slow
def test_the_first_word_about_a_wait_is_kept_and_compared(bench: Bench, answers: Answers) -> None:
    with_a_past(bench)
    runs, waits = one_waits(bench)
    answers.forecaster.refresh()
    (said,) = Predictions(bench.live.store).all()
    bench.wait(MINUTE)
    answers.forecaster.refresh()
    assert Predictions(bench.live.store).all() == [said]
    assert (said.workload, said.attempt, said.kind) == (waits, 1, "small")
    assert answers.calibration().classes["small"].judged == 0
    bench.wait(HOUR // 2 - MINUTE)
    bench.end(runs)
    assert bench.row(waits).state.value == "RUNNING"
    found = answers.calibration()
    assert found.kept == 1
    score = found.classes["small"]
    assert score.judged + score.bounds == 1
    assert 1.0 in (score.p90_held, score.bounds_held)
    table = "\n".join(held(json.loads(found.model_dump_json())))
    assert "P90_HELD" in table and "small" in table


def test_a_job_that_was_given_up_is_judged_by_when(bench: Bench, answers: Answers) -> None:
    _, waits = one_waits(bench)
    at, store = bench.engine.at, Predictions(bench.live.store)
    store.keep([Prediction(WorkloadId(waits), 1, "small", at, at + MINUTE, at + HOUR)])
    bench.wait(2 * MINUTE)
    bench.desk.cancel(ADA, [waits])
    bench.settle()
    score = answers.calibration().classes["small"]
    assert (score.p50_held, score.p90_held, score.judged) == (0.0, None, 0)


@pytest.mark.slow
def test_a_service_that_starts_again_has_learned_and_keeps_its_word(bench: Bench) -> None:
    with_a_past(bench)
    _, waits = one_waits(bench)
    Answers(bench.live, bench.desk).forecaster.refresh()
    kept = Predictions(bench.live.store).all()
    bench.crash()
    again = Forecaster(bench.live)
    again.learn()
    told = again.refresh().forecasts[WorkloadId(waits)]
    assert told.p50 is not None
    assert abs(told.p50 - bench.engine.at - HOUR // 2) < MINUTE
    assert Predictions(bench.live.store).all() == kept


def test_only_so_many_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.store.predictions.KEPT", 3)
    store = Predictions(bench.live.store)
    for number in range(5):
        store.keep([Prediction(WorkloadId(str(number)), 1, "small", number, None, None)])
    assert sorted(each.workload for each in store.all()) == ["2", "3", "4"]
    assert bench.store.meta("cluster") is not None
    assert KEPT > 1_000


def test_a_busy_machine_gets_fewer_runs_and_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.service.lookahead.DEADLINE", 0.0)
    answers = Answers(bench.live, bench.desk)
    _, waits = one_waits(bench)
    assert answers.forecaster.refresh().forecasts[WorkloadId(waits)].runs == 10


@pytest.mark.slow
def test_the_thread_keeps_them_fresh_and_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.service.forecaster.FRESH", 0.05)
    bench.live.pulse.running = True
    answers = Answers(bench.live, bench.desk)
    _, waits = one_waits(bench)
    answers.start()
    try:
        answer = answers.when(waits, 30)
        assert answer is not None
        assert answer.runs >= 10
    finally:
        bench.live.stopping.set()
        for thread in answers.forecaster.threads:
            thread.join(30)
            assert not thread.is_alive()


def test_the_outcome_of_a_run_is_what_is_learned(bench: Bench, answers: Answers) -> None:
    """A failed run is as long as it was; a preempted one is not over."""
    (job,) = bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="0")
    bench.wait(10 * SECOND)
    bench.end(job, outcome=Outcome.FAILED)
    history = answers.forecaster._history
    assert [len(book) for key, book in history._spans.items() if key == ("eve", "small")] == [1]


def test_what_the_runs_forward_found_is_said_plainly() -> None:
    """Room for it now; a spread; and less than half within what they looked at."""
    now, names = 1_700_000_000_000, Names(0, zone=UTC)
    told = Forecast(WorkloadId("7"), now, now + 100, now + 200, now, now, 50, 50)
    assert when_sentence(told, names) == (
        "it starts at once, or so say nine of ten of 50 runs of the scheduler forward"
    )
    told = replace(told, p50=now + 100, p90=now + HOUR)
    assert "half start it at once and nine of ten by 2023-11-14 23:13 (in 1 h)" in when_sentence(told, names)
    told = replace(told, p50=None, p90=None, after_50=now + HOUR, started=3)
    assert when_sentence(told, names) == (
        "fewer than half of 50 runs of the scheduler forward start it before 2023-11-14 23:13, "
        "which is as far as they looked"
    )


def test_how_much_of_the_past_arrivals_come_from_is_said() -> None:
    """A service that has run for two minutes does not speak of the last days."""
    now, names = 1_700_000_000_000, Names(0, zone=UTC)
    told = Forecast(WorkloadId("7"), now, None, None, now, now, 50, 3, assumption="arrivals")
    young = assumption_sentence(told, {}, 2 * MINUTE, names)
    assert "drawn from the arrivals of the last 2 min and nothing older: with nothing new" in young
    assert "of the last 7 d: with nothing new" in assumption_sentence(told, {}, 7 * DAY, names)
