"""While mirab only observes, what it decides is advice: the books of what was done follow the engine alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mirab.model.events import (
    Event,
    NodeDegraded,
    Outcome,
    PolicyChanged,
    RunAdopted,
    RunEnded,
    RunStarted,
    WorkloadCancelled,
)
from mirab.model.events import WorkloadSubmitted as Submitted
from mirab.model.plans import Action, CallHuman, Plan, Preempt, Repair, Start
from mirab.model.policy import Policy
from mirab.model.reasons import DrainedFrom
from mirab.model.records import Beginning
from mirab.model.resources import Allocation
from mirab.model.units import HOUR, MINUTE, UNIT, WHOLE, AccountPath, RunId, UserName, WorkloadId
from mirab.service.views.accruals import Accruals
from mirab.study.deeds import Deeds
from mirab.study.entries import Entries
from mirab.study.history import History
from mirab.study.weekly import Week, weekly
from mirab.study.weeklytext import lede
from tests.study.scene import BECAUSE, BUDGET, HALVES, cluster, ms, workload

RED, ANN = AccountPath("red"), UserName("ann")
NODES = cluster(2, 8)
OBSERVING = replace(BUDGET, mode="observe")
Record = tuple[tuple[Event, ...], Plan]

ADVISED_S, BEGAN_S, ENDED_S = 10, 600, 4_200
"""When mirab would have started a job, when the engine did, and when it ended, an hour later."""


def record(at: float, *facts: Event, actions: Sequence[Action] = ()) -> Record:
    return facts, Plan(ms(at), 0, tuple(actions))


def advice(name: str) -> Start:
    return Start(RunId(f"{name}.1"), WorkloadId(name), Allocation(0, 0b01, 8), HOUR, BECAUSE)


def observed() -> list[Record]:
    """A job that the engine starts later and elsewhere than advised, and one that is cancelled before."""
    asked = [workload(name, gpus=8, minimum="1h") for name in ("1", "2")]
    given = Allocation(0, 0b10, 8)
    return [
        record(0, *(Submitted(0, each) for each in asked)),
        *(record(ADVISED_S + again, actions=[advice("1"), advice("2")]) for again in range(5)),
        record(300, WorkloadCancelled(ms(300), WorkloadId("2"))),
        record(BEGAN_S, RunAdopted(ms(BEGAN_S), RunId("1.1"), WorkloadId("1"), given, ms(BEGAN_S), HOUR)),
        record(ENDED_S, RunEnded(ms(ENDED_S), RunId("1.1"), Outcome.COMPLETED)),
        record(2 * ENDED_S),
    ]


def test_a_plan_is_done_from_when_the_policy_enforces_on() -> None:
    deeds, plan = Deeds(OBSERVING), Plan(0, 0, (advice("1"),))
    assert deeds.of((), plan).actions == ()
    assert deeds.of((PolicyChanged(0, BUDGET),), plan) is plan
    assert deeds.of((), plan) is plan
    assert deeds.of((PolicyChanged(9, OBSERVING),), plan).actions == ()
    assert [deeds.observed_at(at) for at in (-1, 0, 8, 9, 10)] == [True, False, False, True, True]


def test_owed_and_delivered_are_of_what_the_engine_ran() -> None:
    books = Accruals(NODES, HALVES, OBSERVING, 0)
    for seq, (facts, plan) in enumerate(observed(), 1):
        books.append(seq, facts, plan)
    got = books.got(ms(2 * ENDED_S))[RED]
    assert got.delivered == 8 * UNIT * HOUR * WHOLE
    assert got.owed == 8 * UNIT * ms(ENDED_S) * WHOLE, "from when it was submitted: the half of red, 8 GPUs"


def test_the_week_counts_what_the_engine_ran() -> None:
    began = Beginning(NODES, HALVES, OBSERVING, 0)
    found = weekly(Week("2024-W01", 0, ms(2 * ENDED_S)), began, observed(), lambda _: 0)
    [red] = [each for each in found["accounts"] if each["path"] == RED]
    assert red["charged"] == pytest.approx(8.0)
    assert red["waits"] == {"count": 2, "p50_s": 300, "p90_s": BEGAN_S}


def test_a_week_in_which_nothing_ran_tells_nothing_of_the_time_in_use() -> None:
    began = Beginning(NODES, HALVES, OBSERVING, 0)
    told = lede(weekly(Week("2024-W01", 0, ms(300)), began, observed(), lambda _: 0))
    assert "0.0 % of what could take work was in use" in told
    assert "of the time in use" not in told


def test_the_week_tells_of_no_drain_that_was_only_advised() -> None:
    """The engine's run goes on, whatever mirab would have done with the node below it."""
    given, sick = Allocation(0, 0b10, 8), NODES.pools[0].nodes[1]
    advised: list[Action] = [
        Preempt(RunId("1.1"), 0, DrainedFrom(sick)),
        CallHuman(sick, RunId("1.1"), "it does not stop"),
        Repair(sick),
    ]
    records = [
        record(0, Submitted(0, workload("1", gpus=8))),
        record(1, RunAdopted(ms(1), RunId("1.1"), WorkloadId("1"), given, ms(1), HOUR)),
        record(2, NodeDegraded(ms(2), sick), actions=advised),
        record(3),
    ]

    def told(policy: Policy) -> Any:
        [drain] = weekly(Week("W", 0, ms(9)), Beginning(NODES, HALVES, policy, 0), records, lambda _: 0)["drains"]
        return drain["stopped"], drain["person"], drain["empty_s"]

    assert told(BUDGET) == (1, "it does not stop", 2)
    assert told(OBSERVING) == (0, "", None)


def test_the_ledger_of_why_lists_each_run_once_and_none_that_was_only_advised() -> None:
    entries = Entries(NODES, BUDGET.window)
    for facts, plan in observed():
        entries.append(facts, plan)
    count, [(entry, hours)] = entries.of(RED, ms(2 * ENDED_S), 5)
    assert (count, entry.run, entry.user, hours) == (1, "1.1", ANN, 8.0)
    assert not entries._live and not entries._planned, "what is over is forgotten"


def test_a_run_that_mirab_starts_counts_from_when_it_has_begun() -> None:
    entries = Entries(NODES, BUDGET.window)
    entries.append(*record(0, Submitted(0, workload("1", gpus=8)), actions=[advice("1")]))
    assert entries.of(RED, ms(30), 5) == (0, [])
    entries.append(*record(60, RunStarted(ms(60), RunId("1.1"))))
    assert [hours for _, hours in entries.of(RED, ms(60) + HOUR, 5)[1]] == [8.0]


def test_run_times_are_learned_of_runs_that_the_engine_brought() -> None:
    history, random = History(NODES), Random(1)
    for number in range(20):
        name, at = str(number), ms(number * 10_000)
        span = HOUR + random.randrange(MINUTE)
        given = Allocation(0, 1, 8)
        history.append(*record(at / 1000, Submitted(at, workload(name, gpus=8)), actions=[advice(name)]))
        adopted = RunAdopted(at, RunId(f"{name}.1"), WorkloadId(name), given, at, HOUR)
        history.append(*record(at / 1000, adopted))
        history.append(*record((at + span) / 1000, RunEnded(at + span, RunId(f"{name}.1"), Outcome.COMPLETED)))
    drawn, where = history.run_time(workload("x", gpus=8), 0.5)
    assert where == "user" and HOUR <= drawn <= HOUR + MINUTE
