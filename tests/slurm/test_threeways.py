"""The scenario files `ways-*.txt` as a replay, on real processes and on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.programs import FILES, Programs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_same_decisions_in_the_same_order(path: Path, programs: Programs) -> None:
    code, said = programs.come_of(path.stem)
    assert code == 0 and said.rstrip().endswith("the same decisions in the same order"), said
