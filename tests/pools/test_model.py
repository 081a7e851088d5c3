"""Shares of a pool of its own: what a budget means there, how it is checked, kept and merged."""

from __future__ import annotations

import pytest

from mirab.model.accounts import (
    Budget,
    Budgets,
    covers,
    is_meant,
    ledger_of,
    ledger_path,
    plain,
    share_of_pool,
    sorted_shares,
)
from mirab.model.changesets import ChildrenSet, applied
from mirab.model.codec import decode, encode
from mirab.model.units import WHOLE, AccountPath

PERCENT = WHOLE // 100


def budget(name: str, share: int, *children: Budget, closed: str = "", **pools: int) -> Budget:
    shares = sorted_shares({pool: part * PERCENT for pool, part in pools.items()})
    return Budget(name, share * PERCENT, children, closed=closed, pool_shares=shares)


def shares(budgets: Budgets) -> dict[str, int]:
    """Account -> percent of the whole."""
    return {path: round(share / PERCENT) for path, _, share in budgets.walk()}


TREE = Budgets(
    (
        budget("red", 50, budget("one", 50), budget("two", 50, h100=40), h100=100),
        budget("blue", 50, budget("one", 30), budget("two", 20)),
    )
)


def test_without_pool_shares_there_is_one_ledger_and_it_is_the_tree_itself() -> None:
    tree = Budgets((budget("red", 60), budget("blue", 40)))
    (main,) = tree.ledgers(("a100", "h100"))
    assert main.name == "" and main.pools == (0, 1) and main.budgets is tree


def test_a_named_pool_has_a_tree_of_its_own_and_the_others_stay_together() -> None:
    main, own = TREE.ledgers(("a100", "h100", "l4"))
    assert (main.name, main.pools) == ("", (0, 2))
    assert (own.name, own.pools) == ("h100", (1,))
    assert shares(main.budgets) == {"red": 50, "red/one": 25, "red/two": 25, "blue": 50, "blue/one": 15, "blue/two": 10}
    assert shares(own.budgets) == {"red": 100, "red/one": 0, "red/two": 40, "blue": 0, "blue/one": 0, "blue/two": 0}
    assert not any(each.budgets.pools_named() for each in (main, own))


def test_where_no_sibling_names_the_pool_ordinary_shares_hold() -> None:
    siblings = TREE.roots[1].children
    assert share_of_pool(siblings[0], siblings, "h100") == 30 * PERCENT


def test_the_main_ledger_is_there_though_no_pool_is_left_to_it() -> None:
    main, own = TREE.ledgers(("h100",))
    assert main.pools == () and own.pools == (0,)


def test_a_name_that_is_no_pool_makes_no_ledger_and_is_told() -> None:
    (main,) = TREE.ledgers(("a100",))
    assert main.pools == (0,) and not main.budgets.pools_named()
    wrong = TREE.share_without_pool(("a100", "l4"))
    assert wrong is not None
    assert wrong.told() == "account red has a share of the pool h100, and the pools are a100, l4"
    assert TREE.share_without_pool(("h100",)) is None
    assert TREE.share_without_pool(("a100",), besides=("h100",)) is None


def test_shares_of_a_pool_above_the_whole_are_refused_with_pool_and_names() -> None:
    with pytest.raises(ValueError, match=r"pool h100 under red sum to 110%, more than 100%: a 60%, b 50%"):
        Budgets((Budget("red", 0, (budget("a", 0, h100=60), budget("b", 0, h100=50))),))


def test_a_closed_account_counts_as_nothing_in_the_pool() -> None:
    tree = Budgets((budget("a", 0, h100=60, closed="2027-01-01"), budget("b", 0, h100=50)))
    assert shares(tree.ledgers(("h100",))[1].budgets) == {"a": 0, "b": 50}


@pytest.mark.parametrize("pools", [(("h100", -1),), (("h100", 2 * WHOLE),), (("b", 1), ("a", 1)), (("a", 1), ("a", 2)),
                                   (("a:b", 1),), (("a/b", 1),), (("", 1),)])  # fmt: skip
def test_what_is_no_share_of_a_pool_is_refused(pools: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match="account red"):
        Budgets((Budget("red", 0, pool_shares=pools),))


def test_a_colon_in_an_accounts_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'red:one'"):
        Budgets((Budget("red:one", 0),))


def test_paths_of_ledgers_say_which_and_whose() -> None:
    path = ledger_path("h100", "red/one")
    assert path == "h100:red/one" and plain(path) == "red/one" and ledger_of(path) == "h100"
    assert ledger_path("", "red") == plain("red") == "red" and ledger_of("red") == ""


def test_an_account_covers_itself_and_what_lies_below_it_not_what_only_begins_alike() -> None:
    assert all(covers(above, "red/one") for above in ("", "red", "red/one"))
    assert not any(covers(above, "red/one") for above in ("re", "red/on", "red/one/x", "blue"))


def test_who_names_no_pool_means_the_account_in_every_ledger() -> None:
    assert is_meant("red", "h100:red/one") and is_meant("red", "red/one") and is_meant("h100:red", "h100:red/one")
    assert not is_meant("h100:red", "red/one") and not is_meant("h100:red", "a100:red/one")


def test_the_journals_form_keeps_them_and_is_the_same_as_ever_without() -> None:
    assert decode(encode(TREE)) == TREE
    assert "pool_shares" not in encode(budget("red", 50))


def test_merging_keeps_what_each_has_of_each_pool() -> None:
    """Red had 50% of the h100s and blue 10%; merged they have 60%, and their children what they had of all h100s."""
    tree = Budgets(
        (
            budget("red", 30, budget("one", 50), budget("two", 50), h100=50),
            budget("blue", 30, budget("three", 100, h100=20), h100=10),
            budget("rest", 40),
        )
    )
    merged = Budget("red", 60 * PERCENT, formerly=("blue",), pool_shares=(("h100", 60 * PERCENT),))
    after = applied(tree, [ChildrenSet(AccountPath(""), (merged, tree.roots[2]))])
    before_pool, after_pool = (shares(each.ledgers(("h100",))[1].budgets) for each in (tree, after))
    assert after_pool == {
        "red": 60, "red/one": before_pool["red/one"], "red/two": before_pool["red/two"],
        "red/three": before_pool["blue/three"], "rest": 0,
    }  # fmt: skip
    assert shares(after)["red/one"] == shares(tree)["red/one"]
