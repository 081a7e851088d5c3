"""Owed, delivered and what stands beside them, against values worked out by hand.

The cluster has 10 nodes of 1 GPU; `red` and `blue` hold half of it each, so 5 GPUs. A day has 24 hours.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.events import (
    BudgetsChanged,
    ExemptionGranted,
    Outcome,
    ReservationApproved,
    ReservationCancelled,
    WorkloadHeld,
    WorkloadReleased,
)
from mirab.model.plans import Hold, HoldReleased
from mirab.model.policy import Exemption, Reservation
from mirab.model.reasons import Reserved
from mirab.model.units import DAY, WHOLE, WorkloadId
from tests.study.scene import BUDGET, DAY_S, HOUR_S, Scene, cluster, ms


def ten_gpus(hours: float = 24, **more: object) -> Scene:
    return Scene(cluster(10, 1), hours=hours, **more)  # type: ignore[arg-type]


def test_a_leaf_is_owed_its_demand_where_that_is_less_than_its_share() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 0, range(4))
    account = scene.report()["by_account"]["red"]
    assert (account["owed"], account["delivered"], account["charged"]) == (96.0, 96.0, 96.0)


def test_a_leaf_is_owed_its_share_where_it_wants_more() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=8)
    scene.start("a", 0, range(8))
    account = scene.report()["by_account"]["red"]
    assert (account["owed"], account["delivered"], account["charged"]) == (120.0, 120.0, 192.0)


def test_work_that_waits_is_owed_and_not_delivered() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 6 * HOUR_S, range(4))
    metrics = scene.metrics()
    assert metrics["delivered_ratio"] == 0.75
    assert metrics["delivered_ratio_worst"] == 0.75
    assert metrics["delivered_ratio_period"] == 0.75


def test_uncharged_work_is_not_owed() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4, minimum="0")
    scene.start("a", 0, range(4))
    report = scene.report()
    assert report["by_account"]["red"]["owed"] == 0
    assert report["by_account"]["red"]["uncharged"] == 96.0
    assert report["metrics"]["delivered_ratio"] is None
    assert report["metrics"]["unallocated_ratio"] == 1.0


def test_unallocated_is_what_runs_beyond_the_owed_rate() -> None:
    """Red runs 8 where 5 are owed, blue runs 2 uncharged: 5 of 10 run within what is owed."""
    scene = ten_gpus()
    scene.submit("a", nodes=8)
    scene.submit("b", "blue", nodes=2, minimum="0")
    scene.start("a", 0, range(8))
    scene.start("b", 0, range(8, 10))
    assert scene.metrics()["unallocated_ratio"] == 0.5


def test_nodes_that_are_down_shrink_what_is_owed() -> None:
    """Half of the nodes are down for half of the day: 5 GPUs are owed for 12 h, then 2.5."""
    scene = ten_gpus()
    scene.submit("a", nodes=9)
    for node in range(5):
        scene.kill(node, 12 * HOUR_S)
    assert scene.report()["by_account"]["red"]["owed"] == 90.0


def test_a_draining_node_counts_for_what_still_runs_on_it() -> None:
    """Two nodes of 4; one degrades under a run of 1 GPU that has 6 h to go: C is 4 + 1 for 6 h, then 4."""
    scene = Scene(cluster(2, 4))
    scene.submit("a", gpus=1)
    scene.start("a", 0)
    scene.submit("b", nodes=2, gpus=4)
    scene.degrade(0, 0)
    scene.end("a.1", 6 * HOUR_S)
    report = scene.report()
    assert report["by_account"]["red"]["owed"] == 6 * 2.5 + 18 * 2.0
    assert report["metrics"]["availability"] == round((6 * 5 + 18 * 4) / (24 * 8), 6)


def test_budgets_may_change_on_the_way() -> None:
    """Red has 5 GPUs for 12 h, then 2."""
    scene = ten_gpus()
    scene.submit("a", nodes=9)
    fifth = Budgets((Budget("red", WHOLE // 5), Budget("blue", WHOLE // 2)))
    scene.cycle(12 * HOUR_S, BudgetsChanged(ms(12 * HOUR_S), fifth))
    report = scene.report()
    assert report["by_account"]["red"]["owed"] == 12 * 5 + 12 * 2
    assert report["by_account"]["red"]["share"] == 0.2


def test_an_extra_share_begins_and_ends_by_itself() -> None:
    """Red gets 20 % of the whole more from blue between hours 6 and 12; nothing happens at those instants."""
    scene = ten_gpus()
    scene.submit("a", nodes=9)
    scene.submit("b", "blue", nodes=9)
    extra = Exemption("e", "extra-share", "red", ms(6 * HOUR_S), ms(12 * HOUR_S), "o", "p", "r", share=WHOLE // 5,
                      donor="blue")  # fmt: skip
    scene.cycle(0, ExemptionGranted(0, extra))
    accounts = scene.report()["by_account"]
    assert accounts["red"]["owed"] == 18 * 5 + 6 * 7
    assert accounts["blue"]["owed"] == 18 * 5 + 6 * 3


def test_work_of_an_inner_account_is_owed_what_its_children_leave() -> None:
    """`lab` has all, its child 60 %: work of `lab` itself is owed 4 of 10."""
    lab = Budgets((Budget("lab", WHOLE, (Budget("child", WHOLE * 6 // 10),)),))
    scene = Scene(cluster(10, 1), lab)
    scene.submit("a", "lab", nodes=9)
    accounts = scene.report()["by_account"]
    assert accounts["lab/*"]["owed"] == 24 * 4
    assert accounts["lab/child"]["owed"] == 0


def test_each_midnight_from_the_third_on_is_judged_over_the_window() -> None:
    """Window of 2 days, log of 4: windows are days 2-3 and 3-4. Red wants 4 and has them from day 3 on."""
    scene = ten_gpus(96, policy=replace(BUDGET, window=2 * DAY))
    scene.submit("a", nodes=4)
    scene.start("a", 2 * DAY_S, range(4))
    metrics = scene.metrics()
    assert scene.measures.period.windows == ((DAY, 3 * DAY), (2 * DAY, 4 * DAY))
    assert metrics["delivered_ratio"] == (96 + 192) / (192 + 192)
    assert metrics["delivered_ratio_period"] == 0.5


def test_before_a_window_has_passed_all_since_the_start_counts() -> None:
    scene = ten_gpus(96, starts_h=24)
    assert scene.measures.period.windows == ((DAY, 4 * DAY),)


def test_a_burst_makes_up_for_an_idle_time_inside_the_window() -> None:
    """Red wants 5, has 0 for a day and 10 for the next: over the window all is delivered."""
    scene = ten_gpus(48)
    scene.submit("a", nodes=5)
    scene.submit("b", nodes=5)
    scene.start("a", DAY_S, range(5))
    scene.start("b", DAY_S, range(5, 10))
    metrics = scene.metrics()
    assert metrics["delivered_ratio"] == 1.0
    assert (metrics["accounts"], metrics["accounts_at_95"]) == (1, 1)
    assert (metrics["unallocated_ratio"], metrics["unallocated_ratio_period"]) == (0.5, 0)


def test_accounts_at_95_counts_leaves_that_are_owed_something() -> None:
    """Red gets all of it, blue 94 %."""
    scene = ten_gpus(100, policy=replace(BUDGET, window=4 * DAY))
    scene.submit("a", nodes=2)
    scene.submit("b", "blue", nodes=2)
    scene.start("a", 0, range(2))
    scene.start("b", 0.06 * 96 * HOUR_S, range(2, 4))
    metrics = scene.metrics()
    assert (metrics["accounts"], metrics["accounts_at_95"]) == (2, 1)
    assert metrics["delivered_ratio_worst"] < 0.95


def test_owed_to_those_who_gave_up_is_told_apart() -> None:
    """Red wants 2 and 2 of its 5; nothing runs; one user gives up after 6 h: 12 of 12 + 48 GPU-hours owed."""
    scene = ten_gpus()
    scene.submit("a", nodes=2)
    scene.submit("b", nodes=2)
    scene.cancel("a", 6 * HOUR_S)
    report = scene.report()
    assert report["by_account"]["red"]["owed"] == 60.0
    assert report["by_account"]["red"]["owed_given_up"] == 12.0
    assert report["metrics"]["owed_given_up"] == 0.2


def test_what_is_owed_to_waiting_work_is_shared_among_it() -> None:
    """Red wants 10 + 10 and is owed 5: each of the two is owed 2.5 while both wait."""
    scene = ten_gpus()
    scene.submit("a", nodes=10)
    scene.submit("b", nodes=10)
    scene.cancel("a", 4 * HOUR_S)
    assert scene.report()["by_account"]["red"]["owed_given_up"] == 10.0


def test_repeated_work_is_delivered_but_not_useful() -> None:
    """Red runs 4 all day; one run of 4 loses 2 h and its restart takes another: 12 of 96 GPU-hours."""
    scene = ten_gpus()
    scene.submit("a", nodes=4, restart=ms(HOUR_S))
    scene.start("a", 0, range(4))
    scene.preempt("a.1", 12 * HOUR_S, lost_s=2 * HOUR_S)
    scene.start("a", 12 * HOUR_S, range(4), attempt=2)
    metrics = scene.metrics()
    assert metrics["delivered_ratio"] == 1.0
    assert metrics["useful_ratio"] == 0.875


def test_what_hardware_destroyed_is_credited_and_so_not_delivered() -> None:
    """A run of 4 loses its last 3 hours to a node: 12 of 96 GPU-hours are given back."""
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 0, range(4))
    scene.end("a.1", 12 * HOUR_S, Outcome.NODE_FAIL, lost_s=3 * HOUR_S)
    scene.start("a", 12 * HOUR_S, range(4), attempt=2)
    metrics = scene.metrics()
    assert metrics["delivered_ratio"] == 0.875
    assert metrics["useful_ratio"] == 0.875
    assert metrics["lost_ratio"] == 0.0


def test_work_is_charged_from_when_it_runs() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 0, range(4), launch_s=HOUR_S)
    report = scene.report()
    assert report["by_account"]["red"]["charged"] == 92.0
    assert report["metrics"]["occupancy"] == 0.4


def test_work_that_can_never_fit_is_not_owed() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=11)
    assert scene.report()["by_account"]["red"]["owed"] == 0


def test_the_drain_after_the_period_changes_nothing() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 6 * HOUR_S, range(4))
    before = scene.report()
    scene.end("a.1", 40 * HOUR_S)
    after = scene.report(50 * HOUR_S)
    for key in ("delivered_ratio", "delivered_ratio_period", "occupancy", "availability", "occupancy_of_demand"):
        assert after["metrics"][key] == before["metrics"][key], key
    assert after["by_account"] == before["by_account"]
    assert after["series"]["busy"] == before["series"]["busy"]


def test_a_period_that_starts_later_leaves_out_what_came_before() -> None:
    scene = ten_gpus(24, starts_h=12)
    scene.submit("a", nodes=4)
    scene.start("a", 6 * HOUR_S, range(4))
    report = scene.report()
    assert report["by_account"]["red"]["owed"] == 48.0
    assert report["metrics"]["occupancy"] == 0.4


def test_an_unknown_account_is_owed_nothing() -> None:
    scene = ten_gpus()
    scene.submit("a", "green", nodes=4)
    scene.start("a", 0, range(4))
    account = scene.report()["by_account"]["green"]
    assert (account["share"], account["owed"], account["charged"]) == (0, 0, 96.0)


def test_a_workload_held_by_its_user_is_not_owed() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.cycle(6 * HOUR_S, WorkloadHeld(ms(6 * HOUR_S), WorkloadId("a"), "wait for b"))
    scene.cycle(18 * HOUR_S, WorkloadReleased(ms(18 * HOUR_S), WorkloadId("a")))
    assert scene.report()["by_account"]["red"]["owed"] == 12 * 4


def reserved() -> Scene:
    """Red has 3 nodes from hour 6 to 12; they were set aside at hour 0."""
    scene = ten_gpus()
    kept = Reservation("r", "red", 3, 1, ms(6 * HOUR_S), ms(12 * HOUR_S), "o", "p", "why")
    scene.cycle(0, ReservationApproved(0, kept))
    holder = WorkloadId("reservation:r")
    scene.cycle(0, holds=[Hold(holder, 0, 0b111, 1, ms(6 * HOUR_S), 0, reservation_id="r")])
    return scene


def test_a_reservation_is_charged_and_delivered_whether_used_or_not() -> None:
    """A run of 2 inside it is paid by it."""
    scene = reserved()
    scene.submit("a", nodes=2, at=6 * HOUR_S)
    scene.start("a", 6 * HOUR_S, range(2), reason=Reserved("r"))
    scene.end("a.1", 12 * HOUR_S)
    account = scene.report()["by_account"]["red"]
    assert (account["owed"], account["delivered"], account["charged"]) == (18.0, 18.0, 18.0)


def test_a_reservation_ends_with_its_hold() -> None:
    scene = reserved()
    ended = HoldReleased(WorkloadId("reservation:r"), "over", "r")
    scene.cycle(9 * HOUR_S, holds=[ended])
    assert scene.report()["by_account"]["red"]["charged"] == 9.0


@pytest.mark.parametrize(("begin_h", "charged"), [(6, 54.0), (25, 0.0)])
def test_a_reservation_that_ends_after_the_measured_period(begin_h: int, charged: float) -> None:
    """The replay goes on for what still runs, and passes its end, or all of it."""
    scene = ten_gpus()
    kept = Reservation("r", "red", 3, 1, ms(begin_h * HOUR_S), ms(30 * HOUR_S), "o", "p", "why")
    scene.cycle(0, ReservationApproved(0, kept))
    holder = WorkloadId("reservation:r")
    scene.cycle(0, holds=[Hold(holder, 0, 0b111, 1, ms(begin_h * HOUR_S), 0, reservation_id="r")])
    assert scene.report(at=40 * HOUR_S)["by_account"]["red"]["charged"] == charged


def test_an_extra_share_that_ends_after_the_measured_period() -> None:
    scene = ten_gpus()
    more = Exemption("x", "extra-share", "red", 0, ms(30 * HOUR_S), "o", "p", "why", share=WHOLE // 10)
    scene.cycle(0, ExemptionGranted(0, more))
    assert scene.report(at=40 * HOUR_S)["by_account"]["red"]["charged"] == 0


def test_a_reservation_that_is_cancelled_is_charged_no_more() -> None:
    scene = reserved()
    scene.cycle(8 * HOUR_S, ReservationCancelled(ms(8 * HOUR_S), "r"))
    report = scene.report()
    assert report["by_account"]["red"]["charged"] == 6.0
    assert report["metrics"]["held_idle_ratio"] == round(8 * 3 / 240, 6)


def test_a_renamed_team_is_one_row() -> None:
    """With what it was owed before and after; work that is sent in under the old name counts for it, too."""
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 6 * HOUR_S, range(4))
    crimson = Budgets((Budget("crimson", WHOLE // 2, formerly=("red",)), Budget("blue", WHOLE // 2)))
    scene.cycle(12 * HOUR_S, BudgetsChanged(ms(12 * HOUR_S), crimson))
    scene.submit("b", at=18 * HOUR_S, nodes=1)
    scene.start("b", 18 * HOUR_S, [5])
    accounts = scene.report()["by_account"]
    assert "red" not in accounts
    assert (accounts["crimson"]["owed"], accounts["crimson"]["delivered"]) == (102.0, 78.0)


def test_a_merged_team_keeps_its_row_and_what_comes_later_is_the_heirs() -> None:
    scene = ten_gpus()
    scene.submit("a", nodes=4)
    scene.start("a", 0, range(4))
    one = Budgets((Budget("blue", WHOLE, formerly=("red",)),))
    scene.cycle(12 * HOUR_S, BudgetsChanged(ms(12 * HOUR_S), one))
    scene.submit("b", at=18 * HOUR_S, nodes=2)
    scene.start("b", 18 * HOUR_S, [5, 6])
    accounts = scene.report()["by_account"]
    assert (accounts["red"]["owed"], accounts["red"]["charged"]) == (48.0, 96.0)
    assert (accounts["blue"]["owed"], accounts["blue"]["charged"]) == (12.0, 12.0)
