"""The engine that is a Slurm cluster: one thread lists and writes; everything else only asks it.

The thread sleeps until the next listing is due, an action comes in, or a run's notice is over. Facts come from listings
alone: what was written is true when Slurm shows it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path

from mirab.backends.slurm import commands
from mirab.backends.slurm.commands import Command
from mirab.backends.slurm.contracts import Contract
from mirab.backends.slurm.listings import ListingError, jobs, nodes
from mirab.backends.slurm.records import SlurmJob
from mirab.backends.slurm.runner import ReadOnlyRunner, Runner, SlurmCommandError
from mirab.backends.slurm.tracker import Tracker
from mirab.model.events import ActionRefused, Event, Outcome
from mirab.model.plans import Action, CallHuman, Cancel, Drain, Preempt, Resume, Start
from mirab.model.resources import Cluster
from mirab.model.units import SECOND, AccountPath, Instant, RunId, WorkloadId

INTERVAL_S = 5.0
"""Between two listings when nothing is expected to change."""
HASTE_S = 1.0
"""Between two listings while something that mirab has just told Slurm is not seen yet."""

log = logging.getLogger("mirab.slurm")


@dataclass(frozen=True, slots=True)
class Governing:
    """Which jobs are mirab's, and what they are to it.

    Attributes:
        governs: whether mirab decides about a job, or leaves it to Slurm.
        contract: what a job asks for beyond its size.
        account: the path of the job's account in the tree of budgets.
    """

    governs: Callable[[SlurmJob], bool]
    contract: Callable[[SlurmJob], Contract]
    account: Callable[[SlurmJob], AccountPath]


@dataclass(order=True, slots=True)
class _Step:
    """The second step of a stop: when the notice is over."""

    at: Instant
    run_id: RunId
    commands: tuple[Command, ...] = field(compare=False, default=())


class SlurmBackend:
    """Implements `control.ports.Backend` on Slurm's own tools. Safe to call from any thread.

    Args:
        wake: called from the backend's thread when there are facts to observe.
        hold_new: hold governed jobs that nobody holds as soon as they are seen (where no plugin does it at submission).
    """

    def __init__(
        self,
        runner: Runner,
        cluster: Cluster,
        governing: Governing,
        clock: Callable[[], Instant],
        wake: Callable[[], None] = lambda: None,
        *,
        interval_s: float = INTERVAL_S,
        hold_new: bool = True,
    ) -> None:
        self.runner, self.governing = runner, governing
        self.tracker = Tracker(cluster, governing.governs, governing.contract, governing.account)
        self.trouble = ""
        self._clock, self._wake = clock, wake
        self._interval_s, self._hold_new = interval_s, hold_new
        self._lock = threading.Lock()
        self._bell = threading.Condition(self._lock)
        self._facts: list[Event] = []
        self._actions: list[Action] = []
        self._steps: list[_Step] = []
        self._told: dict[RunId, None] = {}
        self._closed = False
        self._list_at = 0.0
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    # --- what the loop asks -------------------------------------------------------------------------------------------
    def observe(self) -> list[Event]:
        now = self._clock()
        with self._lock:
            facts, self._facts = self._facts, []
        return [fact if fact.at <= now else replace(fact, at=now) for fact in facts]

    def submit(self, action: Action) -> None:
        """Begin an action and return at once. A refusal comes back as a fact."""
        with self._bell:
            self._actions.append(action)
            self._bell.notify()

    def adopt(self, runs: Mapping[RunId, WorkloadId], waiting: Iterable[WorkloadId]) -> None:
        """Once, before the first cycle: what the state believes in; then look, so that the first cycle knows."""
        self.tracker.remember({workload: run for run, workload in runs.items()}, waiting)
        self._look()
        self._thread.start()

    def next_due(self) -> Instant | None:
        """Nothing is ever due: what happens wakes the loop."""
        return None

    def close(self) -> None:
        """Stop listing. The jobs go on, and are found again."""
        with self._bell:
            self._closed = True
            self._bell.notify()
        if self._thread.is_alive():
            self._thread.join(60)

    def state_dir(self, workload_id: WorkloadId) -> Path:
        """Slurm's jobs keep what they save where they like."""
        return Path("/nonexistent") / workload_id

    def output_path(self, workload_id: WorkloadId, attempt: int | None = None, stream: str = "out") -> Path | None:
        """Slurm writes the output where the job says; mirab does not serve it."""
        return None

    # --- the thread ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._bell:
                while not self._closed and not self._actions and (pause := self._pause()) > 0:
                    self._bell.wait(pause)
                if self._closed:
                    return
                actions, self._actions = self._actions, []
            self._write(actions)
            if time.monotonic() >= self._list_at:
                self._look()

    def _pause(self) -> float:
        """Seconds until there is something to do."""
        pause = self._list_at - time.monotonic()
        if self._steps:
            pause = min(pause, (self._steps[0].at - self._clock()) / SECOND)
        return pause

    def _look(self) -> None:
        """One listing, and what it changes."""
        try:
            told_jobs = jobs(self.runner.read(commands.LIST_JOBS))
            told_nodes = nodes(self.runner.read(commands.LIST_NODES))
        except (SlurmCommandError, ListingError) as error:
            self._troubled(str(error))
        else:
            self._troubled("")
            self._hold(told_jobs)
            self._tell(self.tracker.take_in(told_jobs, told_nodes, self._clock()))
        hasty = bool(self.tracker.expected) or bool(self._told)
        self._list_at = time.monotonic() + (min(HASTE_S, self._interval_s) if hasty else self._interval_s)

    def _troubled(self, what: str) -> None:
        if what and what != self.trouble:
            log.warning("%s; what runs goes on, and mirab asks again", what)
        self.trouble = what

    def _tell(self, facts: list[Event]) -> None:
        if facts:
            with self._lock:
                self._facts += facts
            self._wake()

    def _hold(self, listed: list[SlurmJob]) -> None:
        """Governed jobs that wait and that nobody holds: Slurm would start them by itself."""
        if not self._hold_new or isinstance(self.runner, ReadOnlyRunner):
            return
        loose = [
            job.id
            for job in listed
            if job.waits
            and not job.held_by
            and self.governing.governs(job)
            and WorkloadId(job.id) not in self.tracker.expected
        ]
        self.runner.write([commands.hold(job) for job in loose])

    # --- actions ------------------------------------------------------------------------------------------------------
    def _write(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start():
                    self._start(action)
                case Preempt():
                    self._stop(action, Outcome.PREEMPTED, back=self._resumes(action.run_id))
                case Cancel():
                    self._stop(action, Outcome.REQUEUED if action.requeue else Outcome.CANCELLED, back=action.requeue)
                case Drain():
                    self.runner.write([commands.drain(action.node, action.cause)])
                case Resume():
                    self.runner.write([commands.resume(action.node)])
                case CallHuman():
                    log.error("node %s, run %s: %s: a person has to look", action.node, action.run_id, action.why)
                case _:
                    pass
        self._take_steps()

    def _start(self, action: Start) -> None:
        job = self.tracker.job(action.workload_id)
        if job is not None and job.has_nodes:
            return
        self.tracker.released(action.workload_id, action.run_id)
        where = self.tracker.places.names(action.allocation)
        wrong = next(filter(None, self.runner.write(commands.start(action.workload_id, where))), "")
        self._list_at = 0.0
        if wrong:
            self.tracker.unreleased(action.workload_id)
            self._tell([ActionRefused(self._clock(), action.run_id, "start", wrong)])

    def _resumes(self, run_id: RunId) -> bool:
        job = self.tracker.job(workload_of(run_id))
        return job is not None and job.requeue and self.governing.contract(job).resume

    def _stop(self, action: Preempt | Cancel, outcome: Outcome, back: bool) -> None:
        """Notice now; the stop itself when the notice is over."""
        if action.run_id in self._told:
            return
        workload_id = workload_of(action.run_id)
        job = self.tracker.job(workload_id)
        self._told[action.run_id] = None
        self.tracker.asked(workload_id, outcome)
        signal = self.governing.contract(job).signal if job is not None else "TERM"
        wrong = next(filter(None, self.runner.write(commands.notice(workload_id, signal))), "")
        if wrong and job is None:
            self._tell([ActionRefused(self._clock(), action.run_id, "preempt", wrong)])
            return
        final = commands.requeue(workload_id) if back else commands.cancel(workload_id)
        heappush(self._steps, _Step(self._clock() + action.grace, action.run_id, (final,)))

    def _take_steps(self) -> None:
        while self._steps and self._steps[0].at <= self._clock():
            step = heappop(self._steps)
            self._told.pop(step.run_id, None)
            self._list_at = 0.0
            for wrong in filter(None, self.runner.write(step.commands)):
                self._tell([ActionRefused(self._clock(), step.run_id, "preempt", wrong)])


def workload_of(run_id: RunId) -> WorkloadId:
    return WorkloadId(run_id.rpartition(".")[0])
