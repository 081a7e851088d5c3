"""Beside an engine that schedules by itself: what it runs is counted, and what mirab would do is recorded, not done."""

from __future__ import annotations

from dataclasses import replace

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.model.events import (
    Event,
    Outcome,
    PolicyChanged,
    RunAdopted,
    RunEnded,
    WorkloadHeld,
    WorkloadSubmitted,
)
from mirab.model.plans import Action, Plan, Preempt
from mirab.model.policy import Policy
from mirab.model.resources import Allocation, Cluster
from mirab.model.units import DAY, FOREVER, HOUR, AccountPath, Instant, RunId, WorkloadId
from tests.pretend import HandClock, Recorder
from tests.properties.test_upheavals import BLUE, BUDGETS, RED, pool, starts, workload

OBSERVING = replace(Policy(), mode="observe")


class World:
    """An engine with a scheduler of its own: it tells facts, and keeps what it is told to do."""

    def __init__(self, policy: Policy, nodes: int = 2) -> None:
        cluster = Cluster("c", (pool("n", nodes),))
        self.clock = HandClock()
        self.state = State(cluster, BUDGETS, policy)
        self.told: list[Event] = []
        self.submitted: list[Action] = []

    def observe(self) -> list[Event]:
        facts, self.told = self.told, []
        return facts

    def submit(self, action: Action) -> None:
        self.submitted.append(action)

    def decide(self, at: Instant | None = None) -> Plan:
        self.clock.instant = self.clock.instant if at is None else at
        plan = cycle(self.state, self.clock, self, Recorder())
        self.state.check()
        return plan

    def happen(self, *facts: Event) -> Plan:
        self.told += facts
        return self.decide()

    def known(self, name: str, account: AccountPath) -> Plan:
        now = self.clock.instant
        return self.happen(WorkloadSubmitted(now, workload(name, account, now)))

    def adopt(self, run: str, mask: int, since: int, minimum: int = HOUR) -> Plan:
        given = Allocation(0, mask, 8)
        name = WorkloadId(run.partition(".")[0])
        return self.happen(RunAdopted(self.clock.instant, RunId(run), name, given, since, minimum))

    def ended(self, run: str, outcome: Outcome, at: Instant) -> Plan:
        self.clock.instant = at
        return self.happen(RunEnded(at, RunId(run), outcome))


def test_advice_is_recorded_and_nothing_is_done() -> None:
    world = World(OBSERVING)
    assert starts(world.known("w", RED)) == ["w"]
    assert starts(world.decide(1000)) == ["w"]
    assert not world.state.runs and not world.submitted
    assert WorkloadId("w") in world.state.pending


def test_what_the_engine_starts_is_charged_from_now_and_protected_from_its_own_start() -> None:
    world = World(OBSERVING)
    world.decide(3 * HOUR)
    world.known("w", RED)
    world.adopt("w.1", 0b01, since=3 * HOUR - HOUR // 2)
    (run,) = world.state.runs.values()
    assert run.protected_until == 3 * HOUR + HOUR // 2
    assert not world.state.pending
    before = world.state.accounts[RED].used(3 * HOUR)
    world.decide(4 * HOUR)
    par = world.state.accounts[BLUE].used(4 * HOUR)
    assert world.state.accounts[RED].used(4 * HOUR) - par == 8 * 1000 * HOUR
    assert par < before


def test_it_ends_and_is_adopted_again_under_another_attempt() -> None:
    world = World(OBSERVING)
    world.known("w", RED)
    world.adopt("w.1", 0b01, since=0)
    assert starts(world.ended("w.1", Outcome.REQUEUED, HOUR)) == ["w"]
    world.adopt("w.3", 0b10, since=HOUR)
    assert list(world.state.runs) == ["w.3"]


def test_what_was_given_away_twice_counts_once() -> None:
    world = World(OBSERVING)
    world.known("a", RED)
    world.known("b", BLUE)
    world.adopt("a.1", 0b11, since=0)
    world.adopt("b.1", 0b10, since=0)
    assert world.state.runs[RunId("b.1")].allocation.mask == 0
    world.ended("a.1", Outcome.COMPLETED, 0)
    world.ended("b.1", Outcome.COMPLETED, 0)
    assert world.state.banks[0].with_free(8) == 0b11


def test_what_is_not_ours_is_never_stopped() -> None:
    world = World(Policy(), nodes=1)
    now = world.clock.instant
    world.happen(
        WorkloadSubmitted(now, replace(workload("theirs", RED, now), held=True)),
        WorkloadHeld(now, WorkloadId("theirs"), "left to the engine"),
    )
    world.adopt("theirs.1", 0b1, since=0, minimum=FOREVER)
    world.decide(3 * DAY)
    plan = world.known("ours", BLUE)
    assert not [action for action in plan.actions if isinstance(action, Preempt)]
    assert list(world.state.pending) == ["ours"]


def test_what_nobody_submitted_is_not_adopted() -> None:
    world = World(OBSERVING)
    world.adopt("ghost.1", 0b1, since=0)
    assert not world.state.runs


def test_from_advice_to_command_in_one_fact() -> None:
    world = World(OBSERVING)
    world.known("w", RED)
    assert not world.state.runs
    world.happen(PolicyChanged(0, Policy()))
    assert list(world.state.running) == ["w"] and len(world.submitted) == 1
