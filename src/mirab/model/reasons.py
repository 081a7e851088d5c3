"""Why: typed, with numbers. Sentences for people are made from these at the edge (`mirab.study.words`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mirab.model.units import AccountPath, Charge, Duration, Instant, WorkloadId


# --- why something was started -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class InOrder:
    """Its turn came and free GPUs were enough. `ratio` = (usage + commitment) / entitlement of its leaf before it."""

    account: AccountPath
    ratio: float
    owed: bool


@dataclass(frozen=True, slots=True)
class OnHeldNodes:
    """It runs on nodes held for another, who can take them back at `until`."""

    holder: WorkloadId
    until: Instant


@dataclass(frozen=True, slots=True)
class VictimsGone:
    """The GPUs that were freed for it are free."""

    victims: int


@dataclass(frozen=True, slots=True)
class HoldDue:
    """The nodes held for it since `since` are free."""

    since: Instant


@dataclass(frozen=True, slots=True)
class Reserved:
    """It runs inside its account's reservation."""

    reservation_id: str


# --- why something was stopped -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PreemptedFor:
    """Stopped so that `beneficiary` can start.

    `ratio_for` and `ratio_against`: the two sides where the accounts' paths part, the first with the beneficiary's
    commitment added; `lost` = work since the last checkpoint, in slot-milliseconds, as known to the scheduler.
    """

    beneficiary: WorkloadId
    account: AccountPath
    ratio_for: float
    ratio_against: float
    lost: Charge
    uncharged: bool = False
    hold: bool = False


@dataclass(frozen=True, slots=True)
class DrainedFrom:
    """Its node is sick and the minimums of all runs there are over."""

    node: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ReservationBegins:
    reservation_id: str
    account: AccountPath


@dataclass(frozen=True, slots=True)
class StartTimedOut:
    after: Duration


# --- why something waits -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class NoFreeGpus:
    """Not enough free: `nodes_free` of `nodes` nodes have `gpus_per_node` GPUs free for it.

    `claimable`: how many more nodes could be cleared by stopping runs past their minimum that this workload may stop.
    `next_at`: earliest end of a minimum or known limit that changes that; None = not known.
    """

    nodes: int
    gpus_per_node: int
    nodes_free: int
    gpus_free: int
    claimable: int
    next_at: Instant | None


@dataclass(frozen=True, slots=True)
class ShareSpent:
    """Its leaf stands at `ratio` of its share; `first` at `first_ratio` goes first; nobody may be stopped for it."""

    ratio: float
    first: AccountPath
    first_ratio: float
    nodes_free: int


@dataclass(frozen=True, slots=True)
class AwaitingCheckpoint:
    """Victims exist, and are about to checkpoint: waiting costs less than stopping them now.

    It is looked at again `until` then; it has waited for checkpoints since `since`.
    """

    until: Instant
    victims: int
    since: Instant = 0


@dataclass(frozen=True, slots=True)
class AwaitingVictims:
    """Runs are being stopped for it; the last should be gone by `until`."""

    until: Instant
    victims: int


@dataclass(frozen=True, slots=True)
class HoldsNodes:
    """Nodes are kept for it; it starts at `until` at the latest."""

    until: Instant
    nodes: int


@dataclass(frozen=True, slots=True)
class NotEnoughClaimable:
    """No hold: only `claimable` of the `nodes` it needs could be cleared at any known time."""

    nodes: int
    claimable: int


@dataclass(frozen=True, slots=True)
class HoldTaken:
    """No hold: its leaf has `holds` already (`holder` first), or (no `holder`) all `holds_max` are given."""

    holder: WorkloadId | None
    holds: int


@dataclass(frozen=True, slots=True)
class HoldNotOwed:
    """No hold: its leaf stands at `ratio` of its share, and nodes are held for those who are owed."""

    ratio: float


@dataclass(frozen=True, slots=True)
class SavingUp:
    """Its account lets its oldest gang go first."""

    gang: WorkloadId


@dataclass(frozen=True, slots=True)
class BlockedBehind:
    """Strict order, or a time limit too long to run before the nodes held for `holder` are due at `until`."""

    holder: WorkloadId
    until: Instant | None


@dataclass(frozen=True, slots=True)
class HeadroomKept:
    """Uncharged work leaves `headroom` GPUs free; `gpus_free` are."""

    headroom: int
    gpus_free: int


@dataclass(frozen=True, slots=True)
class QuotaFull:
    """A static partition: the account runs `running` of `quota` GPUs."""

    quota: int
    running: int


@dataclass(frozen=True, slots=True)
class AtCap:
    """`account`, its own or one above, may use `cap` GPUs at once: `held` are used or kept for it, it asks `wanted`."""

    account: AccountPath
    cap: int
    held: int
    wanted: int


@dataclass(frozen=True, slots=True)
class GangTooLarge:
    """It asks for `wanted` GPUs; one piece of work of `account`, its own or one above, may have `cap`."""

    account: AccountPath
    cap: int
    wanted: int


@dataclass(frozen=True, slots=True)
class NeverFits:
    """No pool of the installed cluster can ever hold it."""

    nodes: int
    gpus_per_node: int
    gpu_types: tuple[str, ...]
    largest_nodes: int
    largest_gpus_per_node: int


@dataclass(frozen=True, slots=True)
class UnknownAccount:
    account: AccountPath


@dataclass(frozen=True, slots=True)
class AccountClosed:
    """The account takes no new work: the budgets say so of it, or of one above it, since a date; or name it no more."""

    account: AccountPath
    since: str


# --- why something is kept out of the queue, or stands behind its like (live only) ----------------------------------
@dataclass(frozen=True, slots=True)
class HeldByUser:
    """Its user, or somebody who looks after the account, keeps it back; so may release it."""

    user: str


@dataclass(frozen=True, slots=True)
class HeldByOperator:
    """An operator keeps it back, and only an operator releases it. `because`: in their words, perhaps empty."""

    operator: str
    because: str


@dataclass(frozen=True, slots=True)
class UnmetDependency:
    """It waits for other jobs to end. `dependency`: as in sbatch, such as ``afterok:12,afterany:13``."""

    dependency: str


@dataclass(frozen=True, slots=True)
class ArrayLimitReached:
    """As many tasks of its array as its user allows (`limit`) wait or run already."""

    limit: int


@dataclass(frozen=True, slots=True)
class LaunchesFailed:
    """It could not be launched so many times in a row."""

    failures: int


@dataclass(frozen=True, slots=True)
class DependencyNeverSatisfied:
    """What it waited for has ended in `state`, so that the dependency can never be met: it is cancelled."""

    dependency: str
    state: str


@dataclass(frozen=True, slots=True)
class BehindOwn:
    """`ahead` workloads of the same account, user and shape go before it; `first` is the next of them."""

    ahead: int
    first: WorkloadId


StartReason: TypeAlias = InOrder | OnHeldNodes | VictimsGone | HoldDue | Reserved
StopReason: TypeAlias = PreemptedFor | DrainedFrom | ReservationBegins | StartTimedOut
WaitReason: TypeAlias = (
    NoFreeGpus
    | ShareSpent
    | AwaitingCheckpoint
    | AwaitingVictims
    | HoldsNodes
    | NotEnoughClaimable
    | HoldTaken
    | HoldNotOwed
    | SavingUp
    | BlockedBehind
    | HeadroomKept
    | QuotaFull
    | AtCap
    | GangTooLarge
    | NeverFits
    | UnknownAccount
    | AccountClosed
)
HoldReason: TypeAlias = HeldByUser | HeldByOperator | UnmetDependency | ArrayLimitReached | LaunchesFailed
StandingReason: TypeAlias = DependencyNeverSatisfied | BehindOwn
Reason: TypeAlias = StartReason | StopReason | WaitReason | HoldReason | StandingReason
