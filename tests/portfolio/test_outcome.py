"""What was predicted beside what happened."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.study.outcome import outcome, outcome_sections
from mirab.study.tables import plain
from tests.api.stage import Stage, stage
from tests.portfolio.conftest import Mirab
from tests.study_page.made_up import report


def row(found: dict[str, Any], account: str, aspect: str) -> dict[str, Any]:
    return next(each for each in found["accounts"] if (each["account"], each["aspect"]) == (account, aspect))


def changed(name: str, value: float, path: str = "") -> dict[str, Any]:
    """The made-up report with another number of its first account."""
    made = copy.deepcopy(report("budget"))
    account = made["by_account"][next(iter(made["by_account"]))]
    (account["waits"] if path else account)[name] = value
    return made


FIRST = next(iter(report("budget")["by_account"]))


def test_the_same_came_as_predicted() -> None:
    found = outcome(report("budget"), report("budget"))
    assert {each["verdict"] for each in found["accounts"]} <= {"as predicted", "unknown"}
    assert {each["verdict"] for each in found["measures"]} == {"as predicted"}


@pytest.mark.parametrize(
    ("name", "path", "aspect", "factor", "verdict"),
    [
        ("p90_s", "waits", "wait_p90_s", 3.0, "worse"),
        ("p90_s", "waits", "wait_p90_s", 0.2, "better"),
        ("p90_s", "waits", "wait_p90_s", 1.05, "as predicted"),
        ("delivered_ratio", "", "kept", 0.5, "worse"),
        ("charged", "", "used_per_day_h", 3.0, "more"),
        ("charged", "", "used_per_day_h", 0.1, "less"),
    ],
)
def test_what_came_otherwise_is_told(name: str, path: str, aspect: str, factor: float, verdict: str) -> None:
    base = changed(name, 7_200.0 if path else 0.9 if name == "delivered_ratio" else 4_000.0, path)
    account = base["by_account"][FIRST]
    value = (account["waits"] if path else account)[name]
    found = outcome(base, changed(name, value * factor, path))
    assert row(found, FIRST, aspect)["verdict"] == verdict


def test_the_spread_of_the_prediction_counts() -> None:
    said = report("budget")
    rows = [{"account": FIRST, "wait_p90_s": {"spread": 50_000.0}}]
    prediction = {"reports": {"present": said, "proposed": changed("p90_s", 7_200, "waits")}, "accounts": rows}
    found = outcome(prediction, changed("p90_s", 36_000, "waits"))
    assert row(found, FIRST, "wait_p90_s")["verdict"] == "as predicted"
    assert row(found, FIRST, "wait_p90_s")["present"] is not None
    rows[0]["wait_p90_s"] = {"spread": 60.0}
    assert row(outcome(prediction, changed("p90_s", 36_000, "waits")), FIRST, "wait_p90_s")["verdict"] == "worse"


def test_lengths_that_differ_do_not_matter_to_what_is_used_a_day() -> None:
    twice = copy.deepcopy(report("budget"))
    twice["input"]["ends_s"] = twice["input"]["starts_s"] + 2 * (twice["input"]["ends_s"] - twice["input"]["starts_s"])
    for account in twice["by_account"].values():
        for name in ("charged", "uncharged", "lost"):
            account[name] *= 2
    found = outcome(report("budget"), twice)
    assert {each["verdict"] for each in found["accounts"]} <= {"as predicted", "unknown"}


def test_an_account_that_was_not_predicted_is_unknown() -> None:
    made = copy.deepcopy(report("budget"))
    made["by_account"]["new"] = made["by_account"][FIRST]
    assert row(outcome(report("budget"), made), "new", "kept")["verdict"] == "unknown"


def test_it_can_be_read(tmp_path: Path) -> None:
    text = plain(outcome_sections(outcome(report("budget"), report("priority"))))
    assert "came as predicted" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_says_what_it_needs(mirab: Mirab, tmp_path: Path) -> None:
    said, was = tmp_path / "said.json", tmp_path / "was.json"
    said.write_text(json.dumps(report("budget")))
    was.write_text(json.dumps(report("priority")))
    told = mirab("outcome", said, was, "--json", tmp_path / "o.json")
    assert told.code == 0 and "By account" in told.out
    assert {"measures", "accounts"} <= set(json.loads((tmp_path / "o.json").read_text()))
    assert mirab("outcome", said).code == 2
    assert mirab("outcome").code == 2
    assert mirab("outcome", said, was, "--live").code == 2
    assert mirab("outcome", said, was, "--window", "7d").code == 2
    was.write_text("{}")
    assert "no report of what happened" in mirab("outcome", said, was).err
    was.write_text("no")
    assert "not JSON" in mirab("outcome", said, was).err


# --- of a live service -----------------------------------------------------------------------------------------------
@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path) as service:
        monkeypatch.setenv("MIRAB_SERVER", service.url)
        monkeypatch.setenv("MIRAB_TOKEN", service.tokens["adm"])
        service.submit()
        yield service


@pytest.mark.slow
def test_a_prediction_is_held_beside_the_last_window(served: Stage, mirab: Mirab, tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    said.write_text(json.dumps(report("budget")))
    told = mirab("outcome", said, "--live")
    assert told.code == 0, told.err
    assert "happened on the live service" in " ".join(told.out.split())


@pytest.mark.slow
def test_a_change_leads_to_its_own_prediction(served: Stage, mirab: Mirab, tmp_path: Path) -> None:
    budgets = tmp_path / "b.yaml"
    with served.client("adm") as client:
        tree = client.get("/api/v1/budgets").json()["budgets"]
    tree["llm"]["share"], tree["vision"]["share"] = "40%", "60%"
    budgets.write_text(json.dumps({"budgets": tree}))
    name = mirab("whatif", budgets, "--log", "last-7d").err.split("Kept by the service as ")[1][:17]
    assert mirab("budget", "set", "llm=40%", "vision=60%", "--reason", "tried", "--evidence", name).code == 0
    assert "less than an hour" in mirab("outcome", "--changeset", "2").err
    assert "names no what-if" in mirab("outcome", "--changeset", "1").err
    assert mirab("outcome", "--changeset", "9").code == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mirab.cli.outcome.SHORTEST_H", 0)
        patch.setattr("mirab.cli.outcome.window_of", lambda _: "1h")
        told = mirab("outcome", "--changeset", "2")
    assert told.code == 0, told.err
    assert "llm" in told.out and "vision/video" in told.out
