"""Caps of budgets are written, read, changed and told in the same words everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirab.logs.budgetedit import edited
from mirab.logs.clusterfile import read_cluster_file
from mirab.logs.dump import write_cluster
from mirab.model.accounts import Budget, Budgets
from mirab.model.codec import decode, encode
from mirab.model.events import BudgetsChanged
from mirab.model.reasons import GangTooLarge
from mirab.model.resources import Cluster, Pool
from mirab.model.units import HOUR, MINUTE, WHOLE, NodeName, WorkloadId
from mirab.service.api.ports import JobFilter
from mirab.service.desk.budgets import read_budgets
from mirab.service.desk.changing import Proposal
from mirab.service.views import Views
from mirab.study.budgettext import tree_json
from tests.portfolio.conftest import Mirab
from tests.service.house import ADA, EVE, ROOT, Bench

CAPPED = Budgets(
    (
        Budget("red", WHOLE // 2, (Budget("x", WHOLE, min_runtime_cap=90 * MINUTE),), gpus_max=16, gang_gpus_max=8),
        Budget("blue", WHOLE // 2, gpus_max=0, min_runtime_cap=1500),
        Budget("free", 0),
    )
)
TEXT = """\
budgets:
  red: {share: 50%, gpus_max: 16, min_runtime_cap: 90m}   # agreed in May
  blue: {share: 50%}
"""


def test_a_fact_keeps_them() -> None:
    fact = BudgetsChanged(5, CAPPED)
    assert decode(encode(fact)) == fact


def test_a_file_keeps_them(tmp_path: Path) -> None:
    cluster = Cluster("c", (Pool("n", (NodeName("n0"),), 8),))
    path = tmp_path / "cluster.yaml"
    write_cluster(path, cluster, CAPPED)
    assert read_cluster_file(path).budgets == CAPPED


def test_the_form_of_the_service_keeps_them() -> None:
    assert read_budgets(tree_json(CAPPED)) == CAPPED


def test_a_file_is_changed_in_place() -> None:
    same = Budgets((Budget("red", WHOLE // 2, gpus_max=16, min_runtime_cap=90 * MINUTE), Budget("blue", WHOLE // 2)))
    assert "min_runtime_cap: 90m}   # agreed in May" in edited(TEXT, Path("b.yaml"), same, [])
    other = Budgets((Budget("red", WHOLE // 2, gpus_max=8), Budget("blue", WHOLE // 2, min_runtime_cap=4 * HOUR)))
    text = edited(TEXT, Path("b.yaml"), other, [])
    assert "red: {share: 50%, gpus_max: 8}" in text
    assert "blue: {share: 50%, min_runtime_cap: 4h}" in text


def test_they_are_set_and_lifted_by_a_command(tmp_path: Path, mirab: Mirab) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(TEXT, encoding="utf-8")
    set_ = ["budget", "set", str(path), "red", "blue", "--reason", "r", "--author", "ana"]
    assert mirab(*set_, "--gpus-max", "none", "--gang-gpus-max", "8", "--min-runtime-cap", "2h").code == 0
    budgets = read_cluster_file(path).budgets
    assert budgets is not None
    assert [budget.caps() for budget in budgets.roots] == [{"gang_gpus_max": 8, "min_runtime_cap": "2h"}] * 2
    log = mirab("budget", "log", str(path), "red").out
    assert "red most GPUs at once 16 -> –" in log
    assert "red longest minimum 90m -> 2h" in log
    assert "red: most GPUs of one job 8" in mirab("budget", "show", str(path)).out


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [("--gpus-max", "-1", "not a whole number"), ("--min-runtime-cap", "90", "write a number with a unit")],
)
def test_what_is_no_cap_is_refused(tmp_path: Path, mirab: Mirab, option: str, text: str, said: str) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(TEXT, encoding="utf-8")
    refused = mirab("budget", "set", str(path), "red", option, text, "--reason", "r", "--author", "ana")
    assert refused.code != 0
    assert f"{option}: " in refused.err and said in refused.err


def test_less_than_nothing_is_no_cap() -> None:
    with pytest.raises(ValueError, match="gpus_max -1"):
        Budgets((Budget("red", WHOLE, gpus_max=-1),))


@pytest.mark.parametrize("shape", [{"gpus_per_node": 4}, {"gpus_per_node": 2, "nodes": 2}])
def test_a_cap_that_is_lifted_is_no_reason_any_more_in_the_same_moment(tmp_path: Path, shape: dict[str, int]) -> None:
    """The nodes are taken: `mirab ls` says so at once, not at the next look at what is blocked."""
    bench = Bench(tmp_path)
    try:
        bench.submit(EVE, account="llm", gpus_per_node=4, nodes=2, min_runtime="4h")
        (job,) = bench.submit(ADA, None, **shape, min_runtime="1h")
        divide(bench, {"gang_gpus_max": 2})
        assert isinstance(bench.state.pending[WorkloadId(job)].waiting.reason, GangTooLarge)  # type: ignore[union-attr]
        assert code(bench, job) == "TooLarge"
        divide(bench, {})
        assert code(bench, job) != "TooLarge"
    finally:
        bench.close()


def divide(bench: Bench, cap: dict[str, int]) -> None:
    """Of vision, with or without a cap on the gangs of video."""
    children = {"video": {"share": "50%", **cap}, "image": {"share": "25%"}}
    bench.desk.portfolio.budgets.propose(ROOT, Proposal({"vision": children}, "a cap"))
    bench.settle()


def code(bench: Bench, job: str) -> str:
    """What stands in the list of jobs."""
    return next(each.reason for each in Views(bench.live, bench.desk).jobs(JobFilter()).jobs if each.id == job)
