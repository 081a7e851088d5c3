"""Measures with shares of single pools: each ledger is counted as a cluster of its own, and totals are over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets, ledger_of, sorted_shares
from mirab.model.events import BudgetsChanged, Event, ExemptionGranted, ReservationApproved, WorkloadSubmitted
from mirab.model.plans import Action, Hold, Plan, Start
from mirab.model.policy import POLICIES, Exemption, Reservation
from mirab.model.records import Beginning
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, AccountPath, NodeName, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.sim.engine import replay
from mirab.study.exceptions import extra_units
from mirab.study.measures import Measures
from mirab.study.pastwork import past_trace
from mirab.study.replays import measure
from mirab.study.weekly import Week, weekly
from mirab.study.weeklytext import markdown
from tests.examples import examples
from tests.study.scene import Scene
from tests.worlds import draw_world

POLICY = replace(POLICIES["budget"], window=DAY)
PERCENT = WHOLE // 100
A100 = Pool("a100", tuple(NodeName(f"a{number}") for number in range(4)), 8, gpu_type="a100")
H100 = Pool("h100", tuple(NodeName(f"h{number}") for number in range(2)), 8, gpu_type="h100")
BOTH = Cluster("two types", (A100, H100))


def budget(name: str, share: int, *children: Budget, **pools: int) -> Budget:
    return Budget(name, share * PERCENT, children,
                  pool_shares=sorted_shares({pool: part * PERCENT for pool, part in pools.items()}))  # fmt: skip


PAID = Budgets((budget("vision", 30, h100=75), budget("language", 70)))
"""Vision paid for three quarters of the H100s; the rest of them is nobody's."""


def arrivals(seed: int, count: int = 160) -> list[Arrival]:
    """Work of both accounts for either type, much more than fits at times."""
    draw = Random(seed)
    found = []
    for number in range(count):
        at = draw.randrange(3 * DAY)
        kind, account = draw.choice(("a100", "h100")), draw.choice(("vision", "language"))
        minimum = draw.choice((HOUR, 2 * HOUR))
        shape = Shape(draw.choice((1, 1, 2)), draw.choice((1, 4, 8)), gpu_types=(kind,), min_runtime=minimum)
        made = Workload(WorkloadId(f"w{number:03}"), at, AccountPath(account), UserName(draw.choice("ab")), shape)
        found.append(Arrival(made, draw.randrange(10 * MINUTE, 12 * HOUR)))
    return sorted(found, key=lambda each: each.workload.submitted_at)


def trace_of(cluster: Cluster, budgets: Budgets, given: Sequence[Arrival]) -> Trace:
    return Trace(tuple(given), cluster, budgets, ends_at=3 * DAY, name="two", rows=len(given))


class Kept:
    """A journal that keeps everything."""

    def __init__(self) -> None:
        self.records: list[tuple[tuple[Event, ...], Plan]] = []

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.records.append((tuple(facts), plan))


def alone(budgets: Budgets, number: int, given: Sequence[Arrival], kept: Kept) -> dict[str, Any]:
    """The report of one pool's part of the records, as those of a cluster that has no other pool."""
    pool = BOTH.pools[number]
    own = {each.workload.id for each in given if each.workload.shape.gpu_types == (pool.gpu_type,)}
    arrived = [each for each in given if each.workload.id in own]
    measures = Measures(trace_of(Cluster("alone", (pool,)), budgets, arrived), POLICY)
    for facts, plan in kept.records:
        measures.append([fact for fact in facts if about(fact) in own],
                        replace(plan, actions=tuple(_moved(each) for each in plan.actions if about(each) in own),
                                holds=tuple(replace(each, pool=0) if isinstance(each, Hold) else each
                                            for each in plan.holds if about(each) in own)))  # fmt: skip
    return measures.report()


def about(thing: Any) -> WorkloadId:
    """The workload that a fact or an action is about."""
    if isinstance(thing, WorkloadSubmitted):
        return thing.workload.id
    named = getattr(thing, "workload_id", None)
    return WorkloadId(named if named is not None else getattr(thing, "run_id", "").rpartition(".")[0])


def _moved(action: Action) -> Action:
    return replace(action, allocation=action.allocation._replace(pool=0)) if isinstance(action, Start) else action


@pytest.mark.parametrize("seed", range(1, 4))
def test_each_ledger_is_counted_as_a_cluster_of_its_own(seed: int) -> None:
    given, kept = arrivals(seed), Kept()
    whole = measure(trace_of(BOTH, PAID, given), POLICY, journals=(kept,))[0].report()
    for ledger, prefix in zip(PAID.ledgers(("a100", "h100")), ("", "h100:"), strict=True):
        (number,) = ledger.pools
        found = alone(ledger.budgets, number, given, kept)["by_account"]
        assert found["vision"]["charged"] and found["vision"]["preempted"]
        for path, account in found.items():
            told = dict(whole["by_account"][f"{prefix}{path}"])
            part = account["share"] * BOTH.pools[number].slots / 48
            assert (told.pop("ledger"), told.pop("share_of_all")) == (ledger.name, pytest.approx(part))
            assert told == account, f"{prefix}{path}"
    assert whole["input"]["ledgers"] == [
        {"name": "", "pools": ["a100"], "units": 32.0},
        {"name": "h100", "pools": ["h100"], "units": 16.0},
    ]
    assert list(whole["by_account"]) == ["vision", "language", "h100:vision", "h100:language"]


def test_owed_is_the_share_of_the_pool_and_not_of_the_cluster() -> None:
    """16 H100s, 75 % of them vision's: of a demand for all 16 it is owed 12; language, which has none, is owed none."""
    scene = Scene(BOTH, PAID, hours=10)
    for account in ("vision", "language"):
        scene.submit(account, account, shape=Shape(2, 8, gpu_types=("h100",), min_runtime=HOUR))
    scene.start("language", 0, (0, 1), pool=1)
    told = scene.report(10 * 3600)["by_account"]
    assert told["h100:vision"]["owed"] == 120.0 and told["h100:vision"]["delivered"] == 0.0
    assert told["h100:language"]["owed"] == 0.0 and told["h100:language"]["charged"] == 160.0
    assert told["vision"]["owed"] == told["language"]["owed"] == 0.0


def test_work_that_names_no_type_is_owed_where_its_account_is_promised_most() -> None:
    """Vision: 30 % of 32 A100s are 9.6, 75 % of 16 H100s are 12. Language has nothing of the H100s."""
    scene = Scene(BOTH, PAID, hours=10)
    for account in ("vision", "language"):
        scene.submit(account, account, shape=Shape(1, 8, min_runtime=HOUR))
    told = scene.report(10 * 3600)["by_account"]
    assert {path: each["owed"] for path, each in told.items()} == {
        "vision": 0.0, "language": 80.0, "h100:vision": 80.0, "h100:language": 0.0,
    }  # fmt: skip


def test_a_ledger_that_is_made_takes_over_what_runs_and_waits_in_its_pool() -> None:
    """Until hour 4 one tree: vision is owed 30 % of 48. From then on 75 % of the 16 H100s."""
    scene = Scene(BOTH, Budgets((budget("vision", 30), budget("language", 70))), hours=10)
    scene.submit("runs", "vision", shape=Shape(1, 8, gpu_types=("h100",), min_runtime=HOUR))
    scene.start("runs", 0, (0,), pool=1)
    scene.submit("waits", "vision", shape=Shape(2, 8, gpu_types=("h100",), min_runtime=HOUR))
    scene.cycle(4 * 3600, BudgetsChanged(4 * HOUR, PAID))
    scene.cycle(7 * 3600, BudgetsChanged(7 * HOUR, Budgets((budget("vision", 30), budget("language", 70)))))
    told = scene.report(10 * 3600)["by_account"]
    assert told["vision"]["owed"] == pytest.approx(7 * 14.4) and told["vision"]["charged"] == 7 * 8.0
    assert told["h100:vision"]["owed"] == 3 * 12.0 and told["h100:vision"]["charged"] == 3 * 8.0
    assert told["h100:vision"]["share"] == 0


def test_without_shares_of_pools_nothing_is_said_of_ledgers() -> None:
    tree = Budgets((budget("vision", 30), budget("language", 70)))
    told = measure(trace_of(BOTH, tree, arrivals(1, 20)), POLICY)[0].report()
    assert "ledgers" not in told["input"]
    assert all("ledger" not in each and "share_of_all" not in each for each in told["by_account"].values())


def test_a_week_of_a_service_has_the_rows_of_a_replay() -> None:
    given, kept = arrivals(1), Kept()
    whole = measure(trace_of(BOTH, PAID, given), POLICY, journals=(kept,))[0].report()
    began = Beginning(BOTH, PAID, POLICY, 0)
    found = weekly(Week("W1", 0, 3 * DAY), began, kept.records, lambda workload: 0)
    rows = {each["path"]: each for each in found["accounts"]}
    for path in ("vision", "language", "h100:vision", "h100:language"):
        for key in ("share", "owed", "delivered", "charged", "ledger"):
            assert rows[path][key] == whole["by_account"][path][key]
    assert "have shares of that pool alone" in markdown(found)


def test_the_past_of_a_journal_replays_under_shares_of_pools() -> None:
    """What `mirab whatif` on a service makes of the journal; the exceptions of an account hold in all its ledgers."""
    given, kept = arrivals(2), Kept()
    measure(trace_of(BOTH, PAID, given), POLICY, journals=(kept,))
    trace = past_trace(kept.records, BOTH, PAID, DAY, 3 * DAY, POLICY)
    told = measure(trace, POLICY)[0].report()
    assert told["by_account"]["h100:vision"]["owed"] > 0 and told["metrics"]["contract_violations"] == 0


def test_an_extra_share_holds_in_each_ledger_within_what_there_is() -> None:
    """Ten points more for language from nobody's rest: of the H100s there are 25 left, of the A100s none."""
    scene = Scene(BOTH, PAID, hours=10)
    extra = Exemption("x1", "extra-share", "language", 0, 20 * HOUR, "o", "a", "r", share=10 * PERCENT)
    scene.cycle(0, ExemptionGranted(0, extra))
    for kind in ("a100", "h100"):
        scene.submit(kind, "language", shape=Shape(2, 8, gpu_types=(kind,), min_runtime=HOUR))
    told = scene.report(10 * 3600)["by_account"]
    assert told["h100:language"]["share"] == 0.1 and told["h100:language"]["owed"] == 16.0
    assert told["language"]["share"] == 0.7
    assert extra_units(10 * PERCENT, "", BOTH, PAID) == 1.6
    assert extra_units(50 * PERCENT, "vision", BOTH, PAID) == 0.3 * 32 + 0.5 * 16


def test_a_reservation_is_charged_in_the_ledger_of_its_pool() -> None:
    scene = Scene(BOTH, PAID, hours=10)
    held = Reservation("r1", AccountPath("vision"), 1, 8, 0, 5 * HOUR, "o", "a", "r", "h100")
    scene.cycle(0, ReservationApproved(0, held))
    scene.cycle(0, holds=[Hold(WorkloadId("r1"), 1, 1, 8, 5 * HOUR, 0, reservation_id="r1")])
    scene.cycle(2 * 3600, BudgetsChanged(2 * HOUR, Budgets((budget("vision", 30), budget("language", 70)))))
    told = scene.report(10 * 3600)["by_account"]
    assert (told["h100:vision"]["charged"], told["vision"]["charged"]) == (16.0, 24.0), (
        "from hour 2 on there is one ledger"
    )


class Beside:
    """A journal that compares, record by record, where measures and scheduler have each piece of work."""

    def __init__(self, measures: Measures) -> None:
        self.measures = measures
        self.compared = self.apart = 0

    def attach(self, state: State) -> None:
        self.state = state
        self.measures.attach(state)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.measures.append(facts, plan)
        for job in self.measures.jobs.values():
            theirs = self._account_of(job.workload.id)
            if theirs is not None:
                self.compared += 1
                self.apart += bool(ledger_of(theirs))
                assert ledger_of(job.leaf.path) == ledger_of(theirs), f"{job.workload.id} at {plan.at}"

    def _account_of(self, name: WorkloadId) -> str | None:
        run, pending = self.state.running.get(name), self.state.pending.get(name)
        if run is not None:
            return run.account.path
        return pending.queue.user.account.path if pending is not None and pending.queue is not None else None


def test_measures_and_scheduler_have_everything_in_the_same_ledger() -> None:
    """Over random worlds in which ledgers, exceptions and accounts come and go; each by its own books."""
    apart, worlds = 0, examples(60)
    for seed in range(worlds):
        world = draw_world(Random(seed))
        beside = Beside(Measures(world.trace, world.policy))
        replay(world.trace, world.policy, journals=(beside,), attach=beside.attach)
        apart += beside.apart
    assert apart > (1_000 if worlds == 60 else 10 * worlds), (
        "it would show nothing if nobody were in the ledger of a pool"
    )
