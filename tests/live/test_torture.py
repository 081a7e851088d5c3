"""A short form of `bench.torture`: killed at random, also between record and apply, nothing is lost or runs twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.torture import tortured


@pytest.mark.slow
def test_killed_again_and_again_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    assert tortured(tmp_path, "", jobs=40, kills=5, crash=0.05, seed=7) == []
