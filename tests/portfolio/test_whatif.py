"""Who gains, who loses, and what is called noise: on days that are made up, and on days of a replay."""

from __future__ import annotations

import json
import re

import pytest

from mirab.model.policy import POLICIES
from mirab.model.units import AccountPath
from mirab.sim.synthetic import SynthOptions, synthesize
from mirab.study.days import days_of, gathered, percentile
from mirab.study.measures import Measures
from mirab.study.replays import measure
from mirab.study.tables import plain
from mirab.study.whatif import ALL, ASPECTS, Json, Question, Side, overall, whatif
from mirab.study.whatifpage import whatif_page
from mirab.study.whatiftext import whatif_sections
from tests.portfolio.made_up import ACCOUNTS, side
from tests.study.small import small_trace


def told_of(found: Json) -> str:
    """The text in one line."""
    return " ".join(plain(whatif_sections(found)).split())


def row(found: Json, path: str) -> Json:
    told: Json = next(each for each in found["accounts"] if each["account"] == path)
    return told


# --- noise ------------------------------------------------------------------------------------------------------------
def test_the_same_budgets_change_nothing() -> None:
    found = whatif(side(), side())
    assert {each["verdict"] for each in [found["all"], *found["accounts"]]} == {"same"}
    assert "Nobody gains or loses more than luck explains" in told_of(found)


def test_another_run_of_the_same_budgets_is_noise() -> None:
    found = whatif(side(seed=1), side(seed=4))
    assert {each["verdict"] for each in [found["all"], *found["accounts"]]} == {"noise"}
    assert all(abs(each["used"]["difference"]) > 1 for each in found["accounts"])
    text = told_of(found)
    assert "Nobody gains or loses more than luck explains" in text
    assert "nothing changes beyond noise" in text


def test_a_real_shift_is_found_and_only_that() -> None:
    found = whatif(side(seed=1), side(seed=4, red={"more": 12.0}, blue={"slower": 9.0}, green={"lost": 9.0}))
    assert {each["account"]: each["verdict"] for each in found["accounts"]} == {
        "lab/red": "gains", "lab/blue": "loses", "lab/green": "loses", "lab/grey": "noise", "lab/pink": "noise",
        "lab/gold": "noise",
    }  # fmt: skip
    red = row(found, "lab/red")
    assert red["delivered"]["difference"] == pytest.approx(30 * 12, abs=80)
    assert red["delivered"]["spread"] < red["delivered"]["difference"]
    assert row(found, "lab/blue")["wait_p90_s"]["verdict"] == "worse"
    assert row(found, "lab/green")["lost"]["verdict"] == "worse"
    text = told_of(found)
    assert "1 account gains: lab/red (delivered +" in text
    assert "2 accounts lose: lab/" in text
    assert "For 3 accounts all differences are within noise." in text


def test_too_few_days_say_nothing_about_luck() -> None:
    found = whatif(side(count=9), side(count=9, seed=2, red={"more": 50.0}))
    assert found["method"]["enough"] is False
    assert {each["verdict"] for each in found["accounts"]} == {"unknown"}
    text = told_of(found)
    assert "The log has 9 days: too few to tell a difference from luck, which takes 14." in text


def test_a_second_more_is_not_worth_a_word() -> None:
    one, other = side(), side()
    for day in other.days.accounts["lab/red"].waits:
        for place in range(len(day)):
            day[place] += 900
    found = whatif(one, other)
    assert row(found, "lab/red")["wait_p90_s"]["verdict"] == "noise"


@pytest.mark.parametrize(
    ("verdicts", "word"),
    [
        (["better", "noise"], "gains"), (["same", "worse"], "loses"), (["better", "worse"], "both"),
        (["same", "noise"], "noise"), (["same", "unknown"], "unknown"), (["same"], "same"),
    ],
)  # fmt: skip
def test_the_verdict_of_an_account(verdicts: list[str], word: str) -> None:
    assert overall(verdicts) == word


# --- accounts that go on under another name ---------------------------------------------------------------------------
def test_accounts_that_were_renamed_or_merged_are_compared_with_their_heirs() -> None:
    heirs = {AccountPath("lab/red"): AccountPath("lab/warm"), AccountPath("lab/pink"): AccountPath("lab/warm")}
    present = side()
    proposed = Side(present.report, gathered(present.days, lambda path: heirs.get(AccountPath(path), path)))
    found = whatif(present, proposed, Question(heirs=heirs))
    assert [each["account"] for each in found["accounts"]] == [
        "lab/warm", "lab/blue", "lab/green", "lab/grey", "lab/gold",
    ]  # fmt: skip
    assert row(found, "lab/warm")["verdict"] == "same"
    assert row(found, "lab/warm")["workloads"] == {"before": 1800, "after": 1800}


def test_an_account_that_is_new_begins_from_nothing() -> None:
    found = whatif(side(accounts=ACCOUNTS[:5]), side())
    gold = row(found, "lab/gold")
    assert (gold["share"]["before"], gold["owed"]["before"], gold["verdict"]) == (0, 0, "both")
    assert gold["wait_p50_s"]["verdict"] == "unknown"


# --- what an exception costs ------------------------------------------------------------------------------------------
def test_an_exception_tells_what_it_costs_whom() -> None:
    tried = {
        "id": "x1", "kind": "extra-share", "account": "lab/red", "owner": "ann", "approver": "bob", "reason": "a paper",
        "donor": "lab/blue", "begin_s": 0, "end_s": 86400 * 30, "in_force": True, "unit_hours": 800.0,
        "placed": "from day 1 to day 31",
    }  # fmt: skip
    found = whatif(side(), side(red={"more": 20.0}, blue={"more": -15.0}), Question(exceptions=[tried]))
    (told,) = found["exceptions"]
    assert [each["account"] for each in told["cost"]] == ["lab/blue"]
    assert told["cost"][0]["used"] == told["cost"][0]["during"] == pytest.approx(-450)
    text = told_of(found)
    assert (
        "Asked by ann, to be approved by bob: a paper; it sets aside 800 GPU-h in this log, taken from lab/blue."
        in text
    )
    assert "Beyond noise it costs 450 GPU-h, from lab/blue." in text


# --- form -------------------------------------------------------------------------------------------------------------
def test_the_answer_is_plain_json_with_stable_keys_and_the_same_bytes() -> None:
    found = whatif(side(), side(seed=2))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert set(found) == {
        "mirab", "log", "unit", "changes", "policy", "exceptions", "method", "all", "accounts", "notes", "reports",
    }  # fmt: skip
    aspects = {aspect.key for aspect in ASPECTS}
    assert set(found["all"]) == {"account", "share", "owed", "workloads", "verdict"} | aspects
    assert all(set(found["all"][key]) == {"before", "after", "difference", "spread", "verdict"} for key in aspects)
    assert json.dumps(whatif(side(), side(seed=2))) == json.dumps(found)


def test_the_text_fits_its_width_and_leaves_out_who_does_not_change() -> None:
    accounts = [f"a-rather-long-program/and-a-team-{number:03}" for number in range(40)]
    found = whatif(side(accounts=accounts), side(seed=3, accounts=accounts))
    lines = plain(whatif_sections(found)).splitlines()
    assert max(map(len, lines)) <= 100
    assert re.search(r"1[4-6] accounts that are owed less, without a change beyond noise", told_of(found))


def test_the_page_loads_nothing_and_escapes_names() -> None:
    accounts = ("lab/<script>alert(1)</script>", "lab/blue")
    page = whatif_page(whatif(side(accounts=accounts), side(seed=2, accounts=accounts)))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src &#39;none&#39;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page == whatif_page(whatif(side(accounts=accounts), side(seed=2, accounts=accounts)))


def test_the_page_tells_what_the_text_tells() -> None:
    changes = [{"account": "lab/red", "term": "share", "before": "10%", "after": "22%"}]
    found = whatif(side(), side(seed=4, red={"more": 12.0}), Question(changes=changes))
    page = whatif_page(found)
    assert "1 account gains: lab/red" in page
    assert "<td>10%</td><td>22%</td>" in page
    assert page.count("noise</span>") > 10


# --- days of a replay -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def replayed() -> Measures:
    trace = synthesize(SynthOptions(nodes=4, days=5, load=1.5, seed=3))
    return measure(trace, POLICIES["budget"])[0]


def test_days_add_up_to_the_report(replayed: Measures) -> None:
    days, accounts = days_of(replayed), replayed.report()["by_account"]
    assert (days.count, days.window) == (5, 7)
    assert set(days.accounts) == set(accounts)
    for path, account in days.accounts.items():
        told = accounts[path]
        assert sum(account.owed) == pytest.approx(told["owed"], abs=0.01)
        assert sum(account.charged) == pytest.approx(told["charged"], abs=0.01)
        assert sum(account.used) == pytest.approx(told["charged"] + told["uncharged"], abs=0.01)
        assert sum(account.lost) == pytest.approx(told["lost"], abs=0.01)
        waits = sorted(wait for day in account.waits for wait in day)
        assert (len(waits), percentile(waits, 90)) == (told["waits"]["count"], told["waits"]["p90_s"])


def test_what_was_kept_is_what_the_report_says(replayed: Measures) -> None:
    same = Side(replayed.report(), days_of(replayed))
    found = whatif(same, same)
    accounts = replayed.report()["by_account"]
    for each in found["accounts"]:
        assert (
            each["kept"]["after"] == pytest.approx(accounts[each["account"]]["delivered_ratio"] or 0, abs=0.001)
            or not each["owed"]["after"]
        )
    assert found["all"]["kept"]["after"] == pytest.approx(replayed.report()["metrics"]["delivered_ratio"], abs=0.001)
    assert found["all"]["account"] == ALL


def test_a_log_of_less_than_a_day_is_one_day() -> None:
    seen = measure(small_trace(), POLICIES["budget"])[0]
    days = days_of(seen)
    assert days.count == 1
    assert sum(days.accounts["red"].charged) == pytest.approx(seen.report()["by_account"]["red"]["charged"], abs=0.01)


def test_the_days_of_an_exception_are_told_apart() -> None:
    tried = {
        "id": "x1", "kind": "guaranteed", "account": "lab/red", "owner": "ann", "approver": "bob", "reason": "a paper",
        "donor": None, "begin_s": 86400 * 9.5, "end_s": 86400 * 12, "in_force": False, "unit_hours": None, "placed": "",
    }  # fmt: skip
    found = whatif(side(), side(blue={"more": -15.0}), Question(exceptions=[tried, tried]))
    assert found["exceptions"][0]["cost"][0]["during"] == pytest.approx(-45)
    assert "Tried together with 1 other: what it costs is what all cost." in told_of(found)
