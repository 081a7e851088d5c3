"""The how-to about a program that pays for one GPU type: its files are written, its commands run, its outputs hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mirab
from tests.typed import hold, play

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "pool-shares.md"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, played from its beginning to its end; each command prints what the page shows."""
    folder = tmp_path_factory.mktemp("campus")
    printed = play(PAGE, folder)
    hold(printed)
    assert len(printed) >= 8
    return folder


def test_the_claims_between_the_commands_are_true(folder: Path) -> None:
    before, after = (json.loads((folder / f"{name}.json").read_text()) for name in ("before", "after"))
    text = " ".join(PAGE.read_text("utf-8").split())
    assert before["by_account"]["climate"]["owed"] == pytest.approx(437, abs=0.5)
    assert "437 GPU-hours, where the twelve H100s that it paid for would have been 540" in text
    rows = after["by_account"]
    assert rows["h100:climate"]["owed"] == rows["h100:climate"]["delivered"] == pytest.approx(540, abs=0.5)
    assert rows["h100:climate"]["share_of_all"] + rows["climate"]["share_of_all"] == pytest.approx(18.4 / 48, abs=0.001)
    physics = rows["h100:physics"]
    assert physics["owed"] == 0 and physics["charged"] == pytest.approx(372, abs=0.5)
    assert "still ran on 372 GPU-hours of H100s" in text
    assert after["metrics"]["contract_violations"] == 0


def test_other_commands_know_the_ledgers_of_the_page(folder: Path) -> None:
    def run(*words: str) -> str:
        environment = {**os.environ, "COLUMNS": "120", "PYTHONPATH": str(Path(mirab.__file__).parents[1])}
        done = subprocess.run([sys.executable, "-m", "mirab", *words], check=False, cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=300)  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    assert "h100:climate" in run("compare", "days.csv", "--cluster", "paid.yaml", "--policies", "budget,fifo")
    assert "h100:climate" in run("advise", "days.csv", "--cluster", "paid.yaml")
    run("whatif", "paid.yaml", "--log", "days.csv", "--cluster", "campus.yaml", "--json", "w.json", "--html", "w.html")
    told = json.loads((folder / "w.json").read_text())
    (climate,) = [row for row in told["accounts"] if row["account"] == "climate"]
    assert climate["share"] == {"before": 0.2, "after": pytest.approx(0.383333333)}
    assert climate["owed"]["after"] == pytest.approx(540, abs=0.5)
    text = run("outcome", "w.json", "after.json")
    assert "h100:climate" in text and "26 of 26 numbers of accounts came as predicted" in text
    (folder / "more.yaml").write_text((folder / "paid.yaml").read_text().replace("h100: 75%", "h100: 50%"))
    run("whatif", "more.yaml", "--log", "days.csv", "--cluster", "paid.yaml", "--json", "m.json")
    told = json.loads((folder / "m.json").read_text())
    rows = {row["account"]: row["share"] for row in told["accounts"]}
    assert rows["h100:climate"] == {"before": 0.75, "after": 0.5} and rows["climate"] == {"before": 0.2, "after": 0.2}
    assert told["changes"] == [{"account": "climate", "term": "pool_shares.h100", "before": "75%", "after": "50%"}]
    run("sim", "days.csv", "--cluster", "paid.yaml", "--html", "page.html")
    page = (folder / "page.html").read_text()
    assert "h100:climate" in page and "have shares of that pool alone" in page
