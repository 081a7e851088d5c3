"""Dependencies: met, not yet, never any more; on jobs, tasks and whole arrays, whenever they ended."""

from __future__ import annotations

import pytest

from mirab.model.events import Outcome
from mirab.service.desk.dependencies import Dependency, parse_dependencies
from mirab.service.desk.errors import DeskError
from mirab.service.desk.holding import read
from tests.service.house import ADA, BOB, Bench


def test_dependencies_are_read_as_by_sbatch() -> None:
    found = parse_dependencies("afterok:12:13_4, afterany:9,singleton,afterok:12", 10)
    assert [str(each) for each in found] == ["afterok:12", "afterok:13_4", "afterany:9", "singleton"]
    assert parse_dependencies("", 10) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("12", "there is no dependency '12'"),
        ("afterwards:12", "there is no dependency 'afterwards'"),
        ("afterok", "names no job"),
        ("afterok:", "names no job"),
        ("afterok:x", "names no job"),
        ("afterok:12+5", "names no job"),
        ("afterok:1?afterok:2", "any of several"),
        ("singleton:3", "there is no dependency 'singleton'"),
        ("afterok:" + ":".join(map(str, range(11))), "at most 10 others"),
    ],
)
def test_what_is_no_dependency_is_refused(text: str, says: str) -> None:
    with pytest.raises(DeskError, match=says.replace("?", r"\?")):
        parse_dependencies(text, 10)


@pytest.mark.parametrize(
    ("kind", "outcome", "then"),
    [
        ("afterok", Outcome.COMPLETED, "RUNNING"),
        ("afterok", Outcome.FAILED, "CANCELLED"),
        ("afterok", Outcome.TIMEOUT, "CANCELLED"),
        ("afternotok", Outcome.COMPLETED, "CANCELLED"),
        ("afternotok", Outcome.FAILED, "RUNNING"),
        ("afterany", Outcome.FAILED, "RUNNING"),
        ("afterany", Outcome.COMPLETED, "RUNNING"),
    ],
)
@pytest.mark.parametrize("crash", [False, True])
def test_a_dependency_decides_when_its_job_ends(
    bench: Bench, kind: str, outcome: Outcome, then: str, crash: bool
) -> None:
    bench.submit()
    bench.submit(dependency=f"{kind}:1")
    assert bench.states()["2"] == "PENDING"
    bench.engine.end("1", outcome)
    if crash:
        bench.cycle()
        bench.crash()
    bench.settle()
    assert bench.states()["2"] == then


def test_a_job_that_goes_back_to_the_queue_has_not_ended(bench: Bench) -> None:
    bench.submit()
    bench.submit(dependency="afterany:1")
    bench.end("1", outcome=Outcome.NODE_FAIL)
    assert bench.states() == {"1": "RUNNING", "2": "PENDING"}
    bench.end("1")
    assert bench.states() == {"1": "COMPLETED", "2": "RUNNING"}


def test_all_of_several_have_to_be_met(bench: Bench) -> None:
    for _ in range(3):
        bench.submit()
    bench.submit(dependency="afterok:1:2,afterany:3")
    bench.end("1", "3")
    assert bench.states()["4"] == "PENDING"
    bench.end("2")
    assert bench.states()["4"] == "RUNNING"


def test_one_that_can_never_be_met_cancels_with_the_reason_and_so_on_down_the_line(bench: Bench) -> None:
    bench.submit()
    bench.submit(dependency="afterok:1")
    bench.submit(dependency="afterok:2")
    bench.submit(dependency="afterany:3")
    bench.end("1", outcome=Outcome.FAILED)
    assert bench.states() == {"1": "FAILED", "2": "CANCELLED", "3": "CANCELLED", "4": "RUNNING"}
    facts = [facts for _, facts, _ in bench.store.decisions(mentioning="2")]
    assert any("DependencyNeverSatisfied" in text and "FAILED" in text for text in facts)


def test_jobs_that_ended_long_ago_count(bench: Bench) -> None:
    bench.submit()
    bench.end("1")
    bench.submit()
    bench.end("2", outcome=Outcome.FAILED)
    bench.crash()
    assert bench.states() == {"1": "COMPLETED", "2": "FAILED"}
    assert bench.row(bench.submit(dependency="afterok:1,afternotok:2")[0]).state.value == "RUNNING"
    with pytest.raises(DeskError, match=r"afterok:2 can never be met, since that ended as FAILED") as caught:
        bench.submit(dependency="afterok:2")
    assert caught.value.kind == "conflict"
    assert caught.value.extra["reason"]["type"] == "DependencyNeverSatisfied"


def test_a_job_that_never_was_is_named(bench: Bench) -> None:
    with pytest.raises(DeskError, match="depends on job 99, and there is no such job") as caught:
        bench.submit(dependency="afterany:99")
    assert caught.value.kind == "not-found"


def test_a_whole_array_is_waited_for(bench: Bench) -> None:
    bench.submit(array="0-2%1")
    bench.submit(dependency="afterok:1")
    bench.submit(dependency="afterany:1_0")
    bench.end("1_0")
    assert bench.states()["3"] == "RUNNING"
    bench.end("1_1")
    assert bench.states()["2"] == "PENDING"
    bench.end("1_2")
    assert bench.states()["2"] == "RUNNING"


def test_one_bad_task_spoils_the_array_once_all_have_ended(bench: Bench) -> None:
    bench.submit(array="0-2")
    bench.submit(dependency="afterok:1")
    bench.submit(dependency="afternotok:1")
    bench.end("1_1", outcome=Outcome.FAILED)
    assert (bench.states()["2"], bench.states()["3"]) == ("PENDING", "PENDING")
    bench.end("1_0", "1_2")
    assert (bench.states()["2"], bench.states()["3"]) == ("CANCELLED", "RUNNING")


def test_an_array_of_its_own_waits_and_then_keeps_its_limit(bench: Bench) -> None:
    bench.submit()
    bench.submit(array="0-3%2", dependency="afterok:1")
    assert all("UnmetDependency" in bench.row(f"2_{task}").held for task in range(4))
    bench.end("1")
    states = bench.states()
    assert [states[f"2_{task}"] for task in range(4)] == ["RUNNING", "RUNNING", "PENDING", "PENDING"]


def test_singleton_waits_for_all_of_that_name_and_user(bench: Bench) -> None:
    bench.submit(name="nightly")
    bench.submit(name="other")
    bench.submit(BOB, account="vision", name="nightly")
    bench.submit(name="nightly", dependency="singleton")
    assert bench.store.spec("4").after == (("afterany", "1"),)
    bench.submit(name="nightly", dependency="singleton")
    bench.end("1", outcome=Outcome.FAILED)
    assert (bench.states()["4"], bench.states()["5"]) == ("RUNNING", "PENDING")
    assert bench.row(bench.submit(name="first", dependency="singleton")[0]).state.value == "RUNNING"


def test_a_hold_stands_before_a_dependency(bench: Bench) -> None:
    bench.submit()
    bench.submit(hold=True, dependency="afterok:1")
    assert type(read(bench.row("2").held)).__name__ == "HeldByUser"
    bench.desk.release(ADA, ["2"])
    assert type(read(bench.row("2").held)).__name__ == "UnmetDependency"
    bench.desk.hold(ADA, ["2"])
    bench.end("1")
    assert type(read(bench.row("2").held)).__name__ == "HeldByUser"
    bench.desk.release(ADA, ["2"])
    bench.settle()
    assert bench.states()["2"] == "RUNNING"


def test_a_release_finds_a_spoiled_dependency(bench: Bench) -> None:
    bench.submit()
    bench.submit(hold=True, dependency="afterok:1")
    bench.end("1", outcome=Outcome.FAILED)
    assert bench.states()["2"] == "PENDING"
    bench.desk.release(ADA, ["2"])
    assert bench.states()["2"] == "CANCELLED"


def test_a_dependency_names_itself_plainly() -> None:
    assert str(Dependency("singleton", "")) == "singleton"  # type: ignore[arg-type]
