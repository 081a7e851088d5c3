"""Why a job waits, from what the scheduler recorded: the typed reason, squeue's short word for it, and the sentence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import tzinfo
from types import MappingProxyType

from mirab.core.queues import Pending
from mirab.core.state import State
from mirab.model import reasons as why
from mirab.model.reasons import BehindOwn, Reason
from mirab.study.formats import Names

CODES: Mapping[type, str] = MappingProxyType(
    {
        why.NoFreeGpus: "Resources",
        why.NotEnoughClaimable: "Resources",
        why.ShareSpent: "Share",
        why.HoldNotOwed: "Share",
        why.AwaitingCheckpoint: "Checkpoint",
        why.AwaitingVictims: "Preempting",
        why.HoldsNodes: "NodesHeld",
        why.HoldTaken: "HoldTaken",
        why.SavingUp: "SavingUp",
        why.BlockedBehind: "Reserved",
        why.HeadroomKept: "Headroom",
        why.QuotaFull: "Quota",
        why.AtCap: "AtCap",
        why.GangTooLarge: "TooLarge",
        why.NeverFits: "NeverFits",
        why.UnknownAccount: "Account",
        why.AccountClosed: "Account",
        why.HeldByUser: "Held",
        why.HeldByOperator: "HeldByOperator",
        why.UnmetDependency: "Dependency",
        why.ArrayLimitReached: "ArrayLimit",
        why.LaunchesFailed: "LaunchFailed",
        why.DependencyNeverSatisfied: "DependencyNeverSatisfied",
        why.BehindOwn: "Behind",
    }
)
"""The short words of the `REASON` column."""
NEW = "New"
"""Nothing has been decided about it yet."""
NEW_SENTENCE = "it has just come in, and the next decision looks at it"
ADVISED = "Advised"
"""Nothing keeps it, and mirab only observes."""
ADVISED_SENTENCE = "nothing that mirab knows keeps it; mirab only observes, and others decide when it starts"


READER_ZONE: ContextVar[tzinfo | None] = ContextVar("reader_zone", default=None)
"""The time zone of whoever asks, where they said it; None = that of this machine."""


def names_of(state: State, zone: tzinfo | None = None) -> Names:
    """How instants (Unix milliseconds) and slots are called for people."""
    return Names(0, state.cluster.unit, zone or READER_ZONE.get(), state.policy.order, state.policy.preemption)


def ahead_of(pending: Pending) -> int:
    """How many of the same account, user and shape stand before it."""
    if pending.queue is None:
        return 0
    return bisect_left(pending.queue.entries, pending.rank, key=lambda other: other.rank)


def reason_of_pending(pending: Pending) -> Reason | None:
    """Why it waits: what was recorded of the head of its queue, or that it stands behind that; None = nothing yet."""
    if pending.queue is None:
        return None
    ahead = ahead_of(pending)
    if ahead:
        return BehindOwn(ahead, pending.queue.head.workload.id)
    return None if pending.waiting is None else pending.waiting.reason
