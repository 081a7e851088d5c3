"""Exceptions of a live service: who may ask and grant, that they end and are warned of, and what the core says."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.model.policy import Policy
from mirab.model.records import Grant, TokenRow
from mirab.model.resources import nodes_of
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, Duration, Instant, UserName
from mirab.service.auth.principal import Principal
from mirab.service.config import load_config
from mirab.service.desk.cases import Case
from mirab.service.desk.errors import DeskError
from mirab.service.desk.exceptions import Wish, payers
from mirab.service.views.portfolio import cost
from mirab.study.budgettext import minute
from tests.examples import examples
from tests.service.house import ADA, BUDGETS, EVE, MIA, ROOT, Bench, nodes

ZOE = Principal("zoe", (Grant("admin", ""),), "10.0.0.9")
MAX = Principal("max", (Grant("manager", ""),), "10.0.0.8")


def ask(bench: Bench, who: Principal = ADA, kind: str = "guaranteed", *, lasts: int = DAY, **given: Any) -> Case:
    now = bench.live.now()
    wish: dict[str, Any] = {"account": "vision/video", "reason": "a release", "end": given.get("begin", now) + lasts}
    return bench.desk.portfolio.exceptions.request(who, Wish(kind=kind, **(wish | given)))


def approve(bench: Bench, case: Case, who: Principal = ROOT) -> Case:
    return bench.desk.portfolio.exceptions.approve(who, case.id, "agreed")


def next_minute(at: Instant) -> str:
    return minute(-(-at // MINUTE) * MINUTE)


def listed(bench: Bench) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in bench.desk.portfolio.exceptions.all()}


def test_a_longer_minimum_is_asked_for_granted_holds_and_ends_by_itself(bench: Bench) -> None:
    case = ask(bench, kind="longer-minimum", cap=24 * HOUR)
    bench.settle()
    assert bench.state.minimum_in_force("vision/video", 24 * HOUR) == 8 * HOUR  # type: ignore[arg-type]
    granted = approve(bench, case)
    assert (granted.approver, granted.state) == ("root", "granted")
    assert bench.state.minimum_in_force("vision/video", 24 * HOUR) == 24 * HOUR  # type: ignore[arg-type]
    bench.crash()
    assert listed(bench)[case.id]["state"] == "in force"
    bench.wait(DAY)
    assert bench.state.minimum_in_force("vision/video", 24 * HOUR) == 8 * HOUR  # type: ignore[arg-type]
    assert listed(bench)[case.id]["state"] == "over"


def test_an_extra_share_is_taken_from_its_donor_and_given_back(bench: Bench) -> None:
    case = ask(bench, kind="extra-share", share=WHOLE // 10, donor="llm")
    told = listed(bench)[case.id]
    assert told["paid_by"] == {"llm": pytest.approx(0.1 * bench.state.cluster.charge_units / 1000 * 24)}
    assert told["gpu_hours_so_far"] == 0, "nobody has granted it"
    approve(bench, case)
    assert bench.state.accounts["llm"].share == WHOLE // 2 - WHOLE // 10  # type: ignore[index]
    bench.wait(12 * HOUR)
    told = listed(bench)[case.id]
    assert told["gpu_hours_so_far"] == pytest.approx(told["gpu_hours"] / 2)
    bench.desk.portfolio.exceptions.revoke(ADA, case.id, "done early")
    bench.settle()
    assert bench.state.accounts["llm"].share == WHOLE // 2  # type: ignore[index]
    assert listed(bench)[case.id]["state"] == "revoked"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reason": " "}, "say why"),
        ({"account": "nowhere"}, "may not ask for nowhere"),
        ({"account": "llm"}, "may not ask for llm"),
        ({"account": "vision/videos"}, "may not ask"),
        ({"lasts": 15 * DAY}, "exceptions last at most 14 d"),
        ({"lasts": 0}, "every exception has an end"),
        ({"begin": 1_600_000_000_000}, "in the past"),
        ({"kind": "longer-minimum", "cap": 8 * HOUR}, "name a longer cap"),
        ({"kind": "extra-share", "share": 0}, "more than 0%"),
        ({"kind": "extra-share", "share": WHOLE // 10}, "assigned to nobody, 0%"),
        ({"kind": "extra-share", "share": WHOLE * 6 // 10, "donor": "llm"}, "llm has 50%"),
        ({"kind": "extra-share", "share": 1, "donor": "vision"}, "one lies below the other"),
        ({"kind": "extra-share", "share": 1, "donor": "none"}, "there is no account none"),
        ({"kind": "reservation"}, "at least one node"),
        ({"kind": "reservation", "nodes": 3, "gpus_per_node": 4}, "gpu has 2 nodes of 4 GPUs"),
        ({"kind": "reservation", "nodes": 1, "gpus_per_node": 1, "pool": "x"}, "there is no pool x"),
        ({"kind": "pardon"}, "there is no exception of kind"),
    ],
)  # fmt: skip
def test_what_could_never_hold_is_not_asked_for(bench: Bench, given: dict[str, Any], says: str) -> None:
    with pytest.raises(DeskError, match=says):
        ask(bench, **given)
    assert not listed(bench)


def test_how_long_is_a_setting(bench: Bench) -> None:
    bench.desk.portfolio.exceptions.longest = 30 * DAY
    assert ask(bench, lasts=20 * DAY).end == bench.live.now() + 20 * DAY
    assert load_config({"exception_longest": "2d", "state_dir": "/nowhere"}, {}).exception_longest == 2 * 86_400


def test_nobody_approves_their_own_request_unless_nobody_else_could(bench: Bench) -> None:
    mine = ask(bench, ROOT)
    bench.store.write([TokenRow("t1", "d1", UserName("zoe"), ZOE.grants, bench.live.now(), "root")])
    with pytest.raises(DeskError, match="somebody else has to approve"):
        approve(bench, mine)
    assert approve(bench, mine, ZOE).approver == "zoe"
    bench.store.write(
        [TokenRow("t1", "d1", UserName("zoe"), ZOE.grants, bench.live.now(), "root", revoked_at=bench.live.now())]
    )
    assert approve(bench, ask(bench, ROOT)).approver == "root", "an admin alone"
    with pytest.raises(DeskError, match="somebody else has to approve"):
        approve(bench, ask(bench, MAX), MAX)


def test_who_may_approve_is_who_answers_for_all_that_pay(bench: Bench) -> None:
    case = ask(bench)
    for who in (MIA, EVE, ADA):
        with pytest.raises(DeskError, match="may not approve") as caught:
            approve(bench, case, who)
        assert caught.value.kind == "denied"
    inside = ask(bench, kind="extra-share", share=WHOLE // 100, donor="vision/image")
    assert approve(bench, inside, MIA).approver == "mia", "both accounts are below hers"
    with pytest.raises(DeskError, match="is in force already"):
        approve(bench, inside, ROOT)
    with pytest.raises(DeskError, match="there is no exception x99"):
        bench.desk.portfolio.exceptions.approve(ROOT, "x99", "")


@pytest.mark.parametrize(
    ("account", "donor", "where"),
    [("a/b", "a/c", "a"), ("a/b", "c", ""), ("a/b/c", "a/d", "a"), ("a", "b", ""), ("ab/x", "ab/y/z", "ab")],
)
def test_payers_have_an_account_above_them(account: str, donor: str, where: str) -> None:
    assert payers(Case("x", "extra-share", account, "o", "r", 0, 1, 0, donor=donor)) == where


def test_a_request_can_be_refused_and_lapses_at_its_end(bench: Bench) -> None:
    case, other = ask(bench), ask(bench)
    with pytest.raises(DeskError, match="say why"):
        bench.desk.portfolio.exceptions.refuse(ROOT, case.id, "")
    bench.desk.portfolio.exceptions.refuse(ROOT, case.id, "no need")
    with pytest.raises(DeskError, match="is refused already"):
        approve(bench, case)
    bench.wait(2 * DAY)
    assert {listed(bench)[each.id]["state"] for each in (case, other)} == {"refused", "lapsed"}
    with pytest.raises(DeskError, match="is lapsed already"):
        approve(bench, other)


def test_the_end_is_told_once_before_it_comes(bench: Bench) -> None:
    case = approve(bench, ask(bench, lasts=5 * DAY))
    bench.wait(4 * DAY - MINUTE)
    assert not bench.audit(action="exception.warn")
    assert not listed(bench)[case.id]["ends_soon"]
    bench.wait(2 * MINUTE)
    assert listed(bench)[case.id]["ends_soon"]
    bench.crash()
    bench.wait(HOUR)
    warned = bench.audit(action="exception.warn")
    assert [(entry.target, entry.why) for entry in warned] == [
        (case.id, "guaranteed of vision/video ends in 24h: a release")
    ] or len(warned) == 1


def test_a_reservation_that_cannot_be_promised_comes_back_with_its_sentence(bench: Bench) -> None:
    first = ask(bench, kind="reservation", nodes=2, gpus_per_node=4, begin=bench.live.now() + 2 * DAY)
    approve(bench, first)
    second = ask(bench, kind="reservation", nodes=1, gpus_per_node=4, begin=bench.live.now() + 2 * DAY)
    with pytest.raises(DeskError, match="too few nodes beside other reservations") as caught:
        approve(bench, second)
    assert caught.value.kind == "conflict"
    assert f"The earliest begin that can be promised is {next_minute(first.end)} UTC" in str(caught.value)
    assert listed(bench)[second.id]["state"] == "refused"
    assert second.id not in bench.state.reservations
    assert listed(bench)[first.id]["state"] == "to come"
    bench.desk.portfolio.exceptions.revoke(ROOT, first.id, "moved")
    bench.settle()
    assert not bench.state.reservations
    bench.crash()
    assert {name: each["state"] for name, each in listed(bench).items()} == {
        first.id: "revoked", second.id: "refused",
    }  # fmt: skip


def test_the_earliest_begin_that_is_told_can_be_promised_and_a_minute_less_cannot(bench: Bench) -> None:
    """Both nodes run under a minimum of eight hours; one had begun two hours before the other."""
    bench.submit(ADA, gpus_per_node=4, min_runtime="8h")
    bench.wait(2 * HOUR)
    bench.submit(EVE, account="llm", gpus_per_node=4, min_runtime="8h")
    bench.wait(HOUR)
    now = bench.live.now()
    with pytest.raises(DeskError) as caught:
        approve(bench, ask(bench, kind="reservation", nodes=2, gpus_per_node=4, begin=now + HOUR))
    last = next(run for run in bench.state.runs.values() if run.account.path == "llm").unprotected_at
    assert f"The earliest begin that can be promised is {next_minute(last)} UTC" in str(caught.value)
    early = ask(bench, kind="reservation", nodes=2, gpus_per_node=4, begin=last - MINUTE)
    with pytest.raises(DeskError, match="too few nodes"):
        approve(bench, early)
    approve(bench, ask(bench, kind="reservation", nodes=2, gpus_per_node=4, begin=last + MINUTE))


@pytest.mark.parametrize(
    ("ahead", "note"),
    [
        (HOUR, "runs inside their minimum may still be on its nodes"),
        (8 * HOUR, "may be clear up to 30 min after its begin; from "),
        (8 * HOUR + 10 * MINUTE, "may be clear up to 20 min after its begin; from "),
        (8 * HOUR + 30 * MINUTE, ""),
    ],
)
def test_what_exactly_is_promised_is_said_before_and_after_it_is_approved(
    bench: Bench, ahead: Duration, note: str
) -> None:
    now = bench.live.now()
    case = ask(bench, kind="reservation", nodes=1, gpus_per_node=4, begin=now + ahead)
    asked = listed(bench)[case.id]["note"]
    assert note in asked if note else asked == ""
    assert (f"from {next_minute(now + 8 * HOUR + 30 * MINUTE)} UTC on they are clear" in asked) == bool(note)
    approve(bench, case)
    bench.wait(30 * MINUTE)
    granted = listed(bench)[case.id]["note"]
    assert granted == asked.partition("; from")[0], "it is told as it was approved, not as time goes on"


@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None)
def test_a_reservation_approved_the_cap_and_the_notice_ahead_is_met(
    chance: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever runs, came before and comes: at its begin plus the notice its nodes are free of others' charged work."""
    bench = Bench(tmp_path_factory.mktemp("bench"), cluster=nodes(4), policy=Policy(min_runtime_cap=2 * HOUR))
    for _ in range(chance.randint(1, 4)):
        _fill(bench, chance)
        _pass(bench, bench.live.now() + chance.randint(0, 3 * HOUR))
    begin = bench.live.now() + bench.state.policy.min_runtime_cap + bench.state.policy.grace_max
    case = ask(bench, kind="reservation", nodes=chance.randint(1, 4), gpus_per_node=4, begin=begin, lasts=3 * HOUR)
    approve(bench, case)
    for _ in range(4):
        _pass(bench, bench.live.now() + (begin - bench.live.now()) // 3)
        _fill(bench, chance)
    _pass(bench, begin + bench.state.policy.grace_max)
    held = bench.state.reserved[case.id]
    assert held.mask.bit_count() == case.nodes
    for node in nodes_of(held.mask):
        on_it = [run for run in bench.state.runs.values()
                 if run.allocation.pool == held.pool and run.allocation.mask >> node & 1]  # fmt: skip
        guests = [run for run in on_it if run.charged and run.reservation != case.id]
        assert not guests, [
            (run.id, run.workload.shape, (run.unprotected_at - begin) / MINUTE, run.stopping) for run in guests
        ]
    bench.close()


def _pass(bench: Bench, until: int) -> None:
    """Let time pass, with a decision whenever one is due."""
    while (due := bench.decider._due()) is not None and due <= until:
        bench.engine.at = max(bench.engine.at, due)
        bench.cycle()
    bench.engine.at = max(bench.engine.at, until)
    bench.settle()


def _fill(bench: Bench, chance: Random) -> None:
    for _ in range(chance.randint(0, 4)):
        who, account = chance.choice([(ADA, "vision/video"), (EVE, "llm")])
        minimum = chance.choice(["0", "15m", "1h", "2h"])
        bench.submit(who, account=account, nodes=chance.randint(1, 2), gpus_per_node=chance.randint(1, 4),
                     min_runtime=minimum)  # fmt: skip


def test_costs_are_told_by_who_pays() -> None:
    cluster = nodes(2)
    held = Case("x", "reservation", "llm", "o", "r", 0, 10 * HOUR, 0, "granted", nodes=1, gpus_per_node=4)
    found = cost(held, cluster, BUDGETS, 5 * HOUR)
    assert (found.rate, found.whole, found.so_far) == (4.0, 40.0, 20.0)
    assert sum(found.payers.values()) == pytest.approx(40.0)
    assert found.payers["vision/video"] == pytest.approx(2 * found.payers["vision/image"])
    assert "llm" not in found.payers
    guaranteed = cost(Case("x", "guaranteed", "llm", "o", "r", 0, HOUR, 0), cluster, BUDGETS, 0)
    assert (guaranteed.whole, guaranteed.payers) == (None, {})
    assert "whatif" in guaranteed.told


def test_a_folder_of_its_own(tmp_path: Path) -> None:
    """Two ledgers know nothing of each other's exceptions."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    first, second = Bench(one), Bench(two)
    ask(first)
    assert not listed(second)
    for bench in (first, second):
        bench.close()


def test_a_drain_is_paused_until_an_end_and_goes_on_by_itself(bench: Bench) -> None:
    (job,) = bench.submit(ADA, gpus_per_node=4, min_runtime="1m")
    bench.settle()
    (node,) = bench.row(job).node_names
    case = approve(bench, ask(bench, kind="drain-pause", node=str(node), lasts=6 * HOUR))
    told = listed(bench)[case.id]
    assert (told["gpu_hours"], told["terms"]) == (24, f"no drain stops what runs on {node}")
    assert sum(told["paid_by"].values()) == pytest.approx(24), "everybody but who asked"
    assert not any(path.startswith("vision/video") for path in told["paid_by"])
    bench.desk.node_drain(ROOT, str(node), "a fan")
    bench.wait(5 * HOUR)
    assert bench.row(job).state.value == "RUNNING"
    bench.crash()
    bench.wait(2 * HOUR)
    assert bench.row(job).state.value != "RUNNING" or bench.row(job).node_names[0] != node, "the drain went on"
    assert listed(bench)[case.id]["state"] == "over"


@pytest.mark.parametrize(("node", "says"), [("", "say which node's drain"), ("nowhere", "there is no node nowhere")])
def test_a_pause_names_a_node_that_is_there(bench: Bench, node: str, says: str) -> None:
    with pytest.raises(DeskError, match=says):
        ask(bench, kind="drain-pause", node=node)
