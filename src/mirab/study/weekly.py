"""A week of the live service for those who answer for it: the measures of a replay, fed with the recorded journal.

The whole journal is read up to the end of the week, since what was promised, who waited and what ran at its begin
follows from what came before; only the week itself is counted. What each number means: docs/reference/measures.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from mirab import __version__
from mirab.model.accounts import plain
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.records import Beginning
from mirab.model.trace import Trace
from mirab.model.units import DAY, SECOND, Duration, Instant, WorkloadId
from mirab.study.deeds import Deeds
from mirab.study.figures import report as figures_of
from mirab.study.livemeasures import LiveMeasures
from mirab.study.weeklydiary import Diary

Record: TypeAlias = tuple[tuple[Event, ...], Plan]
Json: TypeAlias = dict[str, Any]
WEEK: Duration = 7 * DAY
SOON: Duration = 14 * DAY
"""Reviews and ends of exceptions are announced so long before."""
ABSENT_MEASURES = ("starvation_s", "starvation_workload", "contract_violations", "makespan_s")
"""Those that a journal alone cannot tell for one week."""

ProgressOf: TypeAlias = Callable[[WorkloadId], Duration]
"""The interval at which a workload declared to show progress; 0 = it declared none."""


@dataclass(frozen=True, slots=True)
class Week:
    """From an instant (Unix ms) to another, and how it is called: ``2026-W48``."""

    name: str
    begin: Instant
    end: Instant


class WeekMeasures(LiveMeasures):
    """The measures of one week of a journal that began before it."""

    def _count_wait(self, job: Any, now: Instant, *, reached: bool) -> None:
        """A wait that was over before the week is not one of it."""
        if now >= self.period.starts_at:
            super()._count_wait(job, now, reached=reached)
        job.started = True

    def _count_progress(self, job: Any, now: Instant, *, reached: bool = True) -> None:
        if now >= self.period.starts_at:
            super()._count_progress(job, now, reached=reached)
        job.progressed = True

    def _see(self, action: Any, now: Instant) -> None:
        before = self.rejected
        super()._see(action, now)
        if now < self.period.starts_at:
            self.rejected = before


def weekly(week: Week, began: Beginning, records: Iterable[Record], progress_of: ProgressOf) -> Json:
    """The report of a week as JSON. `records`: the journal from its begin on, in order.

    Raises:
        ValueError: the ledger began after the week.
    """
    if began.at >= week.end:
        first = datetime.fromtimestamp(began.at / 1000, UTC).date()
        raise ValueError(
            f"the ledger began after {week.name}: there is nothing to report; its first week is --week {first}"
        )
    starts = max(week.begin, began.at)
    trace = Trace((), began.cluster, began.budgets, name=week.name, origin=0, starts_at=starts, ends_at=week.end)
    measures = WeekMeasures(trace, began.policy)
    diary = Diary(starts, week.end, began.cluster, began.budgets, progress_of)
    last = _read(measures, diary, Deeds(began.policy), records, week.end)
    until = min(week.end, max(last, starts))
    measures._advance(until)
    return _report(week, starts, until, measures, diary)


def _read(measures: WeekMeasures, diary: Diary, deeds: Deeds, records: Iterable[Record], end: Instant) -> Instant:
    """Feed the journal up to the end of the week; returns the instant of the last record that was read."""
    last = 0
    for facts, plan in records:
        if plan.at > end:
            return end
        measures.append(facts, plan)
        diary.append(facts, deeds.of(facts, plan))
        last = plan.at
    return last


def _report(week: Week, starts: Instant, until: Instant, measures: WeekMeasures, diary: Diary) -> Json:
    figures = figures_of(measures, None)
    metrics = {key: value for key, value in figures["metrics"].items() if key not in ABSENT_MEASURES}
    owners = {str(path): budget for path, budget, _ in diary.budgets.walk()}
    return {
        "mirab": __version__,
        "week": week.name,
        "begin_s": week.begin / SECOND,
        "end_s": week.end / SECOND,
        "counted_from_s": starts / SECOND,
        "counted_to_s": until / SECOND,
        "unit": measures.trace.cluster.unit,
        "metrics": metrics,
        "accounts": [
            {"path": path, "owner": getattr(owners.get(plain(path)), "owner", ""), **account}
            for path, account in _ranked(figures["by_account"])
        ],
        "squatters": diary.squatters(until),
        "drains": diary.drains,
        "exceptions": diary.exceptions(until, until + SOON),
        "budget_changes": diary.changes,
        "reviews": diary.reviews(until + SOON),
    }


def _ranked(by_account: Json) -> Sequence[tuple[str, Json]]:
    """Those that were owed, used or waited for anything, the most owed first."""
    busy = [(path, each) for path, each in by_account.items()
            if each["share"] or each["charged"] or each["uncharged"] or each["waits"]["count"]]  # fmt: skip
    shown = [each for each in busy if not each[0].endswith("/*") or each[1]["charged"] or each[1]["uncharged"]]
    return sorted(shown, key=lambda each: (-(each[1]["owed"] or 0), -each[1]["share"], each[0]))
