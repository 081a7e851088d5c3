"""What each command gives when all is well."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from mirab.cli.demo import CLUSTER, LOG, bundled
from mirab.cli.replaying import warn_of_leftovers
from mirab.cli.synth import SCENARIOS
from mirab.core.state import State
from mirab.logs.detect import load
from mirab.logs.options import LoadOptions
from mirab.model.policy import POLICIES
from mirab.model.settings import settings
from mirab.sim import scenarios
from mirab.sim.engine import Ending, Replayed
from mirab.sim.synthetic import SynthOptions, synthesize
from tests.cli.conftest import Mirab, write_log


def test_sim_says_it_in_text_json_and_a_page(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    page, report = tmp_path / "report.html", tmp_path / "report.json"
    said = mirab("sim", log, "--cluster", cluster, "--html", page, "--json", report)
    assert said.code == 0
    assert "under policy budget" in said.out
    assert said.err.splitlines() == [f"Wrote {report}", f"Wrote {page}"]
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["input"]["used"] == found["input"]["rows"] == 5
    assert set(found["by_account"]) >= {"red", "blue"}
    assert page.read_text(encoding="utf-8").lstrip().startswith("<!doctype html")


def test_settings_reach_the_policy(mirab: Mirab, log: Path, cluster: Path) -> None:
    said = mirab("sim", log, "--cluster", cluster, "--set", "window=1d", "--set", "margin=0", "--json", "-")
    policy = json.loads(said.out)["policy"]
    assert (policy["name"], policy["window"], policy["margin"]) == ("budget", "1d", 0)


def test_a_policy_may_be_a_file(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("policy: {name: mine, window: 3d}\n", encoding="utf-8")
    policy = json.loads(mirab("sim", log, "--cluster", cluster, "--policy", file, "--json", "-").out)["policy"]
    assert (policy["name"], policy["order"], policy["window"]) == ("mine", "budget", "3d")


def test_the_policy_of_the_cluster_file_holds_unless_another_is_named(mirab: Mirab, log: Path, cluster: Path) -> None:
    cluster.write_text(cluster.read_text(encoding="utf-8") + "policy: {base: fifo, name: ours}\n", encoding="utf-8")
    used = ["sim", log, "--cluster", cluster, "--json", "-"]
    assert json.loads(mirab(*used).out)["policy"]["name"] == "ours"
    assert json.loads(mirab(*used, "--policy", "priority").out)["policy"]["name"] == "priority"


def test_what_was_inferred_can_be_written_and_given_back(mirab: Mirab, log: Path, tmp_path: Path) -> None:
    inferred = json.loads(mirab("sim", log, "--save-cluster", tmp_path / "c.yaml", "--json", "-").out)
    given = json.loads(mirab("sim", log, "--cluster", tmp_path / "c.yaml", "--json", "-").out)
    assert given["metrics"] == inferred["metrics"]
    assert given["by_account"] == inferred["by_account"]


def test_until_ends_the_replay(mirab: Mirab, log: Path, cluster: Path) -> None:
    whole = json.loads(mirab("sim", log, "--cluster", cluster, "--json", "-").out)
    part = json.loads(mirab("sim", log, "--cluster", cluster, "--until", "90s", "--json", "-").out)
    assert whole["metrics"]["waits"]["all"]["count"] == 5
    assert part["metrics"]["waits"]["all"]["count"] == 2


def test_the_same_input_gives_the_same_bytes(mirab: Mirab, log: Path, cluster: Path) -> None:
    first, second = (json.loads(mirab("sim", log, "--cluster", cluster, "--json", "-").out) for _ in range(2))
    del first["performance"], second["performance"]
    assert first == second


def test_compare_puts_policies_side_by_side(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    said = mirab(
        "compare", log, "--cluster", cluster, "--policies", "budget,fifo,fair-tree", "--json", tmp_path / "c.json"
    )
    assert said.code == 0
    assert all(name in said.out for name in ("budget", "fifo", "fair-tree"))
    reports = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["reports"]
    assert [report["policy"]["name"] for report in reports] == ["budget", "fifo", "fair-tree"]


def test_compare_wants_different_policies(mirab: Mirab, log: Path) -> None:
    said = mirab("compare", log, "--policies", "budget,budget")
    assert said.code == 2
    assert "one twice" in said.sentence


def test_explain_tells_the_story_of_a_workload(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl.gz"
    assert mirab("sim", log, "--cluster", cluster, "--journal", record).code == 0
    assert gzip.decompress(record.read_bytes()).startswith(b'{"mirab_journal"')
    said = mirab("explain", record, "e")
    assert said.code == 0
    assert "bea" in said.out
    story = json.loads(mirab("explain", record, "e", "--json").out)
    assert story["state"] == "COMPLETED"
    assert story["waits"][0]["after"] == "submitted"


def test_the_sacct_command_is_printed_without_a_log(mirab: Mirab) -> None:
    said = mirab("sim", "--help-sacct")
    assert said.code == 0
    assert " sacct --" in said.out
    assert "--parsable2" in said.out


def test_what_synth_writes_reads_back_as_what_it_made(mirab: Mirab, tmp_path: Path) -> None:
    said = mirab("synth", "--nodes", "16", "--days", "3", "--seed", "7", "--out", tmp_path / "made", "--json")
    facts = json.loads(said.out)
    made = synthesize(SynthOptions(nodes=16, days=3, seed=7))
    read = load(facts["log"], LoadOptions(cluster=Path(facts["cluster"]), node_events=Path(facts["node_events"])))
    assert facts["workloads"] == len(made.arrivals) == read.rows
    assert list(read.arrivals) == list(made.arrivals)
    assert list(read.troubles) == list(made.troubles)
    assert read.cluster.pools == made.cluster.pools
    assert list(read.budgets.walk()) == list(made.budgets.walk())


def test_synth_makes_the_same_bytes_again(mirab: Mirab, tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        mirab("synth", "--nodes", "8", "--days", "2", "--accounts", "9", "--out", tmp_path / name)
        made.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
    assert made[0] == made[1]
    assert len(made[0]) == 3


def test_many_accounts_with_odd_shares_still_sum_to_the_whole(mirab: Mirab, tmp_path: Path) -> None:
    words = ["--nodes", "64", "--days", "1", "--accounts", "77", "--out", tmp_path]
    facts = json.loads(mirab("synth", *words, "--json").out)
    made = synthesize(SynthOptions(nodes=64, days=1, accounts=77))
    read = load(facts["log"], LoadOptions(cluster=Path(facts["cluster"])))
    assert list(read.budgets.walk()) == list(made.budgets.walk())


def test_synth_knows_the_stock_scenarios(mirab: Mirab, tmp_path: Path) -> None:
    assert tuple(scenarios.SCENARIOS) == SCENARIOS
    said = mirab("synth", "--nodes", "16", "--scenario", SCENARIOS[1], "--out", tmp_path)
    assert said.code == 0


@pytest.mark.parametrize(("option", "value"), [("--nodes", "0"), ("--load", "0"), ("--accounts", "-1")])
def test_synth_refuses_what_makes_no_log(mirab: Mirab, tmp_path: Path, option: str, value: str) -> None:
    said = mirab("synth", option, value, "--out", tmp_path)
    assert said.code == 2
    assert option.lstrip("-") in said.sentence


def test_policies_shows_every_setting(mirab: Mirab) -> None:
    table = json.loads(mirab("policies", "--json").out)
    assert list(table["settings"]) == list(settings())
    text = mirab("policies").out
    assert all(name in text for name in settings())


def test_doctor_finds_this_installation_well(mirab: Mirab) -> None:
    checks = json.loads(mirab("doctor", "--json").out)
    assert all(check["ok"] for check in checks), checks
    assert "LACK" not in mirab("doctor").out


def test_the_bundled_log_is_as_its_source_page_says(mirab: Mirab) -> None:
    trace = load(bundled(LOG), LoadOptions(cluster=bundled(CLUSTER)))
    assert trace.rows == 20_406
    assert trace.cluster.slots == 224
    assert len(trace.budgets.leaves()) == 11
    assert {arrival.workload.account for arrival in trace.arrivals} == set(trace.budgets.leaves())


@pytest.mark.slow
def test_demo_ends_with_the_comparison_and_where_its_page_is(mirab: Mirab, tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    said = mirab("demo", "--no-live", "--html", page)
    assert said.code == 0
    assert "priority" in said.out
    assert said.out.rstrip().endswith(str(page))
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize("ending", Ending)
def test_work_that_never_ends_is_not_passed_over_in_silence(ending: Ending, capsys: pytest.CaptureFixture[str]) -> None:
    trace = synthesize(SynthOptions(days=1, nodes=2))
    warn_of_leftovers(Replayed(State(trace.cluster, trace.budgets, POLICIES["budget"]), 1, 0, ending, 3))
    told = capsys.readouterr().err
    assert ("3 workloads never ended" in told and ending.value in told) == (ending in (Ending.STUCK, Ending.CIRCLING))


def test_the_story_names_its_time_zone_as_a_sentence_does(
    mirab: Mirab, cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    log = write_log(tmp_path / "jobs.csv", ["b,1600000060,blue,bob,debug,1,1,600,600,3600"])
    record = tmp_path / "record.jsonl"
    assert mirab("sim", log, "--cluster", cluster, "--journal", record).code == 0
    assert "under policy budget, times in UTC\n" in mirab("explain", record, "b").out


@pytest.fixture
def made(mirab: Mirab, tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert mirab("synth", "--nodes", "8", "--days", "1", "--out", folder).code == 0
    return folder


@pytest.mark.parametrize(
    "words",
    [("sim",), ("compare", "--policies", "budget,fifo"), ("sweep", "--set", "window=1d"), ("advise",),
     ("whatif", "--set", "window=1d", "--log")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_folder_of_synth_is_a_log_with_its_cluster_and_node_events(
    mirab: Mirab, made: Path, words: tuple[str, ...]
) -> None:
    apart = ["--cluster", made / "cluster.yaml", "--node-events", made / "node_events.csv"]
    whole, files = mirab(*words, made, "--json", "-"), mirab(*words, made / "workloads.csv.gz", *apart, "--json", "-")
    assert whole.code == files.code == 0
    assert _without_costs(whole.out) == _without_costs(files.out)


def _without_costs(out: str) -> Any:
    """A report but for what it cost, what the log was called and the notes on how it was read."""

    apart = ("performance", "name", "log", "notes")

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept(each) for key, each in value.items() if key not in apart}
        return [kept(each) for each in value] if isinstance(value, list) else value

    return kept(json.loads(out))


def test_synth_tells_the_command_that_replays_it(mirab: Mirab, tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    told = mirab("synth", "--nodes", "8", "--days", "1", "--out", folder).out.splitlines()[-1]
    assert mirab(*shlex.split(told)[1:]).code == 0


def test_no_file_of_a_folder_that_is_read_is_overwritten(mirab: Mirab, made: Path) -> None:
    for option, name in (("--save-cluster", "cluster.yaml"), ("--json", "workloads.csv.gz")):
        said = mirab("sim", made, option, made / name)
        assert said.code == 5
        assert f"{name} is an input of this command" in said.sentence


def test_the_policy_of_the_folders_cluster_file_is_the_policy(mirab: Mirab, made: Path) -> None:
    file = made / "cluster.yaml"
    file.write_text(file.read_text(encoding="utf-8") + "policy: fifo\n", encoding="utf-8")
    assert json.loads(mirab("sim", made, "--json", "-").out)["policy"]["name"] == "fifo"


def test_a_folder_that_holds_its_log_twice(mirab: Mirab, made: Path) -> None:
    (made / "workloads.csv").write_text("x", encoding="utf-8")
    said = mirab("sim", made)
    assert said.code == 1
    assert "holds both workloads.csv and workloads.csv.gz" in said.sentence
