"""When: the newest forecast of a job or of a request that nobody has submitted, and how past ones held."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from mirab.model.events import WorkloadHeld, WorkloadSubmitted
from mirab.model.records import JobRow, JobState
from mirab.model.units import SECOND, Instant
from mirab.service.auth.principal import Principal
from mirab.service.desk.errors import DeskError
from mirab.service.evidence import Calibration, Score, WhenAnswer
from mirab.service.forecaster import Forecaster
from mirab.service.lookahead import Batch
from mirab.service.views.moments import iso, iso_or_none
from mirab.service.views.waiting import names_of
from mirab.store.predictions import Fate, Predictions
from mirab.study import forecastwords as words
from mirab.study.calibration import Outcome, scores
from mirab.study.forecast import Forecast
from mirab.study.formats import Names

if TYPE_CHECKING:
    from mirab.service.desk.desk import Desk
    from mirab.service.live import Live

PATIENCE = 8.0
"""Seconds that a question about a job that has just come in waits for the next batch."""
SCORES_FRESH = 60.0
NOTE = (
    "Counted is the first forecast of each wait; jobs that start at once have none. Held: it started by then. A job "
    "that was given up before its p90 is left out; given up, or still waiting, behind it counts against it."
)


class When:
    """Answers about starts. `forecaster` is the one that keeps them fresh."""

    def __init__(self, live: Live, desk: Desk | None) -> None:
        self._live = live
        self._desk = desk
        self.forecaster = Forecaster(live)
        self._predictions = Predictions(live.store)
        self._scored_at = -SCORES_FRESH
        self._scores: dict[str, dict[str, Any]] = {}
        self._fates: list[Fate] = []

    def job(self, job_id: str, patience: float = PATIENCE) -> WhenAnswer | None:
        """When a job starts; None = there never was one of that id."""
        row = self._live.store.job(job_id)
        if row is None:
            return None
        if row.state is not JobState.PENDING or row.held:
            return WhenAnswer(id=row.id, state=row.state.value, sentence=self._no_forecast(row))
        told, batch = self.forecaster.of(row.id, patience)
        if told is None:
            return self._stand_in(row)
        return self._told_of(row, told, batch)

    def _told_of(self, row: JobRow, told: Forecast, batch: Batch) -> WhenAnswer:
        return self._answer(told, batch, self._names()).model_copy(update={"id": row.id, **self._made(batch)})

    def _stand_in(self, row: JobRow) -> WhenAnswer:
        """At once, for one that came in since the newest batch: the nearest in it, named as such, if there is one."""
        found = self.forecaster.like(row.id)
        if found is None:
            working = "its forecast is being worked out: ask again in a moment"
            return WhenAnswer(id=row.id, state=row.state.value, sentence=working)
        return self._standing_in(*found, self._names()).model_copy(update={"id": row.id})

    def _standing_in(self, told: Forecast, batch: Batch, names: Names) -> WhenAnswer:
        answer = self._answer(told, batch, names)
        sentence = words.stand_in_sentence(told.workload, answer.kind, answer.sentence)
        return answer.model_copy(update={"sentence": sentence, "stands_in": told.workload, **self._made(batch)})

    def _made(self, batch: Batch) -> dict[str, float]:
        age = round(max(0, self._live.now() - batch.at) / SECOND, 1)
        return {"age_s": age, "took_s": round(batch.took, 2)}

    def _names(self) -> Names:
        with self._live.reading() as state:
            return names_of(state)

    def _no_forecast(self, row: JobRow) -> str:
        if row.held:
            return "it is held: it queues from when it is released, and has no forecast before"
        if row.started_at is not None and not row.state.ended:
            return f"it runs since {self._names().at(row.started_at)}"
        return "it has been given its nodes" if not row.state.ended else f"it has ended ({row.state.value})"

    def suppose(self, who: Principal, request: Any, patience: float = PATIENCE) -> WhenAnswer:
        """When a request would start that is not submitted; without patience what stands in, if anything does.

        Raises:
            DeskError: it cannot be submitted so, or too much is being worked out.
        """
        if self._desk is None:
            raise DeskError("unavailable", "this service takes no requests")
        with self._live.reading() as state:
            names, now = names_of(state), max(state.now, self._live.now())
            made = self._desk.rehearse(who, request, state, now)
            asked = next(each.workload for each in made.facts if isinstance(each, WorkloadSubmitted))
            held = any(isinstance(each, WorkloadHeld) for each in made.facts)
            near = None if patience or held else self.forecaster.alike(state, asked)
        if near is not None:
            return self._standing_in(*near, names)
        found = self.forecaster.suppose(made.ids[0], made.facts)
        told = None if found is None else found.of(made.ids[0])
        if found is None or told is None:
            return WhenAnswer(sentence="it would be held: it queues only when what it waits for is over")
        return self._answer(told, found, names)

    def _answer(self, told: Forecast, batch: Batch, names: Names) -> WhenAnswer:
        kind = batch.kinds[told.workload]
        score = self._score(kind)
        return WhenAnswer(
            kind=kind,
            sentence=words.when_sentence(told, names),
            assumption=told.assumption,  # type: ignore[arg-type]
            because=words.assumption_sentence(told, batch.sources, batch.past, names),
            p50=iso_or_none(told.p50), p90=iso_or_none(told.p90),
            after_50=iso(told.after_50), after_90=iso(told.after_90),
            later_than=None if told.p90 is not None else iso(told.after_90),
            bound=iso_or_none(told.bound), alone_p50=iso_or_none(told.alone_p50),
            runs=told.runs, started=told.started, made_at=iso(told.at), sources=dict(batch.sources),
            score=None if score is None else Score(**score),
            trust=words.trust_sentence(score, kind),
        )  # fmt: skip

    # --- how far it can be trusted ----------------------------------------------------------------------------------
    def _score(self, kind: str) -> dict[str, Any] | None:
        if monotonic() - self._scored_at > SCORES_FRESH:
            self._scored_at = monotonic()
            self._rescore()
        return self._scores.get(kind)

    def _rescore(self) -> None:
        self._fates = self._predictions.fates()
        now = self._live.now()
        self._scores = scores(outcome(each, now) for each in self._fates)

    def calibration(self) -> Calibration:
        """How often past forecasts held."""
        self._rescore()
        since = min((each.prediction.at for each in self._fates), default=None)
        classes = {name: Score(**score) for name, score in self._scores.items()}
        return Calibration(classes=classes, kept=len(self._fates), since=iso_or_none(since), note=NOTE)


def outcome(fate: Fate, now: Instant) -> Outcome:
    """What came of a forecast, as the study judges it."""
    said = fate.prediction
    until = fate.started_at if fate.started_at is not None else fate.ended_at
    return Outcome(said.kind, said.at, said.p50, said.p90, fate.started_at, now if until is None else until,
                   said.bound, after_90=said.after_90)  # fmt: skip
