"""From one listing to the next: what has happened in between, as facts. Pure: no command is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mirab.backends.slurm.contracts import Contract
from mirab.backends.slurm.dependencies import Done
from mirab.backends.slurm.health import Nodes
from mirab.backends.slurm.records import STANDS_STILL, Booking, SlurmJob, SlurmNode
from mirab.backends.slurm.seen import (
    OUTCOMES,
    Seen,
    end_of,
    exit_code,
    job_of,
    unseen,
    workload_for,
)
from mirab.backends.slurm.waiting import Waiting
from mirab.model import events as facts
from mirab.model.events import Event, Outcome, goes_back
from mirab.model.resources import Cluster
from mirab.model.units import (
    FOREVER,
    MINUTE,
    SECOND,
    AccountPath,
    Duration,
    Instant,
    NodeName,
    RunId,
    WorkloadId,
    attempt_of,
    workload_of,
)

RETURNING = "it is being requeued"
BOOKING_PATIENCE: Duration = 20 * SECOND
"""So long the accounting is asked for a run that came and went between two looks: it is told of runs a little later."""
RETURN_PATIENCE: Duration = MINUTE
"""How long a job that went on its notice may take to be seen waiting again."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the state believes when mirab starts again.

    Attributes:
        runs: of each that has begun, when; expected: of those that have not, their nodes; ordered: when these were
            decided.
        waiting: workloads with no run, and why they are held ("" = they are not).
        health: nodes that are not up.
        at: the instant of the last record.
    """

    runs: Mapping[RunId, Instant] = field(default_factory=dict)
    expected: Mapping[RunId, Sequence[NodeName]] = field(default_factory=dict)
    ordered: Mapping[RunId, Instant] = field(default_factory=dict, kw_only=True)
    waiting: Mapping[WorkloadId, str] = field(default_factory=dict)
    health: Mapping[NodeName, str] = field(default_factory=dict)
    at: Instant = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """Which jobs are mirab's, and what they are to it.

    Attributes:
        minimum: the minimum in force of a run that Slurm started by itself.
        left: why a job is left to Slurm; "" = mirab decides about it.
        contract: what a job asks for beyond its size.
        account: the path of the job's account in the tree of budgets.
        taken: whether a workload of this id has been seen before, perhaps long ago.
    """

    left: Callable[[SlurmJob], str]
    contract: Callable[[SlurmJob], Contract]
    account: Callable[[SlurmJob], AccountPath]
    minimum: Callable[[SlurmJob], Duration]
    taken: Callable[[WorkloadId], bool] = lambda _: False


class Tracker:
    """Keeps what the last listing said, and tells what the next one changes. Jobs go by Slurm's ids.

    Attributes:
        looked_at: when a listing was last taken in; fresh_at: when it was last known what runs.
        ledger_since: nothing is charged before.
    """

    def __init__(self, cluster: Cluster, rules: Rules, known: Known | None = None) -> None:
        known = known or Known()
        self.nodes = Nodes(cluster, known.health)
        self.rules = rules
        self.seen: dict[str, Seen] = {}
        self.looked_at = self.ledger_since = self.fresh_at = known.at
        self._ended: dict[str, Instant] = {}
        for run_id, began in known.runs.items():
            seen = self._know(workload_of(run_id))
            seen.run, seen.attempt, seen.begun = run_id, attempt_of(run_id), began
        for run_id, where in known.expected.items():
            self._know(workload_of(run_id))
            self.released(workload_of(run_id), run_id, where, known.ordered.get(run_id, known.at))
        for workload_id, held in known.waiting.items():
            self._know(workload_id).held = held

    def _know(self, workload_id: WorkloadId) -> Seen:
        job_id = job_of(workload_id)
        return self.seen.setdefault(job_id, Seen(unseen(job_id), workload_id))

    # --- what mirab does ----------------------------------------------------------------------------------------------
    def find(self, workload_id: WorkloadId) -> Seen | None:
        seen = self.seen.get(job_of(workload_id))
        return seen if seen is not None and seen.workload_id == workload_id else None

    def released(self, workload_id: WorkloadId, run_id: RunId, where: Sequence[NodeName], now: Instant) -> None:
        """The job is about to be let go to these nodes as this run."""
        seen = self.find(workload_id)
        if seen is not None:
            if seen.expected != run_id:
                seen.since, seen.refused = now, ""
            seen.expected, seen.where, seen.unwritten = run_id, tuple(where), True

    def unreleased(self, workload_id: WorkloadId) -> None:
        seen = self.find(workload_id)
        if seen is not None:
            seen.expected = None

    def asked(self, workload_id: WorkloadId, outcome: Outcome, back: bool, now: Instant) -> None:
        """Its run has been told to stop; this is what its end will be called."""
        seen = self.find(workload_id)
        if seen is not None:
            seen.asked, seen.asked_at, seen.back = outcome, now, back

    def stopped(self, workload_id: WorkloadId, now: Instant) -> None:
        """Its notice is over, and it has been stopped."""
        seen = self.find(workload_id)
        if seen is not None and seen.run is not None:
            seen.stopped_at = now

    def expected(self) -> list[Seen]:
        return [seen for seen in self.seen.values() if seen.expected is not None]

    def returning(self) -> list[Seen]:
        """Jobs that went on their notice: they are to be requeued."""
        return [seen for seen in self.seen.values() if seen.returning is not None and seen.job.ended]

    def to_look_up(self, jobs: Iterable[SlurmJob]) -> list[str]:
        """Jobs of whose run the listing does not tell the end, or not even that it was: the accounting may."""
        listed = {job.id: job for job in jobs}
        return [job_id for job_id, seen in self.seen.items() if seen.in_the_dark(listed.get(job_id))]

    # --- what Slurm says ----------------------------------------------------------------------------------------------
    def take_in(
        self,
        jobs: Sequence[SlurmJob],
        nodes: Sequence[SlurmNode],
        now: Instant,
        books: Sequence[Booking] | None = None,
        whole: bool = True,
    ) -> list[Event]:
        """What the listing tells that was not known; submissions, then ends, starts and what may start.

        `books`: what the accounting says of those `to_look_up`; None = there is none. `whole`: all jobs were listed
        anew, so that what came before and is not known has never been.
        """
        bookings = books or ()
        told = self.nodes.take_in(nodes, now)
        listed = {job.id: job for job in sorted(jobs, key=lambda job: (job.submitted_at, job.job_id, job.id))}
        waiting = Waiting(self.rules.left, Done(listed))
        for job_id, job in listed.items():
            told += self._submission(job_id, job, waiting, now)
        booked = books is not None
        for job_id in list(self.seen):
            self._await_book(self.seen[job_id], listed.get(job_id), now, books)
        ends = [end for job_id in list(self.seen) for end in self._end(job_id, listed.get(job_id), now, bookings)]
        told += sorted(ends, key=lambda fact: fact.at)
        starts = [start for job_id, job in listed.items() for start in self._begin(job_id, job, now, booked)]
        told += sorted(starts, key=lambda fact: fact.at)
        waiting.count_arrays(self.seen.values())
        for job_id, job in listed.items():
            told += self._holding(job_id, job, waiting, now)
        self._ended = {job_id: job.submitted_at for job_id, job in listed.items() if job.ended}
        self.looked_at = now if whole else self.looked_at
        self.fresh_at = now
        return told

    def _submission(self, job_id: str, job: SlurmJob, waiting: Waiting, now: Instant) -> Iterator[Event]:
        if job_id in self.seen or not job.known or (job.ended and self._is_past(job)):
            return
        workload_id = self._fresh(job_id)
        seen = self.seen[job_id] = Seen(job, workload_id)
        workload = workload_for(job, workload_id, self.rules.account(job), self.rules.contract(job))
        yield facts.WorkloadSubmitted(min(job.submitted_at, now), workload)
        seen.held = "" if job.ended else waiting.why_not(job, seen, now)
        if seen.held:
            yield facts.WorkloadHeld(now, workload_id, seen.held)

    def _is_past(self, job: SlurmJob) -> bool:
        """Whether an end is no news: told before, or from before mirab came. What came and went unseen is news."""
        if job.submitted_at > self.looked_at - SECOND or job.id in self._ended:
            return self._ended.get(job.id) == job.submitted_at
        return (job.ended_at or 0) <= self.ledger_since or self.rules.taken(WorkloadId(job.id))

    def _fresh(self, job_id: str) -> WorkloadId:
        """Slurm's id; a job that comes again after its end is told apart from what it was."""
        found, again = WorkloadId(job_id), 0
        while self.rules.taken(found):
            again += 1
            found = WorkloadId(f"{job_id}r{again}")
        return found

    # --- ends
    def _await_book(self, seen: Seen, job: SlurmJob | None, now: Instant, books: Sequence[Booking] | None) -> None:
        """Of a run that its user requeued, Slurm's listing says no end. The accounting does, a little later."""
        requeued = seen.run is not None and job is not None and not job.ended and seen.is_over(job)
        told = books is None or seen.stopped_at is not None or seen.booked(books or ()) is not None
        since = now if seen.over is None else seen.over
        waits = requeued and not told and not self._lost(seen) and now - since < BOOKING_PATIENCE
        seen.over = since if waits else None

    def _lost(self, seen: Seen) -> bool:
        return any(self.nodes.down(node) for node in seen.job.node_names)

    def _end(
        self, job_id: str, job: SlurmJob | None, now: Instant, bookings: Sequence[Booking]
    ) -> Iterator[Event]:  # fmt: skip
        seen = self.seen[job_id]
        if seen.over is not None:
            return
        if seen.run is not None and seen.is_over(job):
            yield from self._run_ends(seen, job, now, bookings)
        elif job is not None and seen.came_and_was_requeued(job):
            yield from self._missed(seen, job, now, bookings)
        elif seen.run is None and (job is None or job.ended) and seen.returning is None:
            yield from self._never_seen_running(seen, job, now)
            del self.seen[job_id]
        elif seen.returning is not None:
            yield from self._returns(job_id, seen, job, now)

    def _run_ends(
        self, seen: Seen, job: SlurmJob | None, now: Instant, bookings: Sequence[Booking]
    ) -> Iterator[Event]:  # fmt: skip
        ended = self._run_ended(seen, job, now, seen.booked(bookings))
        back = seen.asked is not None and seen.back and ended.outcome is seen.asked
        yield ended
        seen.run, seen.asked, seen.back, seen.suspended, seen.stopped_at = None, None, False, False, None
        if job is not None and not job.ended:
            return
        if job is not None and back:
            seen.job, seen.returning, seen.held = job, now, RETURNING
            yield facts.WorkloadHeld(now, seen.workload_id, RETURNING)
        else:
            if goes_back(ended.outcome, True):
                yield facts.WorkloadCancelled(ended.at, seen.workload_id)
            del self.seen[seen.job.id]

    def _run_ended(
        self, seen: Seen, job: SlurmJob | None, now: Instant, booked: Booking | None
    ) -> facts.RunEnded:  # fmt: skip
        assert seen.run is not None
        if job is not None and job.ended:
            return facts.RunEnded(end_of(job, now), seen.run, seen.outcome(job, now), exit_code=exit_code(job))
        at = min(now, (booked.ended_at if booked else seen.stopped_at or seen.requeued_at(job)) or now)
        asked = seen.asked if seen.answers(at) else None
        if job is None:
            outcome = asked or OUTCOMES.get(booked.state if booked else "", Outcome.COMPLETED)
            return facts.RunEnded(at, seen.run, outcome, exit_code=exit_code(booked) if booked else None)
        outcome = seen.asked or (
            Outcome.NODE_FAIL if self._lost(seen) or (booked and _node_failed(booked)) else Outcome.REQUEUED
        )
        resumes = self.rules.contract(job).resume and job.requeue
        return facts.RunEnded(at, seen.run, outcome if goes_back(outcome, resumes) else Outcome.REQUEUED)

    def _never_seen_running(self, seen: Seen, job: SlurmJob | None, now: Instant) -> Iterator[Event]:
        """It ran and ended between two looks; or it was cancelled, or vanished, before it could run."""
        ran = job is not None and job.started_at is not None and job.node_names and seen.is_later(job)
        if job is None or not ran:
            yield facts.WorkloadCancelled(end_of(job, now), seen.workload_id, "its user, in Slurm")
            if seen.expected is not None:
                yield facts.RunEnded(end_of(job, now), seen.expected, Outcome.CANCELLED)
            return
        yield from self._run_begins(seen, job, now)
        if seen.run is not None:
            at = max(end_of(job, now), min(now, max(job.started_at or now, self.ledger_since)))
            yield facts.RunEnded(at, seen.run, seen.outcome(job, now), exit_code=exit_code(job))

    def _missed(self, seen: Seen, job: SlurmJob, now: Instant, bookings: Sequence[Booking]) -> Iterator[Event]:
        """A run that mirab let go has begun and was requeued by its user between two looks; it may even run again."""
        until = (job.started_at or now) - SECOND if job.has_nodes else now
        for book in bookings:
            later = book.job == job.id and book.started_at > max(seen.since - SECOND, (seen.begun or 0) + SECOND)
            if later and book.ended_at is not None and seen.expected is not None and book.started_at < until:
                run_id = seen.expected
                seen.begins(run_id, job, book.started_at)
                seen.run = None
                yield facts.RunStarted(book.started_at, run_id)
                yield facts.RunEnded(book.ended_at, run_id, Outcome.REQUEUED)

    def _returns(self, job_id: str, seen: Seen, job: SlurmJob | None, now: Instant) -> Iterator[Event]:
        """Its requeue is waited for; `_holding` lets it into the queue once it is seen waiting."""
        assert seen.returning is not None
        if job is not None and not job.ended:
            seen.job, seen.returning = job, None
        elif now - seen.returning > RETURN_PATIENCE:
            del self.seen[job_id]
            yield facts.WorkloadCancelled(now, seen.workload_id, "Slurm, which could not requeue it")

    # --- starts
    def _begin(self, job_id: str, job: SlurmJob, now: Instant, booked: bool) -> Iterator[Event]:
        """The start of a run, and whether it stands still. One that may be the second has to wait for the books."""
        seen = self.seen.get(job_id)
        if seen is None or seen.over is not None:
            return
        unbooked = seen.came_and_was_requeued(job) and now - seen.since < BOOKING_PATIENCE
        seen.job = replace(job, restarts=seen.job.restarts) if unbooked else job
        on_its_way = job.state in ("COMPLETING", "CONFIGURING") or "CONFIGURING" in job.flags
        if unbooked and booked:
            return
        if seen.run is None and job.has_nodes and not on_its_way and seen.is_later(job):
            yield from self._run_begins(seen, job, now)
        elif seen.run is not None and seen.restarts is None:
            seen.restarts, seen.begun = job.restarts, job.started_at or seen.begun
        if seen.run is not None and (job.state in STANDS_STILL) != seen.suspended:
            seen.suspended = not seen.suspended
            kind = facts.RunSuspended if seen.suspended else facts.RunContinued
            yield kind(now, seen.run)

    def _run_begins(self, seen: Seen, job: SlurmJob, now: Instant) -> Iterator[Event]:
        started = min(job.started_at or now, now)
        if seen.expected is not None and seen.is_where_it_was_to_be(job):
            seen.begins(seen.expected, job, started)
            assert seen.run is not None
            yield facts.RunStarted(started, seen.run)
            return
        if seen.expected is not None:
            run_id = seen.gives_up()
            seen.attempt = attempt_of(run_id)
            yield facts.RunEnded(started, run_id, Outcome.REQUEUED)
        given = self.nodes.places.allocation(job)
        if given is None:
            return
        yield from self._give_way(job, started)
        seen.begins(RunId(f"{seen.workload_id}.{max(seen.attempt + 1, job.attempt)}"), job, started)
        assert seen.run is not None
        minimum = FOREVER if self.rules.left(job) else self.rules.minimum(job)
        told = min(now, max(started, self.ledger_since))
        yield facts.RunAdopted(told, seen.run, seen.workload_id, given, started, minimum)

    def _give_way(self, job: SlurmJob, at: Instant) -> Iterator[Event]:
        """Slurm has started something by itself where a run of mirab's was to begin: that one is taken back."""
        for seen in self.expected():
            shared = [name for name in seen.where if name in job.node_names]
            if shared and any(self._crowded(name, job.gpus_per_node + seen.job.gpus_per_node) for name in shared):
                run_id = seen.gives_up()
                why = f"Slurm has started {job.id} on {', '.join(shared)}"
                yield facts.ActionRefused(at, run_id, "start", why)

    def _crowded(self, name: NodeName, more: int) -> bool:
        """Whether a node has not so many GPUs beside those of the runs on it."""
        node = self.nodes.listed.get(name)
        used = sum(seen.job.gpus_per_node for seen in self.seen.values() if seen.run and name in seen.job.node_names)
        return node is not None and node.gpus > 0 and used + more > node.gpus

    # --- what may start
    def _holding(self, job_id: str, job: SlurmJob, waiting: Waiting, now: Instant) -> Iterator[Event]:
        seen = self.seen.get(job_id)
        if seen is None or seen.run is not None or seen.expected is not None or not job.waits:
            return
        held = waiting.why_not(job, seen, now)
        if held == seen.held:
            return
        if seen.held:
            yield facts.WorkloadReleased(now, seen.workload_id)
        seen.held = held
        if held:
            yield facts.WorkloadHeld(now, seen.workload_id, held)


def _node_failed(booked: Booking) -> bool:
    return OUTCOMES.get(booked.state) is Outcome.NODE_FAIL
