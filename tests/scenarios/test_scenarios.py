"""Every file under `lines/` is played; each is named after the line of SCENARIOS.md that it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.fileform import read_scenario
from tests.scenarios.runner import play

FILES = sorted((Path(__file__).parent / "lines").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_plays_as_written(path: Path) -> None:
    play(read_scenario(path))
