"""The quick look for a sooner hold says the same as the search that it spares."""

from __future__ import annotations

from collections import Counter

import pytest

from mirab.core import earliest, holds
from mirab.core.queues import Pending, Queue
from mirab.core.trial import Trial
from mirab.model.plans import Hold
from mirab.model.policy import named
from mirab.model.units import Instant
from mirab.sim.engine import replay
from mirab.sim.synthetic import SynthOptions, synthesize


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_are_clear_by_an_instant_exactly_if_the_search_finds_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    quick = earliest.finds_before
    said: Counter[bool] = Counter()

    def compared(trial: Trial, queue: Queue, pending: Pending, before: Instant) -> bool:
        found = earliest.find(trial, queue, pending)
        told = quick(trial, queue, pending, before)
        assert told == (isinstance(found, Hold) and found.until < before)
        said[told] += 1
        return told

    monkeypatch.setattr(holds, "finds_before", compared)
    replay(synthesize(SynthOptions(nodes=32, days=4, seed=seed, load=1.5)), named("budget"))
    assert said[True] > 10
    assert said[False] > 100
