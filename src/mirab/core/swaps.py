"""Work at its account's cap takes the place of runs of that account: the GPUs change hands, and the cap is kept."""

from __future__ import annotations

from mirab.core.barriers import gpus_left
from mirab.core.clearing import Clearing, plan_cost
from mirab.core.queues import Pending, Queue
from mirab.core.reclaim import checkpoint_grace, claim, is_urgent
from mirab.core.runs import Run
from mirab.core.trial import Trial
from mirab.core.victims import eligible
from mirab.model.reasons import AtCap
from mirab.model.resources import nodes_of
from mirab.model.units import NodeMask


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
        freed = sum([run.workload.shape.gpus for run in victims if account in run.account.capped])
        if wanted - freed > gpus_left(trial, account):
            return False
    return True
