"""Availability, occupancy, idle GPUs under holds and beside waiting gangs, the series; by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.model.events import NodeDown
from mirab.model.plans import HoldReleased
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import MINUTE, NodeName, WorkloadId
from mirab.study.demand import Wanted
from mirab.study.pools import PoolUse
from tests.study.scene import HOUR_S, Scene, cluster, ms, pool


def test_occupancy_is_allocated_of_schedulable() -> None:
    """16 GPUs; 8 run half a day; one of two nodes dies for the last 6 hours."""
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8)
    scene.start("a", 0)
    scene.end("a.1", 12 * HOUR_S)
    scene.kill(1, 18 * HOUR_S)
    metrics = scene.metrics()
    assert metrics["occupancy"] == round(96 / (18 * 16 + 6 * 8), 6)
    assert metrics["availability"] == round((18 * 16 + 6 * 8) / (24 * 16), 6)
    assert metrics["utilization"] is None


def test_an_empty_queue_is_not_the_schedulers_fault() -> None:
    """A day of 16 GPUs: 8 wanted for 12 h, 32 for 6 h, none for 6 h; 8 run in the first 18 h."""
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8)
    scene.start("a", 0)
    for name in "bcd":
        scene.submit(name, gpus=8, at=12 * HOUR_S)
    for name in "bcd":
        scene.cancel(name, 18 * HOUR_S)
    scene.end("a.1", 18 * HOUR_S)
    assert scene.metrics()["occupancy_of_demand"] == round(18 * 8 / (12 * 8 + 6 * 16), 6)


def test_free_gpus_while_a_gang_waits_are_fragmentation() -> None:
    """Two nodes of 8, 4 used on each for 6 h: a gang of 8 cannot start, though 8 are free."""
    scene = Scene(cluster(2, 8))
    scene.submit("a", nodes=2, gpus=4)
    scene.start("a", 0, [0, 1])
    scene.submit("b", gpus=8)
    scene.submit("c", nodes=2, gpus=8)
    scene.end("a.1", 6 * HOUR_S)
    scene.start("b", 6 * HOUR_S, [0])
    metrics = scene.metrics()
    assert metrics["fragmentation_by_shape"] == {"1x8": 48 / 384, "2x8": 144 / 384}
    assert metrics["fragmentation_ratio"] == (48 + 144) / 384


def test_uncharged_work_that_waits_makes_no_fragmentation() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8, minimum="0")
    assert scene.metrics()["fragmentation_ratio"] == 0


def test_idle_under_a_hold_is_not_fragmentation() -> None:
    """Three nodes; a gang of 16 holds two, one of which runs 4 for 6 h. It starts after 12 h."""
    scene = Scene(cluster(3, 8))
    scene.submit("small", gpus=4, minimum="0")
    scene.start("small", 0, [0])
    scene.submit("gang", nodes=2, gpus=8)
    scene.hold("gang", 0, [0, 1], 8)
    scene.end("small.1", 6 * HOUR_S)
    scene.start("gang", 12 * HOUR_S, [0, 1])
    metrics = scene.metrics()
    assert metrics["held_idle_ratio"] == round((6 * 12 + 6 * 16) / (24 * 24), 6)
    assert metrics["fragmentation_ratio"] == round(12 * 8 / (24 * 24), 6)


@pytest.mark.parametrize("ending", ["released", "cancelled", "down"])
def test_a_hold_ends(ending: str) -> None:
    """After 6 h: its holder gives it back, or gives up, or the node dies."""
    scene = Scene(cluster(2, 8))
    scene.submit("gang", gpus=8)
    scene.hold("gang", 0, [1], 8)
    if ending == "released":
        scene.cycle(6 * HOUR_S, holds=[HoldReleased(WorkloadId("gang"), "moved")])
    elif ending == "cancelled":
        scene.cancel("gang", 6 * HOUR_S)
    else:
        scene.kill(1, 6 * HOUR_S)
    capacity = 24 * 16 if ending != "down" else 6 * 16 + 18 * 8
    assert scene.metrics()["held_idle_ratio"] == round(48 / capacity, 6)


def test_a_hold_that_moves_counts_once() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("gang", gpus=8)
    scene.hold("gang", 0, [0], 8)
    scene.hold("gang", 6 * HOUR_S, [1], 8)
    assert scene.metrics()["held_idle_ratio"] == 0.5


def test_a_hold_of_part_of_a_node_keeps_only_that_part() -> None:
    scene = Scene(cluster(1, 8))
    scene.submit("gang", gpus=4)
    scene.hold("gang", 0, [0], 4)
    assert scene.metrics()["held_idle_ratio"] == 0.5


def test_the_series_are_averages_over_steps() -> None:
    """24 h are cut into steps of 5 minutes; a run of 8 from 0:00 to 0:07:30, a demand of 8 more until 0:10."""
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8)
    scene.submit("b", gpus=8)
    scene.start("a", 0)
    scene.end("a.1", 450)
    scene.cancel("b", 600)
    series = scene.report()["series"]
    assert series["step_s"] == 300
    assert len(series["t_s"]) == len(series["busy"]) == 288
    assert series["t_s"][:3] == [0, 300, 600]
    assert series["busy"][:3] == [8, 4, 0]
    assert series["demand"][:3] == [16, 12, 0]
    assert series["installed"][:2] == series["schedulable"][:2] == [16, 16]
    red = series["accounts"]["red"]
    assert red["owed"][:3] == [8, 8, 0]
    assert red["delivered"][:3] == [8, 4, 0]


def test_preemptions_and_losses_over_time() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8)
    scene.start("a", 0)
    scene.preempt("a.1", 400, lost_s=360)
    series = scene.report()["series"]
    assert series["preemptions"][:3] == [0, 1, 0]
    assert series["lost"][:3] == [0, 0.8, 0]


def test_a_report_on_the_way_tells_what_was_seen() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8)
    scene.start("a", 0)
    report = scene.report(6 * HOUR_S)
    assert report["metrics"]["occupancy"] == 0.5
    assert len(report["series"]["t_s"]) == 72
    assert report["metrics"]["delivered_ratio"] is None


def test_nothing_at_all() -> None:
    scene = Scene(cluster(2, 8), hours=0)
    metrics = scene.metrics(0)
    assert metrics["occupancy"] is None
    assert metrics["waits"]["all"]["count"] == 0
    assert metrics["makespan_s"] == 0


def test_a_period_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="ends"):
        Scene(cluster(2, 8), hours=1, starts_h=2)


# --- several pools ----------------------------------------------------------------------------------------------
def two_pools() -> Cluster:
    old = pool(4, 8, name="old", gpu_type="a100")
    new = Pool("new", (NodeName("new0"), NodeName("new1")), 8, gpu_type="b300", weight=2000)
    return Cluster("mixed", (old, new))


def asking(nodes: int, *types: str) -> dict[str, Any]:
    return {"shape": Shape(nodes, 8, gpu_types=types, min_runtime=60 * MINUTE)}


def test_a_heavier_type_is_charged_more() -> None:
    scene = Scene(two_pools())
    scene.submit("a", **asking(1, "b300"))
    scene.start("a", 0, pool=1)
    account = scene.report()["by_account"]["red"]
    assert (account["charged"], account["owed"]) == (24 * 16, 24 * 16)


def test_demand_is_bounded_by_the_pools_that_it_accepts() -> None:
    """C = 32 + 2 x 16 = 64 units, red holds 32; four nodes of 16 units asked for, of the two new ones.

    For 12 h all of red's 32 could be served; then one new node is dead: 16, which is less than half of 48.
    """
    scene = Scene(two_pools())
    for name in "abcd":
        scene.submit(name, **asking(1, "b300"))
    scene.cycle(12 * HOUR_S, NodeDown(ms(12 * HOUR_S), NodeName("new0")))
    assert scene.report()["by_account"]["red"]["owed"] == 12 * 32 + 12 * 16


def test_demand_for_either_pool_adds_to_demand_for_one() -> None:
    wanted = Wanted()
    wanted.add(0b10, 30)
    wanted.add(0b11, 30)
    assert wanted.servable([32, 16]) == 46
    assert wanted.servable([8, 16]) == 24
    wanted.add(0b11, -20)
    assert wanted.servable([32, 16]) == 26


def test_cores_of_a_cpu_pool_are_not_gpus() -> None:
    """A pool of cores beside a pool of GPUs: occupancy is about GPUs, owed about both."""
    cores = pool(1, 0, name="cpu", cpus_per_node=100, weight=10)
    gpus = Pool("gpu", (NodeName("g0"),), 8)
    scene = Scene(Cluster("mixed", (gpus, cores)))
    scene.submit("a", shape=Shape(1, 0, cpus_per_node=100, min_runtime=60 * MINUTE))
    scene.start("a", 0, pool=1, slots=100)
    report = scene.report()
    assert report["metrics"]["occupancy"] == 0
    assert report["metrics"]["availability"] == 1
    assert report["input"]["slots"] == 8
    assert report["by_account"]["red"]["charged"] == 24.0


# --- the vertical counters -------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.integers(1, 2**5 - 1), st.integers(1, 4)), max_size=12), st.integers(0, 2**5 - 1))
def test_vertical_counters_count_like_a_list(asked: list[tuple[int, int]], among: int) -> None:
    """Book each request that fits, then give back every other one; compare with one number for each node."""
    use, used = PoolUse(pool(5, 7)), [0] * 5
    booked = []
    for mask, width in asked:
        nodes = [node for node in range(5) if mask >> node & 1]
        if all(used[node] + width <= 7 for node in nodes):
            booked.append(Allocation(0, mask, width))
            use.take(booked[-1])
            for node in nodes:
                used[node] += width
    for given_back in booked[::2]:
        use.give(given_back)
        for node in range(5):
            used[node] -= given_back.slots_per_node * (given_back.mask >> node & 1)
    assert use.busy == sum(used)
    assert use.used(among) == sum(count for node, count in enumerate(used) if among >> node & 1)


def test_held_slots_follow_what_runs_there() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("gang", nodes=2, gpus=8)
    scene.submit("a", gpus=2, minimum="0")
    scene.hold("gang", 0, [0, 1], 8)
    use = scene.measures.usage.pools[0]
    assert use.held == 16
    scene.start("a", 10, [1])
    assert use.held == 14
    scene.end("a.1", 20)
    assert use.held == 16
    assert scene.measures.now == ms(20)
