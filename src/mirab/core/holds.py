"""Nodes kept for a blocked gang until a known instant, while they go on working for others.

Until T a held node keeps what it runs and takes whatever can be stopped by T; at T what is left is stopped and the
gang starts. The right to stop the runs of others is judged when the hold is granted, for good. T only ever gets
earlier: where other nodes can be cleared sooner than those that come free last, the hold moves to them.
"""

from __future__ import annotations

from dataclasses import replace

from mirab.core.barriers import below_cap
from mirab.core.caps import too_large
from mirab.core.clearing import needed_on
from mirab.core.earliest import find, finds_before
from mirab.core.nodes import inside
from mirab.core.placement import allocation, choose
from mirab.core.queues import Pending, Queue
from mirab.core.reclaim import reason_for
from mirab.core.runs import Run
from mirab.core.trial import Trial
from mirab.model.plans import Hold, HoldReleased
from mirab.model.reasons import (
    AwaitingVictims,
    HoldDue,
    HoldNotOwed,
    HoldsNodes,
    HoldTaken,
    VictimsGone,
    WaitReason,
)
from mirab.model.units import Instant


def serve_holds(trial: Trial) -> None:
    """Start the gangs whose nodes are free, stop what is left where a hold is due, mend what a lost node broke."""
    for gone in trial.state.given_back:
        trial.hold_changes.append(HoldReleased(gone, "its account's share is of another pool now"))
    for workload_id, hold in trial.state.holds.items():
        pending = trial.state.pending[workload_id]
        queue = pending.queue
        if queue is None or _quiet(trial, pending, hold):
            continue
        if queue.user.account.capped and too_large(queue.user.account, queue.info.shape):
            _give_up(trial, pending, "it is larger than its account's cap allows by now")
        elif trial.news and not inside(hold.mask, trial.usable[hold.pool]):
            _replace(trial, queue, pending, hold)
        elif not (trial.news and _start_if_free(trial, queue, pending, hold)) and not _not_due(trial, pending, hold):
            _press(trial, queue, pending, hold)


def _quiet(trial: Trial, pending: Pending, hold: Hold) -> bool:
    """Nothing was freed, and it is not time for its notices, or it has been told that it awaits its victims."""
    if trial.news:
        return False
    told = hold.claim and pending.waiting is not None and isinstance(pending.waiting.reason, AwaitingVictims)
    return told or _not_due(trial, pending, hold)


def _not_due(trial: Trial, pending: Pending, hold: Hold) -> bool:
    """Nothing to do for it before its notices begin."""
    notices_at = hold.until - trial.policy.grace_max
    if hold.claim or trial.surveyed or trial.now >= notices_at or pending.waiting is None:
        return False
    trial.wake(notices_at)
    return True


def _start_if_free(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> bool:
    """Its own nodes, with whatever else is open to it, may be enough before T."""
    shape, bank = queue.info.shape, trial.banks[hold.pool]
    if trial.count(hold.pool, hold.slots_per_node) < shape.nodes:
        return False
    free = trial.wide(hold.pool, hold.slots_per_node)
    own = free & hold.mask
    if own != hold.mask:
        if hold.claim or not trial.contract:
            return False
        *inside, outside = trial.rooms(hold.pool, queue.info, queue.user.account)
        rooms = [*(free & room for room in inside), own | free & outside]
        own = next((room for room in rooms if room.bit_count() >= shape.nodes), 0)
        if not own:
            return False
    mask = choose(bank, own, shape, hold.slots_per_node)
    if not mask:
        return False
    if queue.user.account.capped and not below_cap(trial, queue):
        if trial.state.victims.get(pending.id):
            return False
        _give_up(trial, pending, "its account is at its cap")
        return True
    reason = VictimsGone(hold.victims) if hold.claim else HoldDue(hold.granted_at)
    trial.start(queue, pending.id, allocation(hold.pool, mask, shape, hold.slots_per_node), reason)
    return True


def _press(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """Tell the runs still there to go, each so that its notice ends when the hold is due."""
    victims = [trial.state.runs[run_id] for run_id in trial.state.victims[pending.id]]
    if any(run.stuck for run in victims) or (hold.claim and not victims and trial.news and hold.victims):
        _give_up(trial, pending, "its nodes did not come free as planned")
    elif hold.claim:
        last = max((run.stop_by or trial.now for run in victims), default=hold.until)
        trial.wait(pending, AwaitingVictims(last, max(1, len(victims))))
    elif trial.now >= hold.until and _overstayed(trial, hold):
        _replace(trial, queue, pending, hold)
    elif trial.reviewing and (sooner := _sooner(trial, queue, pending, hold)) is not None:
        _keep(trial, queue, pending, sooner)
    else:
        _mind(trial, queue, pending, hold)


def _overstayed(trial: Trial, hold: Hold) -> bool:
    """Whether runs that may not be stopped for it are still there, though their limits are over."""
    if trial.contract:
        return any(run_id in trial.state.runs for run_id in hold.spared)
    return trial.banks[hold.pool].with_free(hold.slots_per_node) & hold.mask != hold.mask


def _keep(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """Grant or move a hold, and begin at once with the notices that cannot wait."""
    trial.grant(queue, hold)
    _mind(trial, queue, pending, hold)


def _mind(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """Until T: give notice in time, wake in time, say when it will start."""
    if trial.contract and trial.now >= hold.until - trial.policy.grace_max:
        _stop_in_time(trial, queue, pending, hold)
    trial.wake(hold.until - trial.policy.grace_max)
    trial.wake(hold.until)
    trial.wait(pending, HoldsNodes(hold.until, hold.mask.bit_count()))


def _sooner(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> Hold | None:
    """The hold with an earlier T, on its own nodes or with others in the place of those that come free last.

    None = there is none that is earlier by more than a review: a hold does not move for less.
    """
    before, known = hold.until - trial.policy.review, None
    until = _known_until(trial, hold, before)
    if until < before:
        before, known = until, replace(hold, until=until)
    earliest = trial.now + trial.policy.grace_max
    if not trial.contract or before <= earliest or not finds_before(trial, queue, pending, before):
        return known
    found = find(trial, queue, pending, prefer=hold.mask)
    if isinstance(found, Hold):
        until = max(found.until, _known_until(trial, found, before))
        if until < before:
            return replace(found, until=until, granted_at=hold.granted_at)
    return known


def _known_until(trial: Trial, hold: Hold, before: Instant) -> Instant:
    """T as it looks now: runs that were to end by their limits may have ended long before.

    Guests keep what they were told when they started on the held nodes. An instant not before `before` is only a bound.
    """
    until = trial.now + trial.policy.grace_max
    for run in trial.state.runs.values():
        if run.pool == hold.pool and run.mask & hold.mask:
            gone_at = run.limit_at() if run.id in hold.spared else run.unprotected_at + trial.notice(run)
            until = max(until, gone_at, run.guest_until if run.charged else 0)
            if until >= before:
                break
    return until


def _stop_in_time(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """Give each run on the nodes its notice so that it has gone by T; of part of a node, only as many as are needed."""
    due: list[Run] = []
    pool, mask, until = hold.pool, hold.mask, hold.until
    for run in trial.state.runs.values():
        if run.pool != pool or trial.is_going(run):
            continue
        at = max(until - trial.notice(run), run.unprotected_at)
        if trial.wakes_by(at) or not run.mask & mask or run.id in hold.spared:
            continue
        if trial.now < at:
            trial.wake(at)
        elif run.started_at is not None:
            due.append(run)
    if hold.slots_per_node < trial.banks[hold.pool].slots:
        due = needed_on(trial, hold, due)
    for run in due:
        trial.stop(run, reason_for(trial, queue, pending, run, hold=True))


def _replace(trial: Trial, queue: Queue, pending: Pending, hold: Hold) -> None:
    """A node was lost, or a run stayed past its limit: keep the rest, find others, and a new T."""
    trial.release(pending.id)
    found = find(trial, queue, pending, prefer=hold.mask)
    trial.holds[pending.id] = hold
    if isinstance(found, Hold) and not hold.claim:
        _keep(trial, queue, pending, found)
    else:
        _give_up(trial, pending, "a node was lost and none can replace it")


def _give_up(trial: Trial, pending: Pending, why: str) -> None:
    trial.release(pending.id)
    trial.news = True
    trial.hold_changes.append(HoldReleased(pending.id, why))
    trial.wake(trial.now + trial.policy.review)


def hold_for(trial: Trial, queue: Queue, pending: Pending) -> WaitReason | None:
    """Grant a hold to a blocked gang if it may have one; otherwise say why not. None = nodes are held for it now."""
    leaf = queue.user.account
    own = [each for each in trial.hold_of.get(leaf, ()) if each in trial.holds] if trial.contract else []
    if len(own) >= trial.policy.holds_per_leaf:
        return HoldTaken(own[0], len(own))
    if trial.holds_given() >= trial.policy.holds_max:
        return HoldTaken(None, trial.holds_given())
    if trial.contract and trial.ratio(leaf) >= 1.0:
        return HoldNotOwed(trial.ratio(leaf))
    found = find(trial, queue, pending)
    if not isinstance(found, Hold):
        return found
    trial.hold_of.setdefault(leaf, []).append(pending.id)
    _keep(trial, queue, pending, found)
    return None
