"""Waits by class: nearest rank over all submissions, also those that never started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirab.model.events import Outcome, RunCheckpointed, WorkloadHeld, WorkloadReleased
from mirab.model.plans import Reject, Start
from mirab.model.reasons import NeverFits
from mirab.model.resources import Allocation, Shape
from mirab.model.units import HOUR, MINUTE, RunId, WorkloadId
from mirab.model.workloads import Arrival
from mirab.study.demand import kind_of
from mirab.study.waits import percentile_s, quantiles_s
from tests.study.scene import BECAUSE, HOUR_S, Scene, cluster, ms


def scene() -> Scene:
    return Scene(cluster(10, 8))


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 0.01), (1, 0.01), (50, 0.05), (51, 0.06), (90, 0.09), (99, 0.1), (100, 0.1)]
)
def test_percentiles_are_nearest_rank(percent: int, expected: float) -> None:
    assert percentile_s([10, 20, 30, 40, 50, 60, 70, 80, 90, 100], percent) == expected


def test_no_waits_have_no_percentiles() -> None:
    assert percentile_s([], 50) is None
    assert quantiles_s([]) == []


def test_distributions_have_a_value_for_each_per_cent() -> None:
    assert quantiles_s([1000]) == [1.0] * 101


@pytest.mark.parametrize(
    ("gpus", "minimum", "kind"),
    [
        (2, 15 * MINUTE, "debug"),
        (2, 15 * MINUTE + 1, "small"),
        (2, 0, "small"),
        (3, MINUTE, "small"),
        (8, HOUR, "small"),
        (9, HOUR, "medium"),
        (32, HOUR, "medium"),
        (33, HOUR, "large"),
        (128, HOUR, "large"),
        (129, HOUR, "huge"),
    ],
)
def test_classes_go_by_size_and_minimum(gpus: int, minimum: int, kind: str) -> None:
    assert kind_of(Shape(1, gpus, min_runtime=minimum), gpus) == kind


def test_a_session_is_told_by_its_label() -> None:
    seen = scene()
    seen.submit("a", label="Session", gpus=1, minimum="15m")
    seen.start("a", 5)
    waits = seen.metrics()["waits"]
    assert waits["session"]["count"] == 1
    assert waits["debug"]["count"] == 0


def test_who_gave_up_and_who_still_waits_count_with_their_wait_so_far() -> None:
    """One starts after 10 s, one gives up after an hour, one waits all day."""
    seen = scene()
    for name in "abc":
        seen.submit(name, gpus=4)
    seen.start("a", 10)
    seen.cancel("b", HOUR_S)
    waits = seen.metrics()["waits"]["all"]
    assert waits == {
        "count": 3,
        "started": 1,
        "mean_s": round((10 + 3600 + 86400) / 3, 3),
        "p50_s": 3600.0,
        "p90_s": 86400.0,
        "p99_s": 86400.0,
        "max_s": 86400.0,
    }


def test_only_the_first_start_ends_the_wait() -> None:
    seen = scene()
    seen.submit("a", gpus=4)
    seen.start("a", 10)
    seen.preempt("a.1", 7200)
    seen.start("a", 20_000, attempt=2)
    assert seen.metrics()["waits"]["all"]["max_s"] == 10.0


def test_the_wait_ends_when_the_run_runs_not_when_it_is_told_to() -> None:
    seen = scene()
    seen.submit("a", gpus=4)
    seen.start("a", 10, launch_s=30)
    assert seen.metrics()["waits"]["small"]["p50_s"] == 40.0


def test_a_launch_that_fails_is_no_start() -> None:
    """Told to start at 10 s, failed at 20 s, started again at 50 s."""
    seen = scene()
    made = seen.submit("a", gpus=4, resume=False)
    given = Allocation(0, 1, 4)
    seen.cycle(10, actions=[Start(RunId("a.1"), made.id, given, made.shape.min_runtime, BECAUSE)])
    seen.end("a.1", 20, Outcome.LAUNCH_FAILED)
    seen.start("a", 50, attempt=2)
    assert seen.metrics()["waits"]["all"]["max_s"] == 50.0
    assert seen.metrics()["preemptions"] == 0


def test_time_set_aside_by_its_user_is_not_waiting() -> None:
    seen = scene()
    seen.submit("a", gpus=4)
    seen.cycle(10, WorkloadHeld(ms(10), WorkloadId("a"), "not yet"))
    seen.cycle(500, WorkloadReleased(ms(500), WorkloadId("a")))
    seen.start("a", 505)
    seen.submit("b", gpus=4, at=600, held=True)
    seen.cycle(700, WorkloadReleased(ms(700), WorkloadId("b")))
    seen.start("b", 703, [1])
    waits = seen.metrics()["waits"]["all"]
    assert (waits["p50_s"], waits["max_s"]) == (3.0, 15.0)


def test_a_rejected_workload_did_not_wait() -> None:
    seen = scene()
    seen.submit("a", nodes=99)
    seen.cycle(0, actions=[Reject(WorkloadId("a"), NeverFits(99, 1, (), 10, 8))])
    metrics = seen.metrics()
    assert metrics["waits"]["all"]["count"] == 0
    assert metrics["rejected"] == 1


def test_work_without_a_minimum_is_told_apart() -> None:
    """Charged: one of 4 GPUs starts. Uncharged: one starts, one of 8 GPUs and 3 h gives up, one still waits."""
    seen = scene()
    seen.submit("kept", gpus=4)
    for name, gpus in (("free", 4), ("gone", 8), ("late", 16)):
        seen.submit(name, gpus=8 if gpus > 8 else gpus, nodes=2 if gpus > 8 else 1, minimum="0s")
    seen.start("kept", 10)
    seen.start("free", 60, [1])
    seen.cancel("gone", HOUR_S)
    hours = {"kept": 2, "free": 1, "gone": 3, "late": 5}
    arrivals = [Arrival(seen.workloads[name], run * HOUR) for name, run in hours.items()]
    seen.measures.trace = replace(seen.measures.trace, arrivals=arrivals)
    found = seen.metrics()["by_contract"]
    charged, uncharged = found["charged"], found["uncharged"]
    assert {key: charged["small"][key] for key in ("count", "started", "p90_s", "work", "work_unstarted")} == {
        "count": 1, "started": 1, "p90_s": 10.0, "work": 8.0, "work_unstarted": 0.0,
    }  # fmt: skip
    assert {key: uncharged["small"][key] for key in ("count", "started", "p90_s", "work", "work_unstarted")} == {
        "count": 2, "started": 1, "p90_s": 3600.0, "work": 28.0, "work_unstarted": 24.0,
    }  # fmt: skip
    assert (uncharged["medium"]["work"], uncharged["medium"]["work_unstarted"]) == (80.0, 80.0)
    every = uncharged["all"]
    assert (every["count"], every["work"], every["work_unstarted"]) == (3, 108.0, 104.0)
    assert (charged["medium"]["count"], charged["medium"]["work"]) == (0, 0.0)


def test_what_work_came_in_is_unknown_without_a_log() -> None:
    seen = scene()
    seen.submit("a", gpus=4)
    seen.start("a", 10)
    row = seen.metrics()["by_contract"]["charged"]["small"]
    assert (row["started"], row["work"], row["work_unstarted"]) == (1, None, None)


def test_waits_by_account() -> None:
    seen = scene()
    seen.submit("a", gpus=4)
    seen.submit("b", "blue", gpus=4)
    seen.start("a", 10)
    accounts = seen.report()["by_account"]
    assert accounts["red"]["waits"] == {"count": 1, "p50_s": 10.0, "p90_s": 10.0}
    assert accounts["blue"]["waits"] == {"count": 1, "p50_s": 86400.0, "p90_s": 86400.0}


def progress_of(seen: Scene) -> float:
    value: float = seen.metrics()["first_progress"]["all"]["max_s"]
    return value


def test_first_progress_is_the_first_checkpoint_that_the_engine_vouches_for() -> None:
    seen = scene()
    seen.submit("a", gpus=4, checkpoint=30 * MINUTE, minimum="1h")
    seen.start("a", 10)
    assert progress_of(seen) == 10 + 1800


def test_the_end_of_the_minimum_is_a_checkpoint() -> None:
    seen = scene()
    seen.submit("a", gpus=4, checkpoint=2 * HOUR, minimum="1h")
    seen.start("a", 10)
    assert progress_of(seen) == 10 + 3600


def test_a_run_that_ends_before_it_saves_has_got_somewhere() -> None:
    seen = scene()
    seen.submit("a", gpus=4, checkpoint=2 * HOUR, minimum="1h")
    seen.start("a", 10)
    seen.end("a.1", 100)
    assert progress_of(seen) == 100


def test_a_run_that_is_stopped_before_it_saves_has_not() -> None:
    """The second attempt restarts for a minute and saves an hour later, as its minimum is over."""
    seen = scene()
    seen.submit("a", gpus=4, checkpoint=2 * HOUR, restart=MINUTE, minimum="2h")
    seen.start("a", 0)
    seen.end("a.1", 100, Outcome.NODE_FAIL, lost_s=100)
    seen.start("a", 1000, attempt=2)
    assert progress_of(seen) == 1000 + 7200
    assert seen.metrics()["first_progress"]["all"]["started"] == 1


def test_a_reported_checkpoint_counts() -> None:
    seen = scene()
    seen.submit("a", gpus=4)
    seen.start("a", 10, vouched=False)
    seen.cycle(500, RunCheckpointed(ms(500), RunId("a.1")))
    assert progress_of(seen) == 500


def test_work_that_never_saves_has_progress_only_at_its_end() -> None:
    seen = scene()
    seen.submit("a", gpus=4, checkpoint=0)
    seen.start("a", 10)
    first = seen.metrics()["first_progress"]["all"]
    assert (first["count"], first["started"], first["max_s"]) == (1, 0, 86400.0)
