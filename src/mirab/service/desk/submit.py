"""Submission: validated, numbered, kept back where something keeps it back, and answered once for each key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mirab.core.state import State
from mirab.model.codec import encode
from mirab.model.events import Event, WorkloadHeld, WorkloadSubmitted
from mirab.model.reasons import ArrayLimitReached, DependencyNeverSatisfied, HeldByUser, HoldReason, UnmetDependency
from mirab.model.records import IdempotentReply, JobSpec, JobState, Write
from mirab.model.units import Instant, WorkloadId, plural
from mirab.model.workloads import Workload
from mirab.service.auth.principal import Principal
from mirab.service.desk.ask import Ask, read_form
from mirab.service.desk.book import Book
from mirab.service.desk.dependencies import (
    SINGLETON,
    Dependency,
    Met,
    Standing,
    format_dependencies,
    standing,
)
from mirab.service.desk.errors import conflict, invalid, not_found
from mirab.service.desk.forms import SubmitForm
from mirab.service.desk.holding import written
from mirab.service.desk.keys import Keys, digest_of
from mirab.service.desk.office import Office, audited
from mirab.service.desk.submission import Draft, judged
from mirab.service.inbox import Entry
from mirab.service.paging import PAGE, every
from mirab.study import words

REHEARSED = WorkloadId("9" * 18)
"""The number of a job in a dry run: behind all others."""
LIVE = (JobState.PENDING, JobState.RUNNING, JobState.COMPLETING)


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """The ids that were given (an array's tasks), the job's or array's number, and what was not done as asked.

    `repeated`: the answer to an earlier request with the same key.
    """

    ids: tuple[WorkloadId, ...]
    job: WorkloadId
    notes: tuple[str, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """A submission with its numbers."""

    number: WorkloadId
    jobs: tuple[tuple[Workload, JobSpec], ...]
    facts: tuple[Event, ...]
    waits_for: tuple[Dependency, ...]
    notes: tuple[str, ...]

    @property
    def ids(self) -> tuple[WorkloadId, ...]:
        return tuple(workload.id for workload, _ in self.jobs)


class Submissions:
    """The part of the desk that takes in new jobs."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._keys = Keys(office.live.store)

    def submit(self, who: Principal, request: Any, key: str | None = None) -> SubmitReply:
        """Take in a job or an array.

        Args:
            request: a `SubmitForm`, or anything with its attributes.
            key: the Idempotency-Key; None = a repetition is another job.

        Raises:
            DeskError: why it is refused.
        """
        form = SubmitForm.of(request)
        ask = read_form(form, self._office.limits)
        if key is None:
            return self._submit(who, ask, None, "")
        digest = digest_of(form)
        with self._keys.turn(who.user, key):
            answer = self._keys.answered(who.user, key, digest)
            return self._submit(who, ask, key, digest) if answer is None else _again(answer)

    def _submit(self, who: Principal, ask: Ask, key: str | None, digest: str) -> SubmitReply:
        identity = self._office.run_as(who)
        replies: list[SubmitReply] = []

        def build(state: State, now: Instant) -> Entry:
            replies.clear()
            before = self._keys.in_flight(who.user, key, digest) if key else None
            if before is not None:
                replies.append(_again(before))
                return Entry()
            made = self._accepted(ask, who, identity, state, now, self._next_number)
            self._enter(made)
            reply = SubmitReply(made.ids, made.number, made.notes)
            replies.append(reply)
            writes: list[Write] = [spec for _, spec in made.jobs]
            if key:
                writes.append(self._keys.keep(_kept(reply, who, key, digest, now)))
            writes.append(audited(who, now, "job.submit", _named(made.number, ask), after=_summary(made)))
            return Entry(made.facts, tuple(writes))

        self._office.live.send(build)
        return replies[0]

    def _next_number(self) -> WorkloadId:
        return WorkloadId(str(self._office.live.store.next_job_number()))

    def _enter(self, made: Accepted) -> None:
        self._office.book.add(spec for _, spec in made.jobs)
        for workload in made.ids:
            self._office.book.depend(workload, made.waits_for)

    def _accepted(self, ask: Ask, who: Principal, identity: tuple[int | None, int | None], state: State, now: Instant,
                  number_of: Callable[[], WorkloadId]) -> Accepted:  # fmt: skip
        """The jobs under their numbers, and the facts that bring them in."""
        after = self._resolved(ask, who)
        draft = judged(ask, who, identity, state, now, after)
        stands = self._standing(state, after)
        _check_size(draft, self._office.limits.spec)
        number = number_of()
        jobs = draft.numbered(number)
        facts = tuple(_facts(draft, [workload for workload, _ in jobs], stands, now))
        waits_for = after if stands.met is Met.NOT_YET and not draft.hold else ()
        return Accepted(number, tuple(jobs), facts, waits_for, draft.notes)

    def rehearse(self, who: Principal, request: Any, state: State, now: Instant) -> Accepted:
        """The same on a copy of the state, without a number and without a trace."""
        ask = read_form(SubmitForm.of(request), self._office.limits)
        return self._accepted(ask, who, (None, None), state, now, lambda: REHEARSED)

    # --- dependencies -----------------------------------------------------------------------------------------------
    def _resolved(self, ask: Ask, who: Principal) -> tuple[Dependency, ...]:
        """`singleton` becomes: after all jobs of this name and user that there are now have ended."""
        after: dict[Dependency, None] = {}
        for dependency in ask.after:
            if dependency.kind != SINGLETON:
                after[dependency] = None
                continue
            for job in self._namesakes(ask.name, who):
                after[Dependency("afterany", job)] = None
        most = self._office.limits.dependencies
        if len(after) > most:
            raise invalid(f"it would have to wait for {plural(len(after), 'job')}, and at most {most} are allowed")
        return tuple(after)

    def _namesakes(self, name: str, who: Principal) -> Iterable[WorkloadId]:
        store = self._office.live.store
        mine = every(lambda cursor: store.jobs(states=LIVE, user=who.user, after=cursor, limit=PAGE))
        return dict.fromkeys(row.array_job or row.id for row in mine if row.name == name)

    def _standing(self, state: State, after: Sequence[Dependency]) -> Standing:
        book: Book = self._office.book
        try:
            stands = standing(after, lambda job: book.rows_of(state, job))
        except KeyError as error:
            raise not_found(f"it depends on job {error.args[0]}, and there is no such job") from None
        if stands.met is Met.NEVER:
            reason = DependencyNeverSatisfied(str(stands.spoiler), stands.state)
            raise conflict(words.fact(reason), reason=encode(reason))
        return stands


def _facts(draft: Draft, workloads: Sequence[Workload], stands: Standing, now: Instant) -> Iterable[Event]:
    """Each comes in; what is kept back is held in the same breath, before anything is decided."""
    limit = 0 if draft.array is None else draft.array.limit
    for place, workload in enumerate(workloads):
        yield WorkloadSubmitted(now, workload)
        reason = _kept_back(draft, stands, place >= limit > 0, limit)
        if reason is not None:
            yield WorkloadHeld(now, workload.id, written(reason))


def _kept_back(draft: Draft, stands: Standing, beyond: bool, limit: int) -> HoldReason | None:
    if draft.hold:
        return HeldByUser(draft.workload.user)
    if stands.met is Met.NOT_YET:
        return UnmetDependency(format_dependencies(stands.open))
    return ArrayLimitReached(limit) if beyond else None


def _check_size(draft: Draft, most: int) -> None:
    spec = draft.spec
    tasks = 1 if draft.array is None else len(draft.array.tasks)
    each = len(spec.script) + sum(map(len, spec.argv)) + sum(len(key) + len(value) for key, value in spec.environment)
    if each * tasks > most:
        raise invalid(
            f"each of the {tasks:,} tasks keeps {each:,} characters of script, arguments and environment, and "
            f"together they may keep {most >> 20} MiB: put the script into a file, or submit fewer tasks"
        )


def _kept(reply: SubmitReply, who: Principal, key: str, digest: str, now: Instant) -> IdempotentReply:
    text = json.dumps({"ids": reply.ids, "job": reply.job, "notes": reply.notes})
    return IdempotentReply(key, who.user, now, digest, text)


def _again(answer: Any) -> SubmitReply:
    return SubmitReply(tuple(answer["ids"]), answer["job"], tuple(answer["notes"]), repeated=True)


def _named(number: WorkloadId, ask: Ask) -> str:
    return f"{number}_[{ask.form.array}]" if ask.array is not None else number


def _summary(made: Accepted) -> str:
    workload = made.jobs[0][0]
    shape = workload.shape
    each = plural(shape.gpus_per_node, "GPU") if shape.gpus_per_node else plural(shape.cpus_per_node, "core")
    tasks = f", {len(made.jobs)} tasks" if len(made.jobs) > 1 else ""
    return f"{workload.account}: {shape.nodes} x {each}{tasks}"
