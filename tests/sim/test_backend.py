"""The pretend engine, told what to do by hand: what it answers, when, and in which order."""

from __future__ import annotations

import pytest

from mirab.model.events import (
    ActionRefused,
    BudgetsChanged,
    ExemptionGranted,
    NodeDegraded,
    NodeDown,
    NodeUp,
    Outcome,
    ReservationApproved,
    RunEnded,
    RunStarted,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from mirab.model.plans import CallHuman, Drain, Reject, Repair
from mirab.model.policy import Exemption, Reservation
from mirab.model.reasons import NeverFits
from mirab.model.units import HOUR, MINUTE, NodeName, RunId, WorkloadId
from mirab.sim.backend import SimClock, SimOptions
from mirab.sim.ranks import RANK
from tests.sim.world import Hand, arrival, ends, leaves_early, leaves_late, ms, trace, trouble


# --- arrivals, starts, ends -----------------------------------------------------------------------------------------
def test_a_run_ends_after_its_work_and_keeps_the_instant_of_its_end() -> None:
    hand = Hand(trace([arrival("a", at=5, run=100)]))
    assert hand.due() == 5
    (submitted,) = hand.look(5)
    assert isinstance(submitted, WorkloadSubmitted) and submitted.at == ms(5)
    run_id = hand.start("a")
    assert hand.due() == 105
    assert hand.look(110) == [RunStarted(ms(5), run_id, True), RunEnded(ms(105), run_id, Outcome.COMPLETED, 0)]
    assert hand.due() is None and hand.backend.exhausted()


def test_a_start_without_delay_is_quiet() -> None:
    hand = Hand(trace([arrival("a", run=100), arrival("b", at=30)]))
    hand.look(0)
    hand.start("a")
    assert hand.due() == 30, "the started run must not cause a decision by itself"
    facts = hand.look(30)
    assert [type(fact) for fact in facts] == [RunStarted, WorkloadSubmitted]
    assert facts[0].at == 0


def test_a_start_with_a_delay_is_an_ordinary_fact() -> None:
    hand = Hand(trace([arrival("a", run=100)]), SimOptions(start_delay=ms(7)))
    hand.look(0)
    run_id = hand.start("a")
    assert hand.due() == 7
    assert hand.look(7) == [RunStarted(ms(7), run_id, True)]
    assert ends(hand.look(200)) == [(run_id, 107, Outcome.COMPLETED, 0)]


def test_the_same_order_twice_counts_once() -> None:
    hand = Hand(trace([arrival("a", run=100)]))
    hand.look(0)
    run_id = hand.start("a")
    hand.start("a")
    assert hand.look(50) == [RunStarted(0, run_id, True)]
    hand.stop(run_id)
    hand.stop(run_id, grace=30)
    assert ends(hand.look(300)) == [(run_id, 50, Outcome.PREEMPTED, 50)]
    hand.stop(run_id)
    hand.start("a")
    assert hand.look(900) == []


def test_unsorted_arrivals_are_sorted_and_twins_are_refused() -> None:
    hand = Hand(trace([arrival("b", at=9), arrival("c", at=1), arrival("a", at=9)]))
    assert [fact.workload.id for fact in hand.look(9) if isinstance(fact, WorkloadSubmitted)] == ["c", "a", "b"]
    with pytest.raises(ValueError, match="workload b stands twice in log"):
        Hand(trace([arrival("a"), arrival("b"), arrival("b", at=4)]))


def test_time_does_not_go_back() -> None:
    clock = SimClock()
    clock.jump(10)
    clock.jump(10)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.jump(9)


def test_facts_come_in_order_of_instant_kind_and_id() -> None:
    """All of it happens at 100 s, handed to the engine in another order."""
    world = trace(
        [arrival(name, run=100) for name in "dc"] + [arrival("b", at=40, cancel_after=60), arrival("a", at=100)],
        trouble(100, "n1", "degraded"),
        trouble(0, "n0", "down", repair=100),
        trouble(100, "n0", "down"),
    )
    hand = Hand(world)
    hand.look(0)
    hand.start("d", mask=2)
    hand.start("c", mask=2)
    facts = hand.look(100)
    assert [type(fact).__name__ for fact in facts] == [
        "RunStarted", "RunStarted", "WorkloadSubmitted", "RunEnded", "RunEnded", "NodeUp", "NodeDown", "NodeDegraded",
        "WorkloadSubmitted", "WorkloadCancelled",
    ]  # fmt: skip
    assert [fact.run_id for fact in facts if isinstance(fact, RunEnded)] == ["c.1", "d.1"]
    key = [(fact.at, RANK[type(fact)]) for fact in facts]
    assert key == sorted(key)


# --- users who give up ----------------------------------------------------------------------------------------------
def test_a_user_gives_up_only_before_the_first_start() -> None:
    hand = Hand(trace([arrival("a", run=500, cancel_after=60), arrival("b", cancel_after=60)]))
    hand.look(0)
    hand.start("a")
    assert hand.due() == 60
    facts = hand.look(61)
    assert WorkloadCancelled(ms(60), WorkloadId("b")) in facts
    hand.stop("a.1")
    assert [type(fact) for fact in hand.look(90)] == [RunEnded]
    assert hand.due() is None, "a preempted workload waits for ever"


def test_a_rejected_workload_is_not_given_up_later() -> None:
    hand = Hand(trace([arrival("a", cancel_after=60)]))
    hand.look(0)
    hand.backend.submit(Reject(WorkloadId("a"), NeverFits(9, 9, (), 2, 8)))
    assert hand.due() is None and hand.look(100) == []


# --- checkpoints, restarts, lost work -------------------------------------------------------------------------------
def test_a_preempted_run_repeats_what_it_did_not_save_and_its_restart() -> None:
    """Saves each 30 s of work: stopped at 100 s it has 90 s, lost 10; then restart 20 s + the remaining 110 s."""
    hand = Hand(trace([arrival("a", run=200, checkpoint=30, restart=20)]))
    hand.look(0)
    hand.start("a")
    hand.look(100)
    hand.stop("a.1")
    assert ends(hand.look(100)) == [("a.1", 100, Outcome.PREEMPTED, 10)]
    hand.start("a", 2)
    assert ends(hand.look(1000)) == [("a.2", 230, Outcome.COMPLETED, 0)]


def test_what_is_saved_is_kept_over_many_attempts() -> None:
    """Second attempt: restart 20 s, saves at 50 s of running; stopped at 45 s it loses all 45, at 55 s it loses 5."""
    for stopped_after, lost, left in ((45, 45, 110), (55, 5, 80)):
        hand = Hand(trace([arrival("a", run=200, checkpoint=30, restart=20)]))
        hand.look(0)
        hand.start("a")
        hand.look(100)
        hand.stop("a.1")
        hand.look(100)
        hand.start("a", 2)
        hand.look(100 + stopped_after)
        hand.stop("a.2")
        assert ends(hand.look(200)) == [("a.2", 100 + stopped_after, Outcome.PREEMPTED, lost)]
        hand.start("a", 3)
        assert ends(hand.look(1000)) == [("a.3", 200 + 20 + left, Outcome.COMPLETED, 0)]


def test_the_end_of_the_minimum_is_a_checkpoint() -> None:
    """Interval 300 s, minimum 70 s: stopped at 100 s it has 70 s of work and lost 30."""
    hand = Hand(trace([arrival("a", run=200, checkpoint=300)]))
    hand.look(0)
    hand.start("a", minimum=70)
    hand.look(100)
    hand.stop("a.1")
    assert ends(hand.look(100)) == [("a.1", 100, Outcome.PREEMPTED, 30)]
    hand.start("a", 2, minimum=70)
    assert ends(hand.look(999)) == [("a.2", 230, Outcome.COMPLETED, 0)]


def test_what_never_checkpoints_saves_nothing_at_its_minimum_either() -> None:
    hand = Hand(trace([arrival("a", run=200)]))
    hand.look(0)
    hand.start("a", minimum=70)
    hand.look(100)
    hand.stop("a.1")
    assert ends(hand.look(100)) == [("a.1", 100, Outcome.PREEMPTED, 100)]
    hand.start("a", 2)
    assert ends(hand.look(999)) == [("a.2", 300, Outcome.COMPLETED, 0)]


def test_a_minimum_that_ends_inside_the_restart_saves_nothing_new() -> None:
    hand = Hand(trace([arrival("a", run=200, checkpoint=100, restart=50)]))
    hand.look(0)
    hand.start("a")
    hand.look(100)
    hand.stop("a.1")
    hand.look(100)
    hand.start("a", 2, minimum=40)
    hand.look(145)
    hand.stop("a.2")
    assert ends(hand.look(145)) == [("a.2", 145, Outcome.PREEMPTED, 45)]


def test_the_engine_vouches_only_for_what_is_true() -> None:
    """One that says it never checkpoints, and does: the scheduler does not learn it, the work is saved all the same."""
    hand = Hand(trace([arrival("a", run=200, checkpoint=0, really=30)]))
    hand.look(0)
    hand.start("a")
    assert hand.look(100) == [RunStarted(0, RunId("a.1"), False)]
    hand.stop("a.1")
    assert ends(hand.look(100)) == [("a.1", 100, Outcome.PREEMPTED, 10)]


# --- limits ---------------------------------------------------------------------------------------------------------
def test_a_job_that_the_log_saw_run_over_its_limit_runs_over_it() -> None:
    hand = Hand(trace([arrival("a", run=100, limit=60)]))
    hand.look(0)
    hand.start("a")
    assert ends(hand.look(200)) == [("a.1", 100, Outcome.COMPLETED, 0)]


def test_limits_that_kill_count_for_each_attempt() -> None:
    """Limit 60 s. First attempt preempted at 50 s with 40 s saved: 60 s left fit; with restart 1 s they do not."""
    for restart, wanted in ((0, ("a.2", 110, Outcome.COMPLETED, 0)), (1, ("a.2", 110, Outcome.TIMEOUT, 19))):
        job = arrival("a", run=100, limit=60, checkpoint=20, restart=restart)
        hand = Hand(trace([job]), SimOptions(kill_at_limit=True))
        hand.look(0)
        hand.start("a")
        hand.look(50)
        hand.stop("a.1")
        hand.look(50)
        hand.start("a", 2)
        assert ends(hand.look(500)) == [wanted]


# --- notice and grace -----------------------------------------------------------------------------------------------
def test_victims_leave_at_different_times_within_their_grace() -> None:
    names = [f"v{number}" for number in range(40)]
    hand = Hand(trace([arrival(name, run=9999) for name in names]))
    hand.look(0)
    for name in names:
        hand.start(name)
    hand.look(100)
    for name in names:
        hand.stop(f"{name}.1", grace=60)
    left = [at - 100 for _, at, outcome, _ in ends(hand.look(200)) if outcome is Outcome.PREEMPTED]
    assert len(left) == 40 and max(left) == 60 and min(left) >= 0
    assert 10 <= sum(delay == 60 for delay in left) <= 30 and len(set(left)) > 10


def test_a_run_that_completes_within_its_grace_has_completed() -> None:
    early = leaves_early("x", ms(60))
    hand = Hand(trace([arrival(early, run=101)]))
    hand.look(0)
    hand.start(early)
    hand.look(100.99)
    hand.stop(f"{early}.1", grace=60)
    assert ends(hand.look(200)) == [(f"{early}.1", 101, Outcome.COMPLETED, 0)]


def test_work_goes_on_during_the_grace() -> None:
    """Notice at 85 s; the next checkpoint at 90 s falls into the grace and counts."""
    late = leaves_late("y", ms(60))
    hand = Hand(trace([arrival(late, run=9999, checkpoint=30)]))
    hand.look(0)
    hand.start(late)
    hand.look(85)
    hand.stop(f"{late}.1", grace=60)
    assert ends(hand.look(200)) == [(f"{late}.1", 145, Outcome.PREEMPTED, 25)]


def test_a_run_stopped_while_starting_is_a_failed_launch() -> None:
    hand = Hand(trace([arrival("a", resume=False)]), SimOptions(start_delay=ms(900)))
    hand.look(0)
    hand.start("a")
    hand.look(600)
    hand.stop("a.1", grace=30)
    assert hand.look(2000) == [RunEnded(ms(600), RunId("a.1"), Outcome.LAUNCH_FAILED, 0)]


def test_a_stop_for_a_run_that_never_came_is_a_failed_launch_and_bars_a_late_start() -> None:
    hand = Hand(trace([arrival("a")]))
    hand.look(600)
    hand.stop("a.1")
    assert hand.look(601) == [RunEnded(ms(600), RunId("a.1"), Outcome.LAUNCH_FAILED, 0)]
    hand.start("a")
    assert hand.look(9999) == []


# --- nodes ----------------------------------------------------------------------------------------------------------
def test_a_dead_node_ends_each_run_that_touches_it_and_comes_back_by_itself() -> None:
    world = trace([arrival(name, run=500, checkpoint=80) for name in "abc"], trouble(200, "n0", "down", repair=300))
    hand = Hand(world)
    hand.look(0)
    hand.start("a", mask=1)
    hand.start("b", mask=3)
    hand.start("c", mask=2)
    facts = hand.look(250)
    assert ends(facts) == [("a.1", 200, Outcome.NODE_FAIL, 40), ("b.1", 200, Outcome.NODE_FAIL, 40)]
    assert isinstance(facts[-1], NodeDown) and facts[-1].at == ms(200)
    hand.start("a", 2)
    refused = hand.look(260)
    assert [type(fact) for fact in refused] == [ActionRefused]
    assert NodeUp(ms(500), NodeName("n0")) in hand.look(500)
    hand.start("a", 3)
    assert RunStarted(ms(500), RunId("a.3"), True) in hand.look(501)


def test_what_completes_as_its_node_dies_has_completed() -> None:
    hand = Hand(trace([arrival("a", run=200)], trouble(200, "n0", "down")))
    hand.look(0)
    hand.start("a")
    facts = hand.look(200)
    assert ends(facts) == [("a.1", 200, Outcome.COMPLETED, 0)] and isinstance(facts[-1], NodeDown)


def test_a_degraded_node_is_repaired_when_told() -> None:
    hand = Hand(trace([arrival("a", run=900)], trouble(50, "n0", repair=300)))
    hand.look(0)
    hand.start("a")
    assert isinstance(hand.look(50)[-1], NodeDegraded)
    assert hand.due() == 900, "a degraded node does not come back by itself"
    hand.look(70)
    hand.stop("a.1")
    hand.look(71)
    hand.backend.submit(Repair(NodeName("n0")))
    hand.backend.submit(Repair(NodeName("n0")))
    assert hand.look(9999) == [NodeUp(ms(371), NodeName("n0"))]


def test_repairing_a_healthy_node_brings_it_back_at_once() -> None:
    hand = Hand(trace([]))
    hand.look(70)
    hand.backend.submit(Repair(NodeName("n1")))
    assert hand.look(71) == [NodeUp(ms(70), NodeName("n1"))]


def test_a_second_trouble_adds_to_the_first() -> None:
    """Degraded twice: one fact, the longer repair. Then dead in repair: back when the later of the two is over."""
    world = trace(
        [],
        trouble(10, "n0", repair=100),
        trouble(20, "n0", repair=400),
        trouble(300, "n0", "down", repair=500),
        trouble(10, "n1", repair=700),
        trouble(30, "n1", "down", repair=50),
    )
    hand = Hand(world)
    facts = hand.look(100)
    assert [(type(fact), fact.at) for fact in facts] == [
        (NodeDegraded, ms(10)), (NodeDegraded, ms(10)), (NodeDown, ms(30)),
    ]  # fmt: skip
    hand.backend.submit(Repair(NodeName("n0")))
    assert hand.look(5000) == [NodeUp(ms(730), NodeName("n1")), NodeUp(ms(800), NodeName("n0"))]


def test_a_node_goes_before_it_comes_back_even_if_its_repair_takes_no_time() -> None:
    facts = Hand(trace([], trouble(10, "n0", "down", repair=0))).look(20)
    assert [type(fact) for fact in facts] == [NodeDown, NodeUp]


def test_unknown_nodes_are_named_before_the_replay_begins() -> None:
    with pytest.raises(ValueError, match=r"node events name n7, which cluster small does not have .*n0 to n1"):
        Hand(trace([], trouble(10, "n1"), trouble(99999, "n7")))
    with pytest.raises(ValueError, match="write degraded or down"):
        Hand(trace([], trouble(10, "n1", "broken")))


# --- runs that do not stop, and the human ---------------------------------------------------------------------------
def test_a_stuck_node_ignores_stops_until_a_human_comes() -> None:
    world = trace([arrival("a", run=90_000, checkpoint=600)], trouble(50, "n0", repair=300, stuck=True))
    hand = Hand(world, SimOptions(human_delay=2 * HOUR))
    hand.look(0)
    hand.start("a")
    hand.look(100)
    hand.stop("a.1", grace=10)
    assert ends(hand.look(500)) == []
    for _ in range(2):
        hand.backend.submit(CallHuman(NodeName("n0"), RunId("a.1"), "does not stop"))
    assert ends(hand.look(7699)) == []
    assert ends(hand.look(9999)) == [("a.1", 7700, Outcome.NODE_FAIL, 500)]
    hand.backend.submit(Repair(NodeName("n0")))
    assert hand.look(20_000) == [NodeUp(ms(10_299), NodeName("n0"))]


def test_a_deaf_run_may_still_complete() -> None:
    hand = Hand(trace([arrival("a", run=200)], trouble(50, "n0", stuck=True)))
    hand.look(0)
    hand.start("a")
    hand.look(100)
    hand.stop("a.1")
    assert ends(hand.look(500)) == [("a.1", 200, Outcome.COMPLETED, 0)]


def test_the_human_stops_the_run_called_for_and_those_told_to_stop_but_nobody_else() -> None:
    """c is protected and has not been told to stop: it stays."""
    world = trace([arrival(name, run=90_000) for name in "abc"], trouble(50, "n0", stuck=True))
    hand = Hand(world, SimOptions(human_delay=10 * MINUTE))
    hand.look(0)
    for name in "abc":
        hand.start(name)
    hand.look(100)
    hand.stop("a.1")
    hand.stop("b.1")
    hand.backend.submit(CallHuman(NodeName("n0"), RunId("a.1"), "does not stop"))
    assert [run_id for run_id, *_ in ends(hand.look(800))] == ["a.1", "b.1"]
    hand.stop("c.1")
    assert [run_id for run_id, *_ in ends(hand.look(900))] == ["c.1"], "after the visit the node obeys"


def test_a_human_called_to_a_node_that_is_only_waited_for_empties_it() -> None:
    """Nobody was told to stop; that the run called for has ended meanwhile changes nothing."""
    hand = Hand(trace([arrival("a", run=900), *(arrival(name, run=90_000) for name in "bcd")], trouble(50, "n0")))
    hand.look(0)
    for name, mask in (("a", 1), ("b", 1), ("c", 3), ("d", 2)):
        hand.start(name, mask=mask)
    hand.look(50)
    hand.backend.submit(Drain(NodeName("n0"), None))
    hand.look(100)
    hand.backend.submit(CallHuman(NodeName("n0"), RunId("a.1"), "does not empty"))
    assert ends(hand.look(100 + 4 * 3600)) == [
        ("a.1", 900, Outcome.COMPLETED, 0),
        ("b.1", 14_500, Outcome.NODE_FAIL, 14_500),
        ("c.1", 14_500, Outcome.NODE_FAIL, 14_500),
    ]


# --- the portfolio plane --------------------------------------------------------------------------------------------
def test_budgets_reservations_and_exemptions_are_facts_at_their_time() -> None:
    reservation = Reservation("r", "team", 1, 8, ms(900), ms(1800), "o", "p", "review")
    exemption = Exemption("e", "guaranteed", "team", ms(500), ms(700), "o", "p", "launch")
    plain = trace([])
    change = BudgetsChanged(ms(300), plain.budgets)
    world = trace([], budget_changes=(change,), reservations=(reservation,), exemptions=(exemption,))
    hand = Hand(world)
    assert hand.look(0) == [ReservationApproved(0, reservation)]
    assert hand.look(300) == [change]
    assert hand.look(600) == [ExemptionGranted(ms(500), exemption)]
