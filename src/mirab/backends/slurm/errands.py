"""What the backend's thread writes to Slurm: actions of the scheduler, words of people, and what keeps jobs in order.

Every write says how something is to be, so that it may be repeated; none is taken as done until a listing shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from mirab.backends.slurm import commands
from mirab.backends.slurm.commands import Command
from mirab.backends.slurm.records import SlurmJob
from mirab.backends.slurm.runner import Runner
from mirab.backends.slurm.seen import Seen
from mirab.backends.slurm.tracker import Tracker
from mirab.model.events import (
    ActionRefused,
    Event,
    NodeUp,
    Outcome,
    RunEnded,
    WorkloadCancelled,
    WorkloadHeld,
    WorkloadReleased,
)
from mirab.model.plans import Action, CallHuman, Cancel, Drain, Preempt, Repair, Resume, Start
from mirab.model.units import SECOND, Duration, Instant, RunId, WorkloadId, workload_of

START_PATIENCE: Duration = 20 * SECOND
"""So long a job that was let go may stay in the queue of Slurm before it is taken back."""
SETTLED: Duration = 1500
"""So long after it was let go, what a listing says of a job is newer than that."""
STOP_AGAIN: Duration = 5 * SECOND
"""When a stop that could not be written is written again."""
LOOK_AGAIN: Duration = SECOND // 2
"""So long a requeue waits for the next look, where there was none since the notice."""
NOT_THE_JOBS_FAULT = (
    "None",
    "Resources",
    "Priority",
    "ReqNodeNotAvail",
    "NodeDown",
    "BeginTime",
    "Cleaning",
    "Dependency",
    "JobHeld",
)
"""Begins Slurm's reason where a job that did not start may start another time: it is no launch that failed, of which so
many in a row would hold the job."""
UNHEARD = ("did not answer within", "nable to contact slurm controller")
"""What a program says of a command that may not have come to the controller at all."""

log = logging.getLogger("mirab.slurm")


@dataclass(order=True, slots=True)
class _Step:
    """The second step of a stop: when the notice is over."""

    at: Instant
    run_id: RunId
    back: bool


class Errands:
    """Belongs to the backend's thread."""

    def __init__(
        self,
        runner: Runner,
        tracker: Tracker,
        clock: Callable[[], Instant],
        tell: Callable[[Sequence[Event]], None],
        repair: Command = (),
    ) -> None:
        self._runner, self._tracker, self._clock, self._tell = runner, tracker, clock, tell
        self._repair = repair
        self._steps: list[_Step] = []
        self._told: dict[RunId, None] = {}
        self._deferred: list[Action] = []

    # --- actions of the scheduler -------------------------------------------------------------------------------------
    def do(self, actions: Sequence[Action]) -> None:
        """Starts go together; then what stops, and what nodes need; then what is due.

        What concerns a job that no look of this process has shown yet (the controller is down) waits until one does.
        """
        self._deferred += [action for action in actions if self._unseen(action)]
        actions = [action for action in actions if not self._unseen(action)]
        self._start([action for action in actions if isinstance(action, Start)])
        for action in actions:
            if isinstance(action, Preempt):
                self._stop(action, Outcome.PREEMPTED, back=self._resumes(action.run_id))
            elif isinstance(action, Cancel):
                self._stop(action, Outcome.REQUEUED if action.requeue else Outcome.CANCELLED, back=action.requeue)
            elif isinstance(action, CallHuman):
                log.error("node %s, run %s: %s: a person has to look", action.node, action.run_id, action.why)
        self._nodes(actions)
        self._take_steps()

    def _unseen(self, action: Action) -> bool:
        run_id = action.run_id if isinstance(action, Start | Preempt | Cancel) else None
        seen = None if run_id is None else self._tracker.find(workload_of(run_id))
        return seen is not None and seen.job.job_id == 0

    def next_due(self) -> Instant | None:
        return self._steps[0].at if self._steps else None

    def _start(self, starts: Sequence[Start]) -> None:
        """After a restart a start is asked for once more: it may have come to nothing since, and the scheduler know."""
        for action in starts:
            seen = self._tracker.find(action.workload_id)
            why = "Slurm no longer lists it" if seen is None else self._tracker.rules.left(seen.job)
            if why:
                self._tracker.unreleased(action.workload_id)
                self._tell([ActionRefused(self._clock(), action.run_id, "start", why)])
            elif seen is not None and seen.run is None and seen.past != action.run_id:
                where = self._tracker.nodes.places.names(action.allocation)
                self._tracker.released(action.workload_id, action.run_id, where, self._clock())
        self._let_go([seen for seen in self._tracker.expected() if seen.unwritten and not seen.refused])

    def _let_go(self, wanted: Sequence[Seen]) -> None:
        """First all are given their nodes, then those that have them are let go: none is to start elsewhere.

        What Slurm does not take yet is written again after the next look. Only what the last look showed as unable to
        start: nodes written to a job that runs would resize it.
        """
        wanted = [seen for seen in wanted if self._cannot_start(seen.job)]
        told = [commands.start(seen.job.id, seen.where) for seen in wanted]
        placed = self._runner.write([place for place, *_ in told])
        ready = [rest for (_, *rest), wrong in zip(told, placed, strict=True) if not wrong]
        freed = iter(self._runner.write([command for rest in ready for command in rest]))
        for seen, (_, *rest), wrong in zip(wanted, told, placed, strict=True):
            released, *_ = [""] if wrong else [next(freed) for _ in rest]
            seen.refused = wrong or released
            seen.unwritten = bool(seen.refused)
            if seen.unwritten:
                log.info("%s could not be let go yet: %s", seen.workload_id, seen.refused)

    def _cannot_start(self, job: SlurmJob) -> bool:
        later = job.eligible_at is not None and job.eligible_at > self._clock()
        return job.waits and (job.held_by == "mirab" or later)

    def _resumes(self, run_id: RunId) -> bool:
        seen = self._tracker.find(workload_of(run_id))
        return seen is not None and seen.job.requeue and self._tracker.rules.contract(seen.job).resume

    def _stop(self, action: Preempt | Cancel, outcome: Outcome, back: bool) -> None:
        """Notice now; the stop itself when the notice is over. A run that never began is taken back."""
        seen = self._tracker.find(workload_of(action.run_id))
        if seen is None or action.run_id in self._told:
            return
        if seen.expected == action.run_id:
            seen.since = 0
            return
        if seen.run != action.run_id:
            return
        self._told[action.run_id] = None
        self._tracker.asked(seen.workload_id, outcome, back, self._clock())
        signal = self._tracker.rules.contract(seen.job).signal
        self._runner.write(commands.notice(seen.job.id, signal))
        heappush(self._steps, _Step(self._clock() + action.grace, action.run_id, back))

    def _take_steps(self) -> None:
        """What is due. A job is requeued only after a look since its notice: an ended one would run twice."""
        while self._steps and self._steps[0].at <= self._clock():
            step = heappop(self._steps)
            seen = self._tracker.find(workload_of(step.run_id))
            if seen is None or seen.run != step.run_id:
                self._told.pop(step.run_id, None)
                continue
            now = self._clock()
            if step.back and self._tracker.fresh_at < seen.asked_at:
                heappush(self._steps, _Step(now + LOOK_AGAIN, step.run_id, step.back))
                continue
            final = commands.requeue(seen.job.id) if step.back else (commands.cancel(seen.job.id),)
            wrong = self._runner.write(final)[-1]
            if wrong:
                log.warning("%s could not be stopped: %s; it is told again", step.run_id, wrong)
                heappush(self._steps, _Step(now + STOP_AGAIN, step.run_id, step.back))
            else:
                self._told.pop(step.run_id, None)
                self._tracker.stopped(seen.workload_id, now)

    def _nodes(self, actions: Sequence[Action]) -> None:
        nodes = self._tracker.nodes
        for action in actions:
            if isinstance(action, Drain) and not nodes.takes_nothing(action.node):
                self._warn(self._runner.write([commands.drain(action.node, action.cause)]))
            elif isinstance(action, Resume) and nodes.takes_nothing(action.node):
                if self._warn(self._runner.write([commands.resume(action.node)])):
                    nodes.doubt(action.node)
            elif isinstance(action, Repair) and not nodes.only_reserved(action.node):
                log.warning("node %s is empty and may be repaired", action.node)
                if self._repair:
                    self._warn(self._runner.write([(*self._repair, action.node)]))

    @staticmethod
    def _warn(wrong: Iterable[str]) -> bool:
        said = [text for text in wrong if text]
        for text in said:
            log.warning("%s", text)
        return bool(said)

    # --- words of people ----------------------------------------------------------------------------------------------
    @staticmethod
    def concerns(fact: Event) -> bool:
        return isinstance(fact, WorkloadCancelled | WorkloadHeld | WorkloadReleased | NodeUp)

    def hear(self, facts: Sequence[Event]) -> None:
        """What somebody told mirab, and Slurm does not know yet. Facts that came from Slurm itself are true already."""
        released: dict[WorkloadId, bool] = {}
        for fact in facts:
            if isinstance(fact, WorkloadCancelled):
                self._cancel(fact)
            elif isinstance(fact, NodeUp) and self._tracker.nodes.takes_nothing(fact.node):
                if self._warn(self._runner.write([commands.resume(fact.node)])):
                    self._tracker.nodes.doubt(fact.node)
            elif isinstance(fact, WorkloadHeld | WorkloadReleased):
                released[fact.workload_id] = isinstance(fact, WorkloadReleased)
        for workload_id, free in released.items():
            seen = self._tracker.find(workload_id)
            if free and seen is not None and seen.run is None:
                seen.held = ""

    def _cancel(self, fact: WorkloadCancelled) -> None:
        """A job that waits; one that runs is stopped by an action of the scheduler."""
        seen = self._tracker.find(fact.workload_id)
        if seen is not None and seen.run is None and seen.expected is None and seen.returning is None:
            self._warn(self._runner.write([commands.cancel(seen.job.id)]))

    # --- order among the jobs -----------------------------------------------------------------------------------------
    def tidy(self, listed: Sequence[SlurmJob]) -> None:
        """After each listing: hold what is ours, give back what is not, requeue what went, take back what hangs."""
        if self._deferred:
            deferred, self._deferred = self._deferred, []
            self.do(deferred)
        self._runner.write(list(dict.fromkeys(self._holds(listed))))
        for seen in self._tracker.returning():
            self._warn(self._runner.write(commands.requeue(seen.job.id)))
        for seen in self._tracker.expected():
            self._check_let_go(seen)
        self._let_go([seen for seen in self._tracker.expected() if seen.unwritten and not self._hangs(seen)])
        self._take_back([seen for seen in self._tracker.expected() if self._hangs(seen)])

    def _holds(self, listed: Sequence[SlurmJob]) -> Iterator[Command]:
        """Governed jobs that nobody holds (Slurm would start them by itself), and held ones that are not governed."""
        for job in listed:
            seen = self._tracker.seen.get(job.id)
            if seen is None or not job.waits or (seen.expected is not None and job.placed):
                continue
            governed = not self._tracker.rules.left(job)
            if governed and not job.held_by:
                yield commands.hold(str(job.job_id), job.placed)
            elif not governed and job.held_by == "mirab":
                yield from commands.back_to_slurm(str(job.job_id), job.placed)

    def _check_let_go(self, seen: Seen) -> None:
        """Slurm undoes it when a requeue is over only after it was told; and its user may hold it meanwhile."""
        job, now = seen.job, self._clock()
        if not job.waits or now - seen.since < SETTLED or seen.unwritten:
            return
        if job.held_by == "user" and seen.expected is not None:
            run_id = seen.gives_up()
            self._tell([RunEnded(now, run_id, Outcome.REQUEUED)])
        elif self._cannot_start(job):
            seen.unwritten = True

    def _hangs(self, seen: Seen) -> bool:
        return seen.job.waits and self._clock() - seen.since > START_PATIENCE

    def _take_back(self, hanging: Sequence[Seen]) -> None:
        """Slurm did not start it. Held again, it cannot start behind our back, and the scheduler decides anew.

        What never was let go, because Slurm takes no change of it, is held still, and need not be told so.
        """
        told = [commands.hold(seen.job.id, placed=True) for seen in hanging if not _refused(seen)]
        wrong = iter(self._runner.write(told))
        for seen in hanging:
            seen.hung = seen.job.reason if not seen.job.held_by else seen.hung
            refusal = "" if _refused(seen) else next(wrong)
            if refusal:
                log.warning("%s hangs, and could not be taken back: %s", seen.workload_id, refusal)
            elif seen.job.held_by == "mirab" and seen.expected is not None:
                run_id = seen.gives_up()
                self._tell([self._not_started(seen, run_id)])

    def _not_started(self, seen: Seen, run_id: RunId) -> Event:
        """Slurm's reason is that of the last listing before it was taken back, or what it said to our command."""
        why = seen.refused or seen.hung
        log.warning("Slurm did not start %s on %s: %s", run_id, ", ".join(seen.where), why or "no reason given")
        if not _refused(seen) and (seen.refused or not why or why.startswith(NOT_THE_JOBS_FAULT)):
            return RunEnded(self._clock(), run_id, Outcome.REQUEUED)
        return ActionRefused(self._clock(), run_id, "start", f"Slurm did not start it ({why})")


def _refused(seen: Seen) -> bool:
    """Whether Slurm has heard that it is to be let go, and does not do it."""
    return bool(seen.refused) and not any(text in seen.refused for text in UNHEARD)
