"""Whose turn it is: one total order, in one place, for every policy.

Under ``budget``:

1. leaves below their share, the *owed*, before the others;
2. at the level where two paths part, the lower ratio (U + K) / E;
3. inside a leaf, the user with the lower U + K;
4. inside a user: least slack to the deadline, own priority, resumed before new, submission (`queues.rank`);
5. id.

The other policies keep (4) and (5) and replace what stands before them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

from mirab.core.queues import Queue, Rank
from mirab.core.shares import Account
from mirab.core.trial import Trial

Key: TypeAlias = tuple[Any, ...]


def by_ratio(trial: Trial, leaf: Account) -> Key:
    """Owed leaves first, then the lower ratio where two paths part, after what this decision has given away."""
    return (trial.ratio(leaf) >= 1.0, *by_path(trial, leaf))


def by_path(trial: Trial, leaf: Account) -> Key:
    """The ratios down the path; without a promise, what was used."""
    key: list[Any] = []
    for account in leaf.lineage:
        ratio = trial.ratio(account)
        key += (ratio, trial.weigh(account)[0] if ratio == inf else 0, account.path)
    return tuple(key)


def by_uncharged_usage(trial: Trial, leaf: Account) -> Key:
    """The same order among uncharged work, by uncharged usage over entitlement."""
    key: list[Any] = []
    for account in leaf.lineage:
        key += (trial.uncharged_ratio(account), account.path)
    return tuple(key)


def queue_key(trial: Trial, queue: Queue) -> Key:
    """Where a queue stands inside its leaf: uncharged work by uncharged usage."""
    head = queue.entries[min(trial.taken.get(queue, 0), len(queue.entries) - 1)]
    return QUEUE_KEYS[trial.policy.order](trial, queue, head.rank)


def _by_user(trial: Trial, queue: Queue, rank: Rank) -> Key:
    used = trial.user_usage if queue.info.charged else trial.user_uncharged
    return (used(queue.user), queue.user.name, rank)


def _by_submission(trial: Trial, queue: Queue, rank: Rank) -> Key:
    _, _, _, submitted_at, workload_id = rank
    return (submitted_at, workload_id)


def _by_priority(trial: Trial, queue: Queue, rank: Rank) -> Key:
    _, minus_priority, _, submitted_at, workload_id = rank
    return (minus_priority, submitted_at, workload_id)


QUEUE_KEYS: dict[str, Callable[[Trial, Queue, Rank], Key]] = {
    "budget": _by_user,
    "fair-tree": _by_user,
    "fifo": _by_submission,
    "quota": _by_submission,
    "priority": _by_priority,
}

LEAF_KEYS: dict[str, Callable[[Trial, Account], Key] | None] = {
    "budget": by_ratio,
    "fair-tree": by_path,
    "fifo": None,
    "quota": None,
    "priority": None,
}
"""None: a leaf stands where its first queue stands."""
