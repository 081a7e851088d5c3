"""The reference page and the code name the same things."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from mirab.logs import budgetfile, clusterfile, native, nodeevents
from mirab.logs.clusterfile import read_cluster_file
from mirab.logs.contracts import PATTERNS, ContractRules, Terms, read_contract
from mirab.logs.detect import FORMS
from mirab.logs.sacct import COMMAND, HELP
from tests.logs.helpers import written

PAGE = (Path(__file__).parents[2] / "docs/reference/logs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
NAMES = {
    "forms": tuple(FORMS),
    "native columns": (*native.COLUMNS, *native.OPTIONAL),
    "node event columns": nodeevents.COLUMNS,
    "sections": clusterfile.SECTIONS,
    "pool keys": clusterfile.POOL_KEYS,
    "budget keys": budgetfile.BUDGET_KEYS,
    "reservation keys": budgetfile.RESERVATION_KEYS,
    "exception keys": budgetfile.EXEMPTION_KEYS,
    "contract keys": tuple(field.name for field in fields(ContractRules)),
    "rule keys": (*PATTERNS, "slots", "gpus", *Terms._fields),
}


@pytest.mark.parametrize("kind", NAMES)
def test_every_name_of_the_code_is_in_the_reference(kind: str) -> None:
    assert [name for name in NAMES[kind] if not re.search(rf"\b{re.escape(name)}\b", PAGE)] == []


def test_the_columns_of_the_reference_are_those_of_the_code() -> None:
    section = PAGE.split("## The native form")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted((*native.COLUMNS, *native.OPTIONAL))


def test_the_files_of_the_reference_can_be_read(tmp_path: Path) -> None:
    cluster, contract = BLOCKS
    file = read_cluster_file(written(tmp_path, cluster, "cluster.yaml"))
    assert file.cluster is not None
    assert file.policy is not None
    assert len(file.reservations(0)) == len(file.exemptions(0)) == len(file.budget_changes(0)) == 1
    rules = read_contract(written(tmp_path, contract, "contract.yaml"))
    assert len(rules.rules) == 2
    stated = {field.name: getattr(rules, field.name) for field in fields(rules) if field.name != "rules"}
    assert ContractRules(**stated) == ContractRules(), "the page shows the defaults"


def test_the_help_names_the_needed_columns() -> None:
    assert COMMAND in HELP
    for name in ("JobID", "Submit", "Start", "Elapsed", "State", "NNodes", "AllocTRES", "--duplicates", "TZ=UTC"):
        assert name in COMMAND
