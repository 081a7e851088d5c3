"""The JSON report: its keys, its bytes, and what it says of the input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mirab.model.policy import POLICIES
from mirab.model.units import DAY, HOUR
from mirab.study.demand import CLASSES
from mirab.study.figures import policy_fields
from mirab.study.period import midnights, step_for
from mirab.study.replays import replay_report
from tests.study.scene import BUDGET
from tests.study.small import small_trace

METRICS = {
    "delivered_ratio", "delivered_ratio_worst", "accounts_at_95", "accounts", "delivered_ratio_period", "owed_given_up",
    "useful_ratio", "unallocated_ratio", "occupancy", "occupancy_of_demand", "availability", "utilization",
    "lost_ratio", "preemptions", "preemptions_by_cause", "contract_violations", "fragmentation_ratio",
    "fragmentation_by_shape", "held_idle_ratio", "repairs", "repairs_needing_human", "starvation_s", "makespan_s",
    "deadlines", "waits", "first_progress", "by_contract", "sustained_accounts", "sustained_worst",
}  # fmt: skip
WAITS = {"count", "started", "mean_s", "p50_s", "p90_s", "p99_s", "max_s"}


def made() -> dict[str, Any]:
    return replay_report(small_trace(), BUDGET)


def test_all_agreed_keys_are_there() -> None:
    report = made()
    assert set(report) == {
        "mirab", "policy", "input", "metrics", "by_account", "exceptions", "series", "distributions", "performance",
    }  # fmt: skip
    metrics = report["metrics"]
    assert set(metrics) >= METRICS
    assert metrics["starvation_s"] is not None
    for part in ("waits", "first_progress"):
        assert tuple(metrics[part]) == CLASSES
        assert all(set(each) == WAITS for each in metrics[part].values())
    assert set(metrics["deadlines"]) == {"count", "met"}
    assert set(report["performance"]) == {"wall_s", "workloads_per_s", "passes", "peak_rss_mib"}
    assert set(report["by_account"]["red"]) >= {
        "share", "owed", "delivered", "delivered_ratio", "charged", "uncharged", "lost", "preempted", "waits",
    }  # fmt: skip
    assert set(report["series"]) == {
        "step_s", "t_s", "installed", "schedulable", "busy", "demand", "held_idle", "lost", "preemptions", "accounts",
    }  # fmt: skip
    assert set(report["distributions"]) == set(CLASSES)
    assert len(report["distributions"]["all"]["wait_s"]) == 101


def test_the_report_is_plain_json() -> None:
    report = made()
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_what_was_replayed() -> None:
    told = made()["input"]
    assert (told["rows"], told["used"]) == (13, 12)
    assert told["dropped"] == {"no account": {"count": 1, "lines": [7]}}
    assert (told["nodes"], told["slots"], told["unit"]) == (4, 32, "gpu")
    assert (told["starts_s"], told["ends_s"], told["origin_unix_s"]) == (0, 86400, None)
    assert told["notes"] == ["made by hand"]


def test_settings_are_told_with_units() -> None:
    told = policy_fields(replace(POLICIES["fair-tree"], surplus_minimum_cap=90 * 60_000))
    assert told["name"] == "fair-tree"
    assert (told["window"], told["half_life"], told["surplus_minimum_cap"]) == ("7d", "7d", "1h30m")
    assert policy_fields(BUDGET)["half_life"] is None
    assert told["margin"] == 100


def test_same_input_same_bytes_under_any_hash_seed() -> None:
    script = (
        "import json; from tests.study.test_report_form import made; report = made(); "
        "report.pop('performance'); print(json.dumps(report))"
    )
    root = Path(__file__).parents[2]
    printed = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert json.loads(printed[0])["metrics"]["occupancy"] > 0


def test_midnights_are_days_from_the_start_from_the_third_on() -> None:
    assert midnights(0, 5 * DAY + HOUR) == (3 * DAY, 4 * DAY, 5 * DAY)
    assert midnights(HOUR, 3 * DAY + HOUR) == (3 * DAY + HOUR,)
    assert midnights(0, 2 * DAY) == (2 * DAY,)


def test_steps_are_round_and_not_too_many() -> None:
    assert step_for(30 * DAY) == HOUR
    assert step_for(HOUR) == 60_000
    assert step_for(3 * 365 * DAY) % DAY == 0
    assert 3 * 365 * DAY / step_for(3 * 365 * DAY) <= 750
