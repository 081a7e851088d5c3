"""The bench of calibration in small: forecasts beside a replay, each compared with what then happened."""

from __future__ import annotations

import pytest
from bench.calibration import Made, measure, outcome, text

from mirab.model.policy import Policy


@pytest.mark.slow
def test_forecasts_beside_a_replay_are_compared_with_it() -> None:
    made: list[Made] = []
    measure("synth:seed=3,days=6,nodes=8", Policy(), samples=6, runs=8, jobs=2, seed=1, take=made.append)
    assert len(made) == 6
    assert len({each["workload"] for each in made}) == 6
    for each in made:
        assert len(each["starts"]) == 8
        known = [each[name] for name in ("p50", "p90") if each[name] is not None]
        assert known == sorted(known) and all(instant > each["at"] for instant in known)
        judged = outcome(each)
        assert judged.started_at is None or judged.started_at > each["at"]
    assert "p90_held" in text(made)
