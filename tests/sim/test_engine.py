"""How the replay moves through time: which instants it decides at, in which order it tells facts, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from mirab.control.ports import Backend, Clock, Journal
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Plan
from mirab.model.policy import POLICIES, Policy, with_settings
from mirab.model.trace import Trace
from mirab.model.units import SECOND, WHOLE, Instant
from mirab.sim import engine
from mirab.sim.engine import Ending, drive, replay
from mirab.sim.synthetic import SynthOptions, synthesize
from tests.compiled import replaces_a_function
from tests.sim.world import Hand, arrival, ms, trace, trouble


@dataclass
class Record:
    """A journal in memory."""

    facts: list[Event] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.facts.extend(facts)
        self.plans.append(plan)

    @property
    def instants(self) -> list[float]:
        return [plan.at / SECOND for plan in self.plans]


def fifo(**settings: object) -> Policy:
    return with_settings(POLICIES["fifo"], backfill="none", cadence=0, **settings)


# --- agreement with first come, first served, worked out by hand ----------------------------------------------------
BY_HAND = [
    # name, submitted, GPUs, run -> starts, ends
    ("a", 0, 512, 100, 0, 100),  # the cluster is empty: 512 of 1,024
    ("b", 0, 512, 50, 0, 50),  # and the other 512
    ("c", 10, 1024, 30, 100, 130),  # wants all: b is gone at 50, a at 100
    ("d", 20, 1, 10, 130, 140),  # fits at 50 already, but c stands before it and nothing may pass
    ("e", 20, 600, 40, 130, 170),  # 1 + 600 = 601
    ("f", 25, 423, 10, 130, 140),  # 601 + 423 = 1,024: full to the last GPU
    ("g", 30, 2, 5, 140, 145),  # d and f are gone: 424 free
    ("h", 30, 500, 20, 170, 190),  # 422, then 424 free: not enough until e is gone
    ("i", 160, 10, 100, 170, 270),  # fits at 160, but h stands before it
    ("j", 180, 514, 15, 180, 195),  # 500 + 10 run, 514 are free: exactly enough
    ("k", 185, 1, 1, 190, 191),  # 0 free until h is gone
    ("l", 400, 1024, 7, 400, 407),  # the cluster has been empty since 270
]


@pytest.mark.parametrize("teams", [1, 3])
def test_first_come_first_served_by_count_agrees_with_the_values_worked_out_by_hand(teams: int) -> None:
    """Whoever submits: with one team, and with the jobs dealt to three in turn."""
    jobs = [
        arrival(name, at, run, gpus=gpus, account=f"team{number % teams}")
        for number, (name, at, gpus, run, _, _) in enumerate(BY_HAND)
    ]
    budgets = Budgets(tuple(Budget(f"team{number}", WHOLE // teams) for number in range(teams)))
    record = Record()
    replayed = replay(trace(jobs, nodes=1, gpus=1024, budgets=budgets), fifo(), journals=[record])
    starts = {fact.run_id[0]: fact.at / SECOND for fact in record.facts if isinstance(fact, RunStarted)}
    ends = {fact.run_id[0]: fact.at / SECOND for fact in record.facts if isinstance(fact, RunEnded)}
    assert starts == {name: start for name, _, _, _, start, _ in BY_HAND}
    assert ends == {name: end for name, _, _, _, _, end in BY_HAND}
    assert (replayed.ending, replayed.unfinished, replayed.ended_at) == (Ending.FINISHED, 0, ms(407))
    assert replayed.passes == len(record.plans)


# --- time -----------------------------------------------------------------------------------------------------------
Wish = Callable[[Instant], Instant | None]


def scripted(
    monkeypatch: pytest.MonkeyPatch, wish: Wish, started: Sequence[str] = ()
) -> list[tuple[float, list[Event]]]:
    """Replace the loop body by one that starts the named workloads when they come, and wakes when it wishes."""
    seen: list[tuple[float, list[Event]]] = []

    def body(state: State, clock: Clock, backend: Backend, journal: Journal) -> Plan:
        facts = list(backend.observe())
        now = clock.now()
        for fact in facts:
            state.fold(fact)
        seen.append((now / SECOND, facts))
        for fact in facts:
            if isinstance(fact, WorkloadSubmitted) and fact.workload.id in started:
                Hand.order(backend, fact.workload.id)
        return Plan(now, state.folded, wake_at=wish(now))

    monkeypatch.setattr(engine, "cycle", body)
    return seen


def instants_of(world: Trace, policy: Policy, seen: list[tuple[float, list[Event]]], until: float) -> list[float]:
    replay(world, policy, until=ms(until))
    return [at for at, _ in seen]


@replaces_a_function
def test_it_jumps_to_the_next_fact_or_wish_and_keeps_the_cadence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts at 1, 1.2, 5, 9 s; wishes 0.3 s and 2 s after each decision; two decisions are at least 1 s apart."""
    world = trace([arrival(str(number), at) for number, at in enumerate((1, 1.2, 5, 9))])
    policy = with_settings(POLICIES["fifo"], cadence=SECOND)
    seen = scripted(monkeypatch, lambda now: now + ms(2) if now < ms(8) else None)
    assert instants_of(world, policy, seen, 20) == [1, 2, 4, 5, 7, 9]
    seen = scripted(monkeypatch, lambda now: now + ms(0.3) if now < ms(4) else None)
    assert instants_of(world, policy, seen, 20) == [1, 2, 3, 4, 5, 9]


@replaces_a_function
def test_facts_between_two_decisions_keep_their_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    world = trace([arrival("a", 10, 0.2), arrival("b", 10.7), arrival("c", 50)])
    policy = with_settings(POLICIES["fifo"], cadence=SECOND)
    seen = scripted(monkeypatch, lambda now: None, started=["a"])
    replay(world, policy)
    assert [at for at, _ in seen] == [10, 11, 50]
    assert [(type(fact), fact.at) for fact in seen[1][1]] == [
        (RunStarted, ms(10)), (RunEnded, ms(10.2)), (WorkloadSubmitted, ms(10.7)),
    ]  # fmt: skip


@replaces_a_function
def test_a_quiet_start_waits_for_the_next_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scripted(monkeypatch, lambda now: None, started=["a"])
    replay(trace([arrival("a", 10, 100), arrival("b", 70)]), fifo())
    assert [(at, [type(fact) for fact in facts]) for at, facts in seen] == [
        (10, [WorkloadSubmitted]), (70, [RunStarted, WorkloadSubmitted]), (110, [RunEnded]),
    ]  # fmt: skip


# --- the end --------------------------------------------------------------------------------------------------------
def test_troubles_after_the_last_work_do_not_prolong_the_replay() -> None:
    replayed = replay(trace([arrival("a", run=100)], trouble(5000, "n1")), fifo())
    assert (replayed.ended_at, replayed.ending) == (ms(100), Ending.FINISHED)


def test_an_empty_trace_ends_at_once() -> None:
    replayed = replay(trace([]), fifo())
    assert (replayed.passes, replayed.ended_at, replayed.ending) == (0, 0, Ending.FINISHED)


def test_it_ends_at_the_given_instant() -> None:
    record = Record()
    replayed = replay(trace([arrival("a", run=100), arrival("b", 60)]), fifo(), journals=[record], until=ms(60))
    assert replayed.ending is Ending.UNTIL and replayed.unfinished == 2
    assert record.instants == [0, 60]


def test_work_that_never_fits_does_not_keep_it_going() -> None:
    replayed = replay(trace([arrival("a", nodes=3), arrival("b", run=50)]), fifo())
    assert replayed.ended_at == ms(50) and replayed.passes < 10


@replaces_a_function
def test_it_ends_when_nothing_asks_and_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda now: None)
    replayed = replay(trace([arrival("a"), arrival("b", 60)]), fifo())
    assert (replayed.ending, replayed.unfinished, replayed.passes) == (Ending.STUCK, 2, 2)


@replaces_a_function
def test_it_ends_when_it_is_asked_in_vain_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda now: now + ms(60))
    monkeypatch.setattr(engine, "IDLE_PASSES", 50)
    replayed = replay(trace([arrival("a")], trouble(3000, "n0", "down", repair=600)), fifo())
    assert replayed.ending is Ending.STUCK
    assert replayed.ended_at >= ms(3600 + 50 * 60), "while a fact is due it is worth waiting"


@replaces_a_function
def test_it_ends_when_runs_stop_each_other_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something is always due (a run of two days is restarted each day), and no work ever ends."""
    day = 24 * 3600

    def again(state: State, clock: Clock, backend: Backend, journal: Journal) -> Plan:
        for fact in backend.observe():
            state.fold(fact)
        attempt = clock.now() // ms(day) + 1
        if attempt > 1:
            Hand.halt(backend, f"a.{attempt - 1}")
        Hand.order(backend, "a", attempt)
        return Plan(clock.now(), state.folded, wake_at=clock.now() + ms(day))

    monkeypatch.setattr(engine, "cycle", again)
    replayed = replay(trace([arrival("a", run=2 * day)]), fifo())
    assert replayed.ending is Ending.CIRCLING and ms(366 * day) < replayed.ended_at < ms(370 * day)


def test_a_drive_goes_on_where_one_stopped() -> None:
    jobs = [arrival(name, at, run, gpus=gpus) for name, at, gpus, run, _, _ in BY_HAND]
    whole, parts = Record(), Record()
    replay(trace(jobs, nodes=1, gpus=1024), fifo(), journals=[whole])
    hand = Hand(trace(jobs, nodes=1, gpus=1024))
    state = State(hand.world.cluster, hand.world.budgets, fifo())
    assert drive(state, hand.clock, hand.backend, parts, cadence=0, until=ms(150)).ending is Ending.UNTIL
    assert drive(state, hand.clock, hand.backend, parts, cadence=0).ending is Ending.FINISHED
    assert parts.facts == whole.facts


# --- the rest -------------------------------------------------------------------------------------------------------
def test_progress_is_told_about_once_each_hundredth() -> None:
    told: list[Instant] = []
    jobs = [arrival(str(number), number, 0.5) for number in range(1000)]
    replay(trace(jobs, ends_at=ms(1000)), fifo(), progress=told.append)
    assert 50 <= len(told) <= 101 and told == sorted(told)


def test_all_journals_are_told_the_same() -> None:
    one, two = Record(), Record()
    replay(trace([arrival("a"), arrival("b")]), fifo(), journals=[one, two])
    assert one == two and one.facts


@pytest.mark.parametrize("name", POLICIES)
def test_two_replays_are_equal(name: str) -> None:
    world = synthesize(SynthOptions(nodes=8, workloads=400, users=40, load=2.0))
    first, second = Record(), Record()
    replay(world, POLICIES[name], journals=[first])
    replay(world, POLICIES[name], journals=[second])
    assert first.facts == second.facts
    assert first.plans == second.plans
    assert any(isinstance(fact, RunEnded) for fact in first.facts)
