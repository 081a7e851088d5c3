"""What all commands of the desk share: the running scheduler, the book, the bounds, and who answers for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirab.core.queues import Pending
from mirab.core.runs import Run
from mirab.core.state import State
from mirab.model.records import AuditEntry, JobRow
from mirab.model.units import AccountPath, Instant, UserName, WorkloadId
from mirab.service.auth.principal import Principal
from mirab.service.desk.book import Book
from mirab.service.desk.errors import DeskError, denied, not_found
from mirab.service.desk.followers import Followers
from mirab.service.desk.forms import Limits
from mirab.service.desk.identity import RunAs

if TYPE_CHECKING:
    from mirab.service.live import Live

BRIEF = 2_000
"""Longest text of a person that is kept in the audit log."""


@dataclass(frozen=True, slots=True)
class Target:
    """A job that a command is about, as the state knows it; neither waiting, held nor running = it has ended."""

    id: WorkloadId
    user: UserName
    account: AccountPath
    pending: Pending | None = None
    held: str | None = None
    run: Run | None = None
    ended: str = ""

    @property
    def state(self) -> str:
        """What it does, for a sentence."""
        if self.run is not None:
            return "it is being stopped" if self.run.stopping else "it is running"
        if self.held is not None:
            return "it is held"
        return f"it has ended ({self.ended})" if self.ended else "it waits in the queue"


@dataclass(frozen=True, slots=True)
class Office:
    """The desk's own things. `run_as`: Unix user of a principal's jobs."""

    live: Live
    book: Book
    followers: Followers
    limits: Limits
    run_as: RunAs

    def target(self, state: State, workload: WorkloadId) -> Target:
        """The job of that id.

        Raises:
            DeskError: there never was one.
        """
        pending = state.pending.get(workload) or state.rejected.get(workload)
        if pending is not None:
            return Target(workload, pending.workload.user, pending.workload.account, pending=pending)
        if workload in state.held:
            pending, why = state.held[workload]
            return Target(workload, pending.workload.user, pending.workload.account, pending=pending, held=why)
        run = state.running.get(workload)
        if run is not None:
            return Target(workload, run.workload.user, run.workload.account, run=run)
        row = self.live.store.job(workload)
        if row is None:
            raise not_found(f"there is no job {workload}: `mirab ls` lists yours", id=workload)
        return Target(workload, row.user, row.account, ended=row.state.value)

    def targets(self, state: State, ids: Sequence[WorkloadId]) -> list[Target]:
        """The jobs of these ids, an array's tasks for its own id."""
        found: dict[WorkloadId, Target] = {}
        for workload in ids:
            tasks = self.book.arrays.get(workload)
            live = [each for each in tasks.live if _known(state, each)] if tasks is not None else []
            for each in live or self._recorded(state, workload):
                found[each] = self.target(state, each)
        return list(found.values())

    def _recorded(self, state: State, workload: WorkloadId) -> list[WorkloadId]:
        """The job itself, or the tasks of an array that has ended."""
        if _known(state, workload) or self.live.store.job(workload) is not None:
            return [workload]
        rows, _ = self.live.store.jobs(array_job=workload, limit=self.limits.array)
        return [row.id for row in rows] or [workload]

    def rows(self, ids: Sequence[WorkloadId]) -> list[JobRow]:
        """The jobs as they are recorded, in this order."""
        found = {row.id: row for start in range(0, len(ids), 500) for row in self._page(ids[start : start + 500])}
        return [found[workload] for workload in ids if workload in found]

    def _page(self, ids: Sequence[WorkloadId]) -> list[JobRow]:
        rows, _ = self.live.store.jobs(ids=list(ids), limit=len(ids))
        return rows


def _known(state: State, workload: WorkloadId) -> bool:
    return workload in state.pending or workload in state.held or workload in state.running


def require(who: Principal, action: str, target: Target, verb: str) -> None:
    """Raises DeskError unless they may do it to the job."""
    if not who.may(action, target.account, owner=target.user):
        raise denied(
            f"job {target.id} is {target.user}'s, of {target.account}: only they, managers of the account and "
            f"operators may {verb} it",
            id=target.id,
        )


def require_operator(who: Principal, action: str, what: str) -> None:
    if not who.may(action):
        raise denied(f"{who.user} may not {what}: that is for operators of the whole cluster")


def is_operator(who: Principal) -> bool:
    """Whether they look after the whole cluster."""
    return who.may("node.drain")


def audited(who: Principal, now: Instant, action: str, target: str, before: str = "", after: str = "",
            why: str = "") -> AuditEntry:  # fmt: skip
    """A line of the audit log."""
    return AuditEntry(now, who.user, who.origin, action, target, before, after, why[:BRIEF])


def unless_all_refused(refusals: list[DeskError], done: int) -> None:
    """A command about several jobs is refused only if it could do nothing for any of them."""
    if refusals and not done:
        raise refusals[0]
