"""What the desk looks up all the time, kept in memory: arrays with live tasks, and who waits for whom.

Derived from the state and the store alone, so that it can be made anew after a crash. It is changed in the decider's
thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from mirab.core.state import State
from mirab.model.events import ActionRefused, Event, RunEnded, WorkloadCancelled, WorkloadHeld
from mirab.model.plans import Plan, Reject
from mirab.model.reasons import ArrayLimitReached, UnmetDependency
from mirab.model.records import JobRow, JobSpec
from mirab.model.units import WorkloadId, workload_of
from mirab.service.desk.arrays import array_of
from mirab.service.desk.dependencies import Dependency
from mirab.service.desk.holding import hold_of
from mirab.service.paging import PAGE, every

if TYPE_CHECKING:
    from mirab.store import Store


def is_live(state: State, workload: WorkloadId) -> bool:
    """Whether it has not ended, as far as the state knows."""
    return (
        workload in state.pending or workload in state.running or workload in state.held or workload in state.rejected
    )


@dataclass(slots=True)
class Tasks:
    """The tasks of an array that have not ended, and how many of them may wait or run at a time (0 = all)."""

    limit: int
    live: dict[WorkloadId, None] = field(default_factory=dict)


class Book:
    """Arrays and dependencies of live jobs, and what has changed since the followers looked.

    Attributes:
        arrays: by the id of the array.
        after: what each job waits for; dependents: who waits for a job or array.
        ended: jobs and arrays that may have ended since; stirred: arrays whose tasks may go on; launches: jobs whose
            last launches may have failed before a crash.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.arrays: dict[WorkloadId, Tasks] = {}
        self.after: dict[WorkloadId, tuple[Dependency, ...]] = {}
        self.dependents: dict[WorkloadId, dict[WorkloadId, None]] = {}
        self.ended: dict[WorkloadId, None] = {}
        self.stirred: dict[WorkloadId, None] = {}
        self.launches: dict[WorkloadId, None] = {}

    def load(self, state: State) -> None:
        """Everything anew, after a restart: all is to be looked at once."""
        for workload in chain(state.pending, state.held, state.running):
            self._load_array(workload)
        for workload, (_, why) in state.held.items():
            if isinstance(hold_of(why), UnmetDependency):
                spec = self._store.spec(workload)
                self.depend(workload, () if spec is None else dependencies_of(spec))
        for workload, pending in state.pending.items():
            if pending.attempt > 1:
                self.launches[workload] = None
        self.ended.update(dict.fromkeys(self.dependents))
        self.stirred.update(dict.fromkeys(self.arrays))

    def _load_array(self, workload: WorkloadId) -> None:
        array = array_of(workload)
        if array is None:
            return
        if array not in self.arrays:
            spec = self._store.spec(workload)
            self.arrays[array] = Tasks(0 if spec is None else spec.array_limit)
        self.arrays[array].live[workload] = None

    # --- change -----------------------------------------------------------------------------------------------------
    def add(self, specs: Iterable[JobSpec]) -> None:
        """New jobs come in."""
        for spec in specs:
            if spec.array_job is not None:
                tasks = self.arrays.setdefault(spec.array_job, Tasks(spec.array_limit))
                tasks.live[spec.workload_id] = None

    def depend(self, workload: WorkloadId, dependencies: Sequence[Dependency]) -> None:
        """It waits for these from now on; none = for nobody any more."""
        for dependency in self.after.pop(workload, ()):
            waiting = self.dependents.get(dependency.job, {})
            waiting.pop(workload, None)
            if not waiting:
                self.dependents.pop(dependency.job, None)
        if dependencies:
            self.after[workload] = tuple(dependencies)
            for dependency in dependencies:
                self.dependents.setdefault(dependency.job, {})[workload] = None

    def hear(self, facts: Sequence[Event], plan: Plan) -> None:
        """A cycle was recorded."""
        for fact in facts:
            if isinstance(fact, RunEnded) or (isinstance(fact, ActionRefused) and fact.action == "start"):
                self._gone(workload_of(fact.run_id))
            elif isinstance(fact, WorkloadCancelled):
                self._gone(fact.workload_id)
            elif isinstance(fact, WorkloadHeld):
                self._held(fact)
        for action in plan.actions:
            if isinstance(action, Reject):
                self._gone(action.workload_id)

    def _gone(self, workload: WorkloadId) -> None:
        """It may have ended, or be back in the queue: the followers find out which."""
        array = array_of(workload)
        if workload in self.dependents:
            self.ended[workload] = None
        if array is not None:
            self.stirred[array] = None
            if array in self.dependents:
                self.ended[array] = None
        if workload in self.after:
            self.ended.update((dependency.job, None) for dependency in self.after[workload])

    def _held(self, fact: WorkloadHeld) -> None:
        array = array_of(fact.workload_id)
        if array is not None:
            self.stirred[array] = None

    def prune(self, state: State, array: WorkloadId) -> Tasks | None:
        """Forget the tasks of an array that have ended; None = all have."""
        tasks = self.arrays.get(array)
        if tasks is None:
            return None
        for workload in [each for each in tasks.live if not is_live(state, each)]:
            del tasks.live[workload]
        if tasks.live:
            return tasks
        del self.arrays[array]
        return None

    # --- read -------------------------------------------------------------------------------------------------------
    @property
    def restless(self) -> bool:
        """Whether the followers have something to look at."""
        return bool(self.ended or self.stirred or self.launches)

    def rows_of(self, state: State, job: WorkloadId) -> Sequence[JobRow] | None:
        """The job, or all tasks of the array, once all have ended and that is recorded; None = not yet.

        Raises:
            KeyError: there never was such a job.
        """
        tasks = self.arrays.get(job)
        if is_live(state, job) or (tasks is not None and any(is_live(state, each) for each in tasks.live)):
            return None
        row = self._store.job(job)
        rows = [row] if row is not None else list(self._tasks_of(job))
        if not rows:
            if tasks is not None:
                return None
            raise KeyError(job)
        return rows if all(each.state.ended for each in rows) else None

    def _tasks_of(self, array: WorkloadId) -> Iterator[JobRow]:
        return every(lambda cursor: self._store.jobs(array_job=array, after=cursor, limit=PAGE))


def dependencies_of(spec: JobSpec) -> tuple[Dependency, ...]:
    return tuple(Dependency(kind, job) for kind, job in spec.after)


def array_limited(why: str) -> bool:
    return isinstance(hold_of(why), ArrayLimitReached)
