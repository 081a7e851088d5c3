"""The audit finds every stop that the contract forbids, and no other."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.events import BudgetsChanged, ExemptionGranted, Outcome, PolicyChanged, RunContinued, RunSuspended
from mirab.model.plans import Start
from mirab.model.policy import Exemption
from mirab.model.reasons import DrainedFrom, StartTimedOut
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, WHOLE, RunId
from tests.study.scene import BECAUSE, BUDGET, HOUR_S, Scene, cluster, ms


def running(minimum: str = "2h", *, launch_s: float = 0, **more: object) -> Scene:
    scene = Scene(cluster(2, 8), **more)  # type: ignore[arg-type]
    scene.submit("a", gpus=8, minimum=minimum)
    scene.start("a", 100, launch_s=launch_s)
    return scene


def violations(scene: Scene) -> int:
    found: int = scene.measures.report()["metrics"]["contract_violations"]
    return found


@pytest.mark.parametrize(("ran_s", "found"), [(0, 1), (7199.999, 1), (7200, 0), (9000, 0)])
def test_nothing_stops_before_its_minimum_is_over(ran_s: float, found: int) -> None:
    scene = running()
    scene.preempt("a.1", 100 + ran_s)
    assert violations(scene) == found


def test_a_drain_is_no_excuse() -> None:
    scene = running()
    scene.preempt("a.1", HOUR_S, reason=DrainedFrom("n0"))
    assert violations(scene) == 1
    story = scene.measures.audit.violations[0]
    assert (story.run_id, story.ran, story.promised) == ("a.1", ms(HOUR_S - 100), 2 * HOUR)
    assert "DrainedFrom" in story.why


def test_the_clock_starts_when_the_run_runs() -> None:
    scene = running(launch_s=60)
    scene.stop("a.1", 100 + 7200)
    assert violations(scene) == 1


def test_the_minimum_counts_up_to_the_cap() -> None:
    scene = running("20h")
    scene.preempt("a.1", 100 + 8 * HOUR_S)
    assert violations(scene) == 0


CAPPED = Budgets((Budget("red", WHOLE // 2, (Budget("x", WHOLE), Budget("y", 0)), min_runtime_cap=HOUR),))


def capped(account: str, ran_s: float) -> Scene:
    """A run of ten hours' minimum, stopped."""
    scene = Scene(cluster(2, 8), CAPPED)
    scene.submit("a", account, gpus=8, minimum="10h")
    scene.start("a", 100)
    scene.preempt("a.1", 100 + ran_s)
    return scene


@pytest.mark.parametrize(("account", "ran_s", "found"), [("red", 3600, 0), ("red/x", 3600, 0), ("red/x", 3599, 1)])
def test_the_cap_of_a_budget_counts_for_what_lies_below_it(account: str, ran_s: float, found: int) -> None:
    assert violations(capped(account, ran_s)) == found


def test_a_cap_that_changes_counts_for_later_starts_only_and_follows_the_account() -> None:
    scene = Scene(cluster(3, 8), CAPPED)
    for node, (name, at) in enumerate((("a", 0), ("b", 1_000), ("c", 2_000))):
        scene.submit(name, "red/x", gpus=8, minimum="10h", at=at)
        scene.start(name, at, (node,))
        renamed = Budget("x2", WHOLE, min_runtime_cap=2 * HOUR, formerly=("red/x",))
        later = Budgets((Budget("red", WHOLE // 2, (renamed, Budget("y", 0))),))
        scene.cycle(at + 500, BudgetsChanged(ms(at + 500), later))
    scene.preempt("a.1", 3_600)
    assert violations(scene) == 0
    scene.preempt("b.1", 1_000 + 7_199)
    assert violations(scene) == 1
    scene.preempt("c.1", 2_000 + 7_200)
    assert violations(scene) == 1


def test_a_policy_that_changes_counts_for_later_starts_only() -> None:
    scene = Scene(cluster(2, 8))
    for name, at in (("a", 0), ("b", 1_000)):
        scene.submit(name, gpus=8, minimum="10h", at=at)
        scene.start(name, at, (int(name == "b"),))
        scene.cycle(at + 500, PolicyChanged(ms(at + 500), replace(BUDGET, min_runtime_cap=HOUR)))
    scene.preempt("b.1", 1_000 + 3_600)
    assert violations(scene) == 0
    scene.preempt("a.1", 8 * HOUR_S - 1)
    assert [each.run_id for each in scene.measures.audit.violations] == ["a.1"]


def test_an_exemption_may_lift_the_cap_for_accounts_below_it() -> None:
    scene = Scene(cluster(2, 8))
    longer = Exemption("e", "longer-minimum", "red", 0, ms(50), "o", "p", "r", cap=12 * HOUR)
    scene.cycle(0, ExemptionGranted(0, longer))
    scene.submit("a", gpus=8, minimum="20h", at=10)
    scene.start("a", 10)
    scene.submit("b", "redder", gpus=8, minimum="20h", at=20)
    scene.start("b", 20, [1])
    scene.preempt("b.1", 20 + 8 * HOUR_S)
    scene.preempt("a.1", 20 + 8 * HOUR_S)
    assert [each.run_id for each in scene.measures.audit.violations] == ["a.1"]


def test_a_surplus_run_has_the_shorter_minimum_that_its_start_says() -> None:
    policy = replace(BUDGET, surplus_minimum_cap=HOUR)
    scene = Scene(cluster(2, 8), policy=policy)
    made = scene.submit("a", gpus=8, minimum="2h")
    scene.start("a", 0)
    scene.stop("a.1", 1.5 * HOUR_S)
    assert violations(scene) == 1
    scene.submit("b", gpus=8, minimum="2h")
    run = RunId("b.1")
    scene.cycle(0, actions=[Start(run, scene.workloads["b"].id, Allocation(0, 2, 8), HOUR, BECAUSE)])
    scene.stop("b.1", 0.5 * HOUR_S)
    assert violations(scene) == 2
    assert made.shape.min_runtime == 2 * HOUR


def test_a_core_that_promises_too_little_is_found_out() -> None:
    """Without `surplus_minimum_cap` the rule alone counts, not what the start says."""
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8, minimum="2h")
    run = RunId("a.1")
    scene.cycle(0, actions=[Start(run, scene.workloads["a"].id, Allocation(0, 1, 8), 0, BECAUSE)])
    scene.stop("a.1", 10)
    assert violations(scene) == 1


def test_time_in_suspension_does_not_count() -> None:
    scene = running()
    scene.cycle(1000, RunSuspended(ms(1000), RunId("a.1")))
    scene.cycle(4600, RunContinued(ms(4600), RunId("a.1")))
    scene.stop("a.1", 100 + 7200)
    assert violations(scene) == 1


def test_a_suspended_run_is_stopped_early_if_it_had_not_run_long_enough() -> None:
    scene = running()
    scene.cycle(1000, RunSuspended(ms(1000), RunId("a.1")))
    scene.stop("a.1", 10 * HOUR_S)
    assert violations(scene) == 1


def test_a_start_that_takes_too_long_may_be_given_up() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8, minimum="2h")
    scene.cycle(0, actions=[Start(RunId("a.1"), scene.workloads["a"].id, Allocation(0, 1, 8), 2 * HOUR, BECAUSE)])
    scene.stop("a.1", 600, StartTimedOut(600_000))
    scene.end("a.1", 600, Outcome.LAUNCH_FAILED)
    assert violations(scene) == 0


def test_a_run_that_is_starting_is_protected_from_all_else() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8, minimum="2h")
    scene.cycle(0, actions=[Start(RunId("a.1"), scene.workloads["a"].id, Allocation(0, 1, 8), 2 * HOUR, BECAUSE)])
    scene.stop("a.1", 600)
    assert violations(scene) == 1


def test_a_run_without_a_minimum_may_be_stopped_at_any_time() -> None:
    scene = running("0")
    scene.preempt("a.1", 101)
    assert violations(scene) == 0


def test_nobody_is_preempted_unasked() -> None:
    scene = running()
    scene.end("a.1", 9 * HOUR_S, Outcome.PREEMPTED)
    assert violations(scene) == 1
    assert scene.measures.report()["metrics"]["preemptions_by_cause"] == {"unasked": 1}


def test_one_run_is_one_violation() -> None:
    scene = running()
    scene.stop("a.1", 200)
    scene.stop("a.1", 201)
    scene.end("a.1", 210, Outcome.PREEMPTED)
    assert violations(scene) == 1


def test_hardware_and_its_own_end_break_no_contract() -> None:
    scene = running()
    scene.end("a.1", 200, Outcome.NODE_FAIL)
    scene.start("a", 300, attempt=2)
    scene.end("a.2", 400)
    assert violations(scene) == 0


def test_each_run_has_its_minimum_anew() -> None:
    scene = running()
    scene.preempt("a.1", 3 * HOUR_S)
    scene.start("a", 4 * HOUR_S, attempt=2)
    scene.preempt("a.2", 5 * HOUR_S)
    assert [each.run_id for each in scene.measures.audit.violations] == ["a.2"]


def test_a_launch_that_failed_is_tried_again_under_the_same_contract() -> None:
    scene = Scene(cluster(2, 8))
    scene.submit("a", gpus=8, minimum="2h", resume=False)
    scene.start("a", 0)
    scene.end("a.1", 60, Outcome.LAUNCH_FAILED)
    scene.start("a", 100, attempt=2)
    scene.preempt("a.2", HOUR_S)
    assert [each.run_id for each in scene.measures.audit.violations] == ["a.2"]


def test_a_guaranteed_run_is_nobodys_victim_while_it_lasts() -> None:
    scene = Scene(cluster(2, 8))
    kept = Exemption("g", "guaranteed", "red", 0, ms(5 * HOUR_S), "o", "p", "r")
    scene.cycle(0, ExemptionGranted(0, kept))
    for number, name in enumerate("ab"):
        scene.submit(name, gpus=8)
        scene.start(name, 0, [number])
    scene.preempt("a.1", 2 * HOUR_S)
    scene.preempt("b.1", 6 * HOUR_S)
    assert [each.why for each in scene.measures.audit.violations] == ["stopped although guaranteed"]


def test_after_the_period_the_contract_still_holds() -> None:
    scene = Scene(cluster(2, 8), hours=1)
    scene.submit("a", gpus=8, minimum="2h")
    scene.start("a", 0)
    scene.preempt("a.1", 1.5 * HOUR_S)
    assert violations(scene) == 1


def test_the_audit_knows_nothing_of_the_core() -> None:
    assert "mirab.core" not in files("mirab.study").joinpath("contract_audit.py").read_text(encoding="utf-8")
