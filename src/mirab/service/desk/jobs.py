"""Commands about jobs that are there: cancel, hold, release, requeue, checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mirab.core.state import State
from mirab.model.events import (
    Event,
    RequeueRequested,
    RunCheckpointed,
    WorkloadCancelled,
    WorkloadHeld,
    WorkloadReleased,
)
from mirab.model.reasons import (
    ArrayLimitReached,
    HeldByOperator,
    HeldByUser,
    HoldReason,
    LaunchesFailed,
    UnmetDependency,
)
from mirab.model.records import JobRow, Write
from mirab.model.units import Instant, WorkloadId, plural
from mirab.service.auth.principal import Principal
from mirab.service.desk.arrays import parse_ids
from mirab.service.desk.book import dependencies_of
from mirab.service.desk.dependencies import Met, format_dependencies
from mirab.service.desk.errors import DeskError, conflict, denied, invalid
from mirab.service.desk.followers import spoiled
from mirab.service.desk.forms import check_word
from mirab.service.desk.holding import hold_of, written
from mirab.service.desk.office import BRIEF, Office, Target, audited, is_operator, require, unless_all_refused
from mirab.service.inbox import Entry
from mirab.study import words

AFTER: dict[type, str] = {
    WorkloadCancelled: "it is cancelled",
    RequeueRequested: "its run is stopped, and it queues again",
    WorkloadReleased: "it waits in the queue",
    RunCheckpointed: "what it has done is safe",
}


@dataclass(frozen=True, slots=True)
class Order:
    """A command as one person gives it at one instant."""

    who: Principal
    why: str
    state: State
    now: Instant


Step: TypeAlias = Callable[[Order, Target], Iterator[Event | Write]]


class JobCommands:
    """Each takes ids such as ``12``, ``12_3``, ``12_[0-3]``; the id of an array means all its tasks.

    Returns the jobs as they are recorded afterwards. Refused only if nothing can be done for any of them.
    """

    def __init__(self, office: Office) -> None:
        self._office = office

    def cancel(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        """End them, whatever they do; one that has ended already stays as it is."""
        return self._each(who, ids, why, "job.cancel", self._cancel)

    def hold(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        """Keep them out of the queue. What an operator holds of others, only an operator releases."""
        return self._each(who, ids, why, "job.hold", self._hold)

    def release(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        """Undo `hold`, or the hold after launches that failed."""
        return self._each(who, ids, why, "job.release", self._release)

    def requeue(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        """Stop the running attempts, whatever their minimum, and let them queue again with their seniority."""
        return self._each(who, ids, why, "job.requeue", self._requeue)

    def checkpoint(self, who: Principal, name: str) -> list[JobRow]:
        """What the run has done so far is safe. `name`: the job, or the very run (``12.2``)."""
        job, dot, attempt = name.partition(".")

        def step(order: Order, target: Target) -> Iterator[Event | Write]:
            run = target.run
            if run is None or run.started_at is None:
                raise conflict(f"job {target.id} has nothing to save: {target.state}", id=target.id)
            if dot and attempt != str(run.attempt):
                raise conflict(f"run {name} is over: job {target.id} is at its attempt {run.attempt}", id=target.id)
            yield RunCheckpointed(order.now, run.id)

        return self._each(who, [job], "", "job.checkpoint", step)

    # --- one command for each of several jobs -----------------------------------------------------------------------
    def _each(self, who: Principal, ids: Sequence[str], why: str, action: str, step: Step) -> list[JobRow]:
        check_word("why", why, BRIEF)
        wanted = self._parsed(ids)
        done: list[WorkloadId] = []

        def build(state: State, now: Instant) -> Entry:
            done.clear()
            order = Order(who, why, state, now)
            facts: list[Event] = []
            writes: list[Write] = []
            refusals: list[DeskError] = []
            targets = self._office.targets(state, wanted)
            for target in targets:
                require(who, action, target, action.partition(".")[2])
            for target in targets:
                try:
                    told = list(step(order, target))
                except DeskError as error:
                    refusals.append(error)
                    continue
                done.append(target.id)
                facts += [each for each in told if isinstance(each, Event)]
                writes += [each for each in told if not isinstance(each, Event)]
                if told:
                    writes.append(audited(who, now, action, target.id, target.state, _after(told), why))
            unless_all_refused(refusals, len(done))
            return Entry(tuple(facts), tuple(writes))

        self._office.live.send(build)
        return self._office.rows(done)

    def _parsed(self, ids: Sequence[str]) -> list[WorkloadId]:
        most = self._office.limits.ids
        wanted = list(dict.fromkeys(workload for text in ids for workload in parse_ids(text, most)))
        if not wanted:
            raise invalid("name at least one job")
        if len(wanted) > most:
            raise invalid(
                f"one command can name {plural(most, 'job')}, and this one names {len(wanted):,}: do it in parts"
            )
        return wanted

    # --- the commands -----------------------------------------------------------------------------------------------
    def _cancel(self, order: Order, target: Target) -> Iterator[Event | Write]:
        if not target.ended and not (target.run is not None and target.run.cancelled):
            yield WorkloadCancelled(order.now, target.id, by=order.who.user)

    def _hold(self, order: Order, target: Target) -> Iterator[Event | Write]:
        if target.run is not None:
            raise conflict(
                f"job {target.id} cannot be held: {target.state}; `mirab requeue` puts it back into the queue, "
                "`mirab cancel` ends it",
                id=target.id,
            )
        if target.ended:
            raise conflict(f"job {target.id} cannot be held: {target.state}", id=target.id)
        reason: HoldReason = HeldByUser(order.who.user)
        if target.user != order.who.user and is_operator(order.who):
            reason = HeldByOperator(order.who.user, order.why)
        if target.held is not None:
            if isinstance(hold_of(target.held), HeldByOperator) and isinstance(reason, HeldByUser):
                return
            yield WorkloadReleased(order.now, target.id)
            self._office.book.depend(target.id, ())
        yield WorkloadHeld(order.now, target.id, written(reason))

    def _release(self, order: Order, target: Target) -> Iterator[Event | Write]:
        if target.held is None:
            raise conflict(f"job {target.id} is not held: {target.state}", id=target.id)
        reason = hold_of(target.held)
        if isinstance(reason, UnmetDependency | ArrayLimitReached):
            raise conflict(f"job {target.id} goes on by itself: {words.sentence(reason)}", id=target.id)
        if isinstance(reason, HeldByOperator) and not is_operator(order.who):
            raise denied(f"job {target.id} can be released by operators only: {words.fact(reason)}", id=target.id)
        if isinstance(reason, LaunchesFailed):
            yield from self._forgive(target)
        yield WorkloadReleased(order.now, target.id)
        yield from self._next_hold(order, target.id)

    def _forgive(self, target: Target) -> Iterator[Write]:
        """Launches that failed until now no longer count."""
        spec = self._office.live.store.spec(target.id)
        if spec is not None and target.pending is not None:
            yield replace(spec, launches_forgiven=target.pending.attempt - 1)

    def _next_hold(self, order: Order, workload: WorkloadId) -> Iterator[Event]:
        """What else keeps it: a dependency that is still open (or spoiled), or the limit of its array."""
        office = self._office
        spec = office.live.store.spec(workload)
        if spec is not None and spec.after:
            office.book.depend(workload, dependencies_of(spec))
            stands = office.followers.standing(order.state, workload)
            if stands.met is Met.NOT_YET:
                yield WorkloadHeld(
                    order.now, workload, written(UnmetDependency(format_dependencies(dependencies_of(spec))))
                )
                return
            office.book.depend(workload, ())
            if stands.met is Met.NEVER:
                yield spoiled(workload, stands, order.now)
                return
        yield from office.followers.array_hold(workload, order.now)

    def _requeue(self, order: Order, target: Target) -> Iterator[Event | Write]:
        run = target.run
        if run is None:
            hint = "submit it again" if target.ended else "there is nothing to stop"
            raise conflict(f"job {target.id} cannot be requeued: {target.state}, and only a running one can; {hint}")
        if run.cancelled:
            raise conflict(f"job {target.id} cannot be requeued: it has been cancelled and is being stopped")
        if not run.recalled:
            yield RequeueRequested(order.now, target.id, by=order.who.user)


def _after(told: Sequence[Event | Write]) -> str:
    """What the job is after these facts, for the audit log: the last of them that says it counts."""
    for each in reversed(told):
        if isinstance(each, WorkloadHeld):
            reason = hold_of(each.why)
            return "it is held" if reason is None else f"it is held: {words.fact(reason)}"
        if type(each) in AFTER:
            return AFTER[type(each)]
    return ""
