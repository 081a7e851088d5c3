"""The scenario files `ways-*.txt` as a replay, on real processes and on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.fileform import read_scenario
from tests.slurm.cluster import SlurmCluster
from tests.slurm.threeways import same_order, three_ways

FILES = sorted((Path(__file__).parents[1] / "scenarios" / "lines").glob("ways-*.txt"))

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_same_decisions_in_the_same_order(path: Path, slurm: SlurmCluster, tmp_path: Path) -> None:
    scenario = read_scenario(path)
    found = three_ways(scenario, slurm, tmp_path)
    assert len(found) == 3 and found["replay"] and not same_order(scenario, found)
