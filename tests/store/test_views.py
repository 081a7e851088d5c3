"""The read models: what each fact and intention makes of a job, and that they agree with the state of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from mirab.core.state import State
from mirab.model import events, plans
from mirab.model.events import Event, Outcome
from mirab.model.policy import POLICIES, Policy
from mirab.model.reasons import HoldDue, StartTimedOut
from mirab.model.records import JobRow, JobState
from mirab.model.resources import Allocation, Cluster, Pool
from mirab.model.units import FOREVER, NodeName, RunId, WorkloadId
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.engine import drive
from mirab.store import Store, StoreBusyError
from mirab.store.audits import check, rebuild_alone
from mirab.store.views import JobBook
from tests.store.conftest import NewUrl
from tests.store.makers import (
    CLUSTER,
    Recording,
    ended,
    plan,
    put_beginning,
    recorded_world,
    shape,
    spec,
    specs_for,
    start,
    started,
    submitted,
)
from tests.worlds import PERIOD, draw_world

ONE = WorkloadId("1")
TIMED_OUT = StartTimedOut(0)


class Story:
    """One job and what happens to it."""

    def __init__(self, policy: Policy = Policy(), **named: Any) -> None:  # noqa: B008
        self.book = JobBook(CLUSTER, policy)
        self.row: JobRow | None = None
        self.tell(submitted("1", 0, **named))

    def tell(self, *facts: Event, at: int = 0, actions: Sequence[plans.Action] = ()) -> JobRow:
        changes = self.book.fold(facts, plan(at, *actions), {ONE: spec("1")})
        entry = (changes.new | changes.changed).get(ONE)
        self.row = entry.row if entry else self.row
        assert self.row is not None
        return self.row

    def running(self, attempt: int = 1, at: int = 100, minimum: int = 1_000) -> JobRow:
        self.tell(at=at, actions=[start(f"1.{attempt}", 0, 1, minimum=minimum)])
        return self.tell(started(f"1.{attempt}", at + 10), at=at + 10)


def test_submitted_started_running_completed() -> None:
    story = Story(label="x", shape=shape(2, 5_000))
    assert (story.row.state, story.row.name, story.row.label) == (JobState.PENDING, "job 1", "x")  # type: ignore[union-attr]
    row = story.tell(at=100, actions=[start("1.1", 3, 5, minimum=700)])
    assert (row.state, row.attempt, row.node_names) == (JobState.RUNNING, 1, ("n3", "n5"))
    assert (row.started_at, row.protected_until) == (None, None)
    row = story.tell(started("1.1", 130), at=130)
    assert (row.started_at, row.protected_until) == (130, 830)
    row = story.tell(ended("1.1", 900, exit_code=4, outcome=Outcome.FAILED))
    assert (row.state, row.ended_at, row.exit_code, row.protected_until) == (JobState.FAILED, 900, 4, None)
    assert row.node_names == ("n3", "n5")
    assert not story.book.entries


def test_a_start_that_is_told_late_is_protected_from_when_it_is_known() -> None:
    story = Story()
    story.tell(at=100, actions=[start("1.1", minimum=1_000)])
    row = story.tell(started("1.1", 130), at=500)
    assert row.protected_until == 1_130
    story = Story()
    story.tell(at=100, actions=[start("1.1", minimum=1_000)])
    story.tell(at=500)
    row = story.tell(started("1.1", 130), at=500)
    assert (row.started_at, row.protected_until) == (130, 1_500)


def test_preempted_and_started_again() -> None:
    story = Story()
    story.running()
    story.tell(events.RunCheckpointed(600, RunId("1.1")))
    row = story.tell(at=2_000, actions=[plans.Preempt(RunId("1.1"), 10, TIMED_OUT)])
    assert row.state is JobState.COMPLETING
    row = story.tell(ended("1.1", 2_100, Outcome.PREEMPTED))
    assert (row.state, row.preemptions, row.lost) == (JobState.PENDING, 1, 1_500)
    assert (row.attempt, row.started_at, row.node_names, row.ended_at) == (1, None, (), None)
    assert row.checkpoint_at == 600
    row = story.running(attempt=2, at=3_000)
    assert (row.attempt, row.started_at) == (2, 3_010)
    row = story.tell(ended("1.2", 3_500, Outcome.NODE_FAIL, lost=77))
    assert (row.state, row.node_failures, row.lost) == (JobState.PENDING, 1, 1_577)


def test_without_resume_a_preempted_job_is_over() -> None:
    story = Story(resume=False)
    story.running()
    assert story.tell(ended("1.1", 2_100, Outcome.PREEMPTED)).state is JobState.PREEMPTED
    story = Story(resume=False)
    story.running()
    story.tell(events.RequeueRequested(1_500, ONE))
    assert story.tell(ended("1.1", 2_100, Outcome.PREEMPTED)).state is JobState.PENDING


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.CANCELLED, JobState.CANCELLED),
        (Outcome.COMPLETED, JobState.COMPLETED),
        (Outcome.PREEMPTED, JobState.CANCELLED),
        (Outcome.NODE_FAIL, JobState.CANCELLED),
        (Outcome.REQUEUED, JobState.CANCELLED),
        (Outcome.TIMEOUT, JobState.TIMEOUT),
    ],
)
def test_a_running_job_that_was_cancelled_does_not_come_back(outcome: Outcome, state: JobState) -> None:
    story = Story()
    story.running()
    assert story.tell(events.WorkloadCancelled(1_500, ONE)).state is JobState.RUNNING
    assert story.tell(at=1_500, actions=[plans.Cancel(RunId("1.1"), 10)]).state is JobState.COMPLETING
    story.tell(events.RequeueRequested(1_600, ONE))
    assert story.tell(ended("1.1", 2_000, outcome)).state is state


def test_requeued_goes_back() -> None:
    story = Story()
    story.running()
    row = story.tell(events.RequeueRequested(50, ONE), ended("1.1", 2_000, Outcome.REQUEUED))
    assert (row.state, row.preemptions) == (JobState.PENDING, 0)


def test_held_released_cancelled() -> None:
    story = Story(held=True)
    assert story.row is not None
    assert story.row.held == "submitted on hold"
    assert story.tell(events.WorkloadHeld(1, ONE, "waits for job 7")).held == "waits for job 7"
    assert story.tell(events.WorkloadReleased(2, ONE)).held == ""
    row = story.tell(events.WorkloadCancelled(3, ONE))
    assert (row.state, row.ended_at) == (JobState.CANCELLED, 3)
    assert story.tell(events.WorkloadHeld(4, ONE, "too late")) is row


def test_a_running_job_cannot_be_held() -> None:
    story = Story()
    story.running()
    assert story.tell(events.WorkloadHeld(200, ONE, "no")).held == ""


def test_rejected() -> None:
    row = Story().tell(at=7, actions=[plans.Reject(ONE, TIMED_OUT)])
    assert (row.state, row.ended_at) == (JobState.REJECTED, 7)


def test_refusals_of_the_engine() -> None:
    story = Story()
    story.tell(at=100, actions=[start("1.1")])
    row = story.tell(events.ActionRefused(110, RunId("1.1"), "start", "no such image"))
    assert (row.state, row.attempt, row.lost) == (JobState.PENDING, 1, 0)
    story.running(attempt=2, at=200)
    story.tell(at=2_000, actions=[plans.Preempt(RunId("1.2"), 10, TIMED_OUT)])
    assert story.tell(events.ActionRefused(2_010, RunId("1.2"), "preempt")).state is JobState.RUNNING


def test_a_suspended_run_is_protected_until_nobody_knows() -> None:
    story = Story()
    story.running(minimum=1_000)
    assert story.tell(events.RunSuspended(510, RunId("1.1"))).protected_until is None
    assert story.tell(events.RunContinued(2_000, RunId("1.1"))).protected_until == 2_600
    assert story.tell(events.RunSuspended(3_000, RunId("1.1"))).protected_until is None
    assert story.tell(events.RunContinued(4_000, RunId("1.1"))).protected_until == 2_600


def test_without_a_contract_nothing_is_protected() -> None:
    story = Story(policy=POLICIES["fifo"])
    assert story.running().protected_until is None
    row = story.tell(events.PolicyChanged(200, Policy()), ended("1.1", 300, Outcome.PREEMPTED))
    assert row.state is JobState.PENDING
    assert story.running(attempt=2, at=400).protected_until == 1_410


def test_nodes_that_came_later_have_names() -> None:
    story = Story()
    grown = Cluster("c", (CLUSTER.pools[0], Pool("new", (NodeName("m0"),), 8)))
    given = plans.Start(RunId("1.1"), ONE, Allocation(1, 1, 8), 0, HoldDue(0))
    assert story.tell(events.ClusterChanged(1, grown), at=2, actions=[given]).node_names == ("m0",)


def test_a_run_that_no_plan_started() -> None:
    story = Story()
    row = story.tell(events.RunAdopted(500, RunId("1.4"), ONE, Allocation(0, 6, 8), 200, 1_000))
    assert (row.state, row.attempt, row.started_at, row.protected_until) == (JobState.RUNNING, 4, 200, 1_200)
    assert row.node_names == ("n1", "n2")
    story = Story()
    row = story.tell(events.RunAdopted(500, RunId("1.1"), ONE, Allocation(0, 1, 8), 200, FOREVER))
    assert row.protected_until is None


def test_facts_about_what_is_not_there_change_nothing() -> None:
    book = JobBook(CLUSTER, Policy())
    ghost = RunId("7.1")
    facts = (
        started("7.1", 1),
        ended("7.1", 2),
        events.RunCheckpointed(1, ghost),
        events.RunSuspended(1, ghost),
        events.RunContinued(1, ghost),
        events.WorkloadCancelled(1, WorkloadId("7")),
        events.WorkloadHeld(1, WorkloadId("7"), ""),
        events.WorkloadReleased(1, WorkloadId("7")),
        events.RequeueRequested(1, WorkloadId("7")),
        events.ActionRefused(1, ghost, "start"),
        events.NodeDown(1, NodeName("n1")),
    )
    changes = book.fold(facts, plan(3, start("7.1"), plans.Preempt(ghost, 1, TIMED_OUT)))
    assert not (changes.new or changes.changed or changes.runs or changes.placements)
    assert list(changes.mentions) == ["7", "n1"]


# --- against the core -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(12))
def test_the_book_says_what_the_state_says(seed: int) -> None:
    world = draw_world(Random(seed), base=("budget", "budget", "priority")[seed % 3])
    _, _, records = recorded_world(seed, base=("budget", "budget", "priority")[seed % 3])
    state = State(world.trace.cluster, world.trace.budgets, world.policy, now=0)
    book = JobBook(world.trace.cluster, world.policy)
    assert records
    for facts, decided in records:
        for fact in facts:
            state.fold(fact)
        state.advance(decided.at)
        state.commit(decided)
        book.fold(facts, decided)
        assert book.now == state.now
        compare(state, book)


class Meddled:
    """A world in which people hold, release, cancel and requeue what comes to their minds."""

    def __init__(self, inner: SimBackend, clock: SimClock, chance: Random) -> None:
        self._inner, self._clock, self._chance = inner, clock, chance
        self._known: list[WorkloadId] = []
        self.submit, self.next_due, self.exhausted = inner.submit, inner.next_due, inner.exhausted

    def observe(self) -> list[Event]:
        facts = list(self._inner.observe())
        self._known += [fact.workload.id for fact in facts if isinstance(fact, events.WorkloadSubmitted)]
        return facts + [self._whim() for _ in range(self._chance.choice((0, 0, 1, 3))) if self._known]

    def _whim(self) -> Event:
        now, which = self._clock.now(), self._chance.choice(self._known)
        return self._chance.choice((
            events.WorkloadHeld(now, which, "a whim"), events.WorkloadReleased(now, which),
            events.WorkloadReleased(now, which), events.WorkloadCancelled(now, which),
            events.RequeueRequested(now, which),
        ))  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_it_still_does_when_people_meddle(seed: int) -> None:
    world = draw_world(Random(seed), base=("budget", "budget", "priority")[seed % 3])
    clock = SimClock()
    meddled = Meddled(SimBackend(world.trace, clock), clock, Random(seed))
    state = State(world.trace.cluster, world.trace.budgets, world.policy)
    book = JobBook(world.trace.cluster, world.policy)
    recording = Recording([])
    drive(state, clock, meddled, recording, cadence=world.policy.cadence, until=PERIOD)
    again = State(world.trace.cluster, world.trace.budgets, world.policy)
    for facts, decided in recording.records:
        for fact in facts:
            again.fold(fact)
        again.advance(decided.at)
        again.commit(decided)
        book.fold(facts, decided)
        compare(again, book)


def compare(state: State, book: JobBook) -> None:
    waiting = {*state.pending, *state.held, *state.rejected}
    assert waiting == {name for name, entry in book.entries.items() if entry.run is None}
    assert set(state.running) == {name for name, entry in book.entries.items() if entry.run is not None}
    for name, run in state.running.items():
        row = book.entries[name].row
        assert row.attempt == run.attempt
        assert list(row.node_names) == state.nodes_named(run.allocation.pool, run.allocation.mask)
        assert (row.state is JobState.COMPLETING) == run.stopping
        if state.policy.contract and run.started_at is not None and run.suspended_at is None:
            assert row.protected_until == run.protected_until
    for name in state.held:
        assert book.entries[name].row.held


# --- in the tables ----------------------------------------------------------------------------------------------------
def test_what_is_stored_is_what_the_journal_says(new_url: NewUrl, opened: Callable[[str], Store]) -> None:
    """Also where another service goes on from the tables, again and again."""
    cluster, policy, records = recorded_world(1)
    url = new_url()
    put_beginning(opened(url), cluster, policy)
    assert len(records) > 60
    for first in range(0, len(records), 20):
        store = opened(url)
        store.lead()
        for facts, decided in records[first : first + 20]:
            store.append(facts, decided, specs_for(facts))
        store.dispose()
    found = check(opened(url).database)
    assert found.wrong == []
    assert (found.records, found.jobs) == (len(records), sum(opened(url).counts().values()))
    assert found.runs > 0


def test_a_changed_cluster_and_policy_are_known_to_who_goes_on(store: Store, opened: Callable[[str], Store]) -> None:
    store.lead()
    grown = Cluster("c", (CLUSTER.pools[0], Pool("new", (NodeName("m0"),), 8)))
    store.append((events.ClusterChanged(1, grown), events.PolicyChanged(1, POLICIES["fifo"]), submitted("1")), plan(1))
    store.dispose()
    again = opened(store.url)
    again.lead()
    given = plans.Start(RunId("1.1"), ONE, Allocation(1, 1, 8), 5, start("1.1").reason)
    again.append((), plan(2, given))
    again.append((started("1.1", 3),), plan(3))
    row = again.job("1")
    assert row is not None
    assert (row.node_names, row.protected_until) == (("m0",), None)
    assert check(again.database).wrong == []


TAMPERED = [
    ("UPDATE jobs SET preemptions = 9 WHERE id = '1'", ["job 1 is not as the journal says"]),
    ("DELETE FROM runs WHERE id = '1.1'", ["run 1.1 is missing in the table"]),
    ("UPDATE placements SET node = 'n9'", ["which run had which node"]),
    ("DELETE FROM mentions", ["which record speaks of what"]),
    ("UPDATE runs SET id = '2.1'", ["run 2.1 is in the table, and the journal", "run 1.1 is missing"]),
    ("UPDATE journal SET at = at + 1 WHERE seq = 2", ["record 2 of the journal is damaged"]),
    ("DELETE FROM journal WHERE seq = 2", []),
]


@pytest.mark.parametrize(("damage", "told"), TAMPERED)
def test_check_finds_what_was_tampered_with(store: Store, damage: str, told: list[str]) -> None:
    store.lead()
    store.append((submitted("1"),), plan(1), [spec("1")])
    store.append((), plan(2, start("1.1", 2)))
    assert check(store.database).wrong == []
    with store.database.writer.begin() as connection:
        connection.execute(text(damage))
    wrong = check(store.database).wrong
    assert wrong
    for number, part in enumerate(told):
        assert part in wrong[number]
    store.dispose()


def test_the_read_models_can_be_made_anew(store: Store, opened: Callable[[str], Store]) -> None:
    store.lead()
    store.append((submitted("1"), submitted("2")), plan(1), [spec("1")])
    store.append((), plan(2, start("1.1", 2)))
    before = store.jobs()
    with pytest.raises(StoreBusyError):
        rebuild_alone(opened(store.url).database)
    store.dispose()
    again = opened(store.url)
    with again.database.writer.begin() as connection:
        for table in ("jobs", "runs", "placements", "mentions"):
            connection.execute(text(f"DELETE FROM {table}"))
    assert rebuild_alone(again.database) == 2
    assert check(again.database).wrong == []
    assert again.jobs() == before
