"""Changesets of a live service: whose, from when on, on what they saw; kept over any crash, applied when due."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mirab.control.recover import FILE
from mirab.model.accounts import Budget, Budgets
from mirab.model.codec import decode
from mirab.model.events import BudgetsChanged
from mirab.model.units import DAY, HOUR, WHOLE
from mirab.service.auth.principal import Principal
from mirab.service.desk.changesets import KEPT
from mirab.service.desk.changing import Proposal
from mirab.service.desk.errors import DeskError
from mirab.service.inbox import Entry
from mirab.store import open_store
from mirab.study.budgethistory import History, logged
from tests.service.house import ADA, BUDGETS, MIA, ROOT, Bench, CrashError

VISION = {"video": {"share": "50%"}, "image": {"share": "25%"}}


def propose(bench: Bench, who: Principal = MIA, *, why: str = "a review", **given: Any) -> Any:
    edits = given.pop("edits", None)
    return bench.desk.portfolio.budgets.propose(who, Proposal(edits or {}, why, **given))


def vision(**changes: str) -> dict[str, Any]:
    return {"vision": {**VISION, **{name: {"share": share} for name, share in changes.items()}}}


def history(bench: Bench) -> History:
    return bench.desk.portfolio.budgets.history()[0]


def share(bench: Bench, path: str) -> int:
    return bench.state.accounts[path].share  # type: ignore[index]


def kept(bench: Bench) -> History:
    """The history as the audit log alone has it."""
    lines = bench.audit(action=KEPT, limit=1_000)
    later = sorted((decode(json.loads(line.after)) for line in lines), key=lambda each: each.version)
    return History((history(bench).changesets[0], *later))


def test_a_ledger_begins_with_a_first_version(bench: Bench) -> None:
    first = history(bench)
    assert first.head == 1
    assert first.at(bench.live.now()) == BUDGETS
    assert first.changesets[0].author == FILE


def test_a_changeset_holds_at_once_and_after_a_crash(bench: Bench) -> None:
    made = propose(bench, edits=vision(image="40%"), base=1, evidence="whatif.json sha256:12ab")
    assert (made.version, made.author, made.evidence) == (2, "mia", "whatif.json sha256:12ab")
    assert share(bench, "vision/image") == WHOLE // 5
    assert bench.audit(action="budget.set")[0].after.endswith(
        "vision/image share 25% -> 40% [on whatif.json sha256:12ab]"
    )
    before = history(bench)
    bench.crash()
    assert history(bench) == before == kept(bench)


def test_one_of_the_future_waits_for_its_day_through_a_crash(bench: Bench) -> None:
    at = bench.live.now() + 2 * DAY
    made = propose(bench, edits=vision(image="40%"), effective_at=at)
    assert share(bench, "vision/image") == WHOLE // 8
    assert [each.version for each in history(bench).planned(bench.live.now())] == [made.version]
    bench.wait(DAY)
    bench.crash()
    bench.settle()
    assert share(bench, "vision/image") == WHOLE // 8
    assert bench.decider._due() == at, "the loop wakes for it"
    bench.wait(DAY)
    assert share(bench, "vision/image") == WHOLE // 5
    facts = [fact for _, found, _ in bench.store.records() for fact in found if isinstance(fact, BudgetsChanged)]
    assert [(fact.at, fact.author, fact.reason) for fact in facts] == [(at, "mia", "a review")]
    bench.crash()
    bench.settle()
    assert len([1 for _, found, _ in bench.store.records() for each in found if isinstance(each, BudgetsChanged)]) == 1


def test_one_that_falls_due_while_the_service_is_down_holds_at_its_next_start(bench: Bench) -> None:
    propose(bench, edits=vision(image="40%"), effective_at=bench.live.now() + HOUR)
    bench.engine.at += DAY
    bench.crash()
    bench.settle()
    assert share(bench, "vision/image") == WHOLE // 5


def test_several_due_at_one_instant_are_applied_in_order(bench: Bench) -> None:
    at = bench.live.now() + HOUR
    propose(bench, edits=vision(image="40%"), effective_at=at)
    propose(bench, edits=vision(image="45%"), effective_at=at)
    bench.wait(DAY)
    assert share(bench, "vision/image") == WHOLE * 9 // 40
    assert history(bench).at(bench.live.now()) == bench.state.budgets


def test_who_has_not_seen_the_last_change_is_told_whose_it_is(bench: Bench) -> None:
    propose(bench, edits=vision(image="40%"), base=1, why="image grows")
    with pytest.raises(DeskError, match=r"version 2 of mia has changed what lies under vision.*image grows") as caught:
        propose(bench, ROOT, edits=vision(video="60%"), base=1)
    assert caught.value.kind == "conflict"
    assert caught.value.extra == {"version": 2, "by": "mia", "changeset": 2}
    top = {"": {"vision": {"share": "40%"}, "llm": {"share": "50%"}}}
    assert propose(bench, ROOT, edits=top, base=1).version == 3, "it contradicts nothing"
    assert share(bench, "vision/image") == WHOLE * 4 // 25


def test_the_whole_tree_tells_what_others_have_changed_since(bench: Bench) -> None:
    seen = bench.desk.budgets().version
    propose(bench, edits=vision(image="40%"), why="image grows")
    with pytest.raises(DeskError, match=r"since then mia changed vision/image share 25% -> 40% \(image grows\)"):
        bench.desk.set_budgets(ROOT, bench.desk.budgets().tree, seen, "late")


def test_a_plan_that_a_change_would_contradict_is_named(bench: Bench) -> None:
    propose(bench, edits=vision(image="40%"), effective_at=bench.live.now() + DAY)
    with pytest.raises(DeskError, match="is to change what lies under vision later"):
        propose(bench, edits=vision(image="30%"))
    tree = bench.desk.budgets().tree
    tree["vision"]["children"]["image"]["share"] = "30%"
    with pytest.raises(DeskError, match="is to change what lies under vision later"):
        bench.desk.set_budgets(ROOT, tree, "*", "now")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"edits": vision(image="60%")}, "video 50%, image 60%"),
        ({"edits": vision()}, "changes nothing"),
        ({"edits": {"vision": {"image": {"share": "10%"}}}}, "would vanish"),
        ({"edits": {"nowhere": {"a": {"share": "10%"}}}}, "there is no account nowhere"),
        ({"edits": {"vision": {}}}, "has no children"),
        ({"edits": vision(image="30%"), "why": " "}, "needs the reason"),
        ({"edits": vision(image="30%"), "base": 9}, "there is no version 9"),
        ({"edits": vision(image="30%"), "effective_at": 1_600_000_000_000}, "in the past"),
        ({"edits": vision(image="30%"), "reverts": 1}, "either edits accounts or reverts"),
        ({}, "either edits accounts or reverts"),
        ({"reverts": 1}, "is the first"),
        ({"reverts": 7}, "there is no version 7"),
    ],
)  # fmt: skip
def test_what_is_no_changeset_is_refused_and_changes_nothing(bench: Bench, given: dict[str, Any], says: str) -> None:
    with pytest.raises(DeskError, match=says):
        propose(bench, ROOT, **given)
    assert history(bench).head == 1
    assert bench.state.budgets == BUDGETS


def test_rights_end_at_ones_own_account(bench: Bench) -> None:
    top = {"": {"vision": {"share": "40%"}, "llm": {"share": "50%"}}}
    for who in (MIA, ADA):
        with pytest.raises(DeskError, match="the accounts at the top") as caught:
            propose(bench, who, edits=top)
        assert caught.value.kind == "denied"
    with pytest.raises(DeskError, match="may not change"):
        propose(bench, ADA, edits=vision(image="30%"))
    planned = propose(bench, ROOT, edits=top, effective_at=bench.live.now() + DAY)
    with pytest.raises(DeskError, match="may not cancel"):
        propose(bench, MIA, reverts=planned.version)


def test_a_revert_is_a_decision_of_its_own(bench: Bench) -> None:
    made = propose(bench, edits=vision(image="40%"))
    back = propose(bench, reverts=made.version, why="it did not help")
    assert bench.state.budgets == BUDGETS
    assert (back.version, back.reverts) == (3, 2)
    with pytest.raises(DeskError, match="taken back already"):
        propose(bench, reverts=made.version)


def test_a_plan_that_is_cancelled_never_holds(bench: Bench) -> None:
    made = propose(bench, edits=vision(image="40%"), effective_at=bench.live.now() + DAY)
    propose(bench, reverts=made.version, why="not now")
    bench.crash()
    bench.wait(2 * DAY)
    assert bench.state.budgets == BUDGETS
    assert [each.cancelled for each in logged(history(bench))] == [False, True, True]


def test_what_the_cluster_file_changes_is_taken_into_the_history(bench: Bench) -> None:
    planned = propose(bench, edits=vision(image="40%"), effective_at=bench.live.now() + DAY)
    wanted = Budgets((Budget("llm", WHOLE // 4), Budget("new", WHOLE // 4)))
    bench.live.send(lambda state, now: Entry((BudgetsChanged(now, wanted, FILE, "the file was changed"),)))
    bench.settle()
    tree = history(bench).at(bench.live.now())
    assert tree == bench.state.budgets
    assert tree.find("vision") is not None, "closed, and not forgotten"
    assert share(bench, "vision") == 0
    assert history(bench).changesets[-1].author == FILE
    assert history(bench) == kept(bench)
    bench.crash()
    bench.wait(2 * DAY)
    assert history(bench).at(bench.live.now()) == bench.state.budgets
    assert history(bench).version(planned.version).author == "mia"


def test_what_the_cluster_file_changes_is_recorded_with_its_author_and_reason_or_not_at_all(bench: Bench) -> None:
    """In the transaction of the fact: no instant at which a crash leaves one without the other."""
    propose(bench, edits=vision(image="40%"))
    wanted = Budgets((replace(bench.state.budgets.roots[0], share=WHOLE // 4), BUDGETS.roots[1]))
    bench.store.fuse, bench.store.after = 0, True
    with pytest.raises(CrashError):
        bench.live.send(lambda state, now: Entry((BudgetsChanged(now, wanted, FILE, "the file was changed"),)))
    bench.crash()
    assert history(bench).at(bench.live.now()) == bench.state.budgets == wanted
    assert [(each.author, each.reason) for each in history(bench).changesets[2:]] == [(FILE, "the file was changed")]
    assert history(bench) == kept(bench)


def test_a_ledger_from_before_changesets_is_read_from_its_journal(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    second = Budgets((Budget("vision", WHOLE // 4, BUDGETS.roots[0].children), Budget("llm", WHOLE // 2)))
    bench.live.sources.clear()
    bench.live._listeners = ()
    bench.live.send(lambda state, now: Entry((BudgetsChanged(now, second, "mia", "less for vision"),)))
    bench.crash()
    assert [(each.author, each.reason) for each in history(bench).changesets[1:]] == [("mia", "less for vision")]
    assert history(bench) == kept(bench)
    bench.close()


EDITS = 100


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_two_managers_a_hundred_interleaved_edits_each(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """No lost update: who has seen the last version changes it, who has not is told; the log makes the same tree."""
    url = ""
    if engine == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    bench, draw = Bench(tmp_path, url=url), Random(7)
    seen = {"mia": 1, "root": 1}
    done = {"mia": 0, "root": 0}
    told = 0
    while min(done.values()) < EDITS:
        who = draw.choice([each for each in (MIA, ROOT) if done[each.user] < EDITS])
        name, value = draw.choice(["image", "video"]), f"{draw.randint(1, 4999) / 100:.2f}%"
        present = {
            each.name: {"share": f"{each.share * 100 / WHOLE:.2f}%"} for each in bench.state.budgets.roots[0].children
        }
        present[name] = {"share": value}
        try:
            made = propose(
                bench, who, edits={"vision": present}, base=seen[who.user], why=f"{who.user} {done[who.user]}"
            )
        except DeskError as error:
            assert error.kind in ("conflict", "invalid"), error.detail
            if error.kind == "conflict":
                told += 1
                assert f"version {seen[who.user] + 1}" in error.detail
                assert error.extra["version"] == history(bench).head
                seen[who.user] = history(bench).head
            continue
        seen[who.user] = made.version
        done[who.user] += 1
        if draw.random() < 0.02:
            bench.crash()
    assert told > EDITS // 4
    assert history(bench).head == 1 + 2 * EDITS
    for user in done:
        reasons = [each.reason for each in history(bench).changesets if each.author == user]
        assert reasons == [f"{user} {number}" for number in range(EDITS)], "none is lost, none is twice"
    assert kept(bench).at(bench.live.now()) == bench.state.budgets
    last = None
    for _, facts, _ in bench.store.records():
        last = next((fact.budgets for fact in reversed(facts) if isinstance(fact, BudgetsChanged)), last)
    assert last == bench.state.budgets
    bench.close()
    open_store(bench.url).dispose()
