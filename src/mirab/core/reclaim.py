"""Making room for a workload by stopping others: only with a complete plan, only whom the rules allow."""

from __future__ import annotations

from mirab.core.clearing import Clearing, Cost, NoClearing, clear, coming_free, plan_cost
from mirab.core.queues import Pending, Queue, User
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.core.victims import eligible, is_able, reach_of
from mirab.model.plans import Hold
from mirab.model.reasons import AwaitingCheckpoint, PreemptedFor
from mirab.model.units import Duration


def reclaim(trial: Trial, queue: Queue, pending: Pending) -> Clearing | NoClearing:
    """The complete plan of victims that loses least for a workload that free nodes cannot take.

    Order of plans: no charged victims, least loss, fewest gangs, lowest id. A workload that is not urgent takes only
    victims that have just checkpointed, or of which it throws away little in sum.
    """
    coming = coming_free(trial, queue)
    if coming is not None:
        return coming
    key = (_who(trial, queue), queue.info.size, is_urgent(trial, queue))
    known = trial.hopeless.get(key)
    if known is not None and queue.info.min_runtime >= known[0]:
        return known[1]
    plan = _look(trial, queue, pending)
    if isinstance(plan, NoClearing):
        trial.hopeless[key] = queue.info.min_runtime, plan
    return plan


def _who(trial: Trial, queue: Queue) -> Account | User | int:
    """Whose rights are the same: all of a leaf, unless they may also take from each other."""
    if trial.policy.preemption == "priority":
        return queue.entries[0].workload.priority
    leaf = queue.user.account
    return queue.user if leaf.exposed and trial.ratio(leaf) >= 1.0 else leaf


def _look(trial: Trial, queue: Queue, pending: Pending) -> Clearing | NoClearing:
    reach = reach_of(trial, queue.user.account, queue.info.stake) if queue.info.charged else None
    if reach is None:
        return NoClearing(0)
    nodes = reach.cleared(trial, queue.info.pools)
    if not (reach.suffices(trial, queue.info) and is_able(trial, queue)):
        return NoClearing(reach.runs, nodes)
    found = eligible(trial, queue, pending)
    return _search(trial, queue, pending, found, nodes) if found else NoClearing(0)


def _search(trial: Trial, queue: Queue, pending: Pending, found: list[Run], nodes: int) -> Clearing | NoClearing:
    """`nodes`: how many could be cleared, for the reason if there is no plan."""
    now, grace = trial.now, checkpoint_grace(trial, queue)
    owed = trial.ratio(queue.user.account) < 1.0
    ripe = found if is_urgent(trial, queue) else [run for run in found if run.ripe_at(now, grace) <= now]
    plan = _clear_any(trial, queue, ripe)
    if plan is None and len(ripe) < len(found):
        later = _clear_any(trial, queue, found)
        if later is not None:
            if _is_cheap(trial, queue, later, grace) or (owed and _has_waited(trial, pending, later)):
                return later
            ripe_at = min(at for run in later.victims if (at := run.ripe_at(now, grace)) > now)
            return NoClearing(len(later.victims), nodes, min(ripe_at, now + trial.policy.claimed_loss_cap))
    return plan or NoClearing(len(found), nodes)


def is_urgent(trial: Trial, queue: Queue) -> bool:
    """Whether the queue's work does not wait for checkpoints."""
    return queue.info.min_runtime <= trial.policy.urgent_minimum


def checkpoint_grace(trial: Trial, queue: Queue) -> Duration:
    """How long after a checkpoint a run counts as just checkpointed where it would make room for the queue's work."""
    owed = trial.ratio(queue.user.account) < 1.0
    return trial.policy.checkpoint_grace if owed else trial.policy.surplus_checkpoint_grace


def _is_cheap(trial: Trial, queue: Queue, plan: Clearing, grace: Duration) -> bool:
    """Whether a plan throws away little for what it brings, though not all its victims have just checkpointed.

    Many victims never have at the same instant. So their work since their checkpoints is weighed in sum: against
    `grace` for each slot that is taken over, and `idle_grace` for each that idles until the beneficiary starts.
    """
    victims = [run for run in plan.victims if run.stop_by is None]
    taken = sum(run.slots for run in victims)
    idle = max(0, queue.info.slots - taken)
    return sum(run.unsaved(trial.now) for run in victims) <= grace * taken + trial.policy.idle_grace * idle


def _has_waited(trial: Trial, pending: Pending, plan: Clearing) -> bool:
    """Whether it has waited for one checkpoint interval, as far as such a claim is believed: what its victims have not
    saved by then it need not spare.
    """
    told = pending.waiting
    if told is None or not isinstance(told.reason, AwaitingCheckpoint):
        return False
    longest = max((run.workload.checkpoint for run in plan.victims), default=0)
    return trial.now - told.reason.since >= min(longest, trial.policy.claimed_loss_cap)


def _clear_any(trial: Trial, queue: Queue, victims: list[Run]) -> Clearing | None:
    """In the pool where it loses least."""
    best: Clearing | None = None
    for number, width in queue.info.pairs if victims else ():
        plan = clear(trial, queue, victims, number, width)
        if plan is not None and (best is None or _cost(trial, plan) < _cost(trial, best)):
            best = plan
    return best


def _cost(trial: Trial, plan: Clearing) -> tuple[Cost, int]:
    return plan_cost(trial, list(plan.victims)), plan.pool


def claim(trial: Trial, queue: Queue, pending: Pending, plan: Clearing) -> None:
    """Stop the victims and keep the nodes for the beneficiary until it starts."""
    until = trial.now
    for run in plan.victims:
        gone_at = run.stop_by or trial.stop(run, reason_for(trial, queue, pending, run))
        until = max(until, gone_at)
    trial.grant(
        queue,
        Hold(
            pending.id,
            plan.pool,
            plan.mask,
            plan.width,
            until,
            trial.now,
            claim=True,
            victims=len(plan.victims),
        ),
    )
    trial.wake(until + trial.policy.stop_timeout)


def reason_for(trial: Trial, queue: Queue, pending: Pending, run: Run, hold: bool = False) -> PreemptedFor:
    """The numbers by which this run had to give way."""
    mine, theirs = queue.user.account, run.account
    added = queue.info.stake
    if mine is theirs:
        ratio_for, ratio_against = trial.ratio(mine), trial.ratio(theirs)
    else:
        ours, against = trial.sides(mine, theirs)
        ratio_for, ratio_against = trial.ratio_with(ours, added), trial.ratio(against)
    loss = run.loss(trial.now, trial.policy.claimed_loss_cap)
    return PreemptedFor(pending.id, mine.path, ratio_for, ratio_against, loss, not run.charged, hold)
