"""Decisions about budgets: nothing lost, nothing overwritten, nothing rewritten in the past."""

from __future__ import annotations

import random

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.changesets import NOTHING, ChildrenSet, applied, outside
from mirab.model.codec import decode, encode
from mirab.model.units import HOUR, WHOLE, AccountPath
from mirab.study import budgetedits as edits
from mirab.study.budgethistory import (
    BudgetConflictError,
    Draft,
    History,
    blamed,
    logged,
    recorded,
    reverting,
)

PERCENT = WHOLE // 100
DAY = 86_400_000
TREE = Budgets(
    (
        Budget("language", 40 * PERCENT, (Budget("pretrain", 60 * PERCENT), Budget("data", 30 * PERCENT))),
        Budget("vision", 30 * PERCENT, (Budget("video", 50 * PERCENT),), owner="vera"),
    )
)


def begun(tree: Budgets = TREE) -> History:
    return recorded(History(), Draft("ann", "as found", 0, tuple(edits.difference(NOTHING, tree))), 0)


def share(history: History, path: str, now: int) -> int:
    found = history.at(now).find(path)
    assert found is not None
    return found.share // PERCENT


def set_share(history: History, path: str, percent: int, *, by: str = "ann", now: int = 0, base: int | None = None,
              at: int | None = None) -> History:  # fmt: skip
    tree = history.at(now if at is None else at)
    made = tuple(edits.terms_changed(tree, {path: {"share": percent * PERCENT}}))
    return recorded(history, Draft(by, "because", history.head if base is None else base, made, at), now)


def test_the_first_version_is_the_tree() -> None:
    assert begun().at(0) == TREE


def test_children_change_together_and_the_rest_stays() -> None:
    made = edits.terms_changed(
        TREE, {"language/pretrain": {"share": 50 * PERCENT}, "language/data": {"share": 50 * PERCENT}}
    )
    assert [edit.parent for edit in made] == ["language"]
    after = applied(TREE, made)
    assert [child.share // PERCENT for child in after.children_of("language") or ()] == [50, 50]
    assert after.find("vision") == TREE.find("vision")


def test_more_than_all_is_refused_with_the_names() -> None:
    with pytest.raises(
        ValueError, match=r"under language would sum to 120%.*pretrain 60%, data 60%.*lower another by 20%"
    ):
        edits.terms_changed(TREE, {"language/data": {"share": 60 * PERCENT}})


def test_an_unknown_account_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean language/pretrain"):
        edits.terms_changed(TREE, {"language/pretrian": {"owner": "x"}})


def test_nobody_vanishes() -> None:
    with pytest.raises(ValueError, match="account language/data would vanish"):
        applied(TREE, [ChildrenSet(AccountPath("language"), (Budget("pretrain", WHOLE),))])


def test_two_heirs_are_refused() -> None:
    heirs = tuple(Budget(name, 0, formerly=("language/data",)) for name in ("a", "b"))
    with pytest.raises(ValueError, match="two heirs, a and b"):
        applied(TREE, [ChildrenSet(AccountPath("language"), (Budget("pretrain", 0), *heirs))])


def test_renaming_keeps_children_and_past() -> None:
    after = applied(TREE, edits.renamed(TREE, "language", "text"))
    assert after.find("text/pretrain") is not None
    assert after.heirs() == {
        "language": "text", "language/pretrain": "text/pretrain", "language/data": "text/data",
    }  # fmt: skip
    again = applied(after, edits.renamed(after, "text/data", "corpus"))
    assert again.heirs().items() >= {"language/data": "text/corpus", "text/data": "text/corpus"}.items()


def test_merging_adds_shares_and_takes_over_the_past() -> None:
    after = applied(TREE, edits.merged(TREE, ["language/pretrain", "language/data"], "language/all"))
    assert [(child.name, child.share // PERCENT) for child in after.children_of("language") or ()] == [("all", 90)]
    assert after.heirs() == {"language/pretrain": "language/all", "language/data": "language/all"}
    into = applied(TREE, edits.merged(TREE, ["vision"], "language"))
    assert [child.name for child in into.children_of("language") or ()] == ["pretrain", "data", "video"]
    assert into.heirs().items() >= {"vision": "language", "vision/video": "language/video"}.items()
    before, after_all = ({path: share for path, _, share in tree.walk()} for tree in (TREE, into))
    assert abs(after_all[AccountPath("language/video")] - before[AccountPath("vision/video")]) <= 2
    assert abs(after_all[AccountPath("language/data")] - before[AccountPath("language/data")]) <= 2


def test_merging_adds_caps_as_it_adds_shares() -> None:
    """What one part may use is not taken from the other, and no part that had no cap gets one."""
    capped = Budgets((
        Budget("a", 40 * PERCENT, gpus_max=0, gang_gpus_max=8, min_runtime_cap=HOUR),
        Budget("b", 60 * PERCENT, gpus_max=64, gang_gpus_max=32),
    ))  # fmt: skip
    for into in ("ab", "a"):
        whole = applied(capped, edits.merged(capped, ["a", "b"], into)).find(into)
        assert whole is not None
        assert (whole.gpus_max, whole.gang_gpus_max, whole.min_runtime_cap) == (64, 32, None)


def test_closing_keeps_the_account_and_passes_its_share_on() -> None:
    after = applied(TREE, edits.closed(TREE, "language/data", "2027-01-01", "language/pretrain"))
    data, pretrain = after.find("language/data"), after.find("language/pretrain")
    assert data is not None
    assert (data.share, data.closed) == (0, "2027-01-01")
    assert pretrain is not None
    assert pretrain.share == 90 * PERCENT


def test_splitting_divides_a_leaf_and_leaves_its_past_above() -> None:
    parts = [Budget("small", 60 * PERCENT), Budget("big", 40 * PERCENT)]
    after = applied(TREE, edits.split(TREE, "language/data", parts))
    assert after.children_of("language/data") == tuple(parts)
    with pytest.raises(ValueError, match="has children already"):
        edits.split(TREE, "language", parts)
    shut = applied(TREE, edits.closed(TREE, "language/data", "2026-11-30"))
    with pytest.raises(ValueError, match=r"language/data is closed since 2026-11-30.*give it a share first"):
        edits.split(shut, "language/data", parts)


def test_a_conflict_is_told_and_nothing_is_overwritten() -> None:
    seen = begun()
    first = set_share(seen, "language/data", 35, by="bob", now=10)
    with pytest.raises(
        BudgetConflictError, match=r"version 2 of bob has changed what lies under language since version 1"
    ):
        set_share(first, "language/pretrain", 50, by="cid", now=20, base=1)
    assert share(set_share(first, "vision/video", 80, by="cid", now=20, base=1), "language/data", 20) == 35


def test_what_holds_later_holds_later() -> None:
    history = set_share(begun(), "vision", 40, now=10, at=5 * DAY)
    assert share(history, "vision", 10) == 30
    assert share(history, "vision", 5 * DAY) == 40
    assert [each.version for each in history.planned(10)] == [2]


def test_a_plan_is_not_undone_in_silence() -> None:
    history = set_share(begun(), "vision", 40, by="bob", now=10, at=5 * DAY)
    with pytest.raises(BudgetConflictError, match="version 2 of bob is to change the top accounts later"):
        set_share(history, "language", 45, now=20)
    later = set_share(history, "language", 45, now=20, at=6 * DAY)
    assert (share(later, "vision", 6 * DAY), share(later, "language", 6 * DAY)) == (40, 45)


def test_a_plan_whose_account_is_renamed_is_told() -> None:
    history = set_share(begun(), "language/data", 35, by="bob", now=10, at=5 * DAY)
    made = tuple(edits.renamed(history.at(20), "language", "text"))
    with pytest.raises(BudgetConflictError, match="version 2 of bob is planned and could not take effect"):
        recorded(history, Draft("ann", "name", 2, made), 20)


def test_the_past_is_not_rewritten() -> None:
    with pytest.raises(ValueError, match="in the past"):
        set_share(begun(), "vision", 40, now=10, at=5)


def test_a_clock_that_was_set_back_changes_no_order() -> None:
    history = set_share(begun(), "vision", 40, now=1000)
    later = set_share(history, "vision", 35, now=1000, at=None)
    back = recorded(history, Draft("ann", "why", 2, later.changesets[2].edits), 500)
    assert [each.recorded_at for each in back.changesets] == [0, 1000, 1000]
    assert share(back, "vision", 1000) == 35


@pytest.mark.parametrize(("author", "reason"), [("", "why"), ("ann", " ")])
def test_nobody_decides_without_name_and_reason(author: str, reason: str) -> None:
    made = tuple(edits.renamed(TREE, "language", "text"))
    with pytest.raises(ValueError, match="needs the"):
        recorded(begun(), Draft(author, reason, 1, made), 1)


def test_reverting_restores_and_says_so() -> None:
    history = set_share(begun(), "vision", 40, now=10)
    back = recorded(history, Draft("ann", "no", 2, reverting(history, 2, 20, "d"), reverts=2), 20)
    assert back.at(20) == TREE
    assert back.at(15).find("vision") != TREE.find("vision")
    with pytest.raises(ValueError, match="taken back already, by version 3"):
        reverting(back, 2, 30, "d")


def test_reverting_a_rename_gives_the_name_back() -> None:
    history = recorded(begun(), Draft("ann", "name", 1, tuple(edits.renamed(TREE, "language", "text"))), 10)
    back = recorded(history, Draft("ann", "no", 2, reverting(history, 2, 20, "d"), reverts=2), 20)
    assert back.at(20).find("language/pretrain") is not None
    assert back.at(20).heirs() == {
        "text": "language",
        "text/pretrain": "language/pretrain",
        "text/data": "language/data",
    }


def test_reverting_closes_what_was_new() -> None:
    made = tuple(edits.terms_changed(TREE, {"vision/eval": {"share": 10 * PERCENT}}))
    history = recorded(begun(), Draft("ann", "new", 1, made), 10)
    back = recorded(history, Draft("ann", "no", 2, reverting(history, 2, 20, "2027-01-01"), reverts=2), 20)
    gone = back.at(20).find("vision/eval")
    assert gone is not None
    assert (gone.share, gone.closed) == (0, "2027-01-01")


def test_reverting_what_was_changed_again_is_told() -> None:
    history = set_share(set_share(begun(), "vision", 40, now=10), "language", 45, by="bob", now=20)
    with pytest.raises(BudgetConflictError, match="version 3 of bob has changed the top accounts again"):
        reverting(history, 2, 30, "d")


def test_a_plan_can_be_cancelled_and_then_does_not_stand_in_the_way() -> None:
    history = set_share(begun(), "vision", 40, now=10, at=5 * DAY)
    back = recorded(history, Draft("ann", "no", 2, reverting(history, 2, 20, "d"), 5 * DAY, 2), 20)
    assert back.at(6 * DAY) == TREE
    assert [entry.cancelled for entry in logged(back)] == [False, True, True]
    assert share(set_share(back, "vision", 35, now=30), "vision", 30) == 35


def test_blame_follows_the_account_through_names() -> None:
    history = set_share(begun(), "language/data", 35, by="bob", now=10)
    history = recorded(history, Draft("cid", "name", 2, tuple(edits.renamed(history.at(20), "language", "text"))), 20)
    found = {path: by.author for path, by in blamed(history, 30).items()}
    assert found == {
        "text": "cid", "text/pretrain": "ann", "text/data": "bob", "vision": "ann", "vision/video": "ann",
    }  # fmt: skip


def test_a_manager_changes_what_lies_below() -> None:
    own = edits.terms_changed(TREE, {"language/data": {"share": 35 * PERCENT}})
    assert outside(own, "language") == []
    assert outside(own, "vision") == ["language"]
    assert outside(edits.terms_changed(TREE, {"language": {"share": 0}}), "language") == [""]
    assert outside(own, "") == []


def test_changesets_survive_a_record() -> None:
    history = set_share(begun(), "vision", 40, now=10, at=5 * DAY)
    assert decode(encode(history.changesets[1])) == history.changesets[1]
    assert decode(encode(history.changesets[0])) == history.changesets[0]


def test_difference_leads_from_any_tree_to_any_other_that_keeps_its_accounts() -> None:
    rng = random.Random(7)
    for _ in range(60):
        before, after = some_tree(rng), some_tree(rng)
        made = edits.difference(before, after, "2027-01-01")
        reached = applied(before, made)
        wanted = {path: (budget.share, budget.owner) for path, budget, _ in after.walk()}
        found = {path: (budget.share, budget.owner) for path, budget, _ in reached.walk()}
        assert {path: found[path] for path in wanted} == wanted
        left = [path for path in found if path not in wanted]
        assert all(reached.find(path) is not None for path, _, _ in before.walk())
        assert all(top.closed for path in left if (top := reached.find(topmost(path, wanted))) is not None)


def topmost(path: str, known: dict[AccountPath, tuple[int, str]]) -> str:
    """The highest account on the path that is not known."""
    names = path.split("/")
    return next(
        "/".join(names[: depth + 1]) for depth in range(len(names)) if "/".join(names[: depth + 1]) not in known
    )


def some_tree(rng: random.Random, depth: int = 2) -> Budgets:
    return Budgets(some_siblings(rng, depth))


def some_siblings(rng: random.Random, depth: int) -> tuple[Budget, ...]:
    made = []
    for name in rng.sample("abcd", rng.randrange(1, 4)):
        children = some_siblings(rng, depth - 1) if depth and rng.random() < 0.6 else ()
        made.append(Budget(name, rng.randrange(0, WHOLE // 3), children, owner=rng.choice(["", "ann"])))
    return tuple(made)


def test_under_fire_no_update_is_lost() -> None:
    """Two managers, a hundred edits each, interleaved, each on a version that may be old: what was recorded holds."""
    rng = random.Random(11)
    history = begun()
    seen = {"bob": 1, "cid": 1}
    believed = {path: budget.share for path, budget, _ in TREE.walk()}
    told = done = 0
    for turn in range(200):
        who = rng.choice(["bob", "cid"])
        path = rng.choice(["language/pretrain", "language/data", "vision/video", "language", "vision"])
        try:
            history = set_share(history, path, rng.randrange(0, 30), by=who, now=turn + 1, base=seen[who])
        except BudgetConflictError:
            told += 1
            seen[who] = history.head
            continue
        done += 1
        tree = history.at(turn + 1)
        believed[AccountPath(path)] = next(budget.share for each, budget, _ in tree.walk() if each == path)
        assert {each: budget.share for each, budget, _ in tree.walk()} == believed
        seen[who] = history.head if rng.random() < 0.7 else seen[who]
    assert done > 50
    assert told > 20
    assert History(tuple(decode(encode(each)) for each in history.changesets)).at(200) == history.at(200)
