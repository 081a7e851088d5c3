"""`mirab whatif` and `mirab gate` as a person uses them, on small logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import CLUSTER, write_log
from tests.portfolio.conftest import Mirab
from tests.portfolio.test_gates import DECIDED

EXCEPTION = """\
exceptions:
  - {kind: extra-share, account: red, share: 20%, donor: blue, begin: 1h, end: 9h, owner: ann, approver: bob,
     reason: a release}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [
        f"{team}{hour},{hour * 600},{team},{team}-u,train,1,8,3600,600,7200"
        for hour in range(60)
        for team in ("red", "blue")
    ]
    return write_log(tmp_path / "jobs.csv", rows)


@pytest.fixture
def proposal(tmp_path: Path) -> Path:
    path = tmp_path / "proposal.yaml"
    path.write_text("budgets:\n  scarlet: {share: 75%, formerly: red}\n  blue: {share: 25%}\n", encoding="utf-8")
    return path


# --- whatif -----------------------------------------------------------------------------------------------------------
def test_whatif_tells_by_account_and_writes_json_and_a_page(
    mirab: Mirab, log: Path, cluster: Path, proposal: Path, tmp_path: Path
) -> None:
    told, page = tmp_path / "w.json", tmp_path / "w.html"
    said = mirab("whatif", proposal, "--log", log, "--cluster", cluster, "--json", told, "--html", page, "--jobs", 1)
    assert said.code == 0, said.err
    assert re.search(r"scarlet +share +50% +75%", said.out)
    assert "too few to tell a difference from luck" in said.out
    found = json.loads(told.read_text(encoding="utf-8"))
    rows = {row["account"]: row for row in found["accounts"]}
    assert rows["scarlet"]["share"] == {"before": 0.5, "after": 0.75}
    assert rows["scarlet"]["workloads"] == {"before": 60, "after": 60}
    assert rows["scarlet"]["used"]["before"] > 0
    assert "<!doctype html>" in page.read_text(encoding="utf-8")


def test_the_same_on_all_cores(mirab: Mirab, log: Path, cluster: Path, proposal: Path) -> None:
    words = ("whatif", proposal, "--log", log, "--cluster", cluster, "--json", "-", "-q")
    one, two = (json.loads(mirab(*words, "--jobs", jobs).out) for jobs in (1, 2))
    for found in (one, two):
        for report in found["reports"].values():
            report.pop("performance")
    assert one == two


def test_a_setting_alone_can_be_tried(mirab: Mirab, log: Path, cluster: Path) -> None:
    said = mirab("whatif", "--log", log, "--cluster", cluster, "--set", "window=14d", "--jobs", 1)
    assert said.code == 0, said.err
    assert re.search(r"policy +window +7d +14d", said.out)


def test_an_exception_is_tried_and_tells_its_cost(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    path = tmp_path / "exception.yaml"
    path.write_text(EXCEPTION, encoding="utf-8")
    said = mirab("whatif", "--log", log, "--cluster", cluster, "--with-exception", path, "--jobs", 1, "--json", "-")
    assert said.code == 0, said.err
    (tried,) = json.loads(said.out)["exceptions"]
    assert (tried["kind"], tried["account"], tried["unit_hours"]) == ("extra-share", "red", 0.2 * 16 * 8)
    assert all(each["account"] == "blue" for each in tried["cost"])


def test_identical_budgets_are_no_change(mirab: Mirab, log: Path, cluster: Path) -> None:
    found = json.loads(mirab("whatif", cluster, "--log", log, "--cluster", cluster, "--json", "-", "--jobs", 1).out)
    assert {row["verdict"] for row in found["accounts"] if row["workloads"]["before"]} == {"same"}
    assert found["changes"] == found["policy"] == []


@pytest.mark.slow
def test_a_real_shift_is_found_in_a_replay(mirab: Mirab, tmp_path: Path) -> None:
    """Two teams ask for all there is; one gets nine tenths instead of half."""
    rows = [
        f"{team}{number},{number * 1200},{team},{team}-u{number % 3},train,1,8,{3000 + number * 7 % 900},1800,7200"
        for number in range(16 * 24 * 3)
        for team in ("red", "blue")
    ]
    log, cluster, proposal = write_log(tmp_path / "l.csv", rows), tmp_path / "c.yaml", tmp_path / "p.yaml"
    cluster.write_text(CLUSTER.replace("n[0-1]", "n[0-3]"), encoding="utf-8")
    proposal.write_text("budgets: {red: {share: 90%}, blue: {share: 10%}}", encoding="utf-8")
    found = json.loads(mirab("whatif", proposal, "--log", log, "--cluster", cluster, "--json", "-").out)
    verdicts = {row["account"]: (row["delivered"]["verdict"], row["used"]["verdict"]) for row in found["accounts"]}
    assert verdicts["red"] == ("better", "better")
    assert verdicts["blue"] == ("worse", "worse")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("budgets: {red: {share: 75%}}", "has no account for work of the log: blue (60 workloads)"),
        ("budgets: {red: {share: 75%}, blue: {share: 75%}}", "more than 100%: red 75%, blue 75%"),
        ("budgest: {}", "did you mean budgets"),
        ("cluster: {pools: {p: {nodes: 9, gpus_per_node: 8}}}", "describes other nodes"),
        ("", "says nothing"),
    ],
)
def test_a_proposal_that_makes_no_sense_is_told(
    mirab: Mirab, log: Path, cluster: Path, proposal: Path, text: str, told: str
) -> None:
    proposal.write_text(text, encoding="utf-8")
    said = mirab("whatif", proposal, "--log", log, "--cluster", cluster)
    assert said.code == 1
    assert told in said.sentence


def test_whatif_wants_a_proposal_a_log_and_places_for_its_answer(
    mirab: Mirab, log: Path, cluster: Path, proposal: Path
) -> None:
    assert "nothing is proposed" in mirab("whatif", "--log", log).sentence
    assert "--log" in mirab("whatif", proposal).sentence
    assert mirab("whatif", proposal, "--log", "no.csv").code == 3
    assert mirab("whatif", "no.yaml", "--log", log).code == 3
    said = mirab("whatif", proposal, "--log", log, "--json", proposal)
    assert (said.code, "would be overwritten" in said.sentence) == (5, True)
    said = mirab("whatif", "--log", log, "--cluster", cluster, "--with-exception", proposal)
    assert (said.code, "has no exceptions" in said.sentence) == (1, True)


# --- gate -------------------------------------------------------------------------------------------------------------
GATES = "gates:\n  contracts: {}\n  lost-work: {at_most: 50%}\n  decisions: {}\n" + DECIDED


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    path = tmp_path / "gates.yaml"
    path.write_text(GATES, encoding="utf-8")
    return path


def test_gates_that_are_met_are_signed_off_kept_and_verified(
    mirab: Mirab, report: Path, gates: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    said = mirab("gate", report, "--gates", gates, "--sign", "Ann Example", "--keep", kept)
    assert said.code == 0, said.err
    assert "NOT MET" not in said.out
    made = json.loads(kept.read_text(encoding="utf-8"))
    assert (made["met"], made["signed"]["by"]) == (True, "Ann Example")
    assert "signed off by Ann Example" in mirab("gate", "--verify", kept).err
    said = mirab("gate", "--verify", kept, report, "--gates", gates)
    assert (said.code, "made from this report and this gates" in said.err) == (0, True)
    report.write_text(report.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    said = mirab("gate", "--verify", kept, report)
    assert (said.code, "the report report.json is another one now" in said.sentence) == (6, True)
    kept.write_text(kept.read_text(encoding="utf-8").replace("Ann Example", "Bob Example"), encoding="utf-8")
    said = mirab("gate", "--verify", kept)
    assert (said.code, "was changed after it was kept" in said.sentence) == (6, True)


def test_gates_that_are_not_met_exit_with_6_and_the_numbers(
    mirab: Mirab, report: Path, gates: Path, tmp_path: Path
) -> None:
    gates.write_text(
        GATES.replace("lost-work: {at_most: 50%}", "lost-work: {at_most: 0%}\n  preemptions: {at_least: 1}"),
        encoding="utf-8",
    )
    said = mirab("gate", report, "--gates", gates)
    assert said.code == 6
    assert re.search(r"preemptions +NOT MET  0 \(needs at least 1\)", said.out)
    assert "1 gate is not met: preemptions: 0 (needs at least 1)" in said.err
    told = json.loads(mirab("gate", report, "--gates", gates, "--json").out)
    assert (told["met"], [each["met"] for each in told["reports"][0]["findings"]]) == (
        False, [True, True, False, True],
    )  # fmt: skip
    kept = tmp_path / "kept.json"
    said = mirab("gate", report, "--gates", gates, "--sign", "Ann", "--keep", kept)
    assert (said.code, "It was not signed off" in said.err, kept.exists()) == (6, True, False)
    assert mirab("gate", report, "--gates", gates, "--keep", kept).code == 6
    assert "NOT every gate was met, not signed off" in mirab("gate", "--verify", kept).err


def test_what_was_kept_is_not_overwritten(mirab: Mirab, report: Path, gates: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    mirab("gate", report, "--gates", gates, "--keep", kept)
    said = mirab("gate", report, "--gates", gates, "--keep", kept)
    assert (said.code, "exists already" in said.sentence) == (5, True)


def test_a_comparison_knows_its_present(
    mirab: Mirab, log: Path, cluster: Path, proposal: Path, gates: Path, tmp_path: Path
) -> None:
    gates.write_text("gates: {occupancy: {worse_by_at_most: 50%}}", encoding="utf-8")
    two, three, whatif = (tmp_path / name for name in ("two.json", "three.json", "whatif.json"))
    mirab("compare", log, "--cluster", cluster, "--policies", "fifo,budget", "--json", two, "--jobs", 1)
    assert "policy budget" in mirab("gate", two, "--gates", gates).out
    assert "policy fifo" in mirab("gate", two, "--gates", gates, "--proposed", "fifo").out
    said = mirab("gate", two, "--gates", gates, "--proposed", "quota")
    assert (said.code, "has no 'quota', but fifo, budget" in said.sentence) == (2, True)
    mirab("compare", log, "--cluster", cluster, "--policies", "fifo,budget,quota", "--json", three, "--jobs", 1)
    assert "--proposed is missing" in mirab("gate", three, "--gates", gates).sentence
    mirab("whatif", proposal, "--log", log, "--cluster", cluster, "--json", whatif, "--jobs", 1)
    assert mirab("gate", whatif, "--gates", gates).code == 0


def test_the_present_may_be_a_report_of_its_own(mirab: Mirab, report: Path, gates: Path) -> None:
    gates.write_text("gates: {occupancy: {worse_by_at_most: 0%}}", encoding="utf-8")
    assert mirab("gate", report, "--gates", gates).code == 6
    assert mirab("gate", report, "--gates", gates, "--present", report).code == 0


@pytest.mark.slow
def test_the_stock_scenarios_run_under_both_policies(mirab: Mirab, gates: Path) -> None:
    gates.write_text(GATES + "\n", encoding="utf-8")
    said = mirab("gate", "--scenarios", "--present", "priority", "--proposed", "budget", "--gates", gates, "--nodes", 8,
                 "--days", 3, "--json", "-q")  # fmt: skip
    told = json.loads(said.out)
    assert [each["scenario"] for each in told["reports"]] == [
        "normal-week",
        "small-burst",
        "large-training",
        "maintenance",
    ]
    assert {each["policy"] for each in told["reports"]} == {"budget"}
    assert said.code == (0 if told["met"] else 6)


def test_the_example_is_a_file_of_gates_that_asks_for_the_decisions(mirab: Mirab, report: Path, gates: Path) -> None:
    gates.write_text(mirab("gate", "--example").out, encoding="utf-8")
    said = mirab("gate", report, "--gates", gates, "--present", report)
    assert said.code == 6
    assert "decisions: unit not stated, no owner, no date" in said.err


@pytest.mark.parametrize(
    "content", ["nonsense", "[]", "{}", '{"reports": [1]}', '{"reports": {"present": 1, "proposed": 2}}']
)
def test_a_report_that_is_none_is_told(mirab: Mirab, gates: Path, tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content, encoding="utf-8")
    said = mirab("gate", path, "--gates", gates)
    assert said.code == 1
    assert "give the --json of mirab sim, compare or whatif" in said.sentence


def test_gate_wants_a_report_and_gates(mirab: Mirab, report: Path, gates: Path) -> None:
    assert "name a REPORT, or --scenarios" in mirab("gate", "--gates", gates).sentence
    assert "name a REPORT, or --scenarios" in mirab("gate", report, "--scenarios").sentence
    assert "mirab gate --example" in mirab("gate", report).sentence
    assert "--sign needs a name, and --keep" in mirab("gate", report, "--gates", gates, "--sign", "Ann").sentence
    assert mirab("gate", "no.json", "--gates", gates).code == 3
    assert mirab("gate", report, "--gates", "no.yaml").code == 3
    gates.write_text("gates: {lost-wrok: {}}", encoding="utf-8")
    said = mirab("gate", report, "--gates", gates)
    assert (said.code, "did you mean lost-work" in said.sentence) == (1, True)
