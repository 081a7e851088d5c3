"""Several replays: differences with their size, and many replays on whatever runs them."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from mirab.model.policy import POLICIES
from mirab.study.compare import against_institute, compare, comparison, numbers
from mirab.study.executors import ReplayFailedError, names_of, pack, replay_all, unpack
from mirab.study.replays import replay_report
from mirab.study.sweep import grid
from tests.study.scene import BUDGET
from tests.study.small import small_trace


def stripped(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in point.items() if key != "performance"} for point in points]


# --- compare ---------------------------------------------------------------------------------------------------------
def test_the_first_policy_is_what_the_others_are_compared_with() -> None:
    found = compare(small_trace(), [POLICIES["fifo"], BUDGET])
    assert found["labels"] == ["fifo", "budget"]
    rows = {row["key"]: row for row in found["differences"]}
    fifo, budget = (report["metrics"]["waits"]["all"]["p90_s"] for report in found["reports"])
    row = rows["waits.all.p90_s"]
    assert row["values"] == [fifo, budget]
    assert row["delta"] == [0, round(budget - fifo, 6)]
    assert row["change"] == [0, round((budget - fifo) / fifo, 6)]
    assert row["better"] == [0, (budget < fifo) - (budget > fifo)]


def test_each_replay_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    compare(small_trace(), [BUDGET, POLICIES["fifo"]], progress=lambda place, at: told.append((place, at)))
    assert {place for place, _ in told} == {0, 1}


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one policy"):
        compare(small_trace(), [])


def made_up(order: str, **metrics: Any) -> dict[str, Any]:
    return {"policy": {"name": order, "order": order}, "metrics": metrics}


def test_unknown_numbers_and_zeros_have_no_change() -> None:
    rows = comparison([made_up("fifo", a=0, b=None, c=2), made_up("budget", a=3, b=1.0, c=None)])["differences"]
    assert [(row["key"], row["delta"], row["change"]) for row in rows] == [
        ("a", [0, 3], [None, None]),
        ("b", [None, None], [None, None]),
        ("c", [0, None], [0, None]),
    ]


def test_numbers_are_named_by_their_way() -> None:
    assert list(numbers({"a": {"b": 1, "c": {"d": None}}, "e": "text", "f": 2.5})) == [
        ("a.b", 1),
        ("a.c.d", None),
        ("f", 2.5),
    ]


def test_what_the_institute_reported_stands_beside() -> None:
    """80 repairs needed a human under priorities, 20 under budgets: 75 % fewer."""
    budget = made_up("budget", delivered_ratio=0.99, delivered_ratio_worst=0.85, accounts_at_95=14, accounts=15,
                     unallocated_ratio=0.2, repairs_needing_human=20,
                     waits={"all": {"p50_s": 3.0, "p90_s": 7000.0}, "debug": {"p90_s": 30.0}})  # fmt: skip
    priority = made_up("priority", repairs_needing_human=80)
    rows = {row["key"]: row for row in against_institute([budget, priority])}
    assert rows["delivered_ratio"]["institute"] == 0.98
    assert rows["delivered_ratio"]["as_good"] == [True, None]
    assert rows["delivered_ratio_worst"]["as_good"] == [False, None]
    assert rows["accounts_at_95"]["as_good"][0] is True
    assert rows["unallocated_ratio"]["as_good"][0] is None
    assert rows["waits.all.p90_s"]["as_good"][0] is False
    assert rows["waits.debug.p90_s"]["as_good"][0] is True
    assert rows["repairs_needing_human.change"]["values"] == [-0.75, None]
    assert rows["repairs_needing_human.change"]["as_good"] == [True, None]


# --- on executors ----------------------------------------------------------------------------------------------------
def test_a_replay_elsewhere_is_what_a_replay_here_would_be() -> None:
    points = grid([BUDGET], ["window=1d,7d", "min_runtime_cap=30m,8h"])
    done: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        found = replay_all(small_trace(), points, threads, progress=done.append)
    assert done == [1, 2, 3, 4]
    assert [report["policy"]["min_runtime_cap"] for report in found] == ["30m", "8h", "30m", "8h"]
    assert stripped(found[-1:]) == stripped([replay_report(small_trace(), BUDGET)])


def test_fresh_processes_give_the_same_in_the_same_order() -> None:
    points = grid([BUDGET], ["window=1d,7d"])
    with ThreadPoolExecutor(1) as threads, ProcessPoolExecutor(2, get_context("spawn")) as processes:
        assert stripped(replay_all(small_trace(), points, processes)) == stripped(
            replay_all(small_trace(), points, threads)
        )


def test_a_failure_names_its_point() -> None:
    """A node that the cluster does not have is noticed when the replay begins."""
    points = grid([BUDGET], ["window=1d,7d"])
    with ThreadPoolExecutor(1) as threads, pytest.raises(ReplayFailedError) as caught:
        replay_all(small_trace(trouble="n99"), points, threads)
    assert "the replay of budget window=1d failed: ValueError: " in str(caught.value)
    assert "n99" in str(caught.value)
    assert caught.value.policy == points[0]
    assert "Traceback" in caught.value.story


def die(*_: object) -> None:
    os._exit(1)


def test_a_worker_that_dies_is_told_of() -> None:
    class Deadly(ProcessPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            return super().submit(die)

    with Deadly(1, get_context("spawn")) as processes, pytest.raises(ReplayFailedError, match=r"budget.*memory"):
        replay_all(small_trace(), [BUDGET], processes)


def test_policies_are_named_by_what_tells_them_apart() -> None:
    assert names_of(grid([BUDGET], ["window=1d,7d"])) == ["budget window=1d", "budget window=7d"]
    assert names_of([BUDGET]) == ["budget"]


def test_a_trace_is_unpacked_once() -> None:
    parcel = pack(small_trace())
    trace = unpack(parcel)
    assert unpack(parcel) is trace
    assert pickle.loads(pickle.dumps(trace)) == small_trace()
