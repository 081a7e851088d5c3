"""A replayable log out of a journal: what came in during the last days, how long it ran, which nodes were sick.

The journal says what a log says, and no more: work that has not ended is cut off where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirab.model import events as facts_of
from mirab.model.accounts import Budgets
from mirab.model.events import Event, Outcome, goes_back
from mirab.model.plans import Plan, Reject
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Cluster
from mirab.model.trace import Trace
from mirab.model.units import (
    HOUR,
    SECOND,
    AccountPath,
    Duration,
    Instant,
    NodeName,
    RunId,
    UserName,
    WorkloadId,
    workload_of,
)
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.study.deeds import Deeds
from mirab.study.excepted import Excepted
from mirab.study.formats import plural

UNKNOWN_RUN: Duration = HOUR
"""The run time of work that never ran and has no time limit, while nobody of its account has ended anything."""
REPAIR_USUAL: Duration = 4 * HOUR
SHORTEST: Duration = SECOND

Key = tuple[AccountPath, UserName]


@dataclass(slots=True)
class _Job:
    """`saved`: running time that need not be repeated; `done`: all of its work is known."""

    workload: Workload
    saved: Duration = 0
    started_at: Instant | None = None
    ended_at: Instant | None = None
    gave_up_at: Instant | None = None
    done: bool = False
    before: Duration = 0


class PastWork:
    """Told every record of a journal from its beginning, when `policy` was in force; `trace` is then the log of a
    period that ends now.

    Work that was refused is left out, and counted. What a policy that only observes would have refused, ran or waits
    all the same, and is part of the log.
    """

    def __init__(self, begin: Instant, policy: Policy) -> None:
        self._begin = begin
        self._deeds = Deeds(policy)
        self._refused = 0
        self._jobs: dict[WorkloadId, _Job] = {}
        self._sick: dict[NodeName, facts_of.NodeDegraded | facts_of.NodeDown] = {}
        self._troubles: list[NodeTrouble] = []
        self._excepted = Excepted()
        self._lengths: dict[AccountPath, list[Duration]] = {}
        self._marked = False
        self._hear: dict[type, Callable[[Any], None]] = {
            facts_of.WorkloadSubmitted: self._submitted,
            facts_of.WorkloadCancelled: self._cancelled,
            facts_of.RunStarted: self._started,
            facts_of.RunAdopted: self._adopted,
            facts_of.RunEnded: self._ended,
            facts_of.NodeDegraded: self._fell_sick,
            facts_of.NodeDown: self._fell_sick,
            facts_of.NodeUp: self._up,
            **self._excepted.hearers(),
        }

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """One record."""
        for fact in facts:
            if not self._marked and fact.at >= self._begin:
                self._mark()
            hear = self._hear.get(type(fact))
            if hear is not None:
                hear(fact)
        for action in self._deeds.of(facts, plan).actions:
            if isinstance(action, Reject) and self._jobs.pop(action.workload_id, None) is not None:
                self._refused += plan.at >= self._begin

    # --- learn ------------------------------------------------------------------------------------------------------
    def _mark(self) -> None:
        """The period begins: what has ended is of no interest, what goes on has done a part of its work."""
        self._marked = True
        self._jobs = {name: job for name, job in self._jobs.items() if not job.done and job.gave_up_at is None}
        for job in self._jobs.values():
            job.before = job.saved + (0 if job.started_at is None else max(0, self._begin - job.started_at))

    def _submitted(self, fact: facts_of.WorkloadSubmitted) -> None:
        self._jobs[fact.workload.id] = _Job(fact.workload)

    def _cancelled(self, fact: facts_of.WorkloadCancelled) -> None:
        job = self._jobs.get(fact.workload_id)
        if job is None:
            return
        if job.started_at is None and not job.saved:
            job.gave_up_at = fact.at
        elif job.started_at is None:
            job.done = True

    def _started(self, fact: facts_of.RunStarted) -> None:
        job = self._of(fact.run_id)
        if job is not None:
            job.started_at = fact.at

    def _adopted(self, fact: facts_of.RunAdopted) -> None:
        job = self._jobs.get(fact.workload_id)
        if job is not None:
            job.started_at = fact.started_at

    def _ended(self, fact: facts_of.RunEnded) -> None:
        job = self._of(fact.run_id)
        if job is None:
            return
        if job.started_at is not None:
            job.saved += max(0, fact.at - job.started_at - (fact.lost or 0))
            job.started_at = None
        if goes_back(fact.outcome, job.workload.resume):
            return
        job.done = fact.outcome is not Outcome.LAUNCH_FAILED
        self._lengths.setdefault(job.workload.account, []).append(job.saved)

    def _of(self, run_id: RunId) -> _Job | None:
        return self._jobs.get(workload_of(run_id))

    def _fell_sick(self, fact: facts_of.NodeDegraded | facts_of.NodeDown) -> None:
        self._sick.setdefault(fact.node, fact)

    def _up(self, fact: facts_of.NodeUp) -> None:
        known = self._sick.pop(fact.node, None)
        if known is not None and fact.at >= self._begin:
            self._troubles.append(self._trouble(known, fact.at))

    def _trouble(self, known: facts_of.NodeDegraded | facts_of.NodeDown, until: Instant | None) -> NodeTrouble:
        at = max(known.at, self._begin)
        repair = REPAIR_USUAL if until is None else max(SECOND, until - at)
        kind = "down" if isinstance(known, facts_of.NodeDown) else "degraded"
        return NodeTrouble(at - self._begin, known.node, kind, repair)

    # --- tell -------------------------------------------------------------------------------------------------------
    def trace(self, cluster: Cluster, budgets: Budgets, now: Instant) -> Trace:
        """The log from the beginning of the period until now, on these nodes and under these budgets.

        Work that waited or ran when the period began comes in at its beginning with what was left of it.
        """
        if not self._marked:
            self._mark()
        open_ended = sum(not job.done for job in self._jobs.values())
        arrivals, strangers = self._arrivals(cluster, budgets, now)
        held = [_moved(each, self._begin) for each in self._excepted.after(self._begin)]
        known = {str(path) for path, _, _ in budgets.walk()}
        names = {node for pool in cluster.pools for node in pool.nodes}
        troubles = [*self._troubles, *(self._trouble(each, None) for each in self._sick.values())]
        return Trace(
            arrivals, cluster, budgets,
            sorted((each for each in troubles if each.node in names), key=lambda each: (each.at, each.node)),
            exemptions=[each for each in held if isinstance(each, Exemption) and each.account in known],
            reservations=[each for each in held if isinstance(each, Reservation) and each.account in known],
            name="the journal of the live service", origin=self._begin, ends_at=max(SECOND, now - self._begin),
            notes=_notes(open_ended, strangers, self._refused), rows=len(arrivals),
        )  # fmt: skip

    def _arrivals(self, cluster: Cluster, budgets: Budgets, now: Instant) -> tuple[list[Arrival], int]:
        heirs, known = budgets.heirs(), {path for path, _, _ in budgets.walk()}
        found, strangers = [], 0
        for job in self._jobs.values():
            workload = job.workload
            account = heirs.get(workload.account, workload.account)
            if account not in known:
                strangers += 1
                continue
            at = max(0, workload.submitted_at - self._begin)
            deadline = None if workload.deadline_at is None else workload.deadline_at - self._begin
            moved = replace(workload, submitted_at=at, account=account, held=False, deadline_at=deadline)
            gave_up = None if job.gave_up_at is None else max(SECOND, job.gave_up_at - self._begin - at)
            found.append(Arrival(moved, self._run(job, now), gave_up))
        return sorted(found, key=lambda each: (each.workload.submitted_at, each.workload.id)), strangers

    def _run(self, job: _Job, now: Instant) -> Duration:
        """Work that was left of it when the period began."""
        so_far = job.saved + (0 if job.started_at is None else max(0, now - job.started_at))
        whole = so_far if job.done else max(so_far, self._guess(job.workload))
        return max(SHORTEST, whole - job.before)

    def _guess(self, workload: Workload) -> Duration:
        """For work that has not ended: its time limit, else the median of what its account has ended."""
        lengths = sorted(self._lengths.get(workload.account, ()))
        return workload.shape.time_limit or (lengths[len(lengths) // 2] if lengths else UNKNOWN_RUN)


def _moved(held: Exemption | Reservation, begin: Instant) -> Exemption | Reservation:
    return replace(held, begin=max(0, held.begin - begin), end=held.end - begin)


def _notes(open_ended: int, strangers: int, refused: int) -> list[str]:
    notes = []
    if open_ended:
        notes.append(f"{plural(open_ended, 'workload')} had not ended: their run time is taken from their time limit, "
                     "or from what their account has ended.")  # fmt: skip
    if strangers:
        notes.append(f"Left out, as the budgets of now do not name their account: {plural(strangers, 'workload')}.")
    if refused:
        notes.append(f"Left out, as they were refused when they came: {plural(refused, 'workload')}.")
    return notes


def past_trace(
    records: Iterable[tuple[Sequence[Event], Plan]], cluster: Cluster, budgets: Budgets, begin: Instant, now: Instant,
    policy: Policy,
) -> Trace:  # fmt: skip
    """The log of a journal's records from `begin` until now; `policy` is that under which the journal began."""
    past = PastWork(begin, policy)
    for facts, plan in records:
        past.append(facts, plan)
    return past.trace(cluster, budgets, now)
