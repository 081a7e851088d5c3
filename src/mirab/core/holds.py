"""Nodes kept for a blocked gang until a known instant, while they go on working for others.

Until T a held node keeps what it runs and takes whatever can be stopped by T; at T what is left is stopped and the
gang starts. The right to stop the runs of others is judged when the hold is granted, for good.
"""

from __future__ import annotations

from mirab.core.placement import allocation, choose
from mirab.core.queues import Pending, Queue
from mirab.core.reclaim import reason_for
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.model.plans import Hold, HoldReleased
from mirab.model.reasons import (
    AwaitingVictims,
    HoldDue,
    HoldsNodes,
    HoldTaken,
    NotEnoughClaimable,
    VictimsGone,
    WaitReason,
)
from mirab.model.resources import lowest
from mirab.model.units import FOREVER, Instant, NodeMask, RunId


def serve_holds(trial: Trial) -> None:
    """Start the gangs whose nodes are free, stop what is left where a hold is due, mend what a lost node broke."""
    for workload_id, hold in list(trial.state.holds.items()):
        pending = trial.state.pending.get(workload_id)
        if pending is None or pending.queue is None:
            continue
        queue = pending.queue
        trial.hold_of.setdefault(queue.user.account, workload_id)
        if hold.mask & ~trial.state.usable[hold.pool]:
            _replace(trial, queue, pending, hold)
        elif not _start_if_free(trial, queue, pending, hold):
            _press(trial, queue, pending, hold)


def _start_if_free(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> bool:
    """Its own nodes, with whatever else is open to it, may be enough before T."""
    shape, bank = queue.info.shape, trial.banks[hold.pool]
    own = bank.with_free(hold.slots_per_node) & hold.mask
    if own != hold.mask:
        if hold.claim or not trial.policy.contract:
            return False
        own |= trial.open_nodes(hold.pool, queue.info, queue.user.account)
    mask = choose(bank, own, shape, hold.slots_per_node)
    if not mask:
        return False
    victims = len(trial.state.victims.get(pending.workload.id, ()))
    reason = HoldDue(hold.granted_at) if hold.until > hold.granted_at and not hold.claim else VictimsGone(victims)
    trial.release(pending.workload.id)
    trial.holds[pending.workload.id] = hold
    trial.start(queue, pending.workload.id, allocation(hold.pool, mask, shape, hold.slots_per_node), reason)
    return True


def _press(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """Tell the runs still there to go, each so that its notice ends when the hold is due."""
    victims = [trial.state.runs[run_id] for run_id in trial.state.victims.get(pending.workload.id, ())]
    if any(run.stuck for run in victims):
        _give_up(trial, pending, "a run on its nodes does not stop")
    elif hold.claim:
        last = max((run.stop_by or trial.now for run in victims), default=trial.now)
        trial.wait(pending, AwaitingVictims(last, len(victims)), last)
    elif trial.now >= hold.until and any(trial.state.runs[run_id].stop_by is None for run_id in _spared(trial, hold)):
        _replace(trial, queue, pending, hold)
    else:
        if trial.now >= hold.until - trial.policy.grace_max:
            _stop_in_time(trial, queue, pending, hold)
        trial.wake(hold.until - trial.policy.grace_max)
        trial.wake(hold.until)
        trial.wait(pending, HoldsNodes(hold.until, hold.mask.bit_count()), hold.until)


def _spared(trial: Trial, hold: Hold) -> list[RunId]:
    """Runs still on the held nodes that end by their own limits, and had until T to do so."""
    return [run_id for run_id in hold.spared if run_id in trial.state.runs]


def _stop_in_time(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    for run in trial.state.runs.values():
        if run.allocation.pool != hold.pool or not run.allocation.mask & hold.mask or run.id in hold.spared:
            continue
        if run.stop_by is not None or run.id in trial.stopped:
            continue
        at = max(hold.until - min(run.workload.shape.grace, trial.policy.grace_max), run.expected_protection)
        if trial.now < at:
            trial.wake(at)
        elif run.started_at is not None:
            trial.stop(run, reason_for(trial, queue, pending, run, hold=True))


def _replace(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """A node was lost, or a run stayed past its limit: keep the rest, find others, and a new T."""
    trial.release(pending.workload.id)
    found = find(trial, queue, pending, prefer=hold.mask)
    if isinstance(found, Hold):
        trial.holds[pending.workload.id] = hold
        trial.grant(queue, found)
        trial.wait(pending, HoldsNodes(found.until, found.mask.bit_count()), found.until)
        return
    trial.holds[pending.workload.id] = hold
    _give_up(trial, pending, "a held node was lost and none can replace it")


def _give_up(trial: Trial, pending: Pending, why: str) -> None:
    trial.release(pending.workload.id)
    trial.hold_changes.append(HoldReleased(pending.workload.id, why))
    trial.wake(trial.now + trial.policy.review)


def hold_for(trial: Trial, queue: Queue, pending: Pending) -> WaitReason | None:
    """Grant a hold to a blocked gang if it may have one; otherwise say why not. None = nodes are held for it now."""
    leaf = queue.user.account
    holder = trial.hold_of.get(leaf) if trial.policy.contract else None
    gangs = [workload_id for workload_id, hold in trial.holds.items() if not _is_quick(hold)]
    if holder is not None and holder in trial.holds and not _is_quick(trial.holds[holder]):
        return HoldTaken(holder, len(gangs))
    if len(gangs) >= trial.policy.holds_max:
        return HoldTaken(None, len(gangs))
    found = find(trial, queue, pending)
    if not isinstance(found, Hold):
        return found
    trial.hold_of[leaf] = pending.workload.id
    trial.grant(queue, found)
    trial.wait(pending, HoldsNodes(found.until, found.mask.bit_count()), found.until)
    trial.wake(found.until)
    return None


def _is_quick(hold: Hold) -> bool:
    """A claim that was made for victims that stop at once is not a hold in the sense of the limits."""
    return hold.claim


def find(trial: Trial, queue: Queue, pending: Pending, prefer: NodeMask = 0) -> Hold | NotEnoughClaimable:
    """The nodes claimable earliest, and T, when the last of them is.

    Walks the runs from the one that is claimable last: the first set large enough without the rest gives T.
    """
    info, best_seen = queue.info, 0
    horizon = trial.now + trial.policy.min_runtime_cap + trial.policy.grace_max
    for number, width in zip(info.pools, info.widths, strict=True):
        among = trial.state.usable[number]
        for entry in trial.kept[number]:
            among &= ~entry.mask
        runs = _claimable(trial, queue, pending, number)
        mask, until, seen = _earliest(trial, number, width, info.shape.nodes, among, runs, horizon)
        best_seen = max(best_seen, seen)
        if mask:
            chosen = _tidy(trial, number, width, info.shape.nodes, mask, until, runs, prefer)
            spared = tuple(run.id for at, run, mine in runs if not mine and run.allocation.mask & chosen)
            return Hold(pending.workload.id, number, chosen, width, until, trial.now, spared=spared)
    return NotEnoughClaimable(info.shape.nodes, best_seen)


def _claimable(trial: Trial, queue: Queue, pending: Pending, number: int) -> list[tuple[Instant, Run, bool]]:
    """(when it is gone, run, whether it would be stopped for it) for all runs of a pool, latest first."""
    added = max(queue.info.rates) * queue.info.commitment
    may: dict[Account, bool] = {}
    found = []
    for run in trial.state.runs.values():
        if run.allocation.pool == number:
            found.append((*_gone_at(trial, queue, run, added, may), run))
    found.sort(key=lambda entry: (-entry[0], entry[2].id))
    return [(at, run, mine) for at, mine, run in found]


def _gone_at(trial: Trial, queue: Queue, run: Run, added: int, may: dict[Account, bool]) -> tuple[Instant, bool]:
    if run.stop_by is not None or run.id in trial.stopped:
        return (FOREVER if run.stuck else max(trial.now, run.stop_by or trial.now + trial.policy.grace_max)), True
    if trial.policy.preemption == "budget" and _may_stop(trial, queue, run, added, may):
        grace = min(run.workload.shape.grace, trial.policy.grace_max)
        return max(trial.now, run.expected_protection) + grace, True
    return max(trial.now, run.limit_at()), False


def _may_stop(trial: Trial, queue: Queue, run: Run, added: int, may: dict[Account, bool]) -> bool:
    if not run.charged:
        return True
    leaf, mine = run.account, queue.user
    if run.reservation is not None or (trial.state.exemptions_in_force and trial.state.guaranteed(leaf.path)):
        return False
    if leaf is mine.account:
        if run.user is mine or trial.ratio(leaf) < 1.0:
            return False
        bound = (trial.user_usage(mine) + added) * (1000 + trial.policy.margin)
        return bound <= trial.user_usage(run.user) * 1000
    if leaf not in may:
        may[leaf] = trial.may_take(mine.account, leaf, added)
    return may[leaf]


def _earliest(trial: Trial, number: int, width: int, wanted: int, among: NodeMask,
              runs: list[tuple[Instant, Run, bool]], horizon: Instant) -> tuple[NodeMask, Instant, int]:  # fmt: skip
    """(nodes claimable by T, T, how many nodes are claimable within the horizon)."""
    if trial.policy.preemption == "none" or not trial.policy.contract:
        horizon = FOREVER - 1
    for mask in trial.fresh_masks(number):
        among &= ~mask
    whole = width >= trial.banks[number].slots
    blocked = 0
    place = 0
    while place < len(runs) and runs[place][0] > horizon:
        blocked |= _blocks(trial, runs[place][1], number, width, whole)
        place += 1
    open_ = among & ~blocked
    seen = open_.bit_count()
    if seen < wanted:
        return 0, 0, seen
    while place < len(runs):
        further = open_ & ~_blocks(trial, runs[place][1], number, width, whole)
        if further.bit_count() < wanted:
            return open_, runs[place][0], seen
        open_ = further
        place += 1
    return open_, trial.now, seen


def _blocks(trial: Trial, run: Run, number: int, width: int, whole: bool) -> NodeMask:
    """Nodes that the run keeps from the gang while it is there: those where the rest is too little."""
    if whole:
        return run.allocation.mask
    return run.allocation.mask & ~trial.wide(number)[width]


def _tidy(trial: Trial, number: int, width: int, wanted: int, mask: NodeMask, until: Instant,
          runs: list[tuple[Instant, Run, bool]], prefer: NodeMask) -> NodeMask:  # fmt: skip
    """Exactly `wanted` of the nodes: those preferred, then those claimable before T, then the lowest."""
    chosen = lowest(mask & prefer, min(wanted, (mask & prefer).bit_count())) if mask & prefer else 0
    late = 0
    for at, run, _ in runs:
        if at < until:
            break
        late |= run.allocation.mask
    for part in (mask & ~late & ~chosen, mask & ~chosen):
        part &= ~chosen
        missing = wanted - chosen.bit_count()
        if missing > 0 and part:
            chosen |= lowest(part, min(missing, part.bit_count()))
    return chosen
