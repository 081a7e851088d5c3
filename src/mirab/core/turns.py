"""Whose turn it is among the queues that a decision looks at: always the first leaf, and its first queue.

Starting work can only worsen a standing, so heaps whose entries are compared anew as they surface are enough. Where
there is nobody to compare with, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

from mirab.core.ledgers import Ledger
from mirab.core.ordering import Key, queue_key
from mirab.core.queues import Queue, ShapeInfo
from mirab.core.shares import Account
from mirab.core.trial import Trial

Line: TypeAlias = list[tuple[Key, Queue]]
"""The queues of one leaf, a heap by key."""


class Rules(NamedTuple):
    """What differs between charged and uncharged work, and between policies.

    Attributes:
        leaf_key: where a leaf stands now; None = where its first queue stands.
        attempt: does what can be done for the head of a queue, and says whether that changed anything for others.
        lets_in: whether there still is room for a shape.
        strict: nobody goes before the first, whether there is room for it or not.
    """

    leaf_key: Callable[[Trial, Account], Key] | None
    attempt: Callable[[Trial, Queue, bool], bool]
    lets_in: Callable[[ShapeInfo], bool]
    strict: bool = False


class Turns:
    """The queues worth looking at, by leaf."""

    __slots__ = ("_for_room", "_gone", "_keys", "_lines", "_order", "_queues", "_rules", "_trial")

    def __init__(self, trial: Trial, rules: Rules) -> None:
        self._trial = trial
        self._rules = rules
        self._queues: dict[Account, dict[Queue, bool]] = {}
        self._for_room: dict[ShapeInfo, None] = {}
        self._gone: dict[ShapeInfo, None] = {}
        self._keys: dict[Account, tuple[int, Key]] = {}
        """Of each leaf the last key, and how often something had been given away by then."""
        self._lines: dict[Account, Line] = {}
        self._order: list[tuple[Key, str, Account]] = []

    def join(self, queue: Queue) -> None:
        """It may take from others, or is new."""
        leaf = queue.user.account
        queues = self._queues.get(leaf)
        if queues is None:
            self._queues[leaf] = {queue: True}
        else:
            queues[queue] = True

    def join_for_room(self, info: ShapeInfo) -> None:
        """The queues of a shape that there is room for, and nothing else is news for them. Those that wait at a cap
        join by themselves when there is room below it."""
        self._for_room[info] = None
        at_cap = self._trial.state.at_cap
        for waiting in info.queues.values():
            for queue in waiting.values():
                if queue not in at_cap:
                    self._queues.setdefault(queue.user.account, {}).setdefault(queue, False)

    def take(self) -> list[Queue]:
        """Give everybody their turn. Under strict order, the queues that block all others of their ledgers."""
        blocked: dict[Ledger, Queue] = {}
        trial, order, strict = self._trial, self._order, self._rules.strict
        for leaf in self._queues:
            self._push(leaf, first=len(self._queues) == 1)
        heapify(order)
        while order:
            key, path, leaf = heappop(order)
            if order and (current := self._key(leaf)) > key:
                heappush(order, (current, path, leaf))
                continue
            if blocked and leaf.ledger in blocked:
                continue
            line = self._line(leaf)
            queue = self._first(line)
            if queue is None:
                continue
            queues = self._queues[leaf]
            if self._rules.attempt(trial, queue, queues[queue]):
                queues[queue] = True
                if trial.head(queue) is not None:
                    heappush(line, (self._queue_key(queue, alone=not line), queue))
                if not strict:
                    self._drop()
            elif strict and queue not in trial.passed_over:
                blocked[leaf.ledger] = queue
                continue
            if line:
                self._push(leaf, first=not order)
        return list(blocked.values())

    def rest(self, blocked: Queue) -> list[Queue]:
        """Those of its ledger that have not had their turn."""
        ledger = blocked.user.account.ledger
        return [queue for leaf, line in self._lines.items() if leaf.ledger is ledger for _, queue in line]

    def _push(self, leaf: Account, first: bool) -> None:
        if self._rules.leaf_key is None and not self._line(leaf):
            return
        heappush(self._order, (() if first else self._key(leaf), leaf.path, leaf))

    def _key(self, leaf: Account) -> Key:
        leaf_key, trial = self._rules.leaf_key, self._trial
        if leaf_key is None:
            line = self._line(leaf)
            return line[0][0] if line else ()
        known = self._keys.get(leaf)
        if known is None or known[0] != trial.given:
            known = self._keys[leaf] = trial.given, leaf_key(trial, leaf)
        return known[1]

    def _line(self, leaf: Account) -> Line:
        """The queues of a leaf by their keys, put in line when first asked for."""
        line = self._lines.get(leaf)
        if line is None:
            trial = self._trial
            there = [queue for queue in self._queues[leaf] if trial.head(queue) is not None and self._stays(queue)]
            alone = len(there) == 1
            line = self._lines[leaf] = [(self._queue_key(queue, alone), queue) for queue in there]
            heapify(line)
        return line

    def _queue_key(self, queue: Queue, alone: bool) -> Key:
        return () if alone and self._rules.leaf_key is not None else queue_key(self._trial, queue)

    def _first(self, line: Line) -> Queue | None:
        """Take the first queue out of a leaf's line."""
        trial = self._trial
        while line:
            key, queue = heappop(line)
            if trial.head(queue) is None:
                continue
            if line and (current := queue_key(trial, queue)) > key:
                heappush(line, (current, queue))
                continue
            return queue
        return None

    def _stays(self, queue: Queue) -> bool:
        """Whether it came for more than room, or there still is room for its shape."""
        if queue.info not in self._gone or self._queues[queue.user.account][queue]:
            return True
        head = self._trial.head(queue)
        return head is not None and head.waiting is None

    def _drop(self) -> None:
        """Queues that came only for room go when there is none for their shape any more."""
        lets_in, gone = self._rules.lets_in, self._gone
        lost = [info for info in self._for_room if not lets_in(info)]
        if lost:
            for info in lost:
                del self._for_room[info]
                gone[info] = None
            for line in self._lines.values():
                line[:] = [pair for pair in line if self._stays(pair[1])]
                heapify(line)
