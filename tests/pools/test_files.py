"""Shares of single pools in files: read, refused with names and place, edited with comments kept, and decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mirab.cli.main import cli
from mirab.logs.clusterfile import read_cluster_file
from mirab.logs.dump import write_cluster
from mirab.logs.errors import LogError
from tests.pools.house import BOTH, PAID

FILE = """\
# who pays for what
cluster:
  pools:
    a100: {nodes: "a[1-4]", gpus_per_node: 8, gpu_type: a100}
    h100: {nodes: "h[1-2]", gpus_per_node: 8, gpu_type: h100}
budgets:
  vision:
    share: 30%       # of all that nobody pays alone for
    pool_shares:
      h100: 75%      # grant 2027-12
    owner: Ada
  language: {share: 70%} # the rest
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "budgets.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def run(*words: Any) -> Result:
    return CliRunner().invoke(cli, ["budget", *map(str, words)])


def told(*words: Any) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(file: Path, *words: Any) -> str:
    result = run("set", file, *words, "--reason", "x", "--author", "mia")
    assert result.exit_code != 0 and result.exception is not None
    return str(result.exception)


def decide(file: Path, *words: Any) -> Any:
    return told("set", file, *words, "--reason", "a review", "--author", "mia")


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    write_cluster(tmp_path / "c.yaml", BOTH, PAID)
    found = read_cluster_file(tmp_path / "c.yaml")
    assert (found.cluster, found.budgets) == (BOTH, PAID)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("h100: 75%", "h200: 75%",
         ":10: account vision has a share of the pool h200, and the pools are a100, h100: did you mean h100?"),
        ("{share: 70%}", "{share: 70%, children: {one: {share: 100%, pool_shares: {b: 1%}}}}",
         ":12: account language/one has a share of the pool b, and the pools are a100, h100: did you mean"),
        ("h100: 75%", "h100: 0.75", ":10: share of the pool h100 of vision"),
        ("{share: 70%}", "{share: 70%, pool_shares: {h100: 40%}}",
         "the shares of the pool h100 under budgets sum to 115%, more than 100%: vision 75%, language 40%: lower some"),
        ("language:", '"language:x":', "the account name 'language:x' holds a ':'"),
        ("pool_shares:", "pool_share:", "account vision has no key 'pool_share': did you mean pool_shares?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(file: Path, before: str, after: str, sentence: str) -> None:
    file.write_text(FILE.replace(before, after), encoding="utf-8")
    with pytest.raises(LogError) as error:
        read_cluster_file(file)
    assert sentence in str(error.value)


def test_a_pool_of_a_change_to_come_is_refused_with_its_line(file: Path) -> None:
    later = "budget_changes:\n  - at: 2030-01-01\n    budgets:\n      vision: {share: 1%, pool_shares: {h10: 5%}}\n"
    file.write_text(FILE + later, encoding="utf-8")
    with pytest.raises(LogError, match=":16: account vision has a share of the pool h10"):
        read_cluster_file(file)


@pytest.mark.parametrize("command", ["show", "diff"])
def test_a_pool_that_is_none_is_no_column_but_an_error_with_its_line(file: Path, command: str) -> None:
    file.write_text(FILE.replace("h100: 75%", "h10: 75%"), encoding="utf-8")
    shown = run(command, file)
    assert shown.exit_code != 0
    assert f"{file}:10: account vision has a share of the pool h10" in str(shown.exception)


def test_a_pool_that_the_cluster_has_lost_since_stands_in_no_way(file: Path) -> None:
    decide(file, "vision=20%")
    lost = file.read_text("utf-8").replace('    h100: {nodes: "h[1-2]", gpus_per_node: 8, gpu_type: h100}\n', "")
    file.write_text(lost, encoding="utf-8")
    assert told("show", file, "vision")["budgets"][0]["pool_shares"] == {"h100": "75%"}
    decide(file, "h100:vision=none")


def test_a_share_of_a_pool_is_set_in_place_and_comments_stay(file: Path) -> None:
    made = decide(file, "h100:vision=60%", "h100:language=40%")
    assert made["changes"] == [
        {"account": "vision", "term": "pool_shares.h100", "before": "75%", "after": "60%"},
        {"account": "language", "term": "pool_shares.h100", "before": None, "after": "40%"},
    ]
    assert file.read_text("utf-8") == FILE.replace("h100: 75%  ", "h100: 60%  ").replace(
        "{share: 70%}", "{share: 70%, pool_shares: {h100: 40%}}")  # fmt: skip


def test_taken_away_it_leaves_no_trace_but_in_the_history(file: Path) -> None:
    decide(file, "h100:vision=none")
    assert "pool_shares" not in file.read_text("utf-8") and "# of all that nobody" in file.read_text("utf-8")
    text = run("log", file).output
    assert "vision share of pool h100 75% -> –" in text
    told("revert", file, 2, "--reason", "the grant was renewed", "--author", "mia")
    assert told("show", file, "vision")["budgets"][0]["pool_shares"] == {"h100": "75%"}


def test_show_says_what_each_has_of_each_pool(file: Path) -> None:
    shown = told("show", file)["budgets"]
    assert [(each["account"], each["pool_shares"], each["share_of_pools"]) for each in shown] == [
        ("vision", {"h100": "75%"}, {"h100": 0.75}), ("language", {}, {"h100": 0.0}),
    ]  # fmt: skip
    text = " ".join(run("show", file).output.split())
    assert "vision 30% 30% 75% 75% Ada" in text and "language 70% 70% 0%" in text
    assert "25% of pool h100 is promised to nobody" in text
    assert told("show", file, "h100:vision")["budgets"] == told("show", file, "vision")["budgets"] == shown[:1]


def test_more_than_the_whole_and_pools_that_are_none_are_refused(file: Path) -> None:
    said = refusal(file, "h100:language=40%")
    assert "shares of pool h100 under the root would sum to 115%, more than 100%: vision 75%, language 40%" in said
    assert refusal(file, "b200:language=40%") == (
        "account language has a share of the pool b200, and the pools are a100, h100."
    )
    assert "there is no account 'languge'" in refusal(file, "h100:languge=10%")
    assert file.read_text("utf-8") == FILE


def test_a_merge_adds_a_rename_keeps_a_close_hands_over_a_split_divides(file: Path) -> None:
    def h100() -> dict[str, str]:
        return {each["account"]: each["pool_shares"].get("h100") for each in told("show", file)["budgets"]}

    decide(file, "h100:vision=50%", "h100:language=30%", "speech=0%", "h100:speech=10%")
    decide(file, "--rename", "speech=audio")
    assert h100() == {"vision": "50%", "language": "30%", "audio": "10%"}
    decide(file, "--merge", "audio,language=language")
    assert h100() == {"vision": "50%", "language": "40%"}
    decide(file, "--split", "vision=video:60%,image:40%")
    decide(file, "h100:vision/video=100%")
    shown = {each["account"]: each["share_of_pools"]["h100"] for each in told("show", file)["budgets"]}
    assert shown == {"vision": 0.5, "vision/video": 0.5, "vision/image": 0.0, "language": 0.4}
    decide(file, "--close", "language=vision")
    assert h100()["vision"] == "90%" and h100()["language"] == "0%"
    blame = told("blame", file)["accounts"]
    assert {each["account"]: each["version"] for each in blame}["vision/video"] == 6
    assert "pool_shares" in file.read_text("utf-8")


def test_edited_by_hand_it_is_taken_in(file: Path) -> None:
    decide(file, "--owner", "Bo", "language")
    file.write_text(file.read_text("utf-8").replace("h100: 75%", "h100: 80%"), encoding="utf-8")
    assert "share of pool h100" in run("diff", file).output
    told("set", file, "--as-edited", "--reason", "the grant grew", "--author", "mia")
    assert told("show", file, "vision")["budgets"][0]["pool_shares"] == {"h100": "80%"}
