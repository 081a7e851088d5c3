"""The worked example of the docs: its files are written, its commands run, its outputs hold to the letter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirab.model.units import DAY, HOUR

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "eight-gpus.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAME = re.compile(r"`([\w-]+\.(?:yaml|awk))`[^`]*$")
LEFT_OUT = "..."


def files_and_commands() -> Iterator[tuple[str, str, str]]:
    """(``file`` or ``run``, its name or the command, its text or output), in the order of the page."""
    text = PAGE.read_text("utf-8")
    for found in BLOCK.finditer(text):
        if found[1] == "console":
            command, _, output = found[2].removeprefix("$ ").partition("\n")
            yield "run", command, output
        else:
            name = NAME.search(text[: found.start()])
            assert name is not None, f"the block at {found.start()} has no file name before it"
            yield "file", name[1], found[2]


Printed = list[tuple[str, str, "subprocess.CompletedProcess[str]"]]
"""Each command of the page, what the page shows of its output, and what it did."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Printed]:
    """The page, played from its beginning to its end in a folder of its own."""
    folder = tmp_path_factory.mktemp("firm")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "HOME": str(folder),
    }
    printed: Printed = []
    for kind, name, text in files_and_commands():
        if kind == "file":
            (folder / name).write_text(text, "utf-8")
            continue
        done = subprocess.run(
            name, check=False, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        printed.append((name, text, done))
    return folder, printed


@pytest.fixture
def folder(played: tuple[Path, Printed]) -> Path:
    return played[0]


def test_every_command_gives_what_the_page_shows(played: tuple[Path, Printed]) -> None:
    for name, text, done in played[1]:
        assert done.returncode == 0, f"{name}: {done.stderr}"
        for part in text.split(f"{LEFT_OUT}\n"):
            assert part.strip("\n") in done.stdout, f"{name} does not print:\n{part}\nbut:\n{done.stdout}"
    assert len(played[1]) >= 8


def test_product_is_back_first_in_line_and_nobody_lost_a_minimum(folder: Path) -> None:
    """The claims of the page, of the record itself."""
    report = json.loads((folder / "week.json").read_text())
    assert report["metrics"]["contract_violations"] == 0
    assert report["metrics"]["delivered_ratio"] == pytest.approx(1, abs=0.001)
    used = {team: gpu_hours(folder / "week.jsonl", team, DAY, 2 * DAY) for team in ("product", "exploration")}
    assert used["product"] < 1, "it is away but for the end of what it had begun"
    assert used["exploration"] == pytest.approx(120, abs=0.5)
    text = PAGE.read_text("utf-8")
    assert "120 GPU-hours on Tuesday, where its share is 48" in text
    back = 56 * HOUR
    first = next(
        at for at, name, _ in starts(folder / "week.jsonl") if at >= back and not name.startswith("product-debug")
    )
    waiting = [name for at, name, _ in starts(folder / "week.jsonl") if back <= at <= first]
    assert all(name.startswith("product-") for name in waiting), waiting


def records(journal: Path) -> Iterator[dict[str, object]]:
    with journal.open() as lines:
        yield from (record for line in lines if "plan" in (record := json.loads(line)))


def starts(journal: Path) -> list[tuple[int, str, int]]:
    return [
        (record["plan"]["at"], action["workload_id"], action["allocation"]["slots_per_node"])  # type: ignore[index]
        for record in records(journal)
        for action in record["plan"].get("actions", ())  # type: ignore[attr-defined]
        if "allocation" in action
    ]


def gpu_hours(journal: Path, team: str, begin: int, end: int) -> float:
    """GPU-hours that the runs of a team had between two instants."""
    going: dict[str, tuple[int, int]] = {}
    used = 0
    for record in records(journal):
        for fact in record["facts"]:  # type: ignore[attr-defined]
            if "outcome" in fact and fact["run_id"] in going:
                since, gpus = going.pop(fact["run_id"])
                used += gpus * max(0, min(fact["at"], end) - max(since, begin))
        for action in record["plan"].get("actions", ()):  # type: ignore[attr-defined]
            if "allocation" in action and action["workload_id"].startswith(team):
                width = action["allocation"]["slots_per_node"]
                going[action["run_id"]] = (record["plan"]["at"], width)  # type: ignore[index]
    used += sum(gpus * max(0, end - max(since, begin)) for since, gpus in going.values())
    return used / HOUR
