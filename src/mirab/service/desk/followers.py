"""Facts that follow from others: dependencies met or spoiled, arrays that go on, jobs that cannot be launched.

Each is worked out from the state and the store, and has nothing more to say once its facts are folded. The book only
says where to look; after a crash it says everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mirab.core.state import State
from mirab.model.events import (
    ActionRefused,
    Event,
    Outcome,
    RunEnded,
    WorkloadCancelled,
    WorkloadHeld,
    WorkloadReleased,
)
from mirab.model.reasons import ArrayLimitReached, DependencyNeverSatisfied, LaunchesFailed, UnmetDependency
from mirab.model.units import Instant, WorkloadId, workload_of
from mirab.service.desk.arrays import array_of
from mirab.service.desk.book import Book, Tasks, array_limited
from mirab.service.desk.dependencies import Met, Standing, standing
from mirab.service.desk.holding import hold_of, written

if TYPE_CHECKING:
    from mirab.store import Store

AT_ONCE: Instant = 0


class Followers:
    """A source of facts for the live service. `news`: the facts of the cycle under way."""

    def __init__(self, book: Book, store: Store, news: Sequence[Event], launches: int) -> None:
        self._book = book
        self._store = store
        self._news = news
        self._launches = launches

    def timer(self) -> Instant | None:
        """At once, if something has happened that may lead to facts."""
        return AT_ONCE if self._book.restless else None

    def __call__(self, state: State, now: Instant) -> list[Event]:
        book = self._book
        facts: list[Event] = []
        for workload in launch_failures(self._news):
            facts += self._give_up(state, workload, now, fresh=1)
        if not book.restless:
            return facts
        stirred, book.stirred = book.stirred, {}
        for array in stirred:
            tasks = book.prune(state, array)
            if tasks is not None:
                facts += array_goes_on(state, tasks, now)
        ended, book.ended = book.ended, {}
        for job in ended:
            for waiting in list(book.dependents.get(job, ())):
                facts += self._look_at(state, waiting, now)
        launches, book.launches = book.launches, {}
        for workload in launches:
            facts += self._give_up(state, workload, now, fresh=0)
        return facts

    # --- dependencies -----------------------------------------------------------------------------------------------
    def _look_at(self, state: State, workload: WorkloadId, now: Instant) -> Iterator[Event]:
        """What has ended may let it go, or let it never go."""
        book = self._book
        _, why = state.held.get(workload, (None, ""))
        if not isinstance(hold_of(why), UnmetDependency):
            book.depend(workload, ())
            return
        stands = self.standing(state, workload)
        if stands.met is Met.NOT_YET:
            return
        book.depend(workload, ())
        if stands.met is Met.NEVER:
            yield spoiled(workload, stands, now)
        else:
            yield WorkloadReleased(now, workload)
            yield from self.array_hold(workload, now)

    def standing(self, state: State, workload: WorkloadId) -> Standing:
        """How its dependencies stand; a job that the store does not know has not ended."""

        def rows_of(job: WorkloadId) -> object:
            try:
                return self._book.rows_of(state, job)
            except KeyError:
                return None

        return standing(self._book.after.get(workload, ()), rows_of)  # type: ignore[arg-type]

    def array_hold(self, workload: WorkloadId, now: Instant) -> Iterator[Event]:
        """A task that is let go stands in the line of its array, if that has a limit."""
        tasks = self._book.arrays.get(array_of(workload) or WorkloadId(""))
        if tasks is not None and tasks.limit:
            yield WorkloadHeld(now, workload, written(ArrayLimitReached(tasks.limit)))

    # --- launches ---------------------------------------------------------------------------------------------------
    def _give_up(self, state: State, workload: WorkloadId, now: Instant, fresh: int) -> Iterator[Event]:
        """So many launches have failed in a row that its owner has to look, before it is started once more.

        `fresh`: how many of them are not recorded yet.
        """
        pending = state.pending.get(workload)
        if pending is None or pending.attempt <= self._launches:
            return
        failures = fresh + self._failures(workload, pending.attempt - 1 - fresh)
        if failures >= self._launches:
            yield WorkloadHeld(now, workload, written(LaunchesFailed(failures)))

    def _failures(self, workload: WorkloadId, last: int) -> int:
        """How many attempts in a row up to this one could not be launched, since somebody released it."""
        spec = self._store.spec(workload)
        attempt, forgiven = last, 0 if spec is None else spec.launches_forgiven
        outcomes = {run.attempt: run.outcome for run in self._store.runs(workload)}
        while attempt > forgiven and outcomes.get(attempt) == Outcome.LAUNCH_FAILED.value:
            attempt -= 1
        return last - attempt


def launch_failures(news: Sequence[Event]) -> list[WorkloadId]:
    """The jobs that could not be launched, by the facts of one cycle."""
    return [
        workload_of(fact.run_id)
        for fact in news
        if (isinstance(fact, RunEnded) and fact.outcome is Outcome.LAUNCH_FAILED)
        or (isinstance(fact, ActionRefused) and fact.action == "start")
    ]


def spoiled(workload: WorkloadId, stands: Standing, now: Instant) -> WorkloadCancelled:
    """The end of a job that waits for what can never come."""
    return WorkloadCancelled(now, workload, by=written(DependencyNeverSatisfied(str(stands.spoiler), stands.state)))


def array_goes_on(state: State, tasks: Tasks, now: Instant) -> Iterator[Event]:
    """Let the next tasks of an array into the queue, or take out those above its limit."""
    order = sorted(tasks.live, key=_index)
    kept = [workload for workload in order if workload in state.held and array_limited(state.held[workload][1])]
    if not tasks.limit:
        yield from (WorkloadReleased(now, workload) for workload in kept)
        return
    waiting = [workload for workload in order if workload in state.pending]
    free = tasks.limit - len(waiting) - sum(workload in state.running for workload in order)
    for workload in kept[: max(0, free)]:
        yield WorkloadReleased(now, workload)
    why = written(ArrayLimitReached(tasks.limit))
    for workload in waiting[::-1][: max(0, -free)]:
        yield WorkloadHeld(now, workload, why)


def _index(workload: WorkloadId) -> int:
    """Of a task; one of Slurm's that came again after its end is `12_3r1`."""
    return int(workload.rpartition("_")[2].partition("r")[0])
