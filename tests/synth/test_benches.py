"""The parts of the benches that compute: adversaries keep the work, outcomes count it, tables say what was missed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from bench.adversaries import ADVERSARIES, Adversary, Resubmitter, close_and_open, rename
from bench.effects import Effect, compare, markdown_rows, means, noise_band
from bench.gaming import _Run, jittered, peaks
from bench.inputs import load_trace, synth_options
from bench.outcomes import Outcomes, origin_of
from bench.quality import POLICIES, fewer_humans, policies_for
from bench.speed import Speed, text
from bench.swf import write_swf

from mirab.model.events import Outcome, RunEnded, RunStarted, WorkloadCancelled, WorkloadSubmitted
from mirab.model.plans import Plan, Preempt, Start
from mirab.model.policy import named
from mirab.model.reasons import StartTimedOut, VictimsGone
from mirab.model.resources import Allocation, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, SECOND, AccountPath, RunId, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.sim.backend import SimClock
from mirab.sim.engine import replay
from mirab.sim.synthetic import SynthOptions, synthesize

ACCOUNT = AccountPath("language/pretrain")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthesize(SynthOptions(nodes=32, days=4))


@pytest.fixture(scope="module")
def came_of_it(trace: Trace) -> Outcomes:
    """Of each workload, when everybody is honest."""
    outcomes = Outcomes(trace.ends_at)
    replay(trace, named("budget"), journals=[outcomes])
    return outcomes


def work_of(trace: Trace, mine: bool) -> int:
    return sum(
        each.workload.shape.gpus * each.run
        for each in trace.arrivals
        if (each.workload.account.partition("~")[0] == ACCOUNT) is mine
    )


@pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda each: each.name)
def test_an_adversary_has_the_same_work_as_its_honest_self_and_touches_nobody_elses(
    adversary: Adversary, trace: Trace, came_of_it: Outcomes
) -> None:
    honest, sly = adversary.honest(trace, ACCOUNT), adversary.sly(trace, ACCOUNT)
    if adversary.acts:
        sly = adversary.acts(sly, ACCOUNT, [2 * DAY])
    if adversary.foresees:
        sly = adversary.foresees(sly, ACCOUNT, came_of_it)
    assert work_of(sly, mine=True) == work_of(honest, mine=True)
    assert [each for each in sly.arrivals if each.workload.account.partition("~")[0] != ACCOUNT] == [
        each for each in trace.arrivals if each.workload.account != ACCOUNT
    ]
    assert sly != honest
    keys = [(each.workload.submitted_at, each.workload.id) for each in sly.arrivals]
    assert keys == sorted(keys)


def test_a_split_gang_is_counted_as_one_thing(trace: Trace) -> None:
    split = next(each for each in ADVERSARIES if each.name == "split").sly(trace, ACCOUNT)
    mine = [each for each in split.arrivals if each.workload.account == ACCOUNT]
    assert all(each.workload.shape.nodes == 1 for each in mine)
    assert {origin_of(each.workload.id) for each in split.arrivals} == {each.workload.id for each in trace.arrivals}


def test_only_gangs_that_started_are_split(trace: Trace, came_of_it: Outcomes) -> None:
    sly = next(each for each in ADVERSARIES if each.name == "split-started")
    assert sly.foresees is not None
    outcomes, late = deepcopy(came_of_it), sorted(gangs_of(trace))[::2]
    for each in late:
        outcomes.stories[each].first_start = None
    assert gangs_of(sly.foresees(trace, ACCOUNT, outcomes)) == set(late) < gangs_of(trace)


def gangs_of(trace: Trace) -> set[WorkloadId]:
    return {
        each.workload.id
        for each in trace.arrivals
        if each.workload.account == ACCOUNT and each.workload.shape.nodes > 1
    }


def test_reopening_keeps_the_tree_and_the_siblings_shares(trace: Trace) -> None:
    changed = close_and_open(trace, ACCOUNT, [DAY, 2 * DAY])
    closed, opened, *_ = changed.budget_changes
    assert ACCOUNT not in closed.budgets.leaves()
    assert len(closed.budgets.leaves()) == len(trace.budgets.leaves()) - 1
    assert opened.budgets == trace.budgets
    assert opened.at - closed.at == SECOND
    instants = {each.workload.submitted_at for each in trace.arrivals if each.workload.account == ACCOUNT}
    assert not any(closed.at <= instant <= opened.at for instant in instants)


def test_a_new_name_takes_over_share_and_later_work(trace: Trace) -> None:
    renamed = rename(trace, ACCOUNT, [DAY, 3 * DAY])
    shares = {path: share for path, _, share in trace.budgets.walk()}
    second, third = (change.budgets for change in renamed.budget_changes)
    assert {path: share for path, _, share in second.walk()}["language/pretrain~2"] == shares[ACCOUNT]  # type: ignore[index]
    assert ACCOUNT not in second.leaves() and "language/pretrain~2" not in third.leaves()
    for each in renamed.arrivals:
        name = each.workload.account
        if name.startswith(ACCOUNT):
            at = each.workload.submitted_at
            assert name == (ACCOUNT if at < DAY else f"{ACCOUNT}~2" if at < 3 * DAY else f"{ACCOUNT}~3")


def arrival(identity: str, resume: bool = True) -> Arrival:
    work = Workload(
        WorkloadId(identity), 0, ACCOUNT, UserName("u"), Shape(1, 2, min_runtime=MINUTE),
        checkpoint=10 * MINUTE, restart=MINUTE, resume=resume,
    )  # fmt: skip
    return Arrival(work, 2 * HOUR)


def start(identity: str, attempt: int, resumed: bool = False) -> Start:
    run_id = RunId(f"{identity}.{attempt}")
    return Start(run_id, WorkloadId(identity), Allocation(0, 1, 2), MINUTE, VictimsGone(0), resumed)


def test_outcomes_count_what_lasts_and_what_is_lost() -> None:
    outcomes = Outcomes(period=10 * HOUR)
    one = arrival("a").workload
    outcomes.append([WorkloadSubmitted(0, one)], Plan(0, 1, (start("a", 1),)))
    outcomes.append([RunStarted(MINUTE, RunId("a.1"))], Plan(MINUTE, 2))
    outcomes.append([RunEnded(31 * MINUTE, RunId("a.1"), Outcome.PREEMPTED, lost=10 * MINUTE)], Plan(31 * MINUTE, 3))
    outcomes.append([], Plan(40 * MINUTE, 4, (start("a", 2, resumed=True),)))
    outcomes.append([RunStarted(40 * MINUTE, RunId("a.2"))], Plan(40 * MINUTE, 5))
    outcomes.append([RunEnded(141 * MINUTE, RunId("a.2"), Outcome.COMPLETED)], Plan(141 * MINUTE, 6))
    got = outcomes.got(lambda path: path == ACCOUNT)
    assert got.useful == pytest.approx(2 * (20 + 100) / 60)
    assert got.lost == pytest.approx(2 * (10 + 1) / 60)
    assert (got.done, got.wait_p50) == (1, 60)
    assert outcomes.turnarounds(lambda path: True) == {"a": 141 * MINUTE}


def test_outcomes_stop_counting_at_the_end_of_the_period() -> None:
    outcomes = Outcomes(period=HOUR)
    outcomes.append([WorkloadSubmitted(0, arrival("a").workload)], Plan(0, 1, (start("a", 1),)))
    outcomes.append([RunStarted(0, RunId("a.1"))], Plan(0, 2))
    outcomes.append([RunEnded(2 * HOUR, RunId("a.1"), Outcome.COMPLETED)], Plan(2 * HOUR, 3))
    got = outcomes.got(lambda path: True)
    assert (got.useful, got.lost, got.done) == (2.0, 0.0, 0)


def test_who_gave_up_counts_with_the_wait_until_then() -> None:
    outcomes = Outcomes(period=DAY)
    outcomes.append([WorkloadSubmitted(0, arrival("a").workload)], Plan(0, 1))
    outcomes.append([WorkloadCancelled(5 * HOUR, WorkloadId("a"))], Plan(5 * HOUR, 2))
    assert outcomes.got(lambda path: True).wait_mean == 5 * 3600


def test_a_resubmitted_workload_goes_on_from_what_it_had_saved() -> None:
    base = synthesize(SynthOptions(nodes=1, days=1, troubles=False))
    clock = SimClock()
    world = Resubmitter(replace(base, arrivals=[arrival("a", resume=False)]), clock)
    assert [type(fact) for fact in world.observe()] == [WorkloadSubmitted]
    world.submit(start("a", 1))
    world.observe()
    clock.jump(25 * MINUTE)
    world.submit(Preempt(RunId("a.1"), 0, StartTimedOut(0)))
    ended, again = world.observe()
    assert isinstance(ended, RunEnded) and isinstance(again, WorkloadSubmitted)
    assert again.workload.id == "a~again1" and origin_of(again.workload.id) == "a"
    world.submit(start("a~again1", 1))
    assert world.next_due() == 25 * MINUTE + MINUTE + (120 - 20) * MINUTE


def test_jitter_moves_every_submission_by_less_than_a_minute(trace: Trace) -> None:
    before = {each.workload.id: each.workload.submitted_at for each in trace.arrivals}
    moved = {each.workload.id: each.workload.submitted_at for each in jittered(trace, 1).arrivals}
    delays = [moved[identity] - at for identity, at in before.items()]
    assert min(delays) >= 0 and max(delays) < MINUTE and len(set(delays)) > 30


def test_swf_has_a_line_of_18_numbers_for_each_workload(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    write_swf(trace, path)
    lines = path.read_text().splitlines()
    rows = [[int(cell) for cell in line.split()] for line in lines if not line.startswith(";")]
    assert "; MaxProcs: 256" in lines
    assert len(rows) == len(trace.arrivals) and {len(row) for row in rows} == {18}
    first = trace.arrivals[0]
    assert rows[0][:8] == [
        1, first.workload.submitted_at // SECOND, -1, first.run // SECOND, first.workload.shape.gpus, -1, -1,
        first.workload.shape.gpus,
    ]  # fmt: skip


def test_a_missed_number_is_marked() -> None:
    table = text([Speed("slow", 11.0, "s", 10), Speed("fast", 6000, "workloads/s", 5000, at_least=True)])
    slow, fast = table.splitlines()[1:]
    assert slow.endswith("MISSED") and not fast.endswith("MISSED")


def test_specs_of_inputs() -> None:
    assert synth_options("seed=3,load=2.5") == SynthOptions(seed=3, load=2.5)
    assert load_trace("maintenance:nodes=8,days=3").name == "synthetic-1-maintenance"
    with pytest.raises(ValueError, match="no synth option 'sed'"):
        synth_options("sed=3")
    with pytest.raises(ValueError, match=r"not synth:"):
        load_trace("/no/such/folder")


def effect(adversary: str, account: str, repeat: int, useful: float) -> Effect:
    return Effect(adversary, account, repeat, useful, 0.0, 0.0, 3.0, 0.0, 0.0, None, 0.0, 0.0, 0.0)


def test_effects_are_means_and_noise_is_the_largest_mean() -> None:
    effects = [
        effect("cap", "a", 0, 0.10), effect("cap", "b", 0, 0.30),
        effect("noise", "a", 1, 0.01), effect("noise", "b", 1, 0.03),
        effect("noise", "a", 2, -0.05), effect("noise", "b", 2, -0.01),
    ]  # fmt: skip
    assert means([each for each in effects if each.adversary == "cap"])["useful"] == pytest.approx(0.2)
    assert noise_band(effects)["useful"] == pytest.approx(0.03)
    head, cap, noise = markdown_rows(effects, {"cap": "declares the cap"})
    assert head[1] == "its useful work" and cap[1] == "+20.0 %" and noise[1] == "±3.0 %"
    assert cap[head.index("its p50")] == "+3 s" and cap[head.index("its delivered ratio")] == "-"


def test_a_comparison_is_about_the_account_under_all_its_names() -> None:
    honest, sly = Outcomes(period=DAY), Outcomes(period=DAY)
    for outcomes, name, hours in ((honest, ACCOUNT, 1), (sly, AccountPath(f"{ACCOUNT}~2"), 2)):
        work = replace(arrival("a").workload, account=name)
        outcomes.append([WorkloadSubmitted(0, work)], Plan(0, 1, (start("a", 1),)))
        outcomes.append([RunStarted(0, RunId("a.1"))], Plan(0, 2))
        outcomes.append([RunEnded(hours * HOUR, RunId("a.1"), Outcome.COMPLETED)], Plan(hours * HOUR, 3))
    found = compare("rename", ACCOUNT, 0, honest, sly, None)
    assert (found.useful, found.turnaround, found.others_useful) == (1.0, 1.0, 0.0)


def test_peaks_are_high_and_days_apart() -> None:
    times = [0.0, 3600.0, 4 * 86_400.0, 9 * 86_400.0]
    run = _Run(Outcomes(period=DAY), {}, (times, {"a": [1.5, 1.6, 1.2, 1.05]}))
    assert peaks(run, "a") == [HOUR, 4 * DAY]


def test_priority_is_run_beside_logs_that_have_hardware_events() -> None:
    assert policies_for(["a.csv"], first=True) == POLICIES
    assert policies_for(["a.csv", "--node-events", "n.csv"], first=False) == ("budget", "priority")
    assert policies_for(["a.csv"], first=False) == ("budget",)
    report = {"metrics": {"repairs_needing_human": 4}}
    assert fewer_humans({("philly", "budget"): report}, "philly") is None
    assert (
        fewer_humans({("a", "budget"): {"metrics": {"repairs_needing_human": 1}}, ("a", "priority"): report}, "a")
        == 0.75
    )
