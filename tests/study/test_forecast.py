"""Forecasts: the scheduler run forward from a state, with lengths and arrivals out of the past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Outcome as Outcomes
from mirab.model.events import RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    WHOLE,
    AccountPath,
    Instant,
    NodeName,
    RunId,
    UserName,
    WorkloadId,
)
from mirab.model.workloads import Arrival, Workload
from mirab.service.snapshot import freeze, thaw
from mirab.sim.engine import replay
from mirab.study.calibration import Outcome, score, scores
from mirab.study.copies import Copy, CopyError
from mirab.study.forecast import Forward, arriving, bound_of, forecast, forward
from mirab.study.history import History

CLUSTER = Cluster("small", (Pool("gpu", tuple(NodeName(f"n{each}") for each in range(4)), 8, "h100"),))
BUDGETS = Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))


def arrival(number: int, at: Instant, run: int, **changes: Any) -> Arrival:
    shape = Shape(changes.pop("nodes", 1), 8, min_runtime=changes.pop("minimum", 30 * MINUTE), time_limit=12 * HOUR)
    account, user = AccountPath(changes.pop("account", "red")), UserName(changes.pop("user", "ann"))
    return Arrival(Workload(WorkloadId(f"w{number:03}"), at, account, user, shape, **changes), run)


def state_at(arrivals: Sequence[Arrival], at: Instant) -> tuple[State, History]:
    """The state and what was learned after a replay until `at`."""
    trace = Trace(arrivals, CLUSTER, BUDGETS, ends_at=30 * DAY)
    history = History(CLUSTER)
    done = replay(trace, Policy(), journals=[history], until=at)
    return done.state, history


def busy(hours: int = 40, run: int = 4 * HOUR) -> list[Arrival]:
    """One node's work each hour, and each runs for four: the four nodes are always taken."""
    return [arrival(number, number * HOUR, run) for number in range(hours)]


def looked(state: State, history: History, targets: list[WorkloadId], runs: int = 20, **how: Any) -> list[Forward]:
    frozen = freeze(state)
    return [forward(thaw(frozen), history, targets, str(number), **how) for number in range(runs)]


def one_waits() -> tuple[State, History, WorkloadId]:
    """After 40 hours of such work two nodes more are wanted than there are, and both requests wait."""
    extra = [arrival(100, 39 * HOUR + MINUTE, HOUR, account="blue", user="bob", nodes=4)]
    state, history = state_at([*busy(), *extra], 39 * HOUR + 2 * MINUTE)
    assert list(state.pending) == ["w100"]
    return state, history, WorkloadId("w100")


def test_what_always_took_four_hours_is_expected_to() -> None:
    state, history = state_at(busy(), 39 * HOUR + MINUTE)
    workload = next(iter(state.runs.values())).workload
    for chance in (0.01, 0.5, 0.99):
        assert history.run_time(workload, chance) == (4 * HOUR, "user")
        assert history.run_time(workload, chance, past=HOUR)[0] == 4 * HOUR
    stranger = replace(workload, user=UserName("zoe"))
    assert history.run_time(stranger, 0.5) == (4 * HOUR, "class")
    session = replace(stranger, label="session")
    assert history.run_time(session, 0.5) == (4 * HOUR, "all")


def test_a_run_that_outlasts_all_that_was_seen_goes_on_up_to_its_limit() -> None:
    state, history = state_at(busy(), 39 * HOUR + MINUTE)
    workload = next(iter(state.runs.values())).workload
    for chance in (0.01, 0.5, 0.99):
        span, where = history.run_time(workload, chance, past=5 * HOUR)
        assert 5 * HOUR < span <= 12 * HOUR
        assert where == "nothing"


def test_saved_work_is_not_repeated() -> None:
    """A run of two hours loses its last half hour; the next attempt needs ten minutes to get going again."""
    history = History(CLUSTER)
    workload = arrival(1, 0, 0, restart=10 * MINUTE).workload
    (run, again), plan = (RunId("w001.1"), RunId("w001.2")), Plan(0, 0)
    history.append([WorkloadSubmitted(0, workload), RunStarted(0, run)], plan)
    history.append([RunEnded(2 * HOUR, run, Outcomes.PREEMPTED, 30 * MINUTE)], plan)
    assert history.saved(workload.id) == 90 * MINUTE
    assert history.run_time(workload, 0.5)[1] == "nothing"
    history.append([RunStarted(3 * HOUR, again), RunEnded(4 * HOUR, again, Outcomes.COMPLETED, 0)], plan)
    for number in range(2, 13):
        run = RunId(f"w{number:03}.1")
        history.append(
            [WorkloadSubmitted(0, arrival(number, 0, 0).workload), RunStarted(0, run),
             RunEnded(140 * MINUTE, run, Outcomes.COMPLETED, 0)], plan,
        )  # fmt: skip
    assert history.run_time(workload, 0.99) == (140 * MINUTE, "user")


def test_the_same_scheduler_says_when() -> None:
    """All run for four hours and nothing comes in: the gang starts when it would in a replay."""
    state, history, gang = one_waits()
    runs = looked(state, history, [gang], 5, arrivals=False)
    done = replay(
        Trace([*busy(), arrival(100, 39 * HOUR + MINUTE, HOUR, account="blue", user="bob", nodes=4)], CLUSTER, BUDGETS),
        Policy(),
        journals=[started := Started()],
    )
    assert done.unfinished == 0
    told = forecast(runs, gang, state.now, bound_of(state, gang))
    assert told.p50 is not None
    assert abs(told.p50 - started.at[gang]) <= 2 * MINUTE
    assert told.started == 5


class Started:
    def __init__(self) -> None:
        self.at: dict[str, Instant] = {}

    def append(self, facts: Any, plan: Any) -> None:
        for action in plan.actions:
            if type(action).__name__ == "Start":
                self.at.setdefault(action.workload_id, plan.at)


def test_one_seed_one_future() -> None:
    state, history, gang = one_waits()
    assert looked(state, history, [gang], 3) == looked(state, history, [gang], 3)


def test_a_look_that_is_cut_short_says_how_far_it_went() -> None:
    state, history, gang = one_waits()
    found = forward(thaw(freeze(state)), history, [gang], "1", stop=lambda: True)
    assert found.starts == {}
    assert state.now < found.reached < state.now + MINUTE
    told = forecast([found] * 20, gang, state.now)
    assert (told.p50, told.p90) == (None, None)
    assert told.after_90 == found.reached


# --- what comes in --------------------------------------------------------------------------------------------------
def test_what_comes_in_came_in_before_at_the_same_time_of_day() -> None:
    _, history = state_at([arrival(each, each * DAY + 9 * HOUR, MINUTE) for each in range(6)], 5 * DAY + 12 * HOUR)
    for seed in range(20):
        coming = list(arriving(history, Random(seed), history.now, 2 * DAY))
        assert [each.submitted_at % DAY for each in coming] == [9 * HOUR] * 2
        assert [each.submitted_at // DAY for each in coming] == [6, 7]
        assert len({each.id for each in coming}) == 2


def test_a_young_ledger_repeats_the_little_it_has() -> None:
    _, history = state_at([arrival(each, each * MINUTE, MINUTE) for each in range(30)], 30 * MINUTE)
    coming = list(arriving(history, Random(1), history.now, 3 * HOUR))
    assert 100 < len(coming) < 260
    assert all(each.submitted_at >= history.now for each in coming)
    assert list(arriving(History(CLUSTER), Random(1), 0, DAY)) == []


# --- quantiles and what they hang on ----------------------------------------------------------------------------------
def made(starts: Sequence[Instant | None], reached: Instant = DAY) -> list[Forward]:
    return [Forward({} if at is None else {WorkloadId("w"): at}, reached if at is None else at) for at in starts]


def test_quantiles_leave_room_for_one_more() -> None:
    told = forecast(made([each * MINUTE for each in range(1, 51)]), WorkloadId("w"), 0)
    assert (told.p50, told.p90) == (26 * MINUTE, 46 * MINUTE)


def test_later_than_they_went_is_no_instant() -> None:
    told = forecast(made([MINUTE] * 30 + [None] * 20), WorkloadId("w"), 0)
    assert (told.p50, told.p90, told.after_90, told.started) == (MINUTE, None, DAY, 30)
    early = forecast(made([HOUR] * 30 + [None] * 20, reached=SECOND), WorkloadId("w"), 0)
    assert (early.p50, early.after_50, early.after_90) == (HOUR, HOUR, HOUR)


@pytest.mark.parametrize(
    ("starts", "bound", "alone", "assumption"),
    [
        ([5 * SECOND], None, [5 * SECOND], "none"),
        ([2 * HOUR], 2 * HOUR, [2 * HOUR], "contract"),
        ([5 * HOUR], None, [HOUR], "arrivals"),
        ([5 * HOUR], None, [5 * HOUR], "run-lengths"),
        ([None], None, [HOUR], "arrivals"),
    ],
)
def test_what_it_hangs_on(
    starts: list[Instant | None], bound: Instant | None, alone: list[Instant | None], assumption: str
) -> None:
    told = forecast(made(starts * 20), WorkloadId("w"), 0, bound, made(alone * 5))
    assert told.assumption == assumption


def test_the_contracts_word_is_told_where_there_is_one() -> None:
    state, _, gang = one_waits()
    assert gang in state.holds
    assert bound_of(state, gang) == state.holds[gang].until
    assert bound_of(state, WorkloadId("nobody")) is None


# --- how they held ------------------------------------------------------------------------------------------------
def outcome(p50: int | None, p90: int | None, started: int | None, until: int = 0, bound: int | None = None) -> Outcome:
    return Outcome("small", 0, p50, p90, started, until if started is None else started, bound)


def test_ties_hold_and_giving_up_before_is_left_out() -> None:
    assert outcome(5, 9, 5).held(5) is True
    assert outcome(5, 9, 6).held(5) is False
    assert outcome(5, 9, None, until=7).held(9) is None
    assert outcome(5, 9, None, until=7).held(5) is False
    assert outcome(None, None, 5).held(None) is None
    assert outcome(None, None, 5).held(None, after=6) is True
    assert outcome(None, None, 5).held(None, after=4) is None
    assert outcome(None, None, None, until=9).held(None, after=6) is None


def test_scores_by_class_with_bounds_apart() -> None:
    found = [outcome(5, 9, 4), outcome(5, 9, 8), outcome(5, 9, 12), outcome(5, 5, 5, bound=5), outcome(3, None, 90)]
    told = score(found)
    assert (told["forecasts"], told["judged"], told["without_p90"]) == (4, 3, 1)
    assert (told["p50_held"], told["p90_held"]) == (0.25, 0.6667)
    assert told["p90_over_wait"] == 1.12
    assert (told["bounds"], told["bounds_held"]) == (1, 1.0)
    assert set(scores(found)) == {"all", "small"}
    assert score([])["p90_held"] is None


# --- copies ---------------------------------------------------------------------------------------------------------
def test_a_copy_works_and_leaves_nothing() -> None:
    kept = [1]
    copy = Copy(lambda: (kept.append(2), list(kept))[1])  # type: ignore[func-returns-value]
    assert copy.result() == [1, 2]
    assert kept == [1]
    with pytest.raises(CopyError, match="KeyError"):
        Copy(lambda: dict[str, int]()["nothing"]).result()


def test_an_instant_that_has_passed_is_no_bound() -> None:
    """The hold is over and the gang still waits: what keeps it named no time, and "now" would be a broken promise."""
    state, _, gang = one_waits()
    state.advance(state.holds[gang].until)
    assert bound_of(state, gang) is None
