"""What a log suggests: each suggestion on a log of which the answer is known."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isclose, sqrt
from pathlib import Path
from typing import Any

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.policy import Policy
from mirab.model.resources import Cluster, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, AccountPath, Duration, Instant, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.study.advise import advised, daly, young
from mirab.study.advisetext import advice_sections
from mirab.study.tables import plain
from tests.portfolio.conftest import Mirab
from tests.service.house import nodes

CLUSTER: Cluster = nodes(2)
"""Two nodes of four GPUs."""
BUDGETS = Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))


def job(name: str, at: Instant, run: Duration, account: str = "red", gpus: int = 4, **given: Any) -> Arrival:
    limit = given.pop("limit", None)
    shape = Shape(given.pop("nodes", 1), gpus, min_runtime=given.pop("minimum", HOUR), time_limit=limit)
    return Arrival(Workload(WorkloadId(name), at, AccountPath(account), UserName(account), shape, **given), run)


def trace(*arrivals: Arrival, days: int = 14) -> Trace:
    ordered = sorted(arrivals, key=lambda each: (each.workload.submitted_at, each.workload.id))
    return Trace(ordered, CLUSTER, BUDGETS, name="made up", ends_at=days * DAY)


def suggested(found: dict[str, Any], about: str) -> dict[str, Any]:
    return next(each for each in found["suggestions"] if each["about"] == about)


def weekly(away: range) -> Trace:
    """Red works every day but on some days of each week; blue works every day."""
    made = []
    for day in range(28):
        if day % 7 not in away:
            made.append(job(f"r{day}", day * DAY, 23 * HOUR))
        made.append(job(f"b{day}", day * DAY, 23 * HOUR, "blue"))
    return trace(*made, days=28)


@pytest.mark.parametrize(("away", "window"), [(range(5, 7), "7d"), (range(4, 5), "3d"), (range(6), "14d")])
def test_the_window_is_twice_as_long_as_people_are_away(away: range, window: str) -> None:
    found = suggested(advised(weekly(away), Policy()), "window")
    assert (found["setting"], found["present"], found["suggested"]) == ("window", "7d", window)
    assert found["evidence"]["p90_days"] == len(away)


def test_who_is_never_away_says_nothing_about_the_window() -> None:
    found = suggested(advised(weekly(range(0)), Policy(window=3 * DAY)), "window")
    assert (found["present"], found["suggested"]) == ("3d", "3d")


def test_the_cap_covers_nine_tenths_of_what_has_a_safe_place() -> None:
    short = [job(f"s{number}", number * 6 * HOUR, 90 * MINUTE, checkpoint=0) for number in range(9)]
    long = job("long", 0, 20 * HOUR, "blue", gpus=1)
    found = suggested(advised(trace(*short, long), Policy()), "cap")
    assert found["suggested"] == "2h"
    assert found["evidence"]["covered"]["2h"] == round(36 / 37, 4)
    saves = job("long", 0, 20 * HOUR, "blue", gpus=4, checkpoint=30 * MINUTE)
    assert suggested(advised(trace(saves), Policy()), "cap")["suggested"] == "1h"


def test_the_best_interval_is_youngs_and_dalys() -> None:
    assert young(60, 86_400) == sqrt(2 * 60 * 86_400)
    assert isclose(daly(60, 86_400), 3_219.94 * (1 + sqrt(60 / 172_800) / 3 + 60 / 172_800 / 9) - 60, rel_tol=1e-5)
    assert daly(600, 200) == 200, "a checkpoint that costs more than twice the time between stops is not worth more"
    waste = {t: 60 / t + t / (2 * 86_400) for t in (800, 3_220, 12_000)}
    assert min(waste, key=lambda t: waste[t]) == 3_220


def churning() -> Trace:
    """Red and blue both want everything, in runs of ten hours, with checkpoints each 4 h and minimums of an hour."""
    both = [("r", "red"), ("b", "blue")]
    return trace(
        *[job(f"{sign}{number}", number * 3 * HOUR, 10 * HOUR, account, checkpoint=4 * HOUR, nodes=2)
          for number in range(40) for sign, account in both],
        days=7,
    )  # fmt: skip


def test_stops_again_and_again_ask_for_a_wider_margin_and_nearer_checkpoints() -> None:
    found = advised(churning(), Policy(margin=0, window=DAY))
    margin = suggested(found, "margin")
    assert margin["evidence"]["preemptions"] > 10
    part = margin["evidence"]["again_within_a_day"] / margin["evidence"]["preemptions"]
    assert margin["suggested"] == ("5%" if part > 0.1 else "0%")
    (small,) = [each for each in found["checkpoints"] if each["class"] == "small"]
    assert small["preemptions"] == margin["evidence"]["preemptions"]
    assert small["present_s"] == 4 * 3_600
    assert small["young_s"] == round(sqrt(2 * 60 * small["between_stops_s"]), 1)
    dear = advised(churning(), Policy(margin=0, window=DAY), checkpoint_cost=10 * MINUTE)
    assert dear["checkpoints"][0]["young_s"] > small["young_s"]


def test_who_recovers_and_who_would_lose_its_state() -> None:
    arrivals = (
        job("saves", 0, 10 * HOUR, checkpoint=HOUR),
        job("anew", 0, 5 * HOUR),
        job("gone", HOUR, 2 * HOUR, resume=False),
    )
    (row,) = advised(trace(*arrivals), Policy())["recovery"]
    assert (row["recovers_h"], row["begins_anew_h"], row["is_lost_h"]) == (40, 20, 8)
    assert [each["id"] for each in row["largest"]] == ["anew", "gone"]


def test_classes_that_hold_gpus_without_finishing() -> None:
    arrivals = (job("done", 0, 2 * HOUR, limit=4 * HOUR), job("cut", 0, 4 * HOUR, limit=4 * HOUR),
                job("shell", HOUR, 3 * HOUR, gpus=1, label="session"))  # fmt: skip
    found = advised(trace(*arrivals), Policy())
    rows = {each["class"]: each for each in found["holders"]}
    assert (rows["small"]["workloads"], rows["small"]["unfinished"], rows["small"]["unfinished_gpu_h"]) == (2, 1, 16)
    assert rows["session"]["unfinished"] == 0
    assert found["idle"]["session_gpu_h"] == 3


def test_idle_gpus_used_shares_and_what_they_cost() -> None:
    found = advised(trace(job("one", 0, 12 * HOUR), days=1), Policy(), price=2.0)
    assert found["idle"]["idle_gpu_h"] == pytest.approx(48), "until the last work has ended"
    assert found["idle"]["idle_gpus"] == pytest.approx(4)
    assert found["idle"]["idle_while_wanted_gpu_h"] == 0
    red, blue = found["teams"]
    assert (red["account"], red["used_h"], red["part"], red["cost"]) == ("red", 48, 1, 96)
    assert (blue["used_h"], blue["cost"]) == (0, 0)


def test_the_answer_is_json_and_text_and_the_same_each_time() -> None:
    policy = Policy(margin=0, window=DAY)
    one, other = advised(churning(), policy, price=1.5), advised(churning(), policy, price=1.5)
    assert json.dumps(one) == json.dumps(other)
    text = plain(advice_sections(one))
    assert max(map(len, text.splitlines())) <= 100
    for word in ("window", "cap", "margin", "Young", "Daly", "recovers", "unfinished", "sessions", "cost"):
        assert word in text


def test_the_command(mirab: Mirab, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "id,submit_s,account,user,nodes,gpus_per_node,run_s,min_runtime_s\na,0,red,ann,1,2,7200,3600\nb,86400,red,ann,1,1,60,0\n"
    )
    told = mirab("advise", log, "--price", "3", "--json", tmp_path / "a.json")
    assert told.code == 0, told.err
    assert "Nothing is applied" in told.out
    assert json.loads((tmp_path / "a.json").read_text())["teams"][0]["cost"] == 12.05
    assert mirab("advise", log, "--checkpoint-cost", "often").code == 2
    log.write_text("id,submit_s,account,user,nodes,gpus_per_node,run_s\n")
    assert mirab("advise", log).code != 0


@pytest.mark.parametrize("price", ["nan", "inf"])
def test_a_price_is_a_number(mirab: Mirab, tmp_path: Path, price: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text("submit_s,run_s,gpus_per_node\n0,60,1\n")
    told = mirab("advise", log, "--price", price, "--json", "-")
    assert told.code == 2
    assert "is not an amount of money" in told.err


def test_nothing_was_changed() -> None:
    world = churning()
    before = replace(world)
    advised(world, Policy())
    assert world == before
