"""`mirab budget` and its kin against a real service: the same commands as for a file, without the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.api.stage import Stage, stage
from tests.cli.conftest import Mirab, mirab

__all__ = ["mirab"]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    structlog.configure(processors=[_nothing])
    try:
        with stage(tmp_path) as running:
            monkeypatch.setenv("MIRAB_SERVER", running.url)
            act_as(running, monkeypatch, "adm")
            yield running
    finally:
        structlog.reset_defaults()


def _nothing(*_: object) -> Any:
    """The service's own log is not what the command says."""
    raise structlog.DropEvent


def act_as(service: Stage, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    monkeypatch.setenv("MIRAB_TOKEN", service.tokens[user])


def test_shares_are_set_and_the_history_tells(served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(served, monkeypatch, "mia")
    made = mirab("budget", "set", "vision/image=40%", "--owner", "ida", "--why", "image grows")
    assert made.code == 0, made.err
    assert made.out.startswith("Version 2 of the service, by mia\n  vision/image")
    shown = json.loads(mirab("budget", "show", "vision", "--json").out)
    assert [(row["account"], row["share"], row["owner"]) for row in shown["budgets"]][-1] == (
        "vision/image", "40%", "ida",
    )  # fmt: skip
    entries = json.loads(mirab("budget", "log", "--json").out)["changesets"]
    assert [(each["version"], each["author"], each["reason"]) for each in entries] == [
        (1, "cluster file", "as the ledger began"), (2, "mia", "image grows"),
    ]  # fmt: skip
    blamed = {row["account"]: row for row in json.loads(mirab("budget", "blame", "--json").out)["accounts"]}
    assert (blamed["vision/image"]["author"], blamed["llm"]["author"]) == ("mia", "cluster file")
    told = json.loads(mirab("budget", "diff", "--version", "1", "--json").out)["changes"]
    assert [each["after"] for each in told if each["term"] == "share"] == ["40%"]
    assert mirab("budget", "revert", "2", "--why", "no use").out.startswith("Version 3 of the service, by mia")
    assert json.loads(mirab("budget", "show", "--json").out)["budgets"][-1]["account"] == "llm"


def test_what_was_seen_and_what_was_meant_decide(served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mirab("budget", "set", "vision/image=40%", "--why", "one").code == 0
    late = mirab("budget", "set", "vision/video=60%", "--why", "two", "--base", "1")
    assert late.code == 5
    assert "version 2 of adm has changed what lies under vision" in late.sentence
    over = mirab("budget", "set", "vision/video=70%", "--why", "more")
    assert "video 70%" in over.sentence
    assert "more than 100%" in over.sentence
    assert mirab("budget", "set", "vision/image=40%", "--why", "again").code == 1
    assert "--author is for files" in mirab("budget", "set", "llm=1%", "--author", "x", "--why", "y").err
    act_as(served, monkeypatch, "ada")
    assert mirab("budget", "set", "vision/image=30%", "--why", "mine").code == 4


def test_a_date_plans_it_and_evidence_stays_with_it(served: Stage, mirab: Mirab, tmp_path: Path) -> None:
    found = tmp_path / "whatif.json"
    found.write_text("{}")
    day = (datetime.now(UTC) + timedelta(days=9)).date().isoformat()
    made = mirab("budget", "set", "llm=40%", "--from", day, "--why", "spring", "--evidence", found)
    assert made.code == 0, made.err
    assert f", from {day}" in made.out
    shown = mirab("budget", "show")
    assert f"Planned from {day}" in shown.err
    assert json.loads(mirab("budget", "log", "--json").out)["changesets"][1]["evidence"].startswith(
        "whatif.json sha256:"
    )
    later = json.loads(mirab("budget", "show", "llm", "--at", day, "--json").out)["budgets"]
    assert later[0]["share"] == "40%"


def test_reviews_are_held_and_accounts_renamed(served: Stage, mirab: Mirab) -> None:
    assert (
        mirab("budget", "set", "llm", "--review", "2024-01-01", "--hypothesis", "a paper", "--why", "a date").code == 0
    )
    assert json.loads(mirab("budget", "review", "--json").out)["due"][0]["account"] == "llm"
    assert mirab("budget", "review", "llm", "--outcome", "two papers", "--next", "2099-01-01").code == 0
    assert json.loads(mirab("budget", "review", "--json").out) == {"due": []}
    assert mirab("budget", "set", "--rename", "llm=language", "--why", "its name").code == 0
    assert "language" in served.desk.budgets().tree
    assert mirab("budget", "set", "--split", "language=a:60%,b:40%", "--why", "two teams").code == 0
    assert list(served.desk.budgets().tree["language"]["children"]) == ["a", "b"]


def test_a_file_is_compared_with_the_service(served: Stage, mirab: Mirab, tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text("budgets:\n  vision: {share: 50%}\n  llm: {share: 40%}\n")
    assert mirab("budget", "show", file).out.startswith(f"Budgets of {file}")
    told = json.loads(mirab("budget", "diff", file, "--server", served.url, "--json").out)["changes"]
    assert [(each["account"], each["after"]) for each in told if each["term"] == "share"] == [("llm", "40%")]


def test_an_exception_from_its_request_to_its_end(served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(served, monkeypatch, "ada")
    asked = mirab(
        "except", "request", "longer-minimum", "vision/video", "--cap", "24h", "--for", "3d", "--reason", "a paper"
    )
    assert asked.code == 0, asked.err
    case = asked.out.strip()
    assert f"mirab except approve {case}" in asked.err
    assert mirab("except", "approve", case).code == 4
    assert "say --until or --for" in mirab("except", "request", "guaranteed", "llm", "--reason", "x").err
    act_as(served, monkeypatch, "adm")
    assert "is in force" in mirab("except", "approve", case, "--why", "agreed").err
    shown = json.loads(mirab("except", "list", "--json").out)["exceptions"]
    assert [(each["id"], each["state"], each["owner"], each["approver"]) for each in shown] == [
        (case, "in force", "ada", "adm"),
    ]  # fmt: skip
    told = mirab("except", "list")
    assert "a paper" in told.out
    assert "mirab whatif --with-exception" in told.err
    assert mirab("except", "revoke", case).code == 2
    assert mirab("except", "revoke", case, "--why", "published").err.endswith("is revoked.\n"), "it has no end any more"
    assert json.loads(mirab("except", "list", "--json").out)["exceptions"] == []


def test_nodes_are_reserved_or_refused_with_the_reason(
    served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--gpus-per-node", "4", "--from", "2d", "--for", "1d", "--reason", "a release")
    act_as(served, monkeypatch, "ada")
    first = mirab("reserve", "vision/video", "--nodes", "3", *words)
    assert "sets 288 GPU-hours aside, paid by" in first.err
    second = mirab("reserve", "vision/video", "--nodes", "2", *words)
    act_as(served, monkeypatch, "adm")
    assert "is to come" in mirab("except", "approve", first.out.strip()).err
    refused = mirab("except", "approve", second.out.strip())
    assert refused.code == 5
    assert "too few nodes beside other reservations" in refused.sentence
    shown = json.loads(mirab("reserve", "--json").out)["exceptions"]
    assert [(each["id"], each["terms"]) for each in shown] == [(first.out.strip(), "3 x 4 GPUs of gpu")]


GATES = "gates:\n  contracts: {at_most: 0}\n  debug-wait: {at_most: 5m}\n"


def test_live_gates_are_signed_and_lead_to_a_rollout(served: Stage, mirab: Mirab, tmp_path: Path) -> None:
    gates, kept, report = (tmp_path / name for name in ("gates.yaml", "kept.json", "report.json"))
    gates.write_text(GATES)
    judged = mirab("gate", "--live", "--gates", gates, "--keep", kept, "--sign", "ada", "--report-to", report)
    assert judged.code == 0, judged.err
    assert "the live service" in judged.out
    assert mirab("gate", report, "--gates", gates, "--verify", kept).code == 0
    assert mirab("rollout", "set", "*", "enforce", "--why", "now").code == 2
    done = mirab("rollout", "set", "*", "enforce", "--gates", kept, "--why", "now", "--json")
    assert done.code == 0, done.err
    line = json.loads(done.out)["accounts"][0]
    assert (line["mode"], line["by"]) == ("enforce", "adm")
    assert mirab("rollout", "set", "*", "observe", "--why", "back").code == 0
    assert "observe" in mirab("rollout", "status").out
    assert served.live.policy.mode == "observe"


def test_a_live_gate_that_fails_says_which_number(served: Stage, mirab: Mirab, tmp_path: Path) -> None:
    gates = tmp_path / "gates.yaml"
    gates.write_text("gates:\n  availability: {at_least: 100%}\n  occupancy: {at_least: 99%}\n")
    failed = mirab("gate", "--live", "--gates", gates, "--window", "1d")
    assert failed.code == 6
    assert "occupancy" in failed.err
    assert "needs at least 99" in failed.err
    assert mirab("gate", "--live", "--scenarios").code == 2
    assert mirab("gate", gates, "--window", "1d", "--gates", gates).code == 2


def test_a_drain_is_paused_and_its_price_told(served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(served, monkeypatch, "ada")
    wrong = mirab("except", "request", "drain-pause", "vision/video", "--for", "6h", "--reason", "the last epoch")
    assert (wrong.code, "--node" in wrong.err) == (2, True)
    asked = mirab("except", "request", "drain-pause", "vision/video", "--node", "n1", "--for", "6h", "--reason", "x")
    assert asked.code == 0, asked.err
    assert "sets 24 GPU-hours aside, paid by llm" in asked.err
    act_as(served, monkeypatch, "mia")
    assert mirab("except", "approve", asked.out.strip()).code == 4, "it costs everybody something"
    act_as(served, monkeypatch, "adm")
    assert mirab("except", "approve", asked.out.strip(), "--why", "agreed").code == 0
    assert "neither repaired nor given to anybody else" in mirab("except", "list").err


CODES: dict[str, tuple[str, list[str], int, str]] = {
    "done": ("adm", ["vision/image=20%"], 0, ""),
    "conflict": ("adm", ["vision/video=55%", "--base", "1"], 5, "has changed what lies under vision"),
    "more than everything": ("adm", ["vision/video=90%"], 1, "more than 100%"),
    "no right": ("mia", ["llm=60%", "vision=40%"], 4, "may not change"),
    "no account": ("adm", ["nobody/at-all=10%"], 3, "there is no account 'nobody'"),
    "no account to close": ("adm", ["--close", "nobody"], 3, "there is no account 'nobody'"),
    "changes nothing": ("adm", ["vision=50%"], 1, "changes nothing"),
    "no reason": ("adm", ["vision/image=20%", "--why", ""], 1, "reason"),
    "no share": ("adm", ["vision=lots"], 1, "lots"),
    "nothing said": ("adm", [], 2, "nothing is to change"),
}
"""Who, what, the exit code, and a word of the sentence: the table of docs/howto/budgets.md."""


@pytest.mark.parametrize("where", ["service", "file"])
@pytest.mark.parametrize("case", CODES)
def test_the_exit_codes_of_budget_set(
    case: str, where: str, served: Stage, mirab: Mirab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    who, words, code, says = CODES[case]
    file = tmp_path / "budgets.yaml"
    file.write_text(
        "budgets: {vision: {share: 50%, children: {video: {share: 50%}, image: {share: 25%}}}, llm: {share: 50%}}"
    )
    place = [str(file)] if where == "file" else []
    if where == "file" and code == 4:
        pytest.skip("whoever may write the file may change it")
    assert mirab("budget", "set", *place, "vision/image=30%", "--why", "before").code == 0
    act_as(served, monkeypatch, who)
    why = [] if "--why" in words else ["--why", "a test"]
    said = mirab("budget", "set", *place, *words, *why)
    assert (said.code, says in said.err) == (code, True), said.err


@pytest.mark.parametrize("text", ["-1h", "0", "soon"])
def test_no_exception_lasts_less_than_some_time(served: Stage, mirab: Mirab, text: str) -> None:
    said = mirab("except", "request", "guaranteed", "llm", "--for", text, "--reason", "x")
    assert (said.code, f"{text!r} is no length that an exception can have" in said.err) == (2, True), said.err
