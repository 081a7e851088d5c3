"""Whose turn it is, by comparing two workloads at a time: the criteria of the design, one after the other."""

from __future__ import annotations

from functools import cmp_to_key
from math import inf

from mirab.model.policy import Policy
from mirab.model.workloads import Workload
from tests.naive import homes, ledger
from tests.naive.amounts import leaf_of, preferred
from tests.naive.history import History


def in_order(history: History, now: int, policy: Policy) -> list[str]:
    """The charged workloads that wait, first comes first."""
    waiting = [wait.workload for wait in history.waits if wait.covers(now) and wait.workload is not None]
    charged = [each for each in waiting if each.shape.min_runtime > 0 and preferred(history, each) is not None]
    order = Order(history, now, policy)
    return [each.id for each in sorted(charged, key=cmp_to_key(order.compare))]


class Order:
    """Compares at one instant."""

    def __init__(self, history: History, now: int, policy: Policy) -> None:
        self.history, self.now, self.policy = history, now, policy
        self._ratios: dict[str, float] = {}

    def ratio(self, account: str) -> float:
        if account not in self._ratios:
            self._ratios[account] = ledger.ratio(self.history, account, self.now, self.policy)
        return self._ratios[account]

    def compare(self, one: Workload, other: Workload) -> int:
        """Negative: `one` goes first."""
        mine, theirs = self._leaf(one), self._leaf(other)
        if mine == theirs:
            return self._inside_a_leaf(one, other, mine)
        return self._owed_first(mine, theirs) or self._where_paths_part(mine, theirs)

    def _leaf(self, workload: Workload) -> str:
        """The leaf that it belongs to, in the ledger that promises it most."""
        home = homes.home(ledger.budgets_at(self.history, self.now), self.history.trace.cluster, workload)
        return f"{home}:{leaf_of(self.history, workload)}".removeprefix(":")

    def _owed_first(self, mine: str, theirs: str) -> int:
        return (self.ratio(mine) >= 1) - (self.ratio(theirs) >= 1)

    def _where_paths_part(self, mine: str, theirs: str) -> int:
        pairs = zip(ledger.path_of(mine), ledger.path_of(theirs), strict=False)
        here, there = next((one, other) for one, other in pairs if one != other)
        if self.ratio(here) != self.ratio(there):
            return -1 if self.ratio(here) < self.ratio(there) else 1
        if self.ratio(here) == inf:
            used = [ledger.used_and_committed(self.history, each, self.now, self.policy) for each in (here, there)]
            if used[0] != used[1]:
                return -1 if used[0] < used[1] else 1
        return -1 if here < there else 1

    def _inside_a_leaf(self, one: Workload, other: Workload, leaf: str) -> int:
        mine, theirs = (self._user(each, leaf) for each in (one, other))
        return -1 if (mine, self._rank(one)) < (theirs, self._rank(other)) else 1

    def _user(self, workload: Workload, leaf: str) -> tuple[object, str]:
        used = ledger.usage(self.history, leaf, self.now, self.policy.window, workload.user)
        return used + ledger.commitment(self.history, leaf, self.now, workload.user), workload.user

    def _rank(self, workload: Workload) -> tuple[object, ...]:
        limit = workload.shape.time_limit or 0
        slack = inf if workload.deadline_at is None else workload.deadline_at - self.now - limit
        again = any(run.asked is workload for run in self.history.runs)
        return slack, -workload.priority, not again, workload.submitted_at, workload.id
