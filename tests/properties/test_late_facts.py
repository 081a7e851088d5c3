"""What is told late is charged as it was: an outage of the engine's controller changes no account."""

from __future__ import annotations

import pytest

from mirab.core.meter import Meter
from mirab.model.events import Outcome, ReservationApproved, RunAdopted, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.policy import POLICIES, Reservation
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, MINUTE, UNIT, RunId, WorkloadId
from tests.properties.test_adoption import World
from tests.properties.test_upheavals import RED, workload

GPUS = 8
RUN = RunId("w.1")


def used(world: World) -> int:
    """GPU-milliseconds of red in the window, and of its user."""
    account = world.state.accounts[RED]
    meters = [account.usage, *(user.usage for user in account.users.values())]
    totals = [meter.total(world.state.now) for meter in meters if isinstance(meter, Meter)]
    assert len(totals) == 2 and totals[0] == totals[1]
    return totals[0] // UNIT


@pytest.mark.parametrize("seen_start", [0, 5 * MINUTE], ids=["start-at-once", "start-late"])
@pytest.mark.parametrize("seen_end", [0, 90 * MINUTE], ids=["end-at-once", "end-late"])
@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.CANCELLED, Outcome.REQUEUED])
def test_a_run_is_charged_from_its_start_to_its_end(seen_start: int, seen_end: int, outcome: Outcome) -> None:
    world = World(POLICIES["budget"])
    world.known("w", RED)
    begun, ended = MINUTE, HOUR
    world.decide(begun + seen_start)
    world.happen(RunStarted(begun, RUN))
    world.decide(ended + seen_end)
    world.happen(RunEnded(ended, RUN, outcome))
    if outcome is not Outcome.REQUEUED:
        world.decide(5 * HOUR)
    assert used(world) == GPUS * (ended - begun)


def test_a_run_that_came_and_went_unseen_is_charged_as_long_as_it_was() -> None:
    world = World(POLICIES["budget"])
    world.known("w", RED)
    world.decide(3 * HOUR)
    world.happen(RunStarted(MINUTE, RUN), RunEnded(3 * MINUTE, RUN, Outcome.COMPLETED))
    assert used(world) == GPUS * 2 * MINUTE


def test_what_the_engine_started_by_itself_is_charged_since_the_ledger_began() -> None:
    world = World(POLICIES["budget"])
    world.decide(2 * HOUR)
    given = Allocation(0, 1, GPUS)
    submitted = WorkloadSubmitted(0, workload("w", RED, 0))
    world.happen(submitted, RunAdopted(HOUR, RUN, WorkloadId("w"), given, 0, HOUR))
    assert used(world) == GPUS * HOUR


def test_an_end_before_the_reservation_was_over_gives_back_nothing_that_was_not_charged() -> None:
    """The reservation paid until its end; that the run had ended long before is told an hour later."""
    world = World(POLICIES["budget"])
    reservation = Reservation("r", RED, 1, GPUS, HOUR, 2 * HOUR, "ana", "ben", "a demo")
    world.happen(ReservationApproved(0, reservation))
    world.decide(HOUR)
    world.known("w", RED)
    world.happen(RunStarted(HOUR, RUN))
    assert world.state.runs[RUN].reservation == "r"
    world.decide(2 * HOUR)
    assert world.state.runs[RUN].reservation is None
    world.decide(3 * HOUR)
    world.happen(RunEnded(90 * MINUTE, RUN, Outcome.COMPLETED))
    meter = world.state.accounts[RED].usage
    assert isinstance(meter, Meter)
    assert meter.total(world.state.now) == GPUS * UNIT * HOUR


def test_what_the_engine_started_and_ended_before_the_ledger_knew_costs_nothing() -> None:
    world = World(POLICIES["budget"])
    world.decide(2 * HOUR)
    submitted = WorkloadSubmitted(0, workload("w", RED, 0))
    world.happen(submitted, RunAdopted(2 * HOUR, RUN, WorkloadId("w"), Allocation(0, 1, GPUS), 0, HOUR))
    world.happen(RunEnded(HOUR, RUN, Outcome.COMPLETED))
    assert used(world) == 0
