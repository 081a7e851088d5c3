"""Several replays: differences with their size, and grids of settings on whatever runs them."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mirab.model.policy import POLICIES
from mirab.study.compare import against_institute, compare, comparison, numbers
from mirab.study.replays import replay_report
from mirab.study.sweep import SweepError, combinations, named, pack, receive, sweep
from tests.study.scene import BUDGET
from tests.study.small import small_trace

GRID = [("window", ["1d", "7d"]), ("min_runtime_cap", ["30m", "8h"])]


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


# --- sweep -----------------------------------------------------------------------------------------------------------
def test_a_grid_is_every_combination_the_last_setting_fastest() -> None:
    assert [named(point) for point in combinations(GRID)] == [
        "window=1d min_runtime_cap=30m",
        "window=1d min_runtime_cap=8h",
        "window=7d min_runtime_cap=30m",
        "window=7d min_runtime_cap=8h",
    ]
    assert combinations([]) == [{}]


@pytest.mark.parametrize("grid", [[("window", ["1d"]), ("window", ["7d"])], [("window", [])]])
def test_a_grid_that_makes_no_sense_is_refused(grid: list[tuple[str, list[str]]]) -> None:
    with pytest.raises(ValueError, match="window"):
        combinations(grid)


@pytest.mark.parametrize("setting", [("windw", ["1d"]), ("window", ["1d", "60"])])
def test_a_wrong_setting_is_refused_before_anything_runs(setting: tuple[str, list[str]]) -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(ValueError, match=setting[0]):
        sweep(small_trace(), BUDGET, [setting], executor=threads)


def test_a_point_is_what_a_replay_alone_would_be() -> None:
    done: list[int] = []
    with ThreadPoolExecutor(2) as threads:
        found = sweep(small_trace(), BUDGET, GRID, executor=threads, progress=done.append)
    assert done == [1, 2, 3, 4]
    assert found["grid"] == {"window": ["1d", "7d"], "min_runtime_cap": ["30m", "8h"]}
    alone = replay_report(small_trace(), BUDGET)
    last = found["points"][-1]
    assert last["settings"] == {"window": "7d", "min_runtime_cap": "8h"}
    assert last["metrics"] == alone["metrics"]
    assert last["by_account"] == alone["by_account"]
    assert found["points"][0]["policy"]["min_runtime_cap"] == "30m"


def test_processes_of_this_machine_give_the_same_in_the_same_order() -> None:
    with ThreadPoolExecutor(1) as threads:
        one = sweep(small_trace(), BUDGET, GRID[:1], executor=threads)
    two = sweep(small_trace(), BUDGET, GRID[:1], workers=2)
    assert stripped(two["points"]) == stripped(one["points"])


@pytest.mark.parametrize("own", [True, False])
def test_a_failure_names_its_point(own: bool) -> None:
    """A node that the cluster does not have is noticed when the replay begins."""
    wrong = small_trace(trouble="n99")
    with pytest.raises(SweepError, match=r"grid point window=1d.*ValueError.*n99") as caught:
        if own:
            sweep(wrong, BUDGET, [("window", ["1d"])], workers=1)
        else:
            with ThreadPoolExecutor(1) as threads:
                sweep(wrong, BUDGET, [("window", ["1d"])], executor=threads)
    assert "Traceback" in caught.value.story


def test_a_parcel_is_unpacked_once() -> None:
    parcel = pack(small_trace())
    trace = receive(parcel)
    assert receive(parcel) is trace
    assert pickle.loads(pickle.dumps(trace)) == small_trace()
