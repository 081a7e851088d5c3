"""What keeps work waiting whatever is free: caps, a static quota, its own account saving up for a gang."""

from __future__ import annotations

from mirab.core.caps import too_large
from mirab.core.clearing import Clearing, plan_cost
from mirab.core.queues import Pending, Queue
from mirab.core.reclaim import checkpoint_grace, claim, is_urgent
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.core.victims import eligible
from mirab.model.reasons import AtCap, GangTooLarge, QuotaFull, SavingUp, WaitReason
from mirab.model.resources import nodes_of
from mirab.model.units import FOREVER, UNIT, WHOLE, NodeMask


def barrier(trial: Trial, queue: Queue) -> WaitReason | None:
    """The first of them that there is; None = nothing but room is wanted."""
    leaf = queue.user.account
    if leaf.capped and (cap := at_cap(trial, queue)) is not None:
        return cap
    if trial.policy.order == "quota":
        quota = trial.state.installed(leaf.ledger.pools) * leaf.share // WHOLE
        running = leaf.running + trial.given_charge.get(leaf, 0)
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
        if account.gpus_max is not None:
            held = trial.gpus_used(account) + _kept(trial, account)
            if held + wanted > account.gpus_max:
                return AtCap(account.path, account.gpus_max, held, wanted)
    return None


def below_caps(trial: Trial, charged: bool) -> list[Queue]:
    """Queues that were at a cap and are not any more."""
    found: list[Queue] = []
    room: dict[Account, int] = {}
    for queue in trial.state.at_cap:
        leaf = queue.user.account
        if queue.info.charged is charged:
            if leaf not in room:
                caps = [above for above in leaf.capped if above.gpus_max is not None]
                room[leaf] = min((_room(trial, above) for above in caps), default=FOREVER)
            if queue.info.shape.gpus <= room[leaf]:
                found.append(queue)
    return found


def _room(trial: Trial, account: Account) -> int:
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


def take_from_own(trial: Trial, queue: Queue, pending: Pending, cap: AtCap) -> bool:
    """At a cap, runs of that account may be stopped for it, by the usual rules, if that keeps every cap."""
    key = (queue.user, queue.info.size, queue.info.stake)
    if trial.policy.preemption != "budget" or not queue.info.charged or key in trial.no_room_inside:
        return False
    if len(trial.stopped) >= trial.policy.preemptions_max:
        return False
    account = trial.state.accounts[cap.account]
    own = [run for run in eligible(trial, queue, pending) if account in run.account.capped and not run.stopping]
    plan = _swap(trial, queue, _ripe(trial, queue, own))
    if plan is not None and _keeps_caps(trial, queue, list(plan.victims)):
        claim(trial, queue, pending, plan)
        return True
    trial.no_room_inside[key] = None
    return False


def _ripe(trial: Trial, queue: Queue, own: list[Run]) -> list[Run]:
    """Those that have just checkpointed; for urgent work all. The next checkpoint wakes."""
    if is_urgent(trial, queue):
        return own
    grace = checkpoint_grace(trial, queue)
    for run in own:
        trial.wake(run.ripe_at(trial.now, grace))
    return [run for run in own if run.ripe_at(trial.now, grace) <= trial.now]


def _swap(trial: Trial, queue: Queue, own: list[Run]) -> Clearing | None:
    """The plan that loses least by which it takes the place of runs of its own, in any of its pools.

    GPUs that are free beside them are left out, since these are not what it lacks.
    """
    plans = []
    for number, width in queue.info.pairs:
        here = [run for run in own if run.pool == number]
        rooms = trial.rooms(number, queue.info, queue.user.account, trial.policy.grace_max) if here else []
        plans += [_swap_in(trial, queue, here, number, room, width) for room in rooms]
    complete = [plan for plan in plans if plan is not None]
    return min(complete, key=lambda plan: (plan_cost(trial, list(plan.victims)), plan.pool), default=None)


def _swap_in(trial: Trial, queue: Queue, own: list[Run], number: int, room: NodeMask, width: int) -> Clearing | None:
    """On the nodes where the victims, cheapest first, lose least; those that the others make superfluous are spared."""
    loss = {run.id: run.loss(trial.now, trial.policy.claimed_loss_cap) for run in own}
    own = sorted(own, key=lambda run: (loss[run.id], run.id))
    reach = 0
    for run in own:
        reach |= run.mask & room
    found = []
    for node in nodes_of(reach):
        victims = _until(own, node, width)
        if _freed(victims, node) >= width:
            found.append((sum(loss[run.id] for run in victims), node, victims))
    found.sort(key=lambda plan: plan[:2])
    nodes = [node for _, node, _ in found[: queue.info.nodes]]
    if len(nodes) < queue.info.nodes:
        return None
    stopped = {run.id: run for _, _, victims in found[: len(nodes)] for run in victims}
    level = trial.banks[number].level
    for run in sorted(stopped.values(), key=lambda run: (-loss[run.id], run.id)):
        rest = [other for other in stopped.values() if other is not run]
        if all(level(node) + _freed(rest, node) >= width for node in nodes) and _keeps_caps(trial, queue, rest):
            del stopped[run.id]
    return Clearing(number, sum(1 << node for node in nodes), width, tuple(stopped.values()))


def _until(runs: list[Run], node: int, width: int) -> list[Run]:
    """The first of the runs on a node until so many slots are theirs."""
    found: list[Run] = []
    for run in runs:
        if run.mask >> node & 1 and _freed(found, node) < width:
            found.append(run)
    return found


def _freed(runs: list[Run], node: int) -> int:
    return sum(run.width for run in runs if run.mask >> node & 1)


def _keeps_caps(trial: Trial, queue: Queue, victims: list[Run]) -> bool:
    """Whether all caps allow the head of the queue in the place of the victims."""
    wanted = queue.info.shape.gpus
    for account in queue.user.account.capped:
        if account.gpus_max is not None:
            freed = sum(run.workload.shape.gpus for run in victims if account in run.account.capped)
            if trial.gpus_used(account) + _kept(trial, account) + wanted - freed > account.gpus_max:
                return False
    return True
