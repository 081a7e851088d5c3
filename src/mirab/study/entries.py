"""Which runs an account was charged for in the window: the lines of its ledger, from the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mirab.model import events as facts_of
from mirab.model.events import Event
from mirab.model.plans import Plan, Start
from mirab.model.resources import Cluster
from mirab.model.units import HOUR, UNIT, AccountPath, Duration, Instant, RunId, UserName, WorkloadId
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
        self._open: dict[RunId, Entry] = {}
        self._by_account: dict[AccountPath, deque[Entry]] = {}

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """One record of the journal."""
        for fact in facts:
            if isinstance(fact, facts_of.WorkloadSubmitted):
                self._live[fact.workload.id] = fact.workload
            elif isinstance(fact, facts_of.RunStarted) and fact.run_id in self._open:
                self._open[fact.run_id].began_at = fact.at
            elif isinstance(fact, facts_of.RunEnded):
                self._close(fact.run_id, fact.at)
        for action in plan.actions:
            if isinstance(action, Start):
                self._begin(action, plan.at)

    def _begin(self, action: Start, at: Instant) -> None:
        workload = self._live.get(action.workload_id)
        if workload is not None and action.min_runtime:
            rate = action.allocation.slots * self._weights[min(action.allocation.pool, len(self._weights) - 1)]
            entry = Entry(action.run_id, workload.user, workload.account, rate, at, action.allocation.pool)
            self._open[action.run_id] = entry
            self._by_account.setdefault(workload.account, deque()).append(entry)

    def _close(self, run: RunId, at: Instant) -> None:
        entry = self._open.pop(run, None)
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
