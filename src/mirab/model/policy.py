"""Policies are values: every rule that differs between them is a field here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirab.model.units import DAY, HOUR, MINUTE, SECOND, WEEK, Duration, Instant

ORDERS = ("budget", "fifo", "priority", "fair-tree", "quota")
BACKFILLS = ("contract", "limit", "any", "none")
PREEMPTIONS = ("budget", "priority", "none")
DRAINS = ("contract", "wait")
MODES = ("enforce", "observe")


@dataclass(frozen=True, slots=True)
class Policy:
    """How the cluster is shared. Defaults are those of policy ``budget``.

    Attributes:
        order: whose turn it is.
        preemption: who may stop whom.
        backfill: what may start on nodes held for a blocked workload: what can be stopped by then (``contract``),
            what must end by its time limit (``limit``, EASY), ``any`` (no holds at all), or nothing behind a blocked
            head (``none``: strict order).
        drains: a degraded node empties itself at the end of the minimums (``contract``), or ``wait`` for the runs to
            end by themselves or for a human.
        window: over which promised and delivered are compared.
        half_life: decay of usage; None = none. Independent of the window (used by ``fair-tree``).
        min_runtime_cap: longest minimum that a workload may declare; longer ones are cut to it.
        surplus_minimum_cap: longest minimum of a run that starts beyond its account's entitlement.
        margin: dead zone of preemption: ratios that differ by less stop nobody.
        cadence: least time between two decisions.
        headroom: part of a pool's GPUs that uncharged work leaves free.
        commitment_floor: every charged run counts as committed for at least so long.
        urgent_minimum: a beneficiary with at most this minimum does not wait for a checkpoint.
        checkpoint_grace: how long after a checkpoint a victim counts as just checkpointed; in sum over all victims so
            much work since their checkpoints may be thrown away for each GPU that is taken over.
        surplus_checkpoint_grace: the same for a beneficiary whose account is at or above its share.
        idle_grace: the same for each GPU that idles until the beneficiary starts.
        claimed_loss_cap: the most lost work a run can claim for itself when victims are chosen.
        holds_max: holds at a time in all.
        guest_minimum: what starts on held nodes must have at least so long until they are due, else it is not worth it.
        holds_per_leaf: holds at a time for one leaf account.
        hold_horizon: how far ahead nodes may be held on the word of time limits; 0 = cap plus grace, within which all
            minimums end.
        hold_smallest_nodes: the fewest nodes that earn a hold.
        drains_max: nodes drained at a time.
        preemptions_max: preemptions in one decision.
        review: a blocked workload is looked at again after this time even if nothing happened.
        hold_review: a gang without a hold is considered for one again after this time.
        start_timeout: a run that is still starting after this time has failed.
        stop_timeout: a run that has not stopped this long after its grace needs a human.
        grace_max: the longest notice before a stop; a longer one is cut to it.
        mode: ``enforce`` what is decided, or ``observe`` an engine that has its own scheduler: decisions are recorded
            as advice and never applied.
        unknown_accounts: ``refuse`` them, or admit them with share ``zero``.
    """

    name: str = "budget"
    order: str = "budget"
    preemption: str = "budget"
    backfill: str = "contract"
    drains: str = "contract"
    window: Duration = WEEK
    half_life: Duration | None = None
    min_runtime_cap: Duration = 8 * HOUR
    surplus_minimum_cap: Duration | None = None
    margin: int = 100
    cadence: Duration = 1 * SECOND
    headroom: int = 7
    commitment_floor: Duration = 15 * MINUTE
    urgent_minimum: Duration = 15 * MINUTE
    checkpoint_grace: Duration = 12 * MINUTE
    surplus_checkpoint_grace: Duration = 4 * MINUTE
    idle_grace: Duration = 15 * MINUTE
    claimed_loss_cap: Duration = 2 * HOUR
    holds_max: int = 8
    hold_smallest_nodes: int = 2
    drains_max: int = 8
    preemptions_max: int = 256
    review: Duration = 5 * MINUTE
    hold_review: Duration = 10 * MINUTE
    hold_horizon: Duration = 0
    holds_per_leaf: int = 1
    guest_minimum: Duration = 25 * MINUTE
    start_timeout: Duration = 10 * MINUTE
    stop_timeout: Duration = 5 * MINUTE
    grace_max: Duration = 10 * MINUTE
    mode: str = "enforce"
    unknown_accounts: str = "refuse"

    @property
    def observing(self) -> bool:
        """Whether decisions are advice."""
        return self.mode == "observe"

    @property
    def contract(self) -> bool:
        """Whether minimums protect and uncharged work exists: only under ``budget``."""
        return self.order == "budget"


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(),
        Policy(name="fifo", order="fifo", preemption="none", backfill="limit", drains="wait", holds_max=1,
               hold_smallest_nodes=1),
        Policy(name="priority", order="priority", preemption="priority", backfill="limit", drains="wait",
               holds_max=1, hold_smallest_nodes=1),
        Policy(name="fair-tree", order="fair-tree", preemption="none", backfill="limit", drains="wait",
               half_life=7 * DAY, holds_max=1, hold_smallest_nodes=1),
        Policy(name="quota", order="quota", preemption="none", backfill="limit", drains="wait"),
    )
}  # fmt: skip


def named(name: str) -> Policy:
    """The stock policy of that name.

    Raises:
        ValueError: there is none; the message lists them.
    """
    if name not in POLICIES:
        raise ValueError(f"no policy {name!r}: the stock ones are {', '.join(POLICIES)}")
    return POLICIES[name]


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs kept for an account from one instant to another; charged whether used or not."""

    id: str
    account: str
    nodes: int
    gpus_per_node: int
    begin: Instant
    end: Instant
    owner: str
    approver: str
    reason: str
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Exemption:
    """An exception to the rules, with the one who asked, the one who approved, a reason and an end.

    Attributes:
        kind: ``longer-minimum`` (the cap becomes `cap`), ``guaranteed`` (runs of the account are nobody's victims),
            ``extra-share`` (`share` parts of the whole more, from `donor` or the unassigned rest), ``drain-pause`` (no
            drain stops what runs on `node`, which takes nothing new meanwhile).
    """

    id: str
    kind: str
    account: str
    begin: Instant
    end: Instant
    owner: str
    approver: str
    reason: str
    cap: Duration = 0
    share: int = 0
    donor: str = ""
    node: str = ""


DRAIN_PAUSE = "drain-pause"
EXEMPTIONS = ("longer-minimum", "guaranteed", "extra-share", DRAIN_PAUSE)


def with_settings(policy: Policy, **changes: object) -> Policy:
    """A copy with other settings."""
    return replace(policy, **changes)  # type: ignore[arg-type]
