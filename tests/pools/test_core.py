"""Ledgers come, go and come back: what the core keeps, and what it lets go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.accounts import Budget, Budgets, sorted_shares
from mirab.model.events import (
    BudgetsChanged,
    ClusterChanged,
    Event,
    ExemptionGranted,
    Outcome,
    PolicyChanged,
    RunAdopted,
    RunEnded,
)
from mirab.model.plans import Plan, Reject, Start
from mirab.model.policy import Exemption, Policy
from mirab.model.reasons import UnknownAccount
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import (
    DAY,
    HOUR,
    WEEK,
    WHOLE,
    AccountPath,
    Instant,
    NodeName,
    RunId,
    UserName,
    WorkloadId,
)
from mirab.model.workloads import Workload
from mirab.service.snapshot import freeze, thaw
from tests.pretend import Conduct, HandClock, PretendEngine, Recorder

PERCENT = WHOLE // 100
USUAL = Policy()
A, H = AccountPath("red"), AccountPath("h100:red")


def pool(name: str, nodes: int) -> Pool:
    return Pool(name, tuple(NodeName(f"{name}-{number}") for number in range(nodes)), 8, name)


def tree(red: int | None = None, blue: int | None = None, **terms: int) -> Budgets:
    """Half of everything for red and for blue, and what is named of the H100s."""
    shares = [{} if share is None else {"h100": share * PERCENT} for share in (red, blue)]
    names = ("red", "blue")
    return Budgets(
        tuple(
            Budget(name, WHOLE // 2, pool_shares=sorted_shares(share), **terms)  # type: ignore[arg-type]
            for name, share in zip(names, shares, strict=True)
        )
    )


def workload(name: str, kind: str = "", account: str = "red", nodes: int = 1, minimum: int = HOUR) -> Workload:
    shape = Shape(nodes, 8, gpu_types=(kind,) if kind else (), min_runtime=minimum)
    return Workload(WorkloadId(name), 0, AccountPath(account), UserName("ana"), shape)


class World:
    def __init__(self, budgets: Budgets, policy: Policy = USUAL, cluster: Cluster | None = None) -> None:
        self.clock = HandClock()
        cluster = cluster or Cluster("c", (pool("a100", 2), pool("h100", 2)))
        self.engine = PretendEngine(cluster, self.clock)
        self.state = State(cluster, budgets, policy)
        self.journal = Recorder()

    def submit(self, *workloads: Workload) -> Plan:
        for each in workloads:
            self.engine.arrive(each, Conduct())
        return self.decide()

    def happen(self, at: Instant, *facts: Event) -> Plan:
        self.clock.instant = at
        for fact in facts:
            self.engine.fact(fact)
        return self.decide(at)

    def decide(self, at: Instant | None = None) -> Plan:
        self.clock.instant = self.clock.instant if at is None else at
        plan = cycle(self.state, self.clock, self.engine, self.journal)
        self.state.check()
        return plan

    def change(self, at: Instant, budgets: Budgets) -> Plan:
        return self.happen(at, BudgetsChanged(at, budgets))


def starts(plan: Plan) -> list[str]:
    return [action.workload_id for action in plan.actions if isinstance(action, Start)]


def test_a_ledger_that_comes_back_is_a_new_one() -> None:
    world = World(tree(100))
    assert starts(world.submit(workload("r", "h100"))) == ["r"]
    world.change(DAY, tree())
    assert world.state.runs[RunId("r.1")].account.path == A
    old = world.state.accounts[H]
    assert old.share == 0 and old.usage.rate == 0
    world.change(3 * DAY, tree(100))
    new = world.state.accounts[H]
    assert new is not old and world.state.runs[RunId("r.1")].account is new
    assert new.used(3 * DAY) == new.promised(3 * DAY) // WHOLE == 16_000 * WEEK
    assert new.usage.rate == 8_000


def test_what_was_used_stays_where_it_was_charged() -> None:
    world = World(tree())
    world.submit(workload("r", "h100"))
    world.decide(DAY)
    before = world.state.accounts[A].used(DAY)
    world.change(DAY, tree(100))
    assert world.state.accounts[A].used(DAY) == before
    assert world.state.accounts[A].usage.rate == 0
    world.decide(2 * DAY)
    world.change(2 * DAY, tree())
    assert world.state.accounts[A].usage.rate == 8_000
    assert world.state.accounts[H].usage.rate == 0


def test_a_minimum_and_its_commitment_go_with_the_run() -> None:
    world = World(tree())
    world.submit(workload("r", "h100", minimum=8 * HOUR))
    world.change(HOUR, tree(100))
    red, own = world.state.accounts[A], world.state.accounts[H]
    assert red.committed(HOUR) == 0 and own.committed(HOUR) == 8_000 * 7 * HOUR
    assert own.users[UserName("ana")].commitment.at(HOUR) == 8_000 * 7 * HOUR
    world.decide(8 * HOUR)
    assert own.committed(8 * HOUR) == 0 and own.commitment.amount == 0


def test_runs_past_their_minimum_may_be_stopped_in_the_ledger_that_they_come_to() -> None:
    world = World(tree())
    world.submit(workload("r1", "h100"), workload("r2", "h100"))
    world.decide(2 * DAY)
    world.change(2 * DAY, tree(0, 100))
    plan = world.submit(workload("b", "h100", account="blue"))
    assert [type(action).__name__ for action in plan.actions] == ["Preempt"]


def test_nobody_takes_from_another_ledger_nor_stands_beside_it() -> None:
    """Blue owes nothing to anybody on the A100s, however far red stands above its share of the H100s."""
    world = World(tree(0, 100))
    world.submit(workload("r1", "h100"), workload("r2", "h100"))
    world.decide(2 * DAY)
    world.submit(workload("b", "h100", account="blue"))
    trial = Trial(world.state, world.clock.instant)
    accounts = world.state.accounts
    blue, own, red = accounts[AccountPath("blue")], accounts[AccountPath("h100:blue")], accounts[H]
    assert trial.may_take(trial.claim(own, 0), red) and not trial.may_take(trial.claim(blue, 0), red)
    assert world.state.roots_of(red.ledger) == [red, own]
    assert trial.first_leaf(own.ledger) is own and trial.first_leaf(blue.ledger) is None


def test_without_a_pool_left_the_main_ledger_stands_empty() -> None:
    both = Budgets((Budget("red", WHOLE, pool_shares=(("a100", WHOLE), ("h100", WHOLE))),))
    world = World(both)
    assert world.state.window.capacity.rate == 0 and world.state.ledgers[""].pools == ()
    assert starts(world.submit(workload("r"), workload("s", "h100"))) == ["r", "s"]
    assert world.state.runs[RunId("r.1")].account.path == "a100:red"
    world.change(DAY, tree())
    assert world.state.window.capacity.rate == 32_000


def test_a_new_pool_that_somebody_has_named_has_its_ledger_at_once() -> None:
    world = World(tree(100), cluster=Cluster("c", (pool("a100", 2),)))
    assert list(world.state.ledgers) == [""]
    assert isinstance(world.submit(workload("early", "h100")).actions[0], Reject)
    world.happen(HOUR, ClusterChanged(HOUR, Cluster("c", (pool("a100", 2), pool("h100", 1)))))
    assert world.state.window.capacity.rate == 16_000
    own = world.state.accounts[H]
    assert own.share == WHOLE and own.window.capacity.rate == 8_000
    assert starts(world.submit(workload("r", "h100"))) == ["r"]
    assert world.state.runs[RunId("r.1")].account is own
    world.happen(2 * HOUR, ClusterChanged(2 * HOUR, Cluster("c", (pool("a100", 2), pool("h100", 3)))))
    assert own.window.capacity.rate == 24_000


def test_more_nodes_may_change_where_untyped_work_goes() -> None:
    world = World(tree(60), cluster=Cluster("c", (pool("a100", 1), pool("h100", 1))))
    assert world.state.promised(A, workload("w").shape) == [("h100", 60 * PERCENT * 8), ("", 50 * PERCENT * 8)]
    world.happen(HOUR, ClusterChanged(HOUR, Cluster("c", (pool("a100", 2), pool("h100", 1)))))
    assert world.state.ledger_for(A, workload("w").shape) == ""


def test_what_the_engine_runs_counts_in_the_ledger_of_its_pool() -> None:
    world = World(tree(100), replace(Policy(), mode="observe"))
    world.submit(workload("r"))
    assert world.state.pending[WorkloadId("r")].queue.user.account.path == H  # type: ignore[union-attr]
    world.state.fold(RunAdopted(HOUR, RunId("r.1"), WorkloadId("r"), Allocation(0, 1, 8), HOUR, HOUR))
    assert world.state.runs[RunId("r.1")].account.path == A
    world.state.check()
    world.state.fold(RunEnded(2 * HOUR, RunId("r.1"), Outcome.COMPLETED))
    world.state.check()
    assert not world.state.runs


def test_no_account_is_made_for_a_name_that_is_one_of_a_ledger() -> None:
    world = World(tree(100), replace(Policy(), unknown_accounts="zero"))
    plan = world.submit(
        workload("x", account="h100:red"), workload("y", account="h100:new"), workload("z", account="new")
    )
    refused = [action for action in plan.actions if isinstance(action, Reject)]
    assert [action.workload_id for action in refused] == ["x", "y"]
    assert {type(action.reason) for action in refused} == {UnknownAccount}
    assert starts(plan) == ["z"]
    assert world.state.accounts[AccountPath("h100:new")].share == 0


def test_an_extra_share_is_given_in_each_ledger_as_far_as_there_is_one() -> None:
    budgets = Budgets((Budget("red", WHOLE // 4, pool_shares=(("h100", WHOLE // 2),)), Budget("blue", WHOLE // 4)))
    world = World(budgets)
    wish = Exemption("x", "extra-share", "blue", 0, DAY, "o", "a", "r", share=WHOLE * 6 // 10, donor="red")
    world.happen(0, ExemptionGranted(0, wish))
    shares = {str(path): account.share * 100 // WHOLE for path, account in world.state.accounts.items()}
    assert shares == {"red": 0, "blue": 50, "h100:red": 0, "h100:blue": 50}
    unassigned = replace(wish, id="y", donor="", share=WHOLE * 6 // 10)
    other = World(budgets)
    other.happen(0, ExemptionGranted(0, unassigned))
    assert other.state.accounts[AccountPath("blue")].share == WHOLE * 3 // 4
    assert other.state.accounts[AccountPath("h100:blue")].share == WHOLE // 2
    other.decide(DAY)
    assert other.state.accounts[AccountPath("h100:blue")].share == 0


def test_longer_minimums_guarantees_and_caps_hold_in_every_ledger() -> None:
    world = World(tree(100, min_runtime_cap=2 * HOUR))
    longer = Exemption("x", "longer-minimum", "red", 0, DAY, "o", "a", "r", cap=20 * HOUR)
    assert world.state.minimum_in_force(H, 30 * HOUR) == 2 * HOUR
    world.happen(0, ExemptionGranted(0, longer), ExemptionGranted(0, replace(longer, id="y", kind="guaranteed")))
    assert world.state.minimum_in_force(H, 30 * HOUR) == 20 * HOUR
    assert world.state.guaranteed(H) and not world.state.guaranteed(AccountPath("h100:blue"))


def test_another_window_is_of_every_ledger() -> None:
    world = World(tree(100))
    world.decide(DAY)
    world.happen(DAY, PolicyChanged(DAY, replace(Policy(), window=2 * DAY)))
    assert {ledger.window.length for ledger in world.state.ledgers.values()} == {2 * DAY}


def test_a_state_with_ledgers_is_kept_and_read_back() -> None:
    world = World(tree(100, 0, gpus_max=16))
    world.submit(*(workload(f"w{number}", kind) for number, kind in enumerate(("h100", "a100", "h100", "", ""))))
    world.decide(2 * HOUR)
    copy = thaw(freeze(world.state))
    copy.check()
    assert copy.accounts[H].home is copy.accounts[A]
    assert [account.weigh(DAY) for account in copy.accounts.values()] == [
        account.weigh(DAY) for account in world.state.accounts.values()
    ]


@pytest.mark.parametrize("after", [tree(), tree(100), tree(0, 100), tree(50, 50)])
@pytest.mark.parametrize("before", [tree(), tree(100), tree(30)])
def test_any_change_keeps_the_books(before: Budgets, after: Budgets) -> None:
    world = World(before, replace(Policy(), window=DAY))
    names = iter(range(100))
    for at in range(0, 30 * HOUR, 3 * HOUR):
        world.clock.instant = at
        kinds = ("h100", "a100", "")
        world.submit(*(workload(f"w{next(names)}", kind, account) for kind in kinds for account in ("red", "blue")))
        world.change(at + HOUR, after if at // HOUR % 2 else before)
    renamed = Budgets((replace(after.roots[0], name="new", formerly=("red", "blue"), share=WHOLE),))
    world.change(40 * HOUR, renamed)
    assert {run.workload.account for run in world.state.runs.values()} == {"new"}
