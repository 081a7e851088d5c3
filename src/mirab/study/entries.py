"""Which runs an account was charged for in the window: the lines of its ledger, from the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from mirab.model import events as facts_of
from mirab.model.events import Event
from mirab.model.plans import Plan, Reject, Start
from mirab.model.resources import Allocation, Cluster
from mirab.model.units import HOUR, UNIT, AccountPath, Duration, Instant, RunId, UserName, WorkloadId, workload_of
from mirab.model.workloads import Workload


@dataclass(slots=True)
class Entry:
    """A charged run. `rate`: GPUs of weight 1 that it counts as, by its slots; `ended_at` None = it runs; `pool`: the
    number of the one that it is in."""

    run: RunId
    user: UserName
    account: AccountPath
    rate: float
    began_at: Instant
    pool: int
    ended_at: Instant | None = None

    def hours(self, since: Instant, now: Instant) -> float:
        """GPU-hours of weight 1 from `since` to `now`."""
        until = now if self.ended_at is None else min(self.ended_at, now)
        return max(0, until - max(self.began_at, since)) * self.rate / HOUR


class Entries:
    """A journal that remembers the charged runs of a window."""

    def __init__(self, cluster: Cluster, window: Duration) -> None:
        self._weights = [pool.weight / UNIT for pool in cluster.pools]
        self._window = window
        self._live: dict[WorkloadId, Workload] = {}
        self._planned: dict[WorkloadId, Start] = {}
        self._open: dict[WorkloadId, Entry] = {}
        self._by_account: dict[AccountPath, deque[Entry]] = {}

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """One record of the journal. A start counts once the run has begun: what is only decided may be advice."""
        for fact in facts:
            hear = _HEARERS.get(type(fact))
            if hear is not None:
                hear(self, fact)
        for action in plan.actions:
            if isinstance(action, Start):
                self._planned[action.workload_id] = action
            elif isinstance(action, Reject):
                self._forget(action.workload_id)

    def _submitted(self, fact: facts_of.WorkloadSubmitted) -> None:
        self._live[fact.workload.id] = fact.workload

    def _started(self, fact: facts_of.RunStarted) -> None:
        start = self._planned.pop(workload_of(fact.run_id), None)
        if start is not None:
            self._begin(start.run_id, start.workload_id, start.allocation, start.min_runtime, fact.at)

    def _adopted(self, fact: facts_of.RunAdopted) -> None:
        self._begin(fact.run_id, fact.workload_id, fact.allocation, fact.min_runtime, fact.at)

    def _begin(
        self, run: RunId, workload_id: WorkloadId, given: Allocation, min_runtime: Duration, at: Instant
    ) -> None:
        workload = self._live.get(workload_id)
        if workload is not None and min_runtime:
            rate = given.slots * self._weights[min(given.pool, len(self._weights) - 1)]
            entry = Entry(run, workload.user, workload.account, rate, at, given.pool)
            self._open[workload_id] = entry
            self._by_account.setdefault(workload.account, deque()).append(entry)

    def _cancelled(self, fact: facts_of.WorkloadCancelled) -> None:
        if fact.workload_id not in self._open:
            self._forget(fact.workload_id)

    def _ended(self, fact: facts_of.RunEnded) -> None:
        workload_id = workload_of(fact.run_id)
        self._close(workload_id, fact.at)
        workload = self._live.get(workload_id)
        if workload is not None and not facts_of.goes_back(fact.outcome, workload.resume):
            self._forget(workload_id)

    def _forget(self, workload_id: WorkloadId) -> None:
        self._live.pop(workload_id, None)
        self._planned.pop(workload_id, None)

    def _close(self, workload_id: WorkloadId, at: Instant) -> None:
        entry = self._open.pop(workload_id, None)
        if entry is None:
            return
        entry.ended_at = at
        line = self._by_account[entry.account]
        while line and line[0].ended_at is not None and line[0].ended_at < at - self._window:
            line.popleft()

    def of(
        self, account: AccountPath, now: Instant, most: int, pools: Collection[int] | None = None
    ) -> tuple[int, list[tuple[Entry, float]]]:
        """How many runs the account was charged for in the window, and the largest of them with their GPU-hours.

        `pools`: only those in these; None = in all.
        """
        since = now - self._window
        own = (each for each in self._by_account.get(account, ()) if pools is None or each.pool in pools)
        sizes = [(entry, entry.hours(since, now)) for entry in own]
        sizes = [each for each in sizes if each[1] > 0]
        return len(sizes), sorted(sizes, key=lambda each: (-each[1], each[0].run))[:most]


_HEARERS: dict[type, Callable[[Entries, Any], None]] = {
    facts_of.WorkloadSubmitted: Entries._submitted,
    facts_of.WorkloadCancelled: Entries._cancelled,
    facts_of.RunStarted: Entries._started,
    facts_of.RunAdopted: Entries._adopted,
    facts_of.RunEnded: Entries._ended,
}
