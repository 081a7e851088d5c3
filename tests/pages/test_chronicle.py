"""The journal in sentences: every kind of fact and action has one, and a search finds what it is for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from mirab.model import events as fact
from mirab.model import plans as plan_of
from mirab.model import reasons as why
from mirab.model.accounts import Budgets
from mirab.model.codec import encode
from mirab.model.plans import Plan
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Allocation, Shape
from mirab.model.units import FOREVER, HOUR, AccountPath, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.service.views.chronicle import LINES_MOST, SIGNS, SUBJECTS, Teller, entry, page
from mirab.study.formats import Names
from tests.service.house import EPOCH, nodes

CLUSTER = nodes(4)
TELLER = Teller(CLUSTER, Names(0))
JOB, RUN, NODE, LEAF = WorkloadId("7"), RunId("7.1"), NodeName("n1"), AccountPath("vision/video")
SHAPE = Shape(1, 2, min_runtime=HOUR)
WORKLOAD = Workload(JOB, EPOCH, LEAF, UserName("ada"), SHAPE)
FACTS: tuple[Any, ...] = (
    fact.WorkloadSubmitted(EPOCH, WORKLOAD), fact.WorkloadCancelled(EPOCH, JOB), fact.WorkloadHeld(EPOCH, JOB, "later"),
    fact.WorkloadReleased(EPOCH, JOB), fact.RequeueRequested(EPOCH, JOB), fact.RunStarted(EPOCH, RUN),
    fact.RunAdopted(EPOCH, RUN, JOB, Allocation(0, 1, 2), EPOCH, HOUR), fact.RunCheckpointed(EPOCH, RUN),
    fact.RunSuspended(EPOCH, RUN), fact.RunContinued(EPOCH, RUN),
    *(fact.RunEnded(EPOCH, RUN, outcome, 60_000, 1) for outcome in fact.Outcome),
    fact.NodeDegraded(EPOCH, NODE, "XID 79"), fact.NodeDown(EPOCH, NODE), fact.NodeUp(EPOCH, NODE),
    fact.ActionRefused(EPOCH, RUN, "start", "no disk"), fact.ActionRefused(EPOCH, RUN, "preempt"),
    fact.BudgetsChanged(EPOCH, Budgets(()), "mia", "a review"), fact.PolicyChanged(EPOCH, Policy()),
    fact.ClusterChanged(EPOCH, CLUSTER),
    fact.ReservationApproved(EPOCH, Reservation("r1", LEAF, 1, 2, EPOCH, EPOCH + HOUR, "ada", "a demo", "mia")),
    fact.ReservationCancelled(EPOCH, "r1"),
    fact.ExemptionGranted(EPOCH, Exemption("e1", "long-minimum", LEAF, EPOCH, EPOCH + HOUR, "ada", "a paper", "mia")),
    fact.ExemptionRevoked(EPOCH, "e1"),
)  # fmt: skip
IN_ORDER = why.InOrder(LEAF, 0.5, True)
ACTIONS: tuple[Any, ...] = (
    plan_of.Start(RUN, JOB, Allocation(0, 3, 2), HOUR, IN_ORDER, resumed=True),
    plan_of.Preempt(RUN, 10_000, why.DrainedFrom(NODE)), plan_of.Cancel(RUN, 10_000), plan_of.Cancel(RUN, 1, True),
    plan_of.Drain(NODE, EPOCH), plan_of.Drain(NODE, None, "a noise"), plan_of.Repair(NODE), plan_of.Resume(NODE),
    plan_of.CallHuman(NODE, RUN, "it does not stop"), plan_of.Reject(JOB, why.UnknownAccount(LEAF)),
)  # fmt: skip
HOLDS = (
    plan_of.Hold(JOB, 0, 15, 2, EPOCH + HOUR, EPOCH), plan_of.Hold(JOB, 0, 1, 2, FOREVER, EPOCH, claim=True),
    plan_of.HoldReleased(JOB, "it started"), plan_of.HoldReleased(JOB, "it is over", "r1"),
)  # fmt: skip
WAITS = (plan_of.Waiting(LEAF, UserName("ada"), SHAPE, JOB, why.NoFreeGpus(1, 2, 0, 0, 0, None), EPOCH + 1),)
PLANS = [Plan(EPOCH, 0, actions=(action,)) for action in ACTIONS] + [
    Plan(EPOCH, 0, holds=(hold,)) for hold in HOLDS
] + [Plan(EPOCH, 0, waiting=WAITS)]  # fmt: skip
RECORDS = [((each,), Plan(EPOCH, 0)) for each in FACTS] + [((), plan) for plan in PLANS]


def text(facts: Any) -> str:
    return json.dumps([encode(each) for each in facts])


def test_every_kind_of_fact_and_action_is_among_the_examples() -> None:
    assert {type(each) for each in FACTS} == set(get_args(fact.Event))
    assert {type(each) for each in ACTIONS} == set(get_args(plan_of.Action))


@pytest.mark.parametrize(("facts", "plan"), RECORDS)
def test_every_one_has_a_sentence_and_its_topic_finds_it(facts: Any, plan: Plan) -> None:
    whole = entry(1, text(facts), json.dumps(encode(plan)), TELLER, (), None)
    assert whole is not None
    [line] = whole["lines"]
    assert line["text"]
    assert "None" not in line["text"]
    found = entry(1, text(facts), json.dumps(encode(plan)), TELLER, (line["topic"],), None)
    assert found == whole


@pytest.mark.parametrize("plan", [plan for plan in PLANS if not plan.waiting])
def test_what_an_observer_decides_is_told_as_advice(plan: Plan) -> None:
    observer = Teller(CLUSTER, Names(0), lambda at: at == EPOCH)
    [line], [done] = observer.lines((), plan), TELLER.lines((), plan)
    assert line.text == f"advice alone: {done.text}" and line.what == done.what
    [later] = observer.lines((), replace(plan, at=EPOCH + 1))
    assert later.text == done.text


def test_topics_and_their_signs_are_the_same() -> None:
    assert set(SUBJECTS) == set(SIGNS)


def test_a_search_is_about_a_job_a_node_or_an_account_and_what_names_it() -> None:
    facts = text([fact.WorkloadSubmitted(EPOCH, WORKLOAD), fact.NodeUp(EPOCH, NodeName("n2"))])
    plan = json.dumps(encode(Plan(EPOCH, 0, actions=(ACTIONS[0],))))
    for subject, wanted in {
        "7": 2,
        "n2": 1,
        "n1": 1,
        "vision": 2,
        "vision/video": 2,
        "ision": 0,
        "n": 0,
        "1": 0,
    }.items():
        found = entry(1, facts, plan, TELLER, (), subject)
        assert len(found["lines"] if found else ()) == wanted, subject


def test_a_page_ends_at_its_limit_and_says_where_to_go_on() -> None:
    facts = [text([fact.NodeUp(EPOCH, NODE)]), text([FACTS[0]])]
    plan = json.dumps(encode(Plan(EPOCH, 0)))
    records = [(seq, facts[seq % 10 > 0], plan) for seq in range(300, 0, -1)]

    def fetch(before: int | None, size: int) -> list[tuple[int, str, str]]:
        return [each for each in records if before is None or each[0] < before][:size]

    seen: list[int] = []
    before = None
    while True:
        found = page(fetch, TELLER, before, 7, ("nodes",), None)
        seen += [each["seq"] for each in found["entries"]]
        assert len(found["entries"]) <= 7
        before = found["before"]
        if before is None:
            break
    assert seen == list(range(300, 0, -10))


def test_a_record_of_thousands_of_lines_is_cut_and_counted() -> None:
    found = entry(1, text([FACTS[0]] * 500), json.dumps(encode(Plan(EPOCH, 0))), TELLER, (), None)
    assert found is not None
    assert (len(found["lines"]), found["more"]) == (LINES_MOST, 500 - LINES_MOST)


@pytest.mark.parametrize(
    ("outcome", "code", "told"),
    [
        (fact.Outcome.FAILED, 3, "failed with exit code 3; 1 min of work was not saved"),
        (fact.Outcome.FAILED, 137, "failed with exit code 137 (ended by SIGKILL); 1 min of work was not saved"),
        (fact.Outcome.CANCELLED, 143, "was cancelled; 1 min of work was not saved"),
        (fact.Outcome.NODE_FAIL, None, "was lost with its node; 1 min of work has to be done again"),
    ],
)
def test_an_end_tells_how_and_only_what_is_done_again_is_called_so(
    outcome: fact.Outcome, code: int | None, told: str
) -> None:
    [line] = TELLER.lines([fact.RunEnded(EPOCH, RUN, outcome, 60_000, code)], Plan(EPOCH, 0))
    assert line.text == told
