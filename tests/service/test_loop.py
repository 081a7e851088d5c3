"""The decider: commands, news and time make it decide; what it cannot record it does not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event as Flag
from threading import Thread

import pytest

from mirab.control.cycle import cycle as control_cycle
from mirab.control.recover import Intents, take_in
from mirab.core.state import State
from mirab.model.events import (
    ActionRefused,
    BudgetsChanged,
    Event,
    Outcome,
    RunEnded,
    RunStarted,
    WorkloadHeld,
    WorkloadReleased,
    WorkloadSubmitted,
)
from mirab.model.plans import Plan
from mirab.model.units import SECOND, Instant, RunId
from mirab.service import loop
from mirab.service.inbox import Build, Request
from mirab.service.live import Entry, Live, UnavailableError, UnknownOutcomeError
from mirab.service.loop import Decider
from mirab.sim import engine
from tests.service.doubles import MemoryStore, PretendEngine, job, make_live, submitting, two_teams, until


class Service:
    """A decider with its doubles."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.live: Live = make_live(self.store)
        self.engine = PretendEngine(self.live.now, self.live.bell.ring)
        self.ended: list[BaseException | None] = []
        self.decider = Decider(self.live, self.engine, coalesce=0.0, on_end=self.ended.append)

    def submit(self, number: int, gpus: int = 1) -> int:
        return self.live.send(submitting(job(number, gpus=gpus)))


def recorded(service: Service) -> list[Event]:
    """All facts of the journal."""
    return [fact for facts, _, _ in list(service.store.entries) for fact in facts]


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    made.decider.start()
    yield made
    assert made.decider.stop()


def test_it_drives_the_same_cycle_as_a_replay() -> None:
    """`decide` has one caller, and the service goes through it as the simulator does."""
    assert vars(loop)["cycle"] is control_cycle is vars(engine)["cycle"]


def test_a_command_is_recorded_with_its_plan_and_applied(service: Service) -> None:
    seq = service.submit(1)
    facts, plan, _ = service.store.entries[seq - 1]
    assert [type(fact).__name__ for fact in facts] == ["WorkloadSubmitted"]
    until(lambda: service.engine.starts)
    assert [start.run_id for start in service.engine.starts] == ["1.1"]
    assert plan.actions == tuple(service.engine.starts)
    with service.live.reading() as state:
        assert "1.1" in state.runs


def test_the_state_is_the_fold_of_the_journal(service: Service) -> None:
    for number in range(1, 12):
        service.submit(number, gpus=1 + number % 4)
    until(lambda: service.engine.starts)
    service.engine.end("1.1", Outcome.COMPLETED)
    until(lambda: "1.1" not in service.live.state.runs)
    assert service.decider.stop()
    again = make_live(cluster=service.live.cluster).state
    for facts, plan, _ in service.store.entries:
        take_in(again, facts, plan)
    assert again.runs.keys() == service.live.state.runs.keys()
    assert again.pending.keys() == service.live.state.pending.keys()
    assert again.folded == service.live.state.folded


def test_a_command_that_refuses_changes_nothing(service: Service) -> None:
    def refuse(state: State, now: Instant) -> Entry:
        raise LookupError("no such job")

    with pytest.raises(LookupError, match="no such job"):
        service.live.send(refuse)
    service.submit(1)
    assert not service.live.pulse.failed


def test_commands_of_one_cycle_see_each_others_effects() -> None:
    """Two changes based on one version of the budgets: the second must be refused, though both came together."""
    service = Service()
    refused: list[str] = []
    base = service.live.state.budgets

    def change(state: State, now: Instant) -> Entry:
        if state.budgets is not base:
            raise ValueError("based on an old version")
        return Entry((BudgetsChanged(now, two_teams()),))

    def ask() -> None:
        try:
            service.live.send(change)
        except ValueError as error:
            refused.append(str(error))

    askers = [Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    until(lambda: service.live.inbox.depth == 2)
    service.decider.start()
    for asker in askers:
        asker.join()
    assert refused == ["based on an old version"]
    assert service.decider.stop()


def test_all_that_waits_goes_into_one_record() -> None:
    service = Service()
    askers = [Thread(target=service.submit, args=(number,)) for number in range(1, 21)]
    for asker in askers:
        asker.start()
    until(lambda: service.live.inbox.depth == 20)
    service.decider.start()
    for asker in askers:
        asker.join()
    assert [len(facts) for facts, _, _ in service.store.entries if len(facts) >= 20] == [20]
    assert service.decider.stop()


def test_facts_that_follow_from_facts_are_told_in_the_same_cycle(service: Service) -> None:
    def hold_the_second(state: State, now: Instant) -> list[Event]:
        return [WorkloadHeld(now, pending, "one at a time") for pending in state.pending if pending == "2"]

    def release_after_hold(state: State, now: Instant) -> list[Event]:
        return [WorkloadReleased(now, held) for held, (_, why) in state.held.items() if why == "wait a moment"]

    service.live.add_source(hold_the_second)
    service.live.add_source(release_after_hold)
    seq = service.submit(2)
    facts = service.store.entries[seq - 1][0]
    assert [type(fact).__name__ for fact in facts] == ["WorkloadSubmitted", "WorkloadHeld"]
    with service.live.reading() as state:
        assert state.held["2"][1] == "one at a time"  # type: ignore[index]


def test_it_sleeps_until_something_happens(service: Service) -> None:
    service.submit(1)
    until(lambda: any(isinstance(fact, RunStarted) for fact in recorded(service)))
    decided = len(service.store.entries)
    Flag().wait(0.3)
    assert len(service.store.entries) - decided <= 1, "it decides although nothing happens"


def test_a_timer_wakes_it(service: Service) -> None:
    heard: list[int] = []
    due = [service.live.now() + SECOND // 5]
    service.live.subscribe(lambda seq, facts, plan: heard.append(seq))
    service.live.add_timer(lambda: next(iter(due), None))
    service.live.bell.ring()
    until(lambda: heard)
    first = len(heard)
    until(lambda: len(heard) > first)
    due.clear()


def test_an_engine_that_raises_has_refused(service: Service) -> None:
    service.engine.failing = OSError("no more processes")
    service.submit(1)
    until(lambda: service.live.pulse.engine_trouble)
    assert "no more processes" in service.live.pulse.engine_trouble
    assert service.live.pulse.ready, "people can still submit"
    until(lambda: any(isinstance(fact, ActionRefused) for fact in recorded(service)))
    service.engine.failing = None
    service.live.bell.ring()
    until(lambda: service.engine.starts)
    assert service.engine.starts[0].run_id != "1.1", "the refused start was not undone and tried anew"
    until(lambda: not service.live.pulse.engine_trouble)


def test_what_has_just_happened_keeps_its_own_instant(service: Service) -> None:
    """However long the decider is kept from the processor before it looks: minimums and charges count from there."""
    observe, told = service.engine.observe, list[RunEnded]()

    def late() -> list[Event]:
        begun = service.live.now()
        until(lambda: service.live.now() > begun + 20)
        if "1.1" in service.live.state.runs and not told:
            told.append(RunEnded(service.live.now(), service.engine.starts[0].run_id, Outcome.COMPLETED))
            return [*observe(), *told]
        return observe()

    service.engine.observe = late  # type: ignore[method-assign]
    service.submit(1)
    until(lambda: any(isinstance(fact, RunEnded) for fact in recorded(service)))
    assert [fact for fact in recorded(service) if isinstance(fact, RunEnded)] == told


def test_what_was_told_before_a_cycle_failed_is_still_told() -> None:
    """Each is asked for once: what the engine said of it then is all that is ever said."""
    live = make_live()
    engine = PretendEngine(live.now, live.bell.ring)
    feed = loop.Feed(live, engine)
    told = [RunEnded(live.now(), RunId(name), Outcome.COMPLETED) for name in ("1.1", "2.1")]
    for fact in told:
        engine.facts.append(fact)
        feed.now()
    assert list(feed.observe()) == told
    feed.now()
    assert not list(feed.observe())


def test_no_fact_is_later_than_its_cycle(service: Service) -> None:
    service.submit(1)
    until(lambda: service.engine.starts)
    service.engine.tell(
        RunEnded(service.live.now() + 3600 * SECOND, service.engine.starts[0].run_id, Outcome.COMPLETED)
    )
    until(lambda: not service.live.state.runs)
    assert service.decider.stop()
    for facts, plan, _ in service.store.entries:
        assert all(fact.at <= plan.at for fact in facts)


def test_listeners_hear_each_record_once_and_may_leave(service: Service) -> None:
    heard: list[int] = []

    def listen(seq: int, facts: object, plan: Plan) -> None:
        heard.append(seq)
        raise RuntimeError("a listener's own fault harms nobody")

    leave = service.live.subscribe(listen)
    seq = service.submit(1)
    until(lambda: seq in heard)
    leave()
    known = len(heard)
    until(lambda: service.submit(2) > seq)
    assert heard == sorted(set(heard))
    assert len(heard) <= known + 1


# --- what cannot be recorded does not happen --------------------------------------------------------------------------
def failing_with(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_nothing_is_applied_that_is_not_recorded() -> None:
    service = Service(MemoryStore(before=failing_with(RuntimeError("another leads"))))
    service.decider.start()
    until(lambda: service.ended)
    with pytest.raises(UnavailableError, match="another leads"):
        service.submit(1)
    assert not service.engine.submitted
    assert isinstance(service.ended[0], RuntimeError)
    with pytest.raises(UnavailableError, match="another leads"), service.live.reading():
        pass
    assert not service.live.pulse.ready


def test_while_the_store_blocks_commands_have_an_unknown_outcome_and_reads_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked, well = Flag(), Flag()

    def before() -> None:
        blocked.set()
        well.wait(60)

    def taken(build: Build) -> Request:
        """Only when the decider stands before the store with it does the time begin to run."""
        blocked.clear()
        request = post(build)
        assert blocked.wait(60)
        return request

    service = Service(MemoryStore(before=before))
    post = service.live.inbox.post
    service.decider.start()
    assert blocked.wait(60)
    with pytest.raises(UnavailableError, match="nothing was done"):
        service.live.send(submitting(job(1)), timeout=0.2)
    monkeypatch.setattr("mirab.service.live.READ_PATIENCE", 0.05)
    with pytest.raises(UnavailableError), service.live.reading():
        pass
    well.set()
    service.submit(2)
    until(lambda: any(isinstance(fact, RunStarted) for fact in recorded(service)))
    well.clear()
    monkeypatch.setattr(service.live.inbox, "post", taken)
    with pytest.raises(UnknownOutcomeError):
        service.live.send(submitting(job(3)), timeout=0.2)
    well.set()
    until(lambda: "3" in service.live.state.running)
    assert "1" not in service.live.state.running, "what was withdrawn is not done later"
    assert service.decider.stop()


@pytest.mark.parametrize("ends_well", [True, False])
def test_who_only_looks_is_let_in_while_the_store_does_not_take_the_record(ends_well: bool) -> None:
    """Nothing that was decided is to be seen: it may never be recorded. Then the lock is the decider's again."""
    service = Service()
    in_trouble, well = Flag(), Flag()

    def blocked() -> None:
        if any(isinstance(fact, WorkloadSubmitted) for fact in service.live.news):
            service.live.admit()
            in_trouble.set()
            well.wait(60)
            if not ends_well:
                raise RuntimeError("closed")
            service.live.exclude()

    service.store.before = blocked
    service.decider.start()
    answer = service.live.inbox.post(submitting(job(1)))
    assert in_trouble.wait(60)
    with service.live.reading() as state:
        assert list(state.pending) == ["1"] and not state.running, "told, and not started"
        well.set()
    if ends_well:
        assert answer.answer.result(60)
        until(lambda: "1" in service.live.state.running)
        assert service.decider.stop()
    else:
        until(lambda: service.ended)
        assert service.live.lock.acquire(timeout=60)
        service.live.lock.release()
        with pytest.raises(UnavailableError, match="closed"), service.live.reading():
            pass


def test_a_fault_in_a_fold_stops_the_decider_for_good() -> None:
    service = Service()
    service.decider.start()
    service.submit(1)
    service.engine.tell(object())  # type: ignore[arg-type]
    until(lambda: service.ended)
    assert "stopped after record" in service.live.pulse.failed
    with pytest.raises(UnavailableError):
        service.submit(2)


def test_stopping_answers_what_waits() -> None:
    service = Service()
    asker = Thread(target=service.submit, args=(1,))
    asker.start()
    until(lambda: service.live.inbox.depth == 1)
    service.decider._leave.set()
    service.decider.start()
    asker.join()
    assert service.decider.stop()
    assert any(facts for facts, _, _ in service.store.entries)
    with pytest.raises(UnavailableError, match="stopping"):
        service.submit(2)


def test_intents_are_what_has_no_outcome(service: Service) -> None:
    service.submit(1)
    service.submit(2)
    until(lambda: len(service.live.state.runs) == 2)
    service.engine.end("1.1", Outcome.COMPLETED)
    until(lambda: "1.1" not in service.live.state.runs)
    assert service.decider.stop()
    intents = Intents()
    for facts, plan, _ in service.store.entries:
        intents.take_in(facts, plan)
    assert list(intents.starts) == ["2.1"]
    assert service.live.intents.starts == intents.starts
