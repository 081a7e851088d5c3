"""Budgets: the whole tree against the version that its author saw; managers below their own account only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.records import Grant
from mirab.model.units import WHOLE
from mirab.service.auth.principal import Principal
from mirab.service.desk.budgets import read_budgets, version_of
from mirab.service.desk.errors import DeskError
from mirab.service.forms.sharing import BudgetNode
from tests.service.house import ADA, BUDGETS, MIA, OPS, ROOT, Bench

TREE: dict[str, Any] = {
    "vision": {"share": "50%", "children": {"video": {"share": "50%"}, "image": {"share": "25%"}}},
    "llm": {"share": "50%"},
}


def tree(**vision: Any) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(TREE))
    changed["vision"]["children"].update(vision)
    return changed


def deep(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {"a": {"share": "1%"}}
    for _ in range(levels):
        made = {"a": {"share": "1%", "children": made}}
    return made


def change(bench: Bench, who: Principal, budgets: Any, version: str = "*", why: str = "a review") -> Any:
    return bench.desk.set_budgets(who, budgets, version, why)


def test_what_is_read_can_be_written_back(bench: Bench) -> None:
    now = bench.desk.budgets()
    assert now.tree == TREE
    assert read_budgets(now.tree) == BUDGETS
    assert now.version == version_of(BUDGETS)
    seq, _ = bench.store.last()
    assert change(bench, ROOT, now.tree, now.version).version == now.version
    assert [facts for _, facts, _ in bench.store.records(after=seq)] == [()], "nothing changed"


def test_a_share_is_told_with_all_its_digits_so_that_who_writes_it_back_changes_nothing(tmp_path: Path) -> None:
    """Rounded, a third of another's would be a change of theirs, and so be refused."""
    third = WHOLE // 3
    odd = Budgets((Budget("vision", third, (Budget("video", third),)), Budget("llm", third)))
    bench = Bench(tmp_path, budgets=odd)
    try:
        told = bench.desk.budgets().tree
        assert read_budgets(told) == odd
        told["vision"]["children"]["video"]["share"] = "20%"
        change(bench, MIA, told)
        assert bench.state.budgets.find("llm") == odd.find("llm")
    finally:
        bench.close()


def test_a_change_holds_at_once_and_says_who_and_why(bench: Bench) -> None:
    before = bench.desk.budgets().version
    now = change(bench, MIA, tree(image={"share": "40%"}), before, "image has grown")
    assert (now.changed_by, now.why, now.changed_at) == ("mia", "image has grown", bench.live.now())
    assert now.version != before
    assert bench.state.accounts["vision/image"].share == WHOLE // 5  # type: ignore[index]
    entry = bench.audit(action="budget.set")[0]
    assert entry.before == before
    assert entry.after == f"{now.version}: vision/image share 25% -> 40%"
    bench.crash()
    assert bench.desk.budgets() == now


def test_the_second_of_two_authors_is_told(bench: Bench) -> None:
    seen = bench.desk.budgets().version
    change(bench, MIA, tree(image={"share": "40%"}), seen)
    with pytest.raises(DeskError, match="have changed since you read them") as caught:
        change(bench, ROOT, tree(image={"share": "30%"}), seen)
    assert caught.value.kind == "precondition"
    assert caught.value.extra["version"] == bench.desk.budgets().version
    assert bench.desk.budgets().tree["vision"]["children"]["image"]["share"] == "40%"
    with pytest.raises(DeskError, match="you saw none"):
        change(bench, ROOT, TREE, "")


@pytest.mark.parametrize(
    ("budgets", "says"),
    [
        (tree(image={"share": "51%"}), "the shares under vision sum to 101%, more than 100%: video 50%, image 51%"),
        ({"vision": {"share": "50"}}, "is not a share"),
        ({"vision": {"shares": "50%"}}, "did you mean share?"),
        ({}, "is empty"),
        ("a: {share: 10%\n", "is not YAML"),
        ("a: {share: 10%}\na: {share: 20%}\n", "line 2: the key 'a' stands twice"),
        ({"a/b": {"share": "50%"}}, "holds a '/'"),
        ("[" * 300, "is not"),
        (deep(200), "nested more than 100 deep"),
        (deep(40), "nested more than 32 deep"),
        ({"a": []}, "holds a list"),
        ({"a": None}, "holds nothing"),
        ({"a": {"share": 50}}, "is not a share"),
        ({"*": {"share": "1%"}}, "'*' is what children leave"),
        ({" a": {"share": "1%"}}, "spaces at the ends"),
        ({"a\0": {"share": "1%"}}, "NUL"),
        ({"a": {"share": "1%", "owner": "b\u202ec"}}, "owner of a holds"),
        ("x" * (5 << 20), "more than 256 KiB"),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused(bench: Bench, budgets: Any, says: str) -> None:
    with pytest.raises(DeskError) as caught:
        change(bench, ROOT, budgets)
    assert caught.value.kind == "invalid"
    assert says in caught.value.detail
    assert bench.desk.budgets().tree == TREE


def test_yaml_text_is_read_as_in_the_cluster_file() -> None:
    text = "budgets:\n  vision:\n    share: 40%\n    owner: mia  # by heart\n"
    assert read_budgets(text).roots[0].owner == "mia"
    assert read_budgets("vision: {share: 40%}").roots[0].share == WHOLE * 2 // 5


def test_a_manager_divides_below_their_account_only(bench: Bench) -> None:
    with pytest.raises(DeskError, match="mia may not change vision: the accounts at the top") as caught:
        change(bench, MIA, {**TREE, "vision": {**TREE["vision"], "share": "49%"}})
    assert caught.value.kind == "denied"
    with pytest.raises(DeskError, match="may not change llm"):
        change(bench, MIA, {"vision": TREE["vision"]})
    with pytest.raises(DeskError, match="may not change new"):
        change(bench, MIA, {**TREE, "new": {"share": "0%"}})
    video = Principal("vic", (Grant("manager", "vision/video"),))
    with pytest.raises(DeskError, match="vic may not change vision/video: the division of vision"):
        change(bench, video, tree(video={"share": "60%"}))
    change(bench, video, tree(video={"share": "50%", "children": {"vic": {"share": "100%"}}}))
    for who in (ADA, OPS):
        with pytest.raises(DeskError, match="may not change"):
            change(bench, who, tree(image={"share": "40%"}))


def test_a_reason_is_needed(bench: Bench) -> None:
    with pytest.raises(DeskError, match="say why"):
        change(bench, ROOT, TREE, why=" ")


def test_an_account_that_is_left_out_is_closed_and_keeps_its_past(bench: Bench) -> None:
    bench.submit()
    now = change(
        bench, ROOT, {"llm": {"share": "50%"}, "vision": {"share": "50%", "children": {"image": {"share": "25%"}}}}
    )
    video = now.tree["vision"]["children"]["video"]
    assert (video["share"], video["closed"]) == ("0%", "2023-11-14")
    assert bench.states() == {"1": "RUNNING"}
    with pytest.raises(DeskError, match="vision/video is closed"):
        bench.submit()
    same = json.loads(json.dumps(now.tree))
    del same["vision"]["children"]["video"]["closed"]
    assert change(bench, ROOT, same).version == now.version, "a form that cannot say `closed` opens nothing"
    change(bench, ROOT, tree(video={"share": "10%"}))
    assert bench.submit() == ["2"], "a share opens it again"


def test_review_and_owner_are_changes_too(bench: Bench) -> None:
    now = change(bench, MIA, tree(image={"share": "25%", "owner": "ken", "review": "2030-01-01", "equal_users": False}))
    assert now.tree["vision"]["children"]["image"] == {
        "share": "25%", "owner": "ken", "review": "2030-01-01", "equal_users": False
    }  # fmt: skip
    assert "vision/image equal_users True -> False" in bench.audit(action="budget.set")[0].after


def test_caps_go_through_the_form_and_back(bench: Bench) -> None:
    tree = {**TREE, "vision": {**TREE["vision"], "gpus_max": 16, "min_runtime_cap": "4h", "gang_gpus_max": 8}}
    change(bench, ROOT, tree)
    told = bench.desk.budgets().tree["vision"]
    assert (told["gpus_max"], told["min_runtime_cap"], told["gang_gpus_max"]) == (16, "4h", 8)
    assert BudgetNode.model_validate(told).gang_gpus_max == 8
    assert bench.audit(action="budget.set")[0].after.endswith(
        "vision gpus_max none -> 16; vision min_runtime_cap none -> 4h; vision gang_gpus_max none -> 8"
    )
