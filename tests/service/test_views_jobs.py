"""Jobs as people see them: the short word and the sentence come from what the scheduler recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirab.model import reasons
from mirab.model.events import Outcome
from mirab.model.reasons import HoldReason, WaitReason
from mirab.service.api.ports import JobFilter
from mirab.service.forms.jobs import Job
from mirab.service.views import Views
from mirab.service.views.waiting import CODES
from tests.service.house import ADA, BOB, EVE, MIA, OPS, Bench


@pytest.fixture
def views(bench: Bench) -> Iterator[Views]:
    made = Views(bench.live, bench.desk)
    yield made
    bench.live.stopping.set()


def why(views: Views, job: str) -> tuple[str, str]:
    found = views.job(job)
    assert found is not None
    return found.reason, found.why


def test_every_reason_to_wait_or_to_be_held_has_a_short_word() -> None:
    told = (*WaitReason.__args__, *HoldReason.__args__, reasons.BehindOwn, reasons.DependencyNeverSatisfied)
    assert set(told) == set(CODES)
    assert all(code.isalpha() and len(code) <= 24 for code in CODES.values())


def test_a_job_that_runs(bench: Bench, views: Views) -> None:
    bench.submit(name="train", gpus_per_node=2, min_runtime="1h", time_limit="2h", label="x")
    job = views.job("1")
    assert job is not None
    assert job.model_dump(exclude_defaults=True) == {
        "id": "1", "name": "train", "user": "ada", "account": "vision/video", "state": "RUNNING", "nodes": 1,
        "gpus_per_node": 2, "gpus": 2, "min_runtime_s": 3600, "time_limit_s": 7200, "label": "x", "attempt": 1,
        "submitted_at": "2023-11-14T22:13:20Z", "started_at": "2023-11-14T22:13:20Z",
        "protected_until": "2023-11-14T23:13:20Z", "node_names": ["n0"],
    }  # fmt: skip
    assert "its turn came" in views.detail("1").why  # type: ignore[union-attr]


def test_why_it_waits_and_who_stands_before_it(bench: Bench, views: Views) -> None:
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h")
    for _ in range(3):
        bench.submit()
    assert why(views, "2")[0] == "Resources"
    assert why(views, "2")[1].startswith("needs 1 node with 1 free GPU; 0 are")
    code, sentence = why(views, "4")
    assert code == "Behind"
    assert sentence.startswith("2 workloads of the same user and shape go before it, 2 next; of that one: needs 1 node")


def test_why_it_is_held(bench: Bench, views: Views) -> None:
    bench.submit()
    bench.submit(hold=True)
    bench.submit(dependency="afterok:1")
    bench.submit(array="0-1%1")
    bench.desk.hold(OPS, ["2"], "too many files")
    assert why(views, "2") == (
        "HeldByOperator", "operator ops holds it back: too many files. Only an operator can release it"
    )  # fmt: skip
    assert why(views, "3") == ("Dependency", "it waits for other jobs (afterok:1)")
    assert why(views, "4_1")[0] == "ArrayLimit"
    assert views.job("3").held == why(views, "3")[1]  # type: ignore[union-attr]
    assert views.job("1").held == ""  # type: ignore[union-attr]


def test_why_it_ended_before_it_ran(bench: Bench, views: Views) -> None:
    bench.submit()
    bench.submit(dependency="afterok:1")
    bench.submit(hold=True)
    bench.desk.cancel(MIA, ["3"])
    bench.end("1", outcome=Outcome.FAILED)
    detail = views.detail("2")
    assert detail is not None
    assert "its dependency afterok:1 can never be met, since that ended as FAILED" in detail.why
    assert views.detail("3").why == "cancelled by mia"  # type: ignore[union-attr]


def test_why_it_is_being_stopped(bench: Bench, views: Views) -> None:
    bench.submit()
    bench.desk.requeue(ADA, ["1"])
    job = views.detail("1")
    assert job is not None
    assert (job.state, job.reason, job.why) == ("COMPLETING", "Stopping", "requeued by ada")


def test_of_several_stops_the_last_one_says_why(bench: Bench, views: Views) -> None:
    bench.submit()
    bench.desk.requeue(ADA, ["1"])
    bench.settle()
    bench.desk.cancel(OPS, ["1"])
    job = views.detail("1")
    assert job is not None
    assert (job.state, job.why) == ("COMPLETING", "cancelled by ops")


def test_the_detail_has_attempts_and_what_is_executed(bench: Bench, views: Views) -> None:
    bench.submit(argv=("prog", "--x"), environment={"A": "b"}, progress="30m", array="3%1", dependency="")
    bench.submit(gpus_per_node=0, dependency="afterany:1")
    bench.end("1_3", outcome=Outcome.NODE_FAIL)
    detail = views.detail("1_3")
    assert detail is not None and detail.spec is not None
    assert [(run.attempt, run.outcome, run.gpus) for run in detail.runs] == [(1, "NODE_FAIL", 1), (2, "", 1)]
    assert (detail.spec.argv, detail.spec.environment) == (["prog", "--x"], {"A": "b"})
    assert (detail.spec.progress_s, detail.spec.array_limit) == (1800, 1)
    bench.end("1_3")
    other = views.detail("2")
    assert other is not None and other.spec is not None
    assert (other.spec.dependency, other.runs[0].gpus) == ("afterany:1", 0), "cores are no GPUs"
    assert views.detail("99") is None and views.job("99") is None


def test_pages_and_filters(bench: Bench, views: Views) -> None:
    for number in range(5):
        bench.submit(*((BOB,) if number % 2 else ()), account="vision" if number % 2 else "vision/video")
    page = views.jobs(JobFilter(limit=2))
    rest = views.jobs(JobFilter(limit=10, after=page.next))
    assert [job.id for job in (*page.jobs, *rest.jobs)] == ["1", "2", "3", "4", "5"]
    assert rest.next is None
    assert [job.id for job in views.jobs(JobFilter(user="bob")).jobs] == ["2", "4"]
    assert all(isinstance(job, Job) for job in views.jobs(JobFilter(account="vision/video")).jobs)
    with pytest.raises(ValueError, match="cursor"):
        views.jobs(JobFilter(after="nonsense"))


def test_an_end_that_nobody_meant_is_told(bench: Bench, views: Views) -> None:
    """In the list, in full, and in the sentence of the page: with the exit code and what it means."""
    for outcome, code, told in (
        (Outcome.FAILED, 1, "it failed with exit code 1"),
        (Outcome.FAILED, 126, "it failed with exit code 126 (the command could not be executed)"),
        (Outcome.FAILED, 139, "it failed with exit code 139 (ended by SIGSEGV)"),
        (Outcome.TIMEOUT, 0, "it reached its time limit"),
        (Outcome.COMPLETED, 0, ""),
    ):
        (job,) = bench.submit()
        bench.engine.end(job, outcome, code)
        bench.settle()
        row, detail = views.job(job), views.detail(job)
        assert row is not None and detail is not None
        assert (row.why, detail.why) == (told, told)
