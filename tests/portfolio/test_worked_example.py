"""The worked example of the docs: its files are written, its commands run, its outputs hold to the letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirab.model.units import DAY, HOUR
from tests.typed import Printed, hold, play

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "eight-gpus.md"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Printed]:
    """The page, played from its beginning to its end in a folder of its own."""
    folder = tmp_path_factory.mktemp("firm")
    return folder, play(PAGE, folder)


@pytest.fixture
def folder(played: tuple[Path, Printed]) -> Path:
    return played[0]


def test_every_command_gives_what_the_page_shows(played: tuple[Path, Printed]) -> None:
    hold(played[1])
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
