"""From listing to listing, without a Slurm: which facts follow, in which order, and after a restart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.backends.slurm.contracts import Contract
from mirab.backends.slurm.records import Booking, SlurmJob, SlurmNode
from mirab.backends.slurm.tracker import RETURNING, Known, Rules, Tracker
from mirab.backends.slurm.waiting import ARRAY_LIMIT, BEGINS_LATER, DEPENDENCY, HELD_BY_USER
from mirab.core.state import State
from mirab.model import events as facts
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, Outcome
from mirab.model.policy import Policy
from mirab.model.resources import Cluster, Pool
from mirab.model.units import FOREVER, HOUR, SECOND, WHOLE, AccountPath, NodeName, RunId, WorkloadId

T0 = 1_800_000_000_000
NAMES = tuple(NodeName(f"n{number}") for number in range(3))
CLUSTER = Cluster("slurm", (Pool("h100", NAMES, 8, "h100", 64, 500_000),))
NODES = [SlurmNode(name, "IDLE", (), 8, "h100", 64, 500_000, "", ("main",)) for name in NAMES]
WAITS = SlurmJob("1", 1, "train", "ana", "red", "main", "PENDING", (), "None", 1, 8, T0, held_by="mirab")


def tracker(known: Known | None = None, left: str = "", taken: Collection[str] = ()) -> Tracker:
    rules = Rules(
        left=lambda job: left,
        contract=lambda job: Contract(HOUR),
        account=lambda job: AccountPath(job.account),
        minimum=lambda job: HOUR,
        taken=lambda workload_id: workload_id in taken,
    )
    return Tracker(CLUSTER, rules, known)


def job(**changes: Any) -> SlurmJob:
    return replace(WAITS, **changes)


def runs(at: int = T0 + SECOND, **changes: Any) -> SlurmJob:
    return job(state="RUNNING", started_at=at, node_names=(NAMES[0],), held_by="", **changes)


def ended(word: str = "COMPLETED", at: int = T0 + 9 * SECOND, **changes: Any) -> SlurmJob:
    return replace(runs(), state=word, ended_at=at, **changes)


def kinds(told: list[Event]) -> list[str]:
    return [type(fact).__name__ for fact in told]


class Story:
    """Listing after listing, a second apart."""

    def __init__(self, tracker: Tracker, start: int = T0) -> None:
        self.tracker, self.now = tracker, start

    def look(
        self, *jobs: SlurmJob, nodes: list[SlurmNode] = NODES, books: tuple[Booking, ...] | None = ()
    ) -> list[Event]:
        self.now += 10 * SECOND
        return self.tracker.take_in(list(jobs), nodes, self.now, books)


def released(story: Story, run: str = "1.1") -> None:
    story.tracker.released(WorkloadId("1"), RunId(run), NAMES[:1], story.now)


def test_a_run_that_mirab_let_go() -> None:
    story = Story(tracker())
    assert kinds(story.look(job())) == ["WorkloadSubmitted"]
    released(story)
    assert story.look(job(held_by="")) == []
    told = story.look(runs(T0 + 12 * SECOND))
    assert told == [facts.RunStarted(T0 + 12 * SECOND, RunId("1.1"))]
    told = story.look(ended(at=T0 + 35 * SECOND, exit_code=0))
    assert told == [facts.RunEnded(T0 + 35 * SECOND, RunId("1.1"), Outcome.COMPLETED, exit_code=0)]
    assert story.look(ended()) == [] and not story.tracker.seen


def test_a_run_that_slurm_started_by_itself_is_adopted_with_its_minimum() -> None:
    told = Story(tracker()).look(runs())
    assert kinds(told) == ["WorkloadSubmitted", "RunAdopted"]
    assert isinstance(told[1], facts.RunAdopted) and told[1].min_runtime == HOUR and told[1].started_at == T0 + SECOND
    told = Story(tracker(left="left to Slurm")).look(runs())
    assert isinstance(told[-1], facts.RunAdopted) and told[-1].min_runtime == FOREVER


def test_a_run_that_slurm_began_elsewhere_is_slurms_own() -> None:
    """Let go without its nodes, as when Slurm took one command and not the one before."""
    story = Story(tracker())
    story.look(job())
    released(story)
    told = story.look(replace(runs(T0 + 12 * SECOND), node_names=NAMES[1:2]))
    assert kinds(told) == ["RunEnded", "RunAdopted"]
    assert isinstance(told[0], facts.RunEnded) and told[0].outcome is Outcome.REQUEUED
    assert isinstance(told[1], facts.RunAdopted) and (told[1].run_id, told[1].allocation.mask) == (RunId("1.2"), 2)


def test_between_two_looks_a_job_came_ran_and_ended() -> None:
    told = Story(tracker()).look(ended("FAILED", exit_code=3))
    assert kinds(told) == ["WorkloadSubmitted", "RunAdopted", "RunEnded"]
    assert isinstance(told[-1], facts.RunEnded) and (told[-1].outcome, told[-1].exit_code) == (Outcome.FAILED, 3)
    story = Story(tracker())
    story.look(job())
    released(story)
    assert kinds(story.look(ended(started_at=T0 + 15 * SECOND, at=T0 + 16 * SECOND))) == ["RunStarted", "RunEnded"]


def test_what_ended_before_mirab_came_is_none_of_its_business() -> None:
    assert Story(tracker(Known(at=T0 + HOUR)), T0 + HOUR).look(ended()) == []


def test_what_came_and_went_between_two_whole_looks_is_told_once() -> None:
    """A glance lists only what has changed: what it does not show may have come before it all the same."""
    story = Story(tracker())
    story.look()
    short = ended(at=story.now + 4 * SECOND, submitted_at=story.now + 2 * SECOND, started_at=story.now + 3 * SECOND)
    other = replace(short, id="2", job_id=2)
    story.now += 8 * SECOND
    told = story.tracker.take_in([other], NODES, story.now, (), False)
    assert kinds(told) == ["WorkloadSubmitted", "RunAdopted", "RunEnded"]
    assert story.tracker.take_in([other], NODES, story.now, (), False) == []
    told = story.look(short, other)
    assert kinds(told) == ["WorkloadSubmitted", "RunAdopted", "RunEnded"]
    assert all("2" not in str(getattr(fact, "run_id", "")) for fact in told)
    assert story.look(short, other) == []


def test_what_ended_in_the_second_in_which_the_ledger_begins_has_ended_in_it_too() -> None:
    """Slurm counts whole seconds. It is taken on when the ledger begins, and ends no sooner."""
    made = tracker(Known(at=T0 + 900))
    told = made.take_in([ended(at=T0, started_at=T0)], NODES, T0 + SECOND)
    assert kinds(told) == ["WorkloadSubmitted", "RunAdopted", "RunEnded"]
    assert [fact.at for fact in told[1:]] == [T0 + 900, T0 + 900]


def test_what_came_and_went_while_mirab_was_down_is_told_unless_it_is_known() -> None:
    known = Known(at=T0 + 10 * SECOND)
    late = ended(at=T0 + 12 * SECOND, submitted_at=T0 + 5 * SECOND, started_at=T0 + 11 * SECOND)
    assert "RunEnded" in kinds(Story(tracker(known), T0 + 10 * SECOND).look(late))
    assert Story(tracker(known, taken=["1"]), T0 + 10 * SECOND).look(late) == []


def test_a_waiting_job_that_goes_is_cancelled() -> None:
    for last in ((), (job(state="CANCELLED", ended_at=T0 + 15 * SECOND, held_by=""),)):
        story = Story(tracker())
        story.look(job())
        assert kinds(story.look(*last)) == ["WorkloadCancelled"]


def test_one_that_was_let_go_and_cancelled_before_it_ran_frees_its_nodes() -> None:
    story = Story(tracker())
    story.look(job())
    released(story)
    told = story.look(job(state="CANCELLED", started_at=T0 + 15 * SECOND, ended_at=T0 + 15 * SECOND, held_by=""))
    assert kinds(told) == ["WorkloadCancelled", "RunEnded"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"held_by": "user"}, HELD_BY_USER),
        ({"dependency": "afterok:7(unfulfilled)"}, DEPENDENCY),
        ({"eligible_at": T0 + HOUR}, BEGINS_LATER),
    ],
)
def test_what_may_not_start_is_held_and_let_in_again(change: dict[str, Any], why: str) -> None:
    story = Story(tracker())
    told = story.look(job(**change))
    assert kinds(told) == ["WorkloadSubmitted", "WorkloadHeld"] and told[1].why == why  # type: ignore[union-attr]
    assert story.look(job(**change)) == []
    assert kinds(story.look(job())) == ["WorkloadReleased"]


def test_an_array_lets_in_only_as_many_tasks_as_it_may_run() -> None:
    tasks = [
        job(id=f"5_{task}", job_id=5, array_job=5, array_task=task, array_limit=2) for task in range(4)
    ]  # fmt: skip
    story = Story(tracker())
    story.look(*tasks)
    held = {seen.workload_id: seen.held for seen in story.tracker.seen.values()}
    assert held == {"5_0": "", "5_1": "", "5_2": ARRAY_LIMIT, "5_3": ARRAY_LIMIT}
    done = replace(tasks[0], state="COMPLETED", started_at=T0 + SECOND, ended_at=T0 + 2 * SECOND, node_names=NAMES[:1])
    assert kinds(story.look(done, *tasks[1:])) == ["RunAdopted", "RunEnded", "WorkloadReleased"]


def test_a_victim_that_was_requeued_waits_again() -> None:
    story = Story(tracker())
    story.look(runs())
    story.tracker.asked(WorkloadId("1"), Outcome.PREEMPTED, back=True, now=T0)
    story.tracker.stopped(WorkloadId("1"), story.now)
    stopped_at = story.now
    assert story.look(replace(runs(), state="COMPLETING")) == []
    told = story.look(job(restarts=1))
    assert told == [facts.RunEnded(stopped_at, RunId("1.1"), Outcome.PREEMPTED)]
    released(story, "1.2")
    assert kinds(story.look(runs(story.now + SECOND, restarts=1))) == ["RunStarted"]


def test_a_victim_that_goes_on_its_notice_is_requeued_and_waits_until_slurm_has_done_so() -> None:
    story = Story(tracker())
    story.look(runs())
    story.tracker.asked(WorkloadId("1"), Outcome.PREEMPTED, back=True, now=T0)
    told = story.look(ended("COMPLETED", exit_code=0))
    assert kinds(told) == ["RunEnded", "WorkloadHeld"]
    assert told[0].outcome is Outcome.PREEMPTED and told[1].why == RETURNING  # type: ignore[union-attr]
    assert [seen.workload_id for seen in story.tracker.returning()] == ["1"]
    assert kinds(story.look(job(restarts=1))) == ["WorkloadReleased"]
    story.tracker.seen["1"].returning = T0 - HOUR
    assert kinds(story.look(ended())) == ["WorkloadCancelled"]


def test_what_had_ended_before_it_was_asked_to_is_not_called_stopped() -> None:
    """Slurm was looked at late. It has done its work: it was not stopped inside its minimum, and does not run again."""
    story = Story(tracker())
    story.look(runs())
    story.tracker.asked(WorkloadId("1"), Outcome.PREEMPTED, back=True, now=T0 + 12 * SECOND)
    told = story.look(ended("COMPLETED", at=T0 + 3 * SECOND, exit_code=0))
    assert told == [facts.RunEnded(T0 + 3 * SECOND, RunId("1.1"), Outcome.COMPLETED, exit_code=0)]
    assert not story.tracker.returning()


def test_a_user_cancels_a_victim_within_its_notice() -> None:
    story = Story(tracker())
    story.look(runs())
    story.tracker.asked(WorkloadId("1"), Outcome.PREEMPTED, back=True, now=T0)
    told = story.look(ended("CANCELLED"))
    assert isinstance(told[0], facts.RunEnded) and told[0].outcome is Outcome.CANCELLED and len(told) == 1


def test_the_accounting_says_when_a_requeued_run_really_ended() -> None:
    story = Story(tracker())
    story.look(runs())
    assert story.tracker.to_look_up([job(restarts=1)]) == ["1"] and story.tracker.to_look_up([ended()]) == []
    book = Booking("1", "REQUEUED", T0 + SECOND, T0 + 14 * SECOND)
    other = Booking("1", "REQUEUED", T0 - HOUR, T0 - SECOND)
    told = story.look(job(restarts=1, held_by=""), books=(other, book))
    assert told[0] == facts.RunEnded(T0 + 14 * SECOND, RunId("1.1"), Outcome.REQUEUED)


def test_a_requeued_run_ends_when_the_accounting_has_heard_of_it() -> None:
    """Not when a look that came late, or an accounting that did not answer in time, would have it end."""
    story = Story(tracker())
    story.look(runs())
    assert story.look(job(restarts=1, held_by="")) == [], "the accounting has not heard of it yet"
    book = Booking("1", "REQUEUED", T0 + SECOND, T0 + 14 * SECOND)
    told = story.look(runs(T0 + 28 * SECOND, restarts=1), books=(book,))
    assert told[0] == facts.RunEnded(T0 + 14 * SECOND, RunId("1.1"), Outcome.REQUEUED)
    assert kinds(told[1:]) == ["RunAdopted"] and told[1].started_at == T0 + 28 * SECOND  # type: ignore[union-attr]


def test_where_the_accounting_is_silent_the_end_is_when_slurm_queued_the_job_again() -> None:
    story = Story(tracker())
    story.look(runs())
    again = job(restarts=1, submitted_at=T0 + 15 * SECOND)
    assert kinds(story.look(again)) == [] and kinds(story.look(again)) == []
    (end, *_) = story.look(again)
    assert isinstance(end, facts.RunEnded) and (end.at, end.outcome) == (T0 + 15 * SECOND, Outcome.REQUEUED)


def test_an_accounting_that_never_hears_of_it_does_not_keep_a_run_for_ever() -> None:
    story = Story(tracker())
    story.look(runs())
    for look in range(2):
        assert story.look(job(restarts=1, held_by="")) == [], look
    told = story.look(job(restarts=1, held_by=""))
    assert told[0] == facts.RunEnded(story.now, RunId("1.1"), Outcome.REQUEUED)


def test_a_run_that_came_and_was_requeued_between_two_looks() -> None:
    story = Story(tracker())
    story.look(job())
    released(story)
    again = job(restarts=1, held_by="")
    assert story.look(again) == [], "the accounting has not heard of it yet"
    assert story.tracker.to_look_up([again]) == ["1"]
    book = Booking("1", "REQUEUED", T0 + 12 * SECOND, T0 + 14 * SECOND)
    told = story.look(again, books=(book,))
    assert told == [
        facts.RunStarted(T0 + 12 * SECOND, RunId("1.1")),
        facts.RunEnded(T0 + 14 * SECOND, RunId("1.1"), Outcome.REQUEUED),
    ]
    released(story, "1.2")
    assert kinds(story.look(runs(T0 + 22 * SECOND, restarts=1))) == ["RunStarted"]


@pytest.mark.parametrize("restarted", [False, True], ids=["seen", "after-a-restart-of-mirab"])
def test_a_run_that_came_was_requeued_and_runs_again_between_two_looks(restarted: bool) -> None:
    if restarted:
        known = Known({}, {RunId("1.1"): NAMES[:1]}, {}, {}, T0 + 20 * SECOND, ordered={RunId("1.1"): T0 + 11 * SECOND})
        story = Story(tracker(known), T0 + 20 * SECOND)
    else:
        story = Story(tracker())
        story.look(job())
        released(story)
    again = runs(T0 + 22 * SECOND, restarts=1)
    assert kinds(story.look(again, books=())) == [], "the accounting has not heard of the first yet"
    first = Booking("1", "REQUEUED", T0 + 12 * SECOND, T0 + 14 * SECOND)
    old = Booking("1", "REQUEUED", T0 - HOUR, T0 - SECOND)
    told = story.look(again, books=(old, first))
    assert kinds(told) == ["RunStarted", "RunEnded", "RunAdopted"]
    assert told[1] == facts.RunEnded(T0 + 14 * SECOND, RunId("1.1"), Outcome.REQUEUED)
    assert told[2].run_id == "1.2" and told[2].started_at == T0 + 22 * SECOND  # type: ignore[union-attr]


def test_without_accounting_a_start_is_not_kept_waiting() -> None:
    story = Story(tracker())
    story.look(job())
    released(story)
    assert kinds(story.look(runs(T0 + 22 * SECOND, restarts=1), books=None)) == ["RunStarted"]


def test_a_run_that_vanished_ends_as_the_accounting_says() -> None:
    story = Story(tracker())
    story.look(runs())
    told = story.look(books=(Booking("1", "TIMEOUT", T0 + SECOND, T0 + 14 * SECOND, 0, 15),))
    assert told == [facts.RunEnded(T0 + 14 * SECOND, RunId("1.1"), Outcome.TIMEOUT, exit_code=143)]


def test_a_node_that_died_takes_its_runs_with_it() -> None:
    story = Story(tracker())
    story.look(runs())
    dead = [replace(NODES[0], state="DOWN", flags=("NOT_RESPONDING",), reason="Not responding"), *NODES[1:]]
    told = story.look(job(restarts=1, held_by=""), nodes=dead)
    assert kinds(told) == ["NodeDown", "RunEnded"] and told[1].outcome is Outcome.NODE_FAIL  # type: ignore[union-attr]


def test_nodes_drain_come_back_and_are_added() -> None:
    story = Story(tracker())
    drained = [replace(NODES[0], flags=("DRAIN",), reason="fan"), *NODES[1:]]
    told = story.look(nodes=drained)
    assert told == [facts.NodeDegraded(story.now, NAMES[0], "fan")] and story.look(nodes=drained) == []
    assert kinds(story.look()) == ["NodeUp"]
    new = SlurmNode(NodeName("n9"), "IDLE", (), 8, "h100", 64, 500_000)
    told = story.look(nodes=[*NODES, new])
    assert isinstance(told[0], facts.ClusterChanged) and told[0].cluster.pools[0].nodes == (*NAMES, "n9")
    assert kinds(story.look()) == ["NodeDown"]


def test_a_reserved_node_takes_nothing_and_is_not_sick() -> None:
    story = Story(tracker())
    kept = [replace(NODES[0], flags=("RESERVED",)), *NODES[1:]]
    told = story.look(nodes=kept)
    assert told == [facts.NodeDegraded(story.now, NAMES[0], "reserved in Slurm")]
    assert story.tracker.nodes.only_reserved(NAMES[0]) and not story.tracker.nodes.only_reserved(NAMES[1])
    story.look(nodes=[replace(kept[0], flags=("RESERVED", "DRAIN")), *NODES[1:]])
    assert not story.tracker.nodes.only_reserved(NAMES[0])


def test_a_suspended_run_stands_still() -> None:
    story = Story(tracker())
    story.look(runs())
    assert kinds(story.look(replace(runs(), state="SUSPENDED"))) == ["RunSuspended"]
    assert story.look(replace(runs(), state="SUSPENDED")) == []
    assert kinds(story.look(runs())) == ["RunContinued"]


def test_a_state_that_nobody_knows_changes_nothing() -> None:
    story = Story(tracker())
    story.look(runs())
    assert story.look(replace(runs(), state="TELEPORTING")) == []
    assert story.look(runs()) == []


def test_after_a_restart_only_what_changed_is_told() -> None:
    known = Known({RunId("1.1"): T0 + SECOND}, {}, {WorkloadId("2"): ""}, {}, T0 + 60 * SECOND)
    story = Story(tracker(known), T0 + 60 * SECOND)
    assert story.look(runs(restarts=3), job(id="2", job_id=2)) == []
    assert story.look(runs(restarts=3), job(id="2", job_id=2)) == []
    story = Story(tracker(known), T0 + 60 * SECOND)
    told = story.look(runs(T0 + 30 * SECOND, restarts=1), job(id="2", job_id=2), books=None)
    assert kinds(told) == ["RunEnded", "RunAdopted"] and told[1].run_id == "1.2"  # type: ignore[union-attr]


def test_after_a_restart_a_start_that_went_out_is_recognised() -> None:
    known = Known({}, {RunId("1.1"): NAMES[:1]}, {}, {NAMES[1]: "degraded"}, T0)
    told = Story(tracker(known)).look(runs())
    assert kinds(told) == ["NodeUp", "RunStarted"]


def test_a_job_that_comes_again_after_its_end_is_another() -> None:
    told = Story(tracker(taken=("1", "1r1"))).look(job())
    assert isinstance(told[0], facts.WorkloadSubmitted) and told[0].workload.id == "1r2"


def test_slurm_takes_the_nodes_of_a_run_that_was_to_begin_there() -> None:
    story = Story(tracker())
    story.look(job(), job(id="2", job_id=2))
    released(story)
    told = story.look(job(held_by=""), runs(T0 + 15 * SECOND, id="2", job_id=2))
    assert kinds(told) == ["ActionRefused", "RunAdopted"] and told[0].run_id == "1.1"  # type: ignore[union-attr]


WORDS = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "ODD", "")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS), st.integers(0, 2), st.booleans()), max_size=12)
)
def test_whatever_the_listings_say_the_state_takes_it(looks: list[tuple[str, str, int, bool]]) -> None:
    """Any two jobs in any states one after the other: the facts fold, and every invariant holds."""
    budgets = Budgets((Budget("red", WHOLE),))
    state = State(CLUSTER, budgets, Policy(unknown_accounts="zero", mode="observe"), T0)
    known: dict[str, None] = {}
    story = Story(tracker(taken=known.keys()))
    for first, second, restarts, sick in looks:
        listed = [
            job(
                id=str(number), job_id=number, state=word, restarts=restarts, held_by="",
                node_names=() if word == "PENDING" else (NAMES[number],),
                started_at=None if word == "PENDING" else T0 + (1 + 40 * restarts) * SECOND,
                ended_at=story.now if word in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL") else None,
            )
            for number, word in ((1, first), (2, second)) if word
        ]  # fmt: skip
        nodes = [replace(NODES[0], flags=("DRAIN",)), *NODES[1:]] if sick else NODES
        for fact in story.look(*listed, nodes=nodes):
            state.fold(fact)
            if isinstance(fact, facts.WorkloadSubmitted):
                assert fact.workload.id not in known
                known[fact.workload.id] = None
        state.advance(story.now)
        state.check()
        believed = {seen.run for seen in story.tracker.seen.values() if seen.run is not None}
        assert believed == set(state.runs)
