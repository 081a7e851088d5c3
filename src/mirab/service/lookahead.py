"""A look forward for everybody who waits: the scheduler run on from the present, many times, in copies of the process.

It takes at most `BUDGET` seconds of one core, at a low priority.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from time import monotonic, process_time
from typing import NamedTuple

from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.units import Duration, Instant, WorkloadId
from mirab.study.copies import Copy
from mirab.study.forecast import RUNS, Forecast, Forward, bound_of, forecast, forward, known_past, shares_of_sources
from mirab.study.history import History

BUDGET = 8.0
"""Seconds of one core for a batch: what has not started in a run's part of it is told as later than that went. Where
little waits a batch takes much less: a run ends when all have started."""
DEADLINE = 45.0
"""Seconds after which no further run begins, on a machine that is busy: then there are fewer."""
LONGEST_COPY = 15
"""Seconds after which the copy for one run forward ends itself, whatever happens."""
FEWEST = 10
"""Runs without which there is no forecast."""
ALONE_EVERY = 5
"""For one run in so many there is a twin into which nothing new comes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Forecasts that were made together, from the state after record `seq`.

    `took`: seconds; `others`: what is known of all that started in no run; `sources`: parts of the run times by whose
    history they were drawn from; `past`: how much of the past arrivals were drawn from.
    """

    seq: int
    at: Instant
    took: float
    forecasts: Mapping[WorkloadId, Forecast]
    others: Forecast | None = None
    sources: Mapping[str, float] = field(default_factory=dict)
    kinds: dict[WorkloadId, str] = field(default_factory=dict)
    past: Duration = 0

    def of(self, workload: WorkloadId) -> Forecast | None:
        """None = it did not wait when this was made."""
        told = self.forecasts.get(workload)
        if told is None and self.others is not None and workload in self.kinds:
            return replace(self.others, workload=workload)
        return told


class Looked(NamedTuple):
    """What a look forward found. `others`: what is known of those who started in no run."""

    forecasts: list[Forecast]
    others: Forecast
    sources: dict[str, float]
    kinds: dict[WorkloadId, str]
    past: Duration

    def batch(self, seq: int, at: Instant, took: float) -> Batch:
        by_job = {each.workload: each for each in self.forecasts}
        return Batch(seq, at, took, by_job, self.others, self.sources, self.kinds, self.past)


NOTHING = Batch(-1, 0, 0.0, {})
NOBODY = WorkloadId("")


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Forecasts for the targets as what a copy of the process is to do: it uses the state up.

    Attributes:
        facts: what comes in first.
        at: the present.
        seed: of all that is drawn.
        part: of the time that a look forward may take.
        asker: the process that wants to know; it ends soon after that.
    """

    state: State
    history: History
    targets: Sequence[WorkloadId]
    facts: Sequence[Event]
    at: Instant
    seed: str
    part: float = 1.0
    asker: int = field(default_factory=os.getpid)

    def __call__(self) -> Looked:
        os.nice(10)
        begun = monotonic()
        state, history = self.state, self.history
        state.advance(self.at)
        for fact in self.facts:
            state.fold(fact)
        history.ready()
        targets = [each for each in self.targets if each in state.pending]
        found, alone = self._runs(targets, begun) if targets else ([], [])
        seen = dict.fromkeys(each for run in (*found, *alone) for each in run.starts)
        known = [each for each in targets if each in seen or each in state.holds]
        return Looked(
            forecasts=[forecast(found, each, self.at, bound_of(state, each), alone) for each in known],
            others=forecast(found, NOBODY, self.at, None, alone),
            sources=shares_of_sources(found),
            kinds={each: history.kind_of(state.pending[each].workload) for each in targets},
            past=known_past(history, self.at),
        )

    def _runs(self, targets: Sequence[WorkloadId], begun: float) -> tuple[list[Forward], list[Forward]]:
        """As many runs as there is time for, and their twins into which nothing new comes."""
        found: list[Forward] = []
        alone: list[Forward] = []
        for number in range(RUNS):
            late = monotonic() - begun > self.part * DEADLINE and number >= FEWEST
            if late or os.getppid() != self.asker:
                break
            found.append(self._run(number, targets, arrivals=True))
            if number % ALONE_EVERY == 0:
                alone.append(self._run(number, targets, arrivals=False))
        return found, alone

    def _run(self, number: int, targets: Sequence[WorkloadId], arrivals: bool) -> Forward:
        """One run, in a copy of its own."""
        seconds = self.part * BUDGET / (RUNS + ceil(RUNS / ALONE_EVERY))

        def work() -> Forward:
            leave = process_time() + seconds
            return forward(self.state, self.history, targets, f"{self.seed}/{number}", at=self.at, arrivals=arrivals,
                           stop=lambda: process_time() > leave)  # fmt: skip

        made: Forward = Copy(work, LONGEST_COPY).result()
        return made
