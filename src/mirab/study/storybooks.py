"""What the reader of a record keeps while it reads: the others in the queue, and one stay in it."""

from __future__ import annotations

from typing import Any, TypeAlias

from mirab.core.queues import Rank, rank
from mirab.model.accounts import Budgets, plain
from mirab.model.codec import decode, encode
from mirab.model.events import REQUEUED, Outcome, goes_back
from mirab.model.nodelists import compress
from mirab.model.resources import Allocation, Cluster, nodes_of
from mirab.model.units import SECOND, Instant, attempt_of, workload_of
from mirab.model.workloads import Workload

Json: TypeAlias = dict[str, Any]


def seconds(instant: Instant | None) -> float | None:
    return None if instant is None else instant / SECOND


def ledgers_by_pool(budgets: Budgets, cluster: Cluster) -> list[str]:
    """By the number of a pool the ledger that it belongs to: nobody of another goes before or behind our workload."""
    found = [""] * len(cluster.pools)
    for ledger in budgets.ledgers(cluster.pool_names):
        for number in ledger.pools:
            found[number] = ledger.name
    return found


class Others:
    """The live workloads of the record: whose account each is, and who of the same queue stands before ours.

    `ahead`: how many of the same queue go before the next attempt of our workload.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._accounts_of_queue = (workload.account, f"{workload.account}/*")
        self._queue = (workload.user, encode(workload.shape))
        self._accounts: dict[str, str] = {}
        self._mates: dict[str, Workload] = {}
        self._waiting: dict[str, Rank] = {}
        self._ours = rank(workload, 1)
        self.ahead = 0

    def next_attempt(self, attempt: int) -> None:
        """Our workload queues for this attempt: a resumed one goes before a new one."""
        self._ours = rank(self._workload, attempt)
        self.ahead = sum(1 for theirs in self._waiting.values() if theirs < self._ours)

    def submitted(self, record: Json) -> None:
        self._accounts[record["id"]] = record["account"]
        if record["id"] != self._workload.id and self.same_queue(record):
            mate = self._mates[record["id"]] = decode(record)
            self._joined_queue(mate.id, rank(mate, 1))

    def account_of(self, workload_id: str) -> str:
        """Empty if its submission is not in the record."""
        return self._accounts.get(workload_id, "")

    def _joined_queue(self, workload_id: str, theirs: Rank) -> None:
        self._waiting[workload_id] = theirs
        self.ahead += theirs < self._ours

    def left_queue(self, workload_id: str) -> None:
        theirs = self._waiting.pop(workload_id, None)
        self.ahead -= theirs is not None and theirs < self._ours

    def ended(self, run_id: str, outcome: Outcome) -> None:
        workload_id = workload_of(run_id)
        mate = self._mates.get(workload_id)
        if mate is not None and goes_back(outcome, mate.resume):
            self._joined_queue(workload_id, rank(mate, attempt_of(run_id) + 1))
        elif mate is not None or outcome not in REQUEUED:
            self.gone(workload_id)

    def gone(self, workload_id: str) -> None:
        self.left_queue(workload_id)
        for book in (self._accounts, self._mates):
            book.pop(workload_id, None)

    def same_queue(self, record: Json) -> bool:
        """Whether a recorded submission or reason is about the queue of our workload."""
        ours = plain(record["account"]) in self._accounts_of_queue
        return ours and (record["user"], record["shape"]) == self._queue


class Wait:
    """One stay in the queue: what blocked it, for how long, and who started meanwhile."""

    def __init__(self, at: Instant, after: str) -> None:
        self._from = at
        self._until = at
        self._after = after
        self._end = ""
        self._spells: list[Json] = []
        self._overtaken: dict[str, Json] = {}

    def blocked(self, at: Instant, told: Json, head: str, ahead: int) -> None:
        """A reason was recorded; one of the same kind goes on with newer numbers."""
        self._close_spell(at)
        last = self._spells[-1] if self._spells else None
        if last is not None and last["reason"]["type"] == told["reason"]["type"]:
            last |= {"records": last["records"] + 1, "head": head, "ahead": ahead} | told
            return
        self._spells.append({"from_s": seconds(at), "until_s": seconds(at), "held_s": 0.0, "records": 1,
                             "head": head, "ahead": ahead, "ahead_at_first": ahead} | told)  # fmt: skip

    def _close_spell(self, at: Instant) -> None:
        if self._spells:
            last = self._spells[-1]
            last |= {"until_s": seconds(at), "held_s": at / SECOND - last["from_s"]}

    def overtaken(self, account: str, slots: int, reason: Json) -> None:
        entry = self._overtaken.setdefault(
            account, {"account": account, "started": 0, "slots": 0, "lowest_ratio": None, "highest_ratio": None}
        )
        entry["started"] += 1
        entry["slots"] += slots
        ratio = reason.get("ratio") if reason["type"] == "InOrder" else None
        if isinstance(ratio, int | float):
            entry["lowest_ratio"] = min(ratio, entry["lowest_ratio"] if entry["lowest_ratio"] is not None else ratio)
            entry["highest_ratio"] = max(ratio, entry["highest_ratio"] if entry["highest_ratio"] is not None else ratio)

    def end(self, at: Instant, end: str) -> None:
        self._close_spell(at)
        self._until, self._end = at, end

    def json(self) -> Json:
        started = sorted(self._overtaken.values(), key=lambda entry: (-entry["slots"], entry["account"]))
        return {
            "from_s": seconds(self._from),
            "until_s": seconds(self._until),
            "wait_s": (self._until - self._from) / SECOND,
            "after": self._after,
            "end": self._end,
            "blockers": self._spells,
            "started_meanwhile": started,
        }


def node_ranges(cluster: Cluster, allocation: Allocation) -> list[str]:
    """The names of the allocation's nodes, neighbours folded: ``["n[001-008]", "n011"]``."""
    names = cluster.pools[allocation.pool].nodes
    ranges: list[list[int]] = []
    for number in nodes_of(allocation.mask):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [compress(names[low : high + 1]) for low, high in ranges]
