"""What keeps work waiting whatever is free: caps, a static quota, its own account saving up for a gang."""

from __future__ import annotations

from mirab.core.caps import too_large
from mirab.core.queues import Pending, Queue
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.model.reasons import AtCap, GangTooLarge, QuotaFull, SavingUp, WaitReason
from mirab.model.units import FOREVER, UNIT, WHOLE


def barrier(trial: Trial, queue: Queue) -> WaitReason | None:
    """The first of them that there is; None = nothing but room is wanted."""
    leaf = queue.user.account
    if leaf.capped and (cap := at_cap(trial, queue)) is not None:
        return cap
    if trial.policy.order == "quota":
        quota = trial.state.installed(leaf.ledger.pools) * leaf.share // WHOLE
        running = leaf.running + trial.given_running.get(leaf, 0)
        if running + min(queue.info.rates) > quota:
            return QuotaFull(quota // UNIT, running // UNIT)
    if leaf.save_for_gangs and not queue.info.gang and trial.ratio(leaf) < 1.0:
        gang = oldest_gang(leaf)
        pending = trial.head(queue)
        if gang is not None and pending is not None and gang.rank[3] < pending.rank[3]:
            return SavingUp(gang.id)
    return None


def oldest_gang(leaf: Account) -> Pending | None:
    """The gang that has waited longest in the leaf, of those that no cap forbids."""
    gangs = [
        queue.head
        for user in leaf.users.values()
        for queue in user.queues.values()
        if queue.info.gang and not (leaf.capped and too_large(leaf, queue.info.shape))
    ]
    return min(gangs, key=lambda pending: pending.rank[3:], default=None)


# --- caps on GPUs ---------------------------------------------------------------------------------------------------
def at_cap(trial: Trial, queue: Queue) -> AtCap | GangTooLarge | None:
    """The cap that the head of a queue would break, of its account's or of one's above."""
    leaf, wanted = queue.user.account, queue.info.shape.gpus
    if not wanted:
        return None
    large = too_large(leaf, queue.info.shape)
    if large is not None:
        return large
    for account in leaf.capped:
        room = gpus_left(trial, account)
        if wanted > room and account.gpus_max is not None:
            return AtCap(account.path, account.gpus_max, account.gpus_max - room, wanted)
    return None


def below_caps(trial: Trial, charged: bool) -> list[Queue]:
    """Queues that were at a cap and are not any more."""
    found: list[Queue] = []
    room: dict[Account, int] = {}
    for queue in trial.state.at_cap:
        leaf = queue.user.account
        if queue.info.charged is charged:
            if leaf not in room:
                room[leaf] = min([gpus_left(trial, above) for above in leaf.capped], default=FOREVER)
            if queue.info.shape.gpus <= room[leaf]:
                found.append(queue)
    return found


def gpus_left(trial: Trial, account: Account) -> int:
    """GPUs below the account's own cap that neither run nor are kept for its gangs; `FOREVER` = it has no cap."""
    return FOREVER if account.gpus_max is None else account.gpus_max - trial.gpus_used(account) - _kept(trial, account)


def _kept(trial: Trial, account: Account) -> int:
    """GPUs of the gangs of the account for which nodes are kept."""
    kept = 0
    for workload_id in trial.holds:
        pending = trial.state.pending.get(workload_id)
        if pending is not None and pending.queue is not None and account in pending.queue.user.account.capped:
            kept += pending.workload.shape.gpus
    return kept


def below_cap(trial: Trial, queue: Queue) -> bool:
    """Whether what nodes are kept for may start now: what runs leaves room for it."""
    wanted = queue.info.shape.gpus
    return all(
        account.gpus_max is None or trial.gpus_used(account) + wanted <= account.gpus_max
        for account in queue.user.account.capped
    )
