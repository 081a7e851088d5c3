"""The live service with shares of single pools: budgets as decisions, shares, why, dry runs, rights, metrics, books."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.cli.share import trees
from mirab.cli.why import lines_of
from mirab.core.state import State
from mirab.model.accounts import Budgets
from mirab.model.policy import Policy
from mirab.model.resources import Shape
from mirab.model.units import HOUR, WHOLE, AccountPath
from mirab.service.auth.principal import parse_grant
from mirab.service.courier import Notice
from mirab.service.desk.budgets import version_of
from mirab.service.desk.changing import Proposal
from mirab.service.desk.errors import DeskError
from mirab.service.desk.exceptions import Wish
from mirab.service.desk.portfolio import Shares as Wanted
from mirab.service.metrics import Metrics
from mirab.service.notices import Notices
from mirab.service.views import Views
from mirab.service.views.answers import Answers
from tests.pools.house import BOTH, PAID, PERCENT, budget
from tests.service.house import ADA, EVE, MIA, ROOT, Bench, form, viewed
from tests.service.test_metrics import scraped

PLAIN = Budgets((budget("vision", 30, budget("video", 60), budget("image", 40)), budget("llm", 70)))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, cluster=BOTH, budgets=PAID)
    yield made
    made.close()


@pytest.fixture
def views(bench: Bench) -> Iterator[Views]:
    with viewed(bench) as made:
        yield made


def shares(views: Views, path: str | None = None) -> dict[str, Any]:
    found = views.shares(path)
    assert found is not None
    return json.loads(found.model_dump_json())  # type: ignore[no-any-return]


def refused(told: pytest.ExceptionInfo[DeskError]) -> str:
    return str(told.value.detail)


# --- budgets as decisions ---------------------------------------------------------------------------------------------
def tree(**h100: str) -> dict[str, Any]:
    """The whole tree as JSON, with other shares of the H100s."""
    children = {"video": {"share": "60%"}, "image": {"share": "40%"}}
    made: dict[str, Any] = {"vision": {"share": "30%", "children": children},
            "llm": {"share": "70%"}}  # fmt: skip
    for name, share in h100.items():
        made[name]["pool_shares"] = {"h100": share}
    return made


def test_a_tree_with_shares_of_pools_goes_in_and_comes_out(bench: Bench) -> None:
    before = bench.desk.budgets()
    assert before.tree["vision"]["pool_shares"] == {"h100": "75%"}
    after = bench.desk.set_budgets(ROOT, tree(vision="60%", llm="40%"), before.version, "llm pays as well")
    assert after.version == version_of(bench.state.budgets) != before.version
    assert dict(bench.state.budgets.roots[1].pool_shares) == {"h100": 40 * PERCENT}
    assert bench.state.accounts["h100:llm"].share == 40 * PERCENT  # type: ignore[index]
    (line, *_) = bench.audit(action="budget.set")
    assert line.after.endswith(
        "vision share of pool h100 75% -> 60%; llm share of pool h100 none -> 40%"
    ), line.after  # fmt: skip
    bench.crash()
    assert version_of(bench.state.budgets) == after.version
    with pytest.raises(DeskError, match=r"changed since you read them.*llm share of pool h100 none -> 40%"):
        bench.desk.set_budgets(ROOT, tree(vision="50%"), before.version, "too late")


def test_more_than_the_whole_of_a_pool_is_refused_with_names_and_pool(bench: Bench) -> None:
    with pytest.raises(DeskError) as told:
        bench.desk.set_budgets(ROOT, tree(vision="75%", llm="30%"), "*", "too much")
    assert "pool h100" in refused(told) and "105%" in refused(told) and "vision 75%, llm 30%" in refused(told)


def test_a_pool_that_is_none_is_refused_in_one_sentence(bench: Bench) -> None:
    made = tree()
    made["llm"]["pool_shares"] = {"b200": "40%"}
    sentence = "account llm has a share of the pool b200, and the pools are a100, h100"
    with pytest.raises(DeskError) as told:
        bench.desk.set_budgets(ROOT, made, "*", "of the wrong pool")
    assert refused(told) == sentence
    with pytest.raises(DeskError) as told:
        bench.desk.portfolio.budgets.propose(ROOT, Proposal({"": made}, "the same as a changeset"))
    assert refused(told) == sentence
    with pytest.raises(DeskError) as told:
        bench.desk.portfolio.tried(Wanted({"b200:llm": "40%"}), 1)
    assert refused(told) == sentence


def test_a_manager_divides_what_the_account_has_of_a_pool(bench: Bench) -> None:
    children = {"video": {"share": "60%", "pool_shares": {"h100": "90%"}}, "image": {"share": "40%"}}
    made = bench.desk.portfolio.budgets.propose(MIA, Proposal({"vision": children}, "video trains on H100s"))
    assert made.version == 2
    shares = {path: bench.state.accounts[path].share for path in ("h100:vision/video", "h100:vision/image")}  # type: ignore[index]
    assert shares == {"h100:vision/video": 675 * WHOLE // 1000, "h100:vision/image": 0}
    top = {"vision": {"share": "30%", "pool_shares": {"h100": "100%"}}, "llm": {"share": "70%"}}
    with pytest.raises(DeskError, match="mia may not change vision"):
        bench.desk.portfolio.budgets.propose(MIA, Proposal({"": top}, "all of them"))
    assert MIA.may("budget.set", "h100:vision") and MIA.may("job.cancel", "h100:vision/video")
    assert not MIA.may("budget.set", "h100:llm")
    with pytest.raises(ValueError, match="roles are of accounts, whatever the pool: write vision"):
        parse_grant("manager:h100:vision")


def test_a_decision_is_taken_back(bench: Bench) -> None:
    portfolio = bench.desk.portfolio.budgets
    top = {"vision": {"share": "30%"}, "llm": {"share": "70%"}}
    portfolio.propose(ROOT, Proposal({"": top}, "nobody pays alone"))
    assert not bench.state.budgets.pools_named()
    portfolio.propose(ROOT, Proposal({}, "they do", reverts=2))
    assert bench.state.budgets == PAID


# --- what people see --------------------------------------------------------------------------------------------------
def test_the_main_tree_comes_first_and_then_one_for_each_pool(bench: Bench, views: Views) -> None:
    bench.submit(ADA, gpus_per_node=8, nodes=2, min_runtime="1h", gpu_types=("h100",))
    bench.submit(EVE, account="llm", gpus_per_node=8, min_runtime="1h", gpu_types=("a100",))
    bench.wait(2 * HOUR)
    found = shares(views)
    assert [each["path"] for each in found["accounts"]] == [
        "vision", "vision/video", "vision/image", "llm",
        "h100:vision", "h100:vision/video", "h100:vision/image", "h100:llm",
    ]  # fmt: skip
    assert found["ledgers"] == [
        {"name": "", "pools": ["a100"], "gpus": 32, "units": 32.0, "schedulable": 32.0},
        {"name": "h100", "pools": ["h100"], "gpus": 16, "units": 16.0, "schedulable": 16.0},
    ]
    by_path = {each["path"]: each for each in found["accounts"]}
    vision = by_path["h100:vision"]
    assert (vision["share"], vision["running_gpus"], vision["used_h"]) == (0.75, 16, 32.0)
    assert (vision["owed_h"], vision["delivered_h"]) == (14.4, 14.4), "60 % of 75 % of 16 GPUs for two hours"
    assert by_path["h100:llm"]["ratio"] is None, "it has nothing of the H100s"
    assert by_path["vision"]["running_gpus"] == 0 and by_path["llm"]["owed_h"] == 16.0
    assert [each["path"] for each in shares(views, "vision/video")["accounts"]] == ["vision/video", "h100:vision/video"]
    assert [each["path"] for each in shares(views, "h100:vision/video")["accounts"]] == ["h100:vision/video"]
    text = "\n\n".join(trees(found, 0))
    assert "All other pools (a100), 32 GPUs:" in text and "Pool h100, 16 GPUs:" in text
    assert text.index("llm") < text.index("h100:vision")


def test_a_pool_with_a_sick_node_says_how_much_of_it_may_be_used(bench: Bench, views: Views) -> None:
    bench.desk.node_drain(ROOT, "h100-0", "fan")
    bench.settle()
    (line, *_) = list(trees(shares(views), 0))[1].splitlines()
    assert line == "Pool h100, 16 GPUs, 50.0 % of which may be used now:"


def test_a_dry_run_says_which_ledger_and_why(bench: Bench) -> None:
    def tried(**asked: Any) -> tuple[str, str]:
        found = bench.desk.dry_run(ADA, form(gpus_per_node=8, min_runtime="1h", **asked))
        return found.account, found.notes[-1]

    assert tried(gpu_types=("h100",)) == (
        "h100:vision/video",
        "it is charged to h100:vision/video: only pool h100, which has shares of its own, could hold it",
    )
    assert tried(gpu_types=("a100",)) == (
        "vision/video", "it is charged to vision/video: no pool with shares of its own (h100) could hold it",
    )  # fmt: skip
    assert tried() == (
        "h100:vision/video",
        "it is charged to h100:vision/video, where its account is promised most: 7.2 of the GPUs that could hold it, "
        "against 5.8 as vision/video",
    )


def test_why_compares_only_inside_a_ledger(bench: Bench) -> None:
    answers = Answers(bench.live, bench.desk)
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=8, min_runtime="4h", gpu_types=("h100",))
    bench.submit(EVE, account="llm", nodes=4, gpus_per_node=8, min_runtime="4h", gpu_types=("a100",))
    (job,) = bench.submit(ADA, gpus_per_node=8, min_runtime="1h", gpu_types=("h100",))
    bench.submit(EVE, account="llm", gpus_per_node=8, min_runtime="1h", gpu_types=("a100",))
    answer = answers.why(job)
    assert answer is not None
    assert [each.account for each in answer.ahead] == ["h100:vision/video"]
    text = "\n".join(lines_of(json.loads(answer.model_dump_json())))
    assert "It is charged to h100:vision/video: only pool h100" in " ".join(text.split())


def test_an_account_of_a_pool_takes_no_submission_of_its_own(bench: Bench) -> None:
    with pytest.raises(DeskError) as told:
        bench.desk.submit(ADA, form(account="h100:vision/video"))
    assert refused(told) == (
        "h100:vision/video is what vision/video has of pool h100: submit for vision/video, and name the type of GPU to "
        "be charged there"
    )


def test_metrics_name_the_account_as_its_ledger_calls_it(bench: Bench) -> None:
    bench.submit(ADA, gpus_per_node=8, min_runtime="1h", gpu_types=("h100",))
    seen = scraped(Metrics(bench.live))
    assert seen["mirab_account_gpus_running", (("account", "h100:vision/video"),)] == 8
    assert seen["mirab_account_gpus_running", (("account", "vision/video"),)] == 0
    assert ("mirab_account_share_ratio", (("account", "h100:vision"),)) in seen


def test_the_books_of_a_service_follow_a_ledger_that_comes_and_goes(bench: Bench, views: Views) -> None:
    """Two hours with a tree of the H100s, two without, two with: 75 %, 30 % and 75 % of what they are."""
    bench.desk.set_budgets(ROOT, {"vision": {"share": "30%"}, "llm": {"share": "70%"}}, "*", "to begin with")
    bench.submit(ROOT, account="vision", nodes=2, gpus_per_node=8, min_runtime="8h", gpu_types=("h100",))
    bench.wait(2 * HOUR)
    paying = {"vision": {"share": "30%", "pool_shares": {"h100": "75%"}}, "llm": {"share": "70%"}}
    bench.desk.set_budgets(ROOT, paying, "*", "vision pays")
    bench.wait(2 * HOUR)
    bench.desk.set_budgets(ROOT, {"vision": {"share": "30%"}, "llm": {"share": "70%"}}, "*", "and no more")
    bench.wait(2 * HOUR)
    found = {each["path"]: each for each in shares(views)["accounts"]}
    assert shares(views)["ledgers"] == []
    assert found["h100:vision/*"]["owed_h"] == 24.0 and found["h100:vision/*"]["share"] == 0
    every = {path: (got.owed, got.delivered) for path, got in views.ledger.got(bench.live.now()).items()}  # type: ignore[union-attr]
    hours = {path: owed / WHOLE / 1000 / HOUR for path, (owed, _) in every.items()}
    told = {path: round(value, 3) for path, value in hours.items() if value}
    assert told == {"vision/*": pytest.approx(4 * 14.4), "h100:vision/*": pytest.approx(24.0)}, told
    before = views.ledger.accruals
    assert before is not None
    again = Views(bench.live, bench.desk)
    again.ledger.catch_up()
    assert again.ledger.got(bench.live.now()) == views.ledger.got(bench.live.now()), "read again from the journal"


def test_the_worked_numbers_of_the_concepts_hold(bench: Bench, views: Views) -> None:
    """32 A100s and 16 H100s in a week; where a job without a type goes."""
    page = " ".join((Path(__file__).parents[2] / "docs" / "concepts.md").read_text("utf-8").split())
    found = {each["path"]: each["entitled_h"] for each in shares(views)["accounts"]}
    assert found["vision"] == pytest.approx(1612.8) and found["h100:vision"] == pytest.approx(2016.0)
    assert "0.30 × 32 × 168 h = 1,613 GPU-hours of A100s and 0.75 × 16 × 168 h = 2,016 of H100s" in page
    leaves = Budgets((budget("vision", 30, h100=75), budget("language", 70)))
    state, shape = State(BOTH, leaves, Policy()), Shape(1, 8)
    gpus = {who: [(name, amount / WHOLE) for name, amount in state.promised(AccountPath(who), shape)]
            for who in ("vision", "language")}  # fmt: skip
    assert gpus == {"vision": [("h100", 12.0), ("", 9.6)], "language": [("", 22.4), ("h100", 0.0)]}
    assert "Vision's job without a type goes to the H100s, 12 GPUs against 9.6, and language's to the A100s" in page


def test_who_gets_too_little_of_a_pool_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Video is owed 7.2 of the H100s for more than a day, and gets none: llm has them under a minimum of two days."""
    bench = Bench(tmp_path, cluster=BOTH, budgets=PAID, policy=Policy(min_runtime_cap=48 * HOUR))
    views = Views(bench.live, bench.desk)
    views.ledger.catch_up()
    heard: list[Notice] = []
    notices = Notices(bench.live, bench.desk, views, (), tmp_path)
    monkeypatch.setattr(notices, "_tell", heard.append)
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=8, min_runtime="2d", gpu_types=("h100",))
    bench.submit(ADA, nodes=2, gpus_per_node=8, min_runtime="1h", gpu_types=("h100",))
    for _ in range(30):
        bench.wait(HOUR)
        notices.look()
    (told,) = [each for each in heard if each.kind == "under-served"]
    assert (told.about, told.account) == ("h100:vision/video", "vision/video")
    assert told.text.startswith("h100:vision/video was owed 1") and "got 0" in told.text
    bench.live.stopping.set()
    bench.close()


def test_a_pool_that_the_cluster_has_lost_stands_in_no_ones_way(tmp_path: Path) -> None:
    """Budgets that name one that is gone can be changed; nobody can name it anew."""
    lost = Budgets((budget("vision", 30, b200=75), budget("llm", 70)))
    bench = Bench(tmp_path, cluster=BOTH, budgets=lost)
    assert list(bench.state.ledgers) == [""]
    made: dict[str, Any] = {"vision": {"share": "20%", "pool_shares": {"b200": "75%"}}, "llm": {"share": "70%"}}
    bench.desk.set_budgets(ROOT, made, "*", "something else")
    assert bench.state.accounts["vision"].share == 20 * PERCENT  # type: ignore[index]
    made["llm"]["pool_shares"] = {"c300": "10%"}
    with pytest.raises(DeskError) as told:
        bench.desk.set_budgets(ROOT, made, "*", "of another")
    assert refused(told) == "account llm has a share of the pool c300, and the pools are a100, h100"
    bench.close()


def test_an_exception_is_of_an_account_and_costs_what_each_ledger_can_give(bench: Bench) -> None:
    """Half of everything from vision, which has 30 % of 32 A100s and 75 % of 16 H100s: 9.6 and 8 GPUs."""
    exceptions, end = bench.desk.portfolio.exceptions, bench.live.now() + 10 * HOUR
    with pytest.raises(DeskError) as told:
        exceptions.request(EVE, Wish("longer-minimum", "h100:llm", "a long one", end, cap=20 * HOUR))
    assert refused(told) == "exceptions are of an account, whatever the pool: name llm, not h100:llm"
    wish = Wish("extra-share", "llm", "a deadline", end, share=50 * PERCENT, donor="vision")
    case = exceptions.approve(ROOT, exceptions.request(EVE, wish).id, "agreed")
    assert exceptions.told(case)["gpus"] == pytest.approx(17.6)
    bench.settle()
    shares = {path: round(bench.state.accounts[path].share / PERCENT) for path in ("llm", "h100:llm", "h100:vision")}  # type: ignore[index]
    assert shares == {"llm": 100, "h100:llm": 50, "h100:vision": 25}
    with pytest.raises(DeskError) as told:
        more = Wish("extra-share", "llm", "all of it", end, share=80 * PERCENT, donor="vision/image")
        exceptions.request(EVE, more)
    assert "less than 80%" in refused(told)
