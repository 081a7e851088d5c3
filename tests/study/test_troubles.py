"""Preemptions and what they cost, repairs, deadlines, starvation; by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mirab.model.events import ExemptionGranted, ExemptionRevoked, NodeUp, Outcome, RunCheckpointed, RunEnded
from mirab.model.plans import CallHuman, Repair, Start
from mirab.model.policy import DRAIN_PAUSE, POLICIES, Exemption
from mirab.model.reasons import DrainedFrom, PreemptedFor, ReservationBegins, StartTimedOut, StopReason
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, MINUTE, AccountPath, Instant, NodeName, RunId, WorkloadId
from mirab.study.causes import CAUSES, cause_of
from mirab.study.starvation import SAMPLED_EVERY
from tests.study.scene import BECAUSE, BUDGET, DAY_S, HOUR_S, RECLAIM, Scene, cluster, ms


def one_run(**more: object) -> Scene:
    """A run of 8 GPUs, alone on two nodes of 8."""
    scene = Scene(cluster(2, 8), hours=10)
    scene.submit("a", gpus=8, **more)  # type: ignore[arg-type]
    scene.start("a", 0)
    return scene


# --- preemptions ----------------------------------------------------------------------------------------------------
def test_lost_is_unsaved_work_and_restarts_of_what_was_allocated() -> None:
    """8 GPUs for 10 h; stopped after 5 h, 30 min unsaved; the restart takes 6 min: 36 of 600 minutes."""
    scene = one_run(restart=6 * MINUTE)
    scene.preempt("a.1", 5 * HOUR_S, lost_s=1800)
    scene.start("a", 5 * HOUR_S, attempt=2)
    report = scene.report()
    assert report["metrics"]["lost_ratio"] == 0.06
    assert report["by_account"]["red"]["lost"] == 4.8
    assert report["by_account"]["red"]["preempted"] == 1


def test_a_run_stopped_in_its_restart_loses_no_more_than_it_ran() -> None:
    """The second attempt runs 3 of its 6 minutes of restart: 3 minutes are lost, whatever the engine says."""
    scene = one_run(restart=6 * MINUTE)
    scene.preempt("a.1", 5 * HOUR_S)
    scene.start("a", 5 * HOUR_S, attempt=2)
    scene.preempt("a.2", 5 * HOUR_S + 180, lost_s=180)
    assert scene.report()["by_account"]["red"]["lost"] == 0.4


@pytest.mark.parametrize(("saved_s", "lost"), [(None, 8.0), (2700, 2.0)])
def test_what_the_engine_does_not_know_is_counted_from_the_last_checkpoint(saved_s: int | None, lost: float) -> None:
    scene = one_run()
    if saved_s is not None:
        scene.cycle(saved_s, RunCheckpointed(ms(saved_s), RunId("a.1")))
    scene.preempt("a.1", HOUR_S, lost_s=None)
    assert scene.report()["by_account"]["red"]["lost"] == lost


def test_a_restart_after_a_hardware_failure_is_not_a_cost_of_preemption() -> None:
    scene = one_run(restart=6 * MINUTE)
    scene.end("a.1", HOUR_S, Outcome.NODE_FAIL, lost_s=600)
    scene.start("a", HOUR_S, attempt=2)
    metrics = scene.metrics()
    assert (metrics["lost_ratio"], metrics["preemptions"]) == (0, 0)
    assert metrics["useful_ratio"] == round((10 - 1 / 6 - 0.1) / 10, 6)


def test_a_gang_that_is_stopped_counts_once() -> None:
    scene = Scene(cluster(10, 8))
    scene.submit("gang", nodes=10, gpus=8)
    scene.start("gang", 0, range(10))
    scene.preempt("gang.1", 2 * HOUR_S)
    assert scene.metrics()["preemptions"] == 1


def test_a_run_that_ends_within_its_grace_was_not_preempted() -> None:
    scene = one_run()
    scene.stop("a.1", 2 * HOUR_S)
    scene.end("a.1", 2 * HOUR_S + 5)
    assert scene.metrics()["preemptions"] == 0


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (RECLAIM, "reclaim"),
        (replace(RECLAIM, uncharged=True), "uncharged"),
        (replace(RECLAIM, hold=True), "hold"),
        (DrainedFrom("n0"), "drain"),
        (ReservationBegins("r", AccountPath("red")), "reservation"),
        (StartTimedOut(600_000), "start-timeout"),
    ],
)
def test_preemptions_are_told_apart_by_cause(reason: StopReason, cause: str) -> None:
    scene = one_run()
    scene.preempt("a.1", 2 * HOUR_S, reason=reason)
    assert scene.metrics()["preemptions_by_cause"] == {cause: 1}
    assert cause in CAUSES


def test_under_priorities_the_cause_is_priority() -> None:
    victim = PreemptedFor(WorkloadId("x"), AccountPath("blue"), 0.5, 1.5, 0)
    assert cause_of(victim, POLICIES["priority"]) == "priority"


def test_after_the_period_preemptions_do_not_count() -> None:
    scene = one_run()
    scene.preempt("a.1", 11 * HOUR_S, lost_s=600)
    metrics = scene.metrics(12 * HOUR_S)
    assert (metrics["preemptions"], metrics["lost_ratio"]) == (0, 0)


def test_before_the_period_preemptions_do_not_count() -> None:
    scene = Scene(cluster(2, 8), hours=20, starts_h=10)
    scene.submit("a", gpus=8)
    scene.start("a", 0)
    scene.preempt("a.1", 5 * HOUR_S, lost_s=600)
    metrics = scene.metrics()
    assert (metrics["preemptions"], metrics["lost_ratio"]) == (0, None)


def test_a_launch_that_fails_does_not_hide_why_there_is_a_restart() -> None:
    """8 GPUs restart for 6 minutes because of the preemption, two attempts later."""
    scene = one_run(restart=6 * MINUTE)
    scene.preempt("a.1", HOUR_S)
    again = Start(RunId("a.2"), WorkloadId("a"), Allocation(0, 1, 8), HOUR, BECAUSE, resumed=True)
    scene.cycle(HOUR_S, actions=[again])
    scene.end("a.2", HOUR_S + 700, Outcome.LAUNCH_FAILED)
    scene.start("a", 2 * HOUR_S, attempt=3)
    assert scene.report()["by_account"]["red"]["lost"] == 0.8


# --- repairs ----------------------------------------------------------------------------------------------------------
GRACE_S = 10
CAP_S = 8 * HOUR_S
CADENCE_S = 1


def sick_scene(**more: object) -> Scene:
    scene = Scene(cluster(2, 8), hours=48)
    scene.submit("a", gpus=8, **more)  # type: ignore[arg-type]
    scene.start("a", 0)
    scene.degrade(0, HOUR_S)
    return scene


@pytest.mark.parametrize(("after_s", "human"), [(CAP_S + GRACE_S + CADENCE_S, 0), (CAP_S + GRACE_S + 2, 1)])
def test_a_run_must_be_gone_by_cap_and_grace_after_the_event(after_s: int, human: int) -> None:
    scene = sick_scene()
    scene.end("a.1", HOUR_S + after_s)
    metrics = scene.metrics()
    assert (metrics["repairs"], metrics["repairs_needing_human"]) == (1, human)


@pytest.mark.parametrize(("after_s", "human"), [(GRACE_S + CADENCE_S, 0), (GRACE_S + 2, 1)])
@pytest.mark.parametrize("revoked", [False, True])
def test_a_paused_drain_needs_nobody_until_the_pause_is_over(after_s: int, human: int, revoked: bool) -> None:
    """A pause of n0 until 20 h, or until it is revoked at 15 h; the cap alone would be over at 9 h."""
    scene = sick_scene()
    pause = Exemption("p", DRAIN_PAUSE, "red", ms(2 * HOUR_S), ms(20 * HOUR_S), "o", "p", "r", node="n0")
    scene.cycle(2 * HOUR_S, ExemptionGranted(ms(2 * HOUR_S), pause))
    if revoked:
        scene.cycle(15 * HOUR_S, ExemptionRevoked(ms(15 * HOUR_S), "p"))
    scene.end("a.1", (15 if revoked else 20) * HOUR_S + after_s)
    assert scene.metrics()["repairs_needing_human"] == human


def test_a_pause_that_comes_too_late_excuses_nobody() -> None:
    scene = sick_scene()
    pause = Exemption("p", DRAIN_PAUSE, "red", ms(10 * HOUR_S), ms(20 * HOUR_S), "o", "p", "r", node="n0")
    scene.cycle(10 * HOUR_S, ExemptionGranted(ms(10 * HOUR_S), pause))
    scene.end("a.1", 12 * HOUR_S)
    assert scene.metrics()["repairs_needing_human"] == 1


def test_a_run_that_is_still_there_needs_a_human() -> None:
    assert sick_scene().metrics()["repairs_needing_human"] == 1


def test_one_event_needs_one_human_however_many_runs_stay() -> None:
    scene = Scene(cluster(1, 8), hours=48)
    for name in "abc":
        scene.submit(name, gpus=2)
        scene.start(name, 0)
    scene.degrade(0, HOUR_S)
    scene.end("a.1", 20 * HOUR_S)
    assert scene.metrics()["repairs_needing_human"] == 1


def test_a_run_on_another_node_is_nobodys_business() -> None:
    scene = Scene(cluster(2, 8), hours=48)
    scene.submit("a", gpus=8)
    scene.start("a", 0, [1])
    scene.degrade(0, HOUR_S)
    metrics = scene.metrics()
    assert (metrics["repairs"], metrics["repairs_needing_human"]) == (1, 0)


def test_a_human_who_is_called_was_needed() -> None:
    scene = sick_scene()
    scene.cycle(2 * HOUR_S, actions=[CallHuman(NodeName("n0"), RunId("a.1"), "it does not stop")])
    scene.end("a.1", 3 * HOUR_S, Outcome.NODE_FAIL)
    assert scene.metrics()["repairs_needing_human"] == 1


def test_health_that_returns_makes_the_event_void() -> None:
    scene = sick_scene()
    scene.cycle(2 * HOUR_S, NodeUp(ms(2 * HOUR_S), NodeName("n0")))
    metrics = scene.metrics()
    assert (metrics["repairs"], metrics["repairs_needing_human"]) == (0, 0)


def test_a_repair_that_was_done_stays_one() -> None:
    scene = sick_scene()
    scene.end("a.1", 2 * HOUR_S)
    scene.cycle(2 * HOUR_S, actions=[Repair(NodeName("n0"))])
    scene.mend(0, 5 * HOUR_S)
    metrics = scene.metrics()
    assert (metrics["repairs"], metrics["repairs_needing_human"]) == (1, 0)


def test_a_sick_node_that_dies_is_one_event() -> None:
    scene = sick_scene()
    scene.kill(0, 2 * HOUR_S)
    scene.end("a.1", 2 * HOUR_S, Outcome.NODE_FAIL)
    scene.kill(1, 3 * HOUR_S)
    metrics = scene.metrics()
    assert (metrics["repairs"], metrics["repairs_needing_human"]) == (2, 0)


# --- deadlines, makespan ----------------------------------------------------------------------------------------------
def test_a_deadline_is_met_by_what_completes_in_time() -> None:
    scene = Scene(cluster(4, 8))
    for number, name in enumerate("abcd"):
        scene.submit(name, gpus=8, deadline_at=ms(HOUR_S))
        if name != "d":
            scene.start(name, 0, [number])
    scene.submit("e", gpus=8)
    scene.end("a.1", HOUR_S)
    scene.cycle(HOUR_S + 1, RunEnded(ms(HOUR_S) + 1, RunId("b.1"), Outcome.COMPLETED, 0))
    scene.end("c.1", HOUR_S + 2, Outcome.FAILED)
    assert scene.metrics()["deadlines"] == {"count": 4, "met": 1}


def test_makespan_is_from_the_first_submission_to_the_last_end() -> None:
    scene = Scene(cluster(2, 8), hours=10)
    scene.submit("a", gpus=8, at=100)
    scene.start("a", 200)
    scene.end("a.1", DAY_S)
    assert scene.metrics(2 * DAY_S)["makespan_s"] == DAY_S - 100


def test_makespan_is_nothing_before_the_first_end() -> None:
    scene = Scene(cluster(2, 8), hours=10)
    scene.submit("a", gpus=8, at=100)
    scene.start("a", 200)
    assert scene.metrics(HOUR_S)["makespan_s"] == 0


# --- starvation -------------------------------------------------------------------------------------------------------
class Ratio:
    def __init__(self, value: float) -> None:
        self.value = value

    def ratio(self, now: Instant) -> float:
        return self.value


class Books:
    """Two leaves, whose ratio and first workload the test sets."""

    def __init__(self) -> None:
        self.ratios = {AccountPath("red"): Ratio(0.5), AccountPath("blue"): Ratio(0.5)}
        self.first: dict[str, str] = {}

    @property
    def accounts(self) -> Mapping[AccountPath, Ratio]:
        return self.ratios

    def first_waiting(self, account: AccountPath, now: Instant) -> WorkloadId | None:
        first = self.first.get(account)
        return None if first is None else WorkloadId(first)


def starving() -> tuple[Scene, Books]:
    scene, books = Scene(cluster(2, 8)), Books()
    scene.measures.attach(books)
    for name in "ab":
        scene.submit(name, gpus=8)
    return scene, books


def test_without_books_starvation_is_not_known() -> None:
    assert Scene(cluster(2, 8)).metrics()["starvation_s"] is None


def test_starvation_is_the_longest_time_as_first_of_an_owed_leaf() -> None:
    """`a` is first until it starts after 2 h 1 s, then `b` is for an hour, which starts as well."""
    scene, books = starving()
    books.first["red"] = "a"
    for at in range(0, 7201, 60):
        scene.cycle(at)
    books.first["red"] = "b"
    scene.start("a", 7201)
    for at in range(7260, 10_800, 60):
        scene.cycle(at)
    books.first.clear()
    scene.start("b", 10_800, [1])
    assert scene.metrics()["starvation_s"] == pytest.approx(7201, abs=SAMPLED_EVERY / 1000)
    assert scene.measures.starvation.whose == "a"


def test_a_leaf_at_its_share_does_not_starve() -> None:
    scene, books = starving()
    books.first["red"] = "a"
    scene.cycle(0)
    books.ratios[AccountPath("red")].value = 1.0
    for at in range(3600, 36_000, 3600):
        scene.cycle(at)
    assert scene.metrics()["starvation_s"] < HOUR_S


def test_ratios_are_noted_at_the_end_of_each_step() -> None:
    scene, books = starving()
    scene.cycle(299)
    books.ratios[AccountPath("red")].value = 0.25
    scene.cycle(600)
    books.ratios[AccountPath("red")].value = float("inf")
    scene.cycle(900)
    accounts = scene.report()["series"]["accounts"]
    assert accounts["red"]["ratio"][:4] == [0.25, 0.25, None, None]
    assert accounts["blue"]["ratio"][:3] == [0.5, 0.5, 0.5]


def test_units_of_the_cap_are_hours() -> None:
    """The constants above stand for the default policy."""
    assert (BUDGET.min_runtime_cap, BUDGET.cadence) == (8 * HOUR, 1000)
