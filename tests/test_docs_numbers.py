"""Numbers in the documents: the same wherever they stand, printed by a command there is, and true where a test can."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import Mirab, mirab
from tests.test_docs import PAGES, ROOT, named, page

__all__ = ["mirab"]

SAME = {
    "of what was owed, delivered": "delivered",
    "the worst team": "worst account",
    "GPUs busy, of those asked for": "occupancy of demand",
    "wait of a debug job, p90": "debug wait p90",
    "work lost to preemption": "lost work",
}
"""The rows of the README's table, and of the table of benchmarks that they are taken from."""
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "%": 1}


def rows(text: str) -> dict[str, list[str]]:
    """The cells of the lines of tables by their first one, without what makes them bold; the last table wins."""
    lines = (line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| "))
    return {line[0].strip(): [cell.strip(" *") for cell in line[1:]] for line in lines}


def amount(text: str) -> float:
    """Seconds, or per cent, of a cell: ``13.0 h``, ``98.3 %``, ``0``."""
    number, _, unit = text.partition(" ")
    return float(number) * SECONDS[unit or "%"]


def rounds_to(shown: str, measured: str) -> bool:
    """Whether the one is the other with fewer digits, or in a larger unit."""
    number, _, unit = shown.partition(" ")
    step = SECONDS[unit or "%"] * (0.1 if "." in number else 1)
    return abs(amount(shown) - amount(measured)) <= step / 2 + 1e-9


def test_the_readme_says_what_the_benchmarks_say() -> None:
    regimes = rows(page("docs/benchmarks.md").partition("under the other regimes")[2].partition("\n### ")[0])
    shown = rows(page("README.md").partition("## Numbers")[2])
    for mine, theirs in SAME.items():
        assert all(map(rounds_to, shown[mine], regimes[theirs])), mine
        assert len(shown[mine]) == len(regimes[theirs]) == 5
    for cell, median, p90 in zip(shown["wait, median / p90"], regimes["wait p50"], regimes["wait p90"], strict=True):
        assert all(map(rounds_to, cell.split(" / "), (median, p90))), cell
    human = [cell.split()[0] for cell in regimes["repairs needing a human"]]
    assert [cell.split()[0] for cell in shown["repairs that needed a human"]] == human


def test_numbers_are_rounded_not_changed() -> None:
    assert rounds_to("13 h", "12.7 h")
    assert rounds_to("2 h", "115 min")
    assert not rounds_to("13 h", "12.4 h")
    assert not rounds_to("98.3 %", "98.4 %")


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_bench_that_is_named_is_there(path: Path) -> None:
    for module in re.findall(r"python -m (bench(?:\.\w+)+)", path.read_text(encoding="utf-8")):
        assert find_spec(module.rstrip(".")) is not None, f"{named(path)}: there is no {module}"


@pytest.mark.parametrize("name", ["docs/benchmarks.md", "docs/gaming.md"])
def test_what_was_measured_has_a_day(name: str) -> None:
    assert re.search(r"20\d\d-\d\d-\d\d", page(name).partition("## Measured")[2].partition("\n### ")[0])


def test_every_decision_is_in_the_table_of_decisions_under_its_title() -> None:
    table = page("docs/decisions/README.md")
    for path in sorted((ROOT / "docs/decisions").glob("0*.md")):
        number, _, title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        assert int(path.name[:4]) == int(number)
        assert f"| {number} | [{title}]({path.name}) |" in table, path.name


@pytest.mark.parametrize(
    ("share", "window", "hours"), [("50%", "7d", 8.4), ("25%", "7d", 4.2), ("50%", "1d", 1.2), ("25%", "1d", 0.6)]
)
def test_a_new_ledger_stops_nobody_for_as_long_as_concepts_says(
    mirab: Mirab, tmp_path: Path, share: str, window: str, hours: float
) -> None:
    """One team has all eight GPUs from the beginning; another, of which nothing runs, asks for one a minute later."""
    (tmp_path / "cluster.yaml").write_text(
        "cluster: {name: box, pools: {gpu: {nodes: [n0], gpus_per_node: 8}}}\n"
        f"budgets: {{early: {{share: {share}}}, late: {{share: {100 - int(share[:-1])}%}}}}\n",
        encoding="utf-8",
    )
    log = ["submit_s,account,user,nodes,gpus_per_node,run_s,min_runtime_s,checkpoint_s"]
    log += ["0,early,ann,1,1,200000,900,900"] * 8 + ["60,late,bob,1,1,36000,900,900"]
    (tmp_path / "jobs.csv").write_text("\n".join(log) + "\n", encoding="utf-8")
    words = ["--cluster", tmp_path / "cluster.yaml", "--set", f"window={window}", "--json", "-"]
    said = mirab("sim", tmp_path / "jobs.csv", *words)
    waited_h = json.loads(said.out)["by_account"]["late"]["waits"]["p50_s"] / 3600
    assert abs(waited_h - hours) < 0.5 if window == "7d" else abs(waited_h - hours) < 0.1
    concepts = page("docs/concepts.md")
    assert re.search(rf"\b{hours:g} hours\b" if hours > 1 else r"\b36 minutes\b", concepts)
