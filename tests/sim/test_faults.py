"""The bad line: one seed one storm, each fault as it says, and a calm world after healing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirab.model.events import (
    ActionRefused,
    Event,
    NodeDegraded,
    NodeDown,
    NodeUp,
    Outcome,
    RunEnded,
    RunStarted,
)
from mirab.model.plans import CallHuman, Preempt, Start
from mirab.model.reasons import DrainedFrom, InOrder
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, MINUTE, NodeName, RunId, WorkloadId
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.faults import CALM, FaultRates, FaultyBackend
from tests.sim.world import TEAM, arrival, cluster, ms, trace

ALWAYS = 1000


class Storm:
    """Ten one-GPU jobs of 1,000 s behind a bad line."""

    def __init__(self, seed: int = 1, **rates: int) -> None:
        self.clock = SimClock()
        self.jobs = [f"j{number}" for number in range(10)]
        world = trace([arrival(name, run=1000) for name in self.jobs])
        self.line = FaultyBackend(
            SimBackend(world, self.clock),
            self.clock,
            cluster(),
            seed,
            replace(CALM, **rates) if rates else FaultRates(),
        )
        self.line.observe()

    def look(self, at: float) -> list[Event]:
        self.clock.jump(ms(at))
        return self.line.observe()

    def start(self, name: str, attempt: int = 1) -> None:
        found, run_id = Allocation(0, 1, 1), RunId(f"{name}.{attempt}")
        self.line.submit(Start(run_id, WorkloadId(name), found, 0, InOrder(TEAM, 0.0, True)))

    def stop(self, run_id: str) -> None:
        self.line.submit(Preempt(RunId(run_id), 0, DrainedFrom("n0")))

    def all_until(self, at: float) -> list[Event]:
        """Everything told up to an instant, looking whenever something is due."""
        told: list[Event] = []
        while (due := self.line.next_due()) is not None and due <= ms(at):
            self.clock.jump(max(due, self.clock.now()))
            told += self.line.observe()
        return told


def everything(seed: int) -> list[Event]:
    storm = Storm(seed, **{name: 300 for name in FaultRates.__dataclass_fields__ if not name.startswith("longest")})
    for name in storm.jobs:
        storm.start(name)
    told = storm.look(300)
    for name in storm.jobs[:5]:
        storm.stop(f"{name}.1")
    return told + storm.all_until(20_000)


def test_one_seed_is_one_storm() -> None:
    assert everything(4) == everything(4)
    assert len({tuple(everything(seed)) for seed in range(5)}) == 5


def test_a_calm_line_is_no_line() -> None:
    storm = Storm(flap=0)
    storm.start("j0")
    assert storm.look(1) == [RunStarted(0, RunId("j0.1"), True)]
    assert storm.look(2000) == [RunEnded(ms(1000), RunId("j0.1"), Outcome.COMPLETED, 0)]


def test_a_lost_start_never_runs_and_its_stop_says_so() -> None:
    storm = Storm(start_lost=ALWAYS)
    storm.start("j0")
    assert storm.look(600) == []
    storm.stop("j0.1")
    assert storm.look(601) == [RunEnded(ms(600), RunId("j0.1"), Outcome.LAUNCH_FAILED, 0)]


def test_a_human_who_finds_no_run_says_so() -> None:
    storm = Storm(start_lost=ALWAYS)
    storm.start("j0")
    storm.line.submit(CallHuman(NodeName("n0"), RunId("j0.1"), "does not stop"))
    assert storm.all_until(20_000) == [RunEnded(4 * HOUR, RunId("j0.1"), Outcome.LAUNCH_FAILED, 0)]


def test_a_refused_start_does_not_run() -> None:
    storm = Storm(start_refused=ALWAYS)
    for name in storm.jobs:
        storm.start(name)
    told = storm.all_until(9000)
    refused = [fact for fact in told if isinstance(fact, ActionRefused) and fact.action == "start"]
    failed = [fact for fact in told if isinstance(fact, RunEnded) and fact.outcome is Outcome.LAUNCH_FAILED]
    assert len(refused) + len(failed) == len(told) == 10 and refused and failed


def test_a_ghost_runs_although_it_was_refused_and_dies_at_last() -> None:
    storm = Storm(ghost_start=ALWAYS, longest_ghost=10 * MINUTE)
    storm.start("j0")
    told = storm.all_until(9000)
    assert [type(fact) for fact in told if not isinstance(fact, RunStarted)] == [ActionRefused, RunEnded]
    (end,) = [fact for fact in told if isinstance(fact, RunEnded)]
    assert end.outcome is Outcome.NODE_FAIL and end.at < 10 * MINUTE
    assert any(isinstance(fact, RunStarted) for fact in told), "the scheduler hears of the ghost, late"


@pytest.mark.parametrize("fault", ["stop_lost", "stop_refused"])
def test_a_stop_that_does_not_arrive_stops_nothing(fault: str) -> None:
    storm = Storm(**{fault: ALWAYS})
    storm.start("j0")
    storm.look(10)
    storm.stop("j0.1")
    told = storm.all_until(9000)
    refusals = [fact for fact in told if isinstance(fact, ActionRefused) and fact.action == "preempt"]
    assert len(refusals) == (fault == "stop_refused")
    assert told[-1] == RunEnded(ms(1000), RunId("j0.1"), Outcome.COMPLETED, 0)


def test_an_ignored_stop_is_heeded_later() -> None:
    storm = Storm(stop_ignored=ALWAYS, longest_deafness=5 * MINUTE)
    storm.start("j0")
    storm.look(10)
    storm.stop("j0.1")
    (end,) = storm.all_until(9000)
    assert isinstance(end, RunEnded) and end.outcome is Outcome.PREEMPTED and ms(10) < end.at <= ms(310)


def test_acknowledgements_come_late_or_twice_or_not_but_an_end_is_always_told() -> None:
    for rates, starts, ends in (
        ({"ack_late": ALWAYS}, 1, 1),
        ({"ack_twice": ALWAYS}, 2, 2),
        ({"ack_lost": ALWAYS}, 0, 1),
    ):
        storm = Storm(**rates)
        storm.start("j0")
        told = storm.look(0) + storm.all_until(9000)
        assert sum(isinstance(fact, RunStarted) for fact in told) == starts, rates
        assert [fact.at for fact in told if isinstance(fact, RunEnded)] == [ms(1000)] * ends, rates


def test_nodes_flap() -> None:
    storm = Storm(flap=ALWAYS)
    told = [fact for at in range(10, 50_000, 1000) for fact in storm.look(at)]
    assert {NodeDegraded, NodeDown, NodeUp} <= {type(fact) for fact in told}


def test_healing_ends_every_fault() -> None:
    storm = Storm(
        seed=3, start_lost=300, ghost_start=400, action_late=500, ack_late=500, flap=ALWAYS, longest_ghost=HOUR
    )
    for name in storm.jobs:
        storm.start(name)
    storm.look(100)
    storm.line.heal()
    storm.look(100)
    for number, name in enumerate(storm.jobs):
        storm.start(name, 2 + number)
    told = storm.look(101) + storm.all_until(100_000)
    ended = {fact.run_id for fact in told if isinstance(fact, RunEnded) and fact.outcome is Outcome.COMPLETED}
    refused = {fact.run_id for fact in told if isinstance(fact, ActionRefused)}
    assert all(f"{name}.{2 + number}" in ended | refused for number, name in enumerate(storm.jobs))
    assert storm.line.next_due() is None


def test_late_orders_do_not_raise_the_dead() -> None:
    """A stop overtakes its start: the start, when it comes, is ignored."""
    storm = Storm(action_late=ALWAYS, longest_delay=5 * MINUTE)
    storm.start("j0")
    storm.line.heal()
    storm.line._inner.accept(Preempt(RunId("j0.1"), 0, DrainedFrom("n0")), 0)
    assert [type(fact) for fact in storm.all_until(9000)] == [RunEnded]
