"""After a crash at any step the state is the same, and what had no outcome is asked for again."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from mirab.control.cycle import cycle
from mirab.control.recover import FILE, Intents, take_in
from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import (
    BudgetsChanged,
    ClusterChanged,
    Event,
    Outcome,
    PolicyChanged,
    RunEnded,
    RunStarted,
    WorkloadSubmitted,
)
from mirab.model.plans import Plan, Preempt, Start
from mirab.model.policy import Policy
from mirab.model.reasons import HoldDue
from mirab.model.records import Beginning, Write
from mirab.model.resources import Allocation, Cluster
from mirab.model.units import DAY, MINUTE, WHOLE, NodeName
from mirab.service import recover as recovery
from mirab.service.recover import Recovered, RecoverError, Wanted, recover, take_snapshot
from mirab.service.snapshot import SnapshotError, fingerprint, freeze, thaw
from mirab.sim.backend import SimBackend, SimClock
from tests.driven import driven
from tests.service.doubles import EPOCH, MemoryStore, job, small_cluster, two_teams
from tests.service.pictures import picture
from tests.worlds import draw_world


def begun(store: MemoryStore, wanted: Wanted | None = None) -> Recovered:
    defaults = Beginning(small_cluster(), two_teams(), Policy(), EPOCH)
    return recover(cast(Any, store), wanted or Wanted(), defaults)


def filled(store: MemoryStore, seed: int) -> State:
    """A ledger with everything that a random world does in it."""
    world = draw_world(Random(seed))
    trace = replace(world.trace, cluster=world.trace.cluster)
    record = driven(trace, world.policy)
    recover(cast(Any, store), Wanted(), Beginning(trace.cluster, trace.budgets, world.policy, 0))
    store.entries[:] = [(facts, plan, ()) for facts, plan in record.entries]
    return record.state


def same(one: State, other: State) -> bool:
    """Whether two states know the same: they decide alike, and hold equal values in every part."""
    return picture(one) == picture(other)


@pytest.mark.parametrize("seed", range(6))
def test_the_journal_gives_the_state_back(seed: int) -> None:
    store = MemoryStore()
    state = filled(store, seed)
    found = begun(store)
    assert same(found.state, state)
    assert found.seq == len(store.entries)
    found.state.check()


@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_and_the_rest_of_the_journal_give_it_too(seed: int) -> None:
    store = MemoryStore()
    state = filled(store, seed)
    entries = store.entries[:]
    half = len(entries) // 2
    store.entries[:] = entries[:half]
    early = begun(store)
    take_snapshot(cast(Any, store), early.state, early.intents, half)
    store.entries[:] = entries
    found = begun(store)
    assert found.replayed == len(entries) - half, "the snapshot was not used"
    assert same(found.state, state)
    assert found.intents.starts == begun(MemoryStore(entries, store.metas)).intents.starts
    found.state.check()


def test_a_copy_decides_like_the_original_and_is_independent() -> None:
    store = MemoryStore()
    state = filled(store, 3)
    copy = cast(State, thaw(freeze(state)))
    copy.check()
    assert same(copy, state)
    before = picture(state)
    copy.advance(state.now + DAY)
    for run_id in list(copy.runs):
        copy.fold(RunEnded(copy.now, run_id, Outcome.COMPLETED))
    assert picture(state) == before


@pytest.mark.parametrize("first", [True, False])
def test_a_snapshot_is_of_the_version_that_runs_whatever_has_been_installed_since(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade replaces the files under a service; what its end leaves behind is not of the new version."""
    store = MemoryStore()
    if not first:
        begun(store)
    fingerprint.cache_clear()
    found = begun(store)
    monkeypatch.setattr("mirab.service.snapshot.files", lambda _: Path("/the/new/version"))
    take_snapshot(cast(Any, store), found.state, found.intents, 1)
    monkeypatch.undo()
    fingerprint.cache_clear()
    assert [mark for _, mark, _ in store.snapshots] == [fingerprint()]


def test_a_deep_state_can_be_frozen() -> None:
    """Plain pickling would go as deep as there are queues that refer to each other."""
    chance = Random(1)
    budgets = Budgets(tuple(Budget(f"t{number}", WHOLE // 400) for number in range(400)))
    state = State(small_cluster(), budgets, Policy(), now=EPOCH)
    for number in range(3_000):
        asked = job(
            number, f"t{chance.randrange(400)}", gpus=chance.randint(1, 4), minimum=chance.randrange(20) * MINUTE
        )
        state.fold(WorkloadSubmitted(EPOCH, asked))
    with pytest.raises(RecursionError):
        pickle.dumps(state)
    copy = cast(State, thaw(freeze(state)))
    assert copy.pending.keys() == state.pending.keys()
    copy.check()


class Evil:
    def __reduce__(self) -> Any:
        return print, ("a snapshot ran code",)


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps(Evil()), pickle.dumps(([("builtins", "eval")], b""))])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SnapshotError):
        thaw(data)
    assert not capsys.readouterr().out


def test_a_spoilt_snapshot_costs_time_and_nothing_else() -> None:
    store = MemoryStore()
    state = filled(store, 2)
    store.put_snapshot(len(store.entries), fingerprint(), b"spoilt")
    store.put_snapshot(1, "of another version", b"whatever")
    found = begun(store)
    assert found.replayed == len(store.entries)
    assert same(found.state, state)


# --- crashes at each step ---------------------------------------------------------------------------------------------
class KilledError(Exception):
    pass


class Crashing:
    """An engine in which work runs, and a journal; the service is killed at one step of a cycle."""

    def __init__(self, world: SimBackend, store: MemoryStore) -> None:
        self.world, self.store = world, store
        self.step: str | int | None = None
        self.applied = 0
        self.untold: list[Event] = []

    def observe(self) -> list[Event]:
        """What was not recorded is told again, as an engine does that looks at what is on disk."""
        self.untold += self.world.observe()
        if self.step == "observed":
            raise KilledError
        return list(self.untold)

    def append(self, facts: Sequence[Event], plan: Plan, writes: Sequence[Write] = ()) -> None:
        if self.step == "decided":
            raise KilledError
        self.store.append(facts, plan, writes)
        self.untold.clear()
        self.applied = 0
        if self.step == "recorded":
            raise KilledError

    def submit(self, action: Any) -> None:
        if self.step == self.applied:
            raise KilledError
        self.applied += 1
        self.world.submit(action)


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_random_steps_nothing_is_lost_and_nothing_runs_twice(seed: int) -> None:
    chance = Random(seed)
    world = draw_world(chance, decisions=False)
    clock = SimClock()
    store = MemoryStore()
    engine = Crashing(SimBackend(world.trace, clock), store)
    beginning = Beginning(world.trace.cluster, world.trace.budgets, world.policy, 0)
    found = recover(cast(Any, store), Wanted(), beginning)
    due, crashes = engine.world.next_due(), 0
    while due is not None and due < 3 * DAY:
        clock.jump(due)
        if chance.random() < 0.15:
            engine.step = chance.choice(("observed", "decided", "recorded", 0, 1, 2))
        try:
            plan = cycle(found.state, clock, engine, engine)
            found.intents.take_in(store.entries[-1][0], plan)
            due = _next(engine.world, plan, due)
        except KilledError:
            crashes += 1
            due = clock.now() + 1
            found = recover(cast(Any, store), Wanted(), beginning)
            for action in found.intents.outstanding():
                engine.world.submit(action)
        engine.step = None
        found.state.check()
    assert crashes, "the seed never crashed"
    starts = [action.run_id for _, plan, _ in store.entries for action in plan.actions if isinstance(action, Start)]
    assert len(starts) == len(set(starts)), "an attempt was decided twice"
    ended = [fact.run_id for facts, _, _ in store.entries for fact in facts if isinstance(fact, RunEnded)]
    assert set(ended) | set(found.state.runs) == set(starts), "a run was lost"
    assert same(recover(cast(Any, store), Wanted(), beginning).state, found.state)


def _next(world: SimBackend, plan: Plan, now: int) -> int | None:
    due = [at for at in (world.next_due(), plan.wake_at) if at is not None]
    return max(now + 1, min(due)) if due else None


def test_what_has_no_outcome_is_told_again_once() -> None:
    record = driven(draw_world(Random(11)).trace, Policy())
    intents, done = Intents(), 0
    for facts, plan in record.entries:
        intents.take_in(facts, plan)
        told = list(intents.outstanding())
        assert len(told) == len(set(told))
        assert set(plan.actions) <= set(told), "the last plan may not have been applied"
        assert not [action for action in told if isinstance(action, Start) and action.run_id in intents.begun]
        ended = {fact.run_id for fact in facts if isinstance(fact, RunEnded)}
        assert not [action for action in intents.starts if action in ended]
        done += sum(isinstance(action, Preempt) for action in told)
    assert not intents.starts


# --- what the settings change ---------------------------------------------------------------------------------------
def apply(store: MemoryStore, found: Recovered) -> State:
    """What the first cycle does with the changes."""
    plan = Plan(found.state.now, found.state.folded)
    facts = tuple(found.changes)
    take_in(found.state, facts, plan)
    store.append(facts, plan)
    return found.state


def grown(nodes: int) -> Cluster:
    return small_cluster(nodes)


def test_a_first_start_puts_down_what_it_begins_with() -> None:
    store = MemoryStore()
    first = begun(store, Wanted(budgets=Budgets((Budget("solo", WHOLE),))))
    again = begun(store)
    assert first.first and not again.first
    assert again.state.budgets.leaves() == ["solo"]
    assert not again.changes


def test_a_first_start_cut_short_goes_on_with_what_it_had_put_down() -> None:
    store = MemoryStore()
    begun(store, Wanted(cluster=grown(3)))
    del store.metas["began_at"]
    assert begun(store, Wanted(cluster=grown(1))).state.cluster == grown(3)


def test_nodes_can_be_added_and_usage_stays() -> None:
    store = MemoryStore()
    begun(store)
    found = begun(store, Wanted(cluster=grown(5)))
    assert [type(change) for change in found.changes] == [ClusterChanged]
    state = apply(store, found)
    assert state.schedulable(range(len(state.banks))) == 5 * 4 * 1000
    assert not begun(store, Wanted(cluster=grown(5))).changes
    assert begun(store).state.cluster == grown(5), "without a file the ledger's cluster stays"
    state.check()


def test_a_cluster_that_lost_nodes_is_refused_with_advice() -> None:
    store = MemoryStore()
    begun(store)
    with pytest.raises(RecoverError, match=r"--state-dir"):
        begun(store, Wanted(cluster=grown(1)))


def test_a_setting_of_the_policy_can_change_and_the_half_life_cannot() -> None:
    store = MemoryStore()
    begun(store)
    wanted = Wanted(policy=Policy(window=DAY, margin=50))
    found = begun(store, wanted)
    assert [type(change) for change in found.changes] == [PolicyChanged]
    apply(store, found)
    assert not begun(store, wanted).changes
    assert begun(store).state.policy.window == DAY
    with pytest.raises(RecoverError, match="half_life"):
        begun(store, Wanted(policy=Policy(half_life=DAY)))


def test_budgets_change_when_the_file_does_and_not_when_people_decided_since() -> None:
    store = MemoryStore()
    begun(store, Wanted(budgets=two_teams()))
    others = Budgets((Budget("red", WHOLE // 4), Budget("blue", WHOLE * 3 // 4)))
    store.append((BudgetsChanged(EPOCH, others, "ada"),), Plan(EPOCH, 0))
    assert not begun(store, Wanted(budgets=two_teams())).changes, "nobody edited the file"
    edited = Budgets((Budget("red", WHOLE // 5),))
    found = begun(store, Wanted(budgets=edited))
    assert [(type(change), getattr(change, "author", "")) for change in found.changes] == [(BudgetsChanged, FILE)]
    apply(store, found)
    store.append((BudgetsChanged(EPOCH, others, "ada"),), Plan(EPOCH, 0))
    assert not begun(store, Wanted(budgets=edited)).changes


def test_a_record_that_cannot_be_taken_in_is_named() -> None:
    store = MemoryStore()
    begun(store)
    start = Start(cast(Any, "9.1"), cast(Any, "9"), Allocation(7, 1, 1), 0, HoldDue(0))
    store.append((), Plan(EPOCH, 0, (start,)))
    with pytest.raises(RecoverError, match=r"record 1 of the journal .*mirab db backup"):
        begun(store)


def test_a_store_with_records_and_no_beginning_is_not_touched() -> None:
    store = MemoryStore()
    store.append((RunStarted(EPOCH, cast(Any, "1.1")),), Plan(EPOCH, 0))
    with pytest.raises(RecoverError, match="db check"):
        begun(store)
    assert not store.metas


def test_the_same_crash_three_times_gets_advice(tmp_path: Path) -> None:
    counts = [recovery.note_crash(tmp_path, "KeyError: 'n9'", EPOCH + number) for number in range(3)]
    assert counts == [1, 2, 3]
    assert not recovery.crash_advice(counts[1], 7, "")
    assert "NodeUp" in recovery.crash_advice(counts[2], 7, "NodeUp(...)")
    assert recovery.note_crash(tmp_path, "KeyError: 'n9'", EPOCH + DAY) == 1, "a day later it is another story"
    assert recovery.note_crash(tmp_path, "ValueError: 7", EPOCH + DAY) == 1
    (tmp_path / recovery.CRASHES).write_text("{")
    assert recovery.note_crash(tmp_path, "ValueError: 7", EPOCH + DAY) == 1
    assert json.loads((tmp_path / recovery.CRASHES).read_text())["count"] == 1


def test_a_node_that_was_added_takes_work() -> None:
    store = MemoryStore()
    begun(store)
    state = apply(store, begun(store, Wanted(cluster=grown(3))))
    assert NodeName("n2") in state.places
