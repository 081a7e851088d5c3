"""Arrays: how they are written, that the limit holds, and that they go on whatever happens to their tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.model.events import Outcome
from mirab.service.desk.arrays import ArraySpec, parse_array, parse_ids
from mirab.service.desk.errors import DeskError
from tests.service.house import ADA, Bench


@pytest.mark.parametrize(
    ("text", "tasks", "limit"),
    [
        ("0-3", (0, 1, 2, 3), 0),
        ("0-15%4", tuple(range(16)), 4),
        ("1,3,7-9:2", (1, 3, 7, 9), 0),
        ("5", (5,), 0),
        ("3,1,1-2", (1, 2, 3), 0),
        (" 0 - 4 : 2 % 1 ", (0, 2, 4), 1),
    ],
)
def test_an_array_is_read_as_by_sbatch(text: str, tasks: tuple[int, ...], limit: int) -> None:
    assert parse_array(text, 100) == ArraySpec(tasks, limit)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not an array"),
        ("a-b", "is not an array"),
        ("1-", "is not an array"),
        ("-1", "is not an array"),
        ("3-1", "is empty"),
        ("1-5:0", "is empty"),
        ("0-5%0", "limit of the array"),
        ("0-5%", "limit of the array"),
        ("0-999999999", "index above"),
        ("0-999999", "more than 100 tasks"),
        ("0-99,200", "more than 100 tasks"),
        ("1,2,3_4", "is not an array"),
    ],
)
def test_what_is_no_array_is_refused(text: str, says: str) -> None:
    with pytest.raises(DeskError, match=says):
        parse_array(text, 100)


@given(st.sets(st.integers(0, 500), min_size=1, max_size=60))
def test_any_set_of_tasks_can_be_written(tasks: set[int]) -> None:
    assert parse_array(",".join(map(str, tasks)), 100).tasks == tuple(sorted(tasks))


@given(st.text(alphabet="0123456789-:,%x ", max_size=30))
def test_any_text_is_an_array_or_refused(text: str) -> None:
    try:
        found = parse_array(text, 50)
    except DeskError:
        return
    assert 1 <= len(found.tasks) <= 50
    assert list(found.tasks) == sorted(set(found.tasks))


def test_ids_name_a_job_a_task_or_several() -> None:
    assert parse_ids("012", 10) == ["12"]
    assert parse_ids("12_3", 10) == ["12_3"]
    assert parse_ids("12_[0-1,7]", 10) == ["12_0", "12_1", "12_7"]
    for wrong in ("", "x", "12_", "12_[", "12;3", "-1", "12_3_4"):
        with pytest.raises(DeskError):
            parse_ids(wrong, 10)


def by_state(bench: Bench) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, state in bench.states().items():
        found.setdefault(state, []).append(name)
    return found


def test_the_limit_holds_and_tasks_go_on_in_order(bench: Bench) -> None:
    ids = bench.submit(array="0-6%2")
    assert ids == [f"1_{task}" for task in range(7)]
    assert by_state(bench)["RUNNING"] == ["1_0", "1_1"]
    assert "ArrayLimitReached" in bench.row("1_2").held
    bench.end("1_1", outcome=Outcome.FAILED)
    assert by_state(bench)["RUNNING"] == ["1_0", "1_2"]
    bench.desk.cancel(ADA, ["1_3"])
    bench.desk.cancel(ADA, ["1_0"])
    bench.settle()
    assert by_state(bench)["RUNNING"] == ["1_2", "1_4"]
    bench.end("1_2", "1_4")
    bench.end("1_5", "1_6")
    assert by_state(bench) == {
        "CANCELLED": ["1_0", "1_3"], "FAILED": ["1_1"], "COMPLETED": ["1_2", "1_4", "1_5", "1_6"]
    }  # fmt: skip
    assert not bench.desk._jobs._office.book.arrays, "nothing is left of it in memory"


def test_without_a_limit_all_wait_in_the_queue_in_order(bench: Bench) -> None:
    bench.submit(array="0-11", gpus_per_node=2)
    assert by_state(bench)["RUNNING"] == ["1_0", "1_1", "1_2", "1_3"]
    bench.end("1_0", "1_1", "1_2", "1_3")
    assert by_state(bench)["RUNNING"] == ["1_4", "1_5", "1_6", "1_7"]


def test_a_task_that_is_requeued_counts_as_one_of_the_limit(bench: Bench) -> None:
    bench.submit(array="0-3%1")
    bench.desk.requeue(ADA, ["1_0"])
    bench.settle()
    assert by_state(bench)["RUNNING"] == ["1_0"]
    assert bench.row("1_0").attempt == 2


def test_a_task_that_its_user_holds_makes_room_and_stands_in_line_when_released(bench: Bench) -> None:
    bench.submit(nodes=2, gpus_per_node=4)
    bench.submit(array="0-2%1")
    bench.desk.hold(ADA, ["2_0"])
    bench.settle()
    assert [name for name in bench.state.pending if name.startswith("2_")] == ["2_1"]
    bench.desk.release(ADA, ["2_0"])
    bench.settle()
    assert [name for name in bench.state.pending if name.startswith("2_")] == ["2_1"]
    assert "ArrayLimitReached" in bench.row("2_0").held
    bench.end("1")
    bench.end("2_1")
    assert bench.row("2_0").state.value == "RUNNING"


def test_the_id_of_an_array_means_all_its_tasks(bench: Bench) -> None:
    bench.submit(array="0-3%1")
    assert [row.id for row in bench.desk.cancel(ADA, ["1"])] == ["1_0", "1_1", "1_2", "1_3"]
    bench.settle()
    assert set(bench.states().values()) == {"CANCELLED"}
    assert len(bench.desk.cancel(ADA, ["1"])) == 4, "once more changes nothing"


def test_an_array_goes_on_after_a_crash(bench: Bench) -> None:
    bench.submit(array="0-3%1")
    bench.engine.end("1_0")
    bench.crash()
    bench.settle()
    assert by_state(bench)["RUNNING"] == ["1_1"]


def test_what_an_array_keeps_is_bounded(bench: Bench) -> None:
    with pytest.raises(DeskError, match="more than 1,000 tasks"):
        bench.submit(array="0-1000")
    with pytest.raises(DeskError, match="together they may keep 64 MiB"):
        bench.submit(array="0-999", argv=("x" * 100_000,))
    assert bench.states() == {}
