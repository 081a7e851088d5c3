"""One decision: who starts where, who stops for whom, who waits for what.

Pure: the state is read, a `Trial` is written, a `Plan` comes out. No clock, no IO, no randomness.
"""

from __future__ import annotations

from mirab.core.barriers import at_cap, barrier, below_caps
from mirab.core.clearing import Clearing, NoClearing
from mirab.core.departures import serve_late, serve_unwanted
from mirab.core.drains import serve_drains
from mirab.core.explain import blocked_reason, never_fits
from mirab.core.holds import hold_for, serve_holds
from mirab.core.ordering import LEAF_KEYS, by_uncharged_usage
from mirab.core.placement import place
from mirab.core.queues import Pending, Queue, ShapeInfo
from mirab.core.reclaim import claim, reclaim
from mirab.core.reservations import serve_reservations
from mirab.core.shares import Account
from mirab.core.state import State
from mirab.core.swaps import take_from_own
from mirab.core.trial import Trial
from mirab.core.turns import Rules, Turns
from mirab.core.victims import able_shapes, is_able, survey_due, takers
from mirab.model.plans import Plan, Reject
from mirab.model.reasons import (
    AtCap,
    AwaitingCheckpoint,
    BlockedBehind,
    GangTooLarge,
    HeadroomKept,
    HoldNotOwed,
    HoldTaken,
    InOrder,
    WaitReason,
)
from mirab.model.units import HOUR, Duration, Instant

STALE: Duration = HOUR
"""The numbers in the reason of who only waits are renewed when they have been due for so long."""


def decide(state: State, now: Instant) -> Plan:
    """What to do at `now`, given everything known."""
    trial = Trial(state, now)
    trial.surveyed = survey_due(trial)
    _reject(trial)
    serve_unwanted(trial)
    serve_late(trial)
    serve_drains(trial)
    serve_reservations(trial)
    serve_holds(trial)
    _serve_charged(trial)
    if trial.contract:
        _serve_uncharged(trial)
    _set_alarm(trial)
    return trial.plan()


def _reject(trial: Trial) -> None:
    for pending in trial.state.rejected.values():
        trial.actions.append(Reject(pending.id, never_fits(trial, pending)))


def _set_alarm(trial: Trial) -> None:
    """When to look again if nothing happens."""
    state = trial.state
    if state.pending:
        trial.wake(trial.now + trial.policy.review)
        if state.exposures:
            trial.wake(state.exposures[0][0])
    if state.overdue:
        trial.wake(state.overdue[0][0])
    for exemption in state.exemptions.values():
        trial.wake(exemption.begin)
        trial.wake(exemption.end)


# --- charged work (under the other policies: all work) --------------------------------------------------------------
def _serve_charged(trial: Trial) -> None:
    policy = trial.policy
    strict = policy.backfill == "none"
    turns = Turns(trial, Rules(LEAF_KEYS[policy.order], _serve, trial.lets_in, strict))
    _join_all(trial, turns)
    for blocked in turns.take():
        _all_behind(trial, blocked, turns.rest(blocked))


def _join_all(trial: Trial, turns: Turns) -> None:
    """The queues worth looking at: those with room, those that may take from others, those new."""
    state = trial.state
    for queue in state.unexplained:
        if queue.info.charged:
            turns.join(queue)
    for info in _shapes_to_try(trial):
        turns.join_for_room(info)
    if trial.surveyed:
        _join_claimants(trial, turns)
    elif state.newly_exposed and trial.policy.preemption == "budget":
        for queue in takers(trial):
            turns.join(queue)
    for queue, ripe_at in state.awaiting.items():
        if ripe_at <= trial.now:
            turns.join(queue)
        else:
            trial.wake(ripe_at)
    if trial.news:
        _join_gangs(trial, turns)
        for queue in below_caps(trial, charged=True):
            turns.join(queue)


def _join_gangs(trial: Trial, turns: Turns) -> None:
    """Gangs that were a few nodes short of a hold: those nodes may be free now, before others take them."""
    free = [trial.count(number, bank.slots) for number, bank in enumerate(trial.banks)]
    if not any(free):
        return
    for queue, missing in trial.state.short.items():
        leaf = queue.user.account
        there = max([free[number] for number in leaf.ledger.pools])
        if there and missing <= there and _may_have_hold(trial, leaf):
            turns.join(queue)


def _shapes_to_try(trial: Trial) -> list[ShapeInfo]:
    """Shapes for which there may be room now. In strict order all: the blocked head has to stand before the others."""
    if trial.policy.backfill == "none":
        return [info for infos in trial.state.waiting_sizes[True].values() for info in infos]
    return trial.roomy_shapes(charged=True) if trial.news else []


def _join_claimants(trial: Trial, turns: Turns) -> None:
    """Queues that may stop somebody's run, and gangs whose time it is to ask for a hold."""
    holds_left = trial.holds_given() < trial.policy.holds_max
    for leaf in trial.state.accounts.values():
        if not leaf.shapes:
            continue
        able, may_hold = able_shapes(trial, leaf), holds_left and _may_have_hold(trial, leaf)
        for info, queues in leaf.shapes.items() if able or may_hold else ():
            for queue in queues:
                takes = info in able and queue not in trial.state.awaiting and is_able(trial, queue)
                if _asks_again(trial, queue, may_hold, takes) if info.gang else takes:
                    turns.join(queue)
    if trial.now // HOUR > trial.state.seen_at // HOUR:
        _join_stale(trial, turns)


def _join_stale(trial: Trial, turns: Turns) -> None:
    """Queues of which the reason has been due for long: its numbers are renewed."""
    for leaf in trial.state.accounts.values():
        for queues in leaf.shapes.values():
            for queue in queues:
                waiting = queue.head.waiting
                if waiting is not None and waiting.again_at + STALE <= trial.now:
                    turns.join(queue)


def _may_have_hold(trial: Trial, leaf: Account) -> bool:
    """Whether the leaf's gangs may ask for a hold at all."""
    if trial.holds_given() >= trial.policy.holds_max:
        return False
    return not trial.contract or (
        trial.ratio(leaf) < 1.0 and len(trial.hold_of.get(leaf, ())) < trial.policy.holds_per_leaf
    )


def _asks_again(trial: Trial, queue: Queue, may_hold: bool, takes: bool) -> bool:
    """Whether a gang may get another answer than last time: it was refused a hold that it may have now; or its last
    answer is old, and there may be nodes to hold or runs to stop by now.
    """
    waiting = queue.head.waiting
    if waiting is None or (waiting.again_at <= trial.now and (may_hold or takes)):
        return True
    return may_hold and (not trial.contract or isinstance(waiting.reason, HoldTaken | HoldNotOwed))


def _all_behind(trial: Trial, blocked: Queue, others: list[Queue]) -> None:
    """In strict order everybody waits for the blocked head."""
    first = trial.head(blocked)
    for queue in others:
        pending = trial.head(queue)
        if first is not None and pending is not None and pending.waiting is None:
            trial.wait(pending, BlockedBehind(first.id, None))


def _serve(trial: Trial, queue: Queue, news: bool) -> bool:
    """Start the head of a queue, or make room for it, or hold nodes for it, or say why it waits."""
    pending = trial.head(queue)
    if pending is None:
        return False
    leaf, info = queue.user.account, queue.info
    blocked = barrier(trial, queue)
    if blocked is not None:
        return _serve_blocked(trial, queue, pending, blocked, news)
    given = place(trial, info, leaf)
    if given is not None:
        ratio = trial.ratio(leaf)
        trial.start(queue, pending.id, given, InOrder(leaf.path, ratio, ratio < 1.0))
        return True
    if not news and pending.waiting is not None:
        return False
    if trial.policy.preemption == "none":
        return _hold_or_explain(trial, queue, pending, NoClearing(0))
    if len(trial.stopped) >= trial.policy.preemptions_max:
        trial.wake(trial.now + max(1, trial.policy.cadence))
        return False
    plan = reclaim(trial, queue, pending)
    if isinstance(plan, Clearing):
        claim(trial, queue, pending, plan)
        return True
    return _hold_or_explain(trial, queue, pending, plan)


def _serve_blocked(trial: Trial, queue: Queue, pending: Pending, blocked: WaitReason, news: bool) -> bool:
    """It waits whatever is free; at a cap it may take the place of its own account's runs."""
    if isinstance(blocked, AtCap | GangTooLarge):
        trial.passed_over[queue] = None
    asks = news or pending.waiting is None
    if asks and isinstance(blocked, AtCap) and take_from_own(trial, queue, pending, blocked):
        return True
    trial.wait(pending, blocked)
    return False


def _knows_why(trial: Trial, pending: Pending) -> bool:
    """Whether it has been told lately why it waits, and it is not a cap that it is below now."""
    told = pending.waiting
    return told is not None and told.again_at > trial.now and not isinstance(told.reason, AtCap | GangTooLarge)


def _hold_or_explain(trial: Trial, queue: Queue, pending: Pending, plan: NoClearing) -> bool:
    """Nothing can be done for it now: keep nodes for it if it is a gang that may have some, or say why it waits."""
    if plan.ripe_at is not None:
        _await_checkpoint(trial, pending, plan, plan.ripe_at)
        return False
    no_hold: WaitReason | None = None
    again_at = trial.now + trial.policy.review
    if queue.info.gang and queue.info.charged:
        no_hold = hold_for(trial, queue, pending)
        if no_hold is None:
            return True
        again_at = trial.now + trial.policy.hold_review
    elif _knows_why(trial, pending):
        return False
    trial.wait(pending, blocked_reason(trial, queue, plan, no_hold), again_at)
    return False


def _await_checkpoint(trial: Trial, pending: Pending, plan: NoClearing, ripe_at: Instant) -> None:
    """Its victims are about to checkpoint: it looks again when they have."""
    told = pending.waiting.reason if pending.waiting is not None else None
    since = told.since if isinstance(told, AwaitingCheckpoint) else trial.now
    trial.wake(ripe_at)
    reason = AwaitingCheckpoint(ripe_at, plan.victims, since)
    trial.wait(pending, reason, min(trial.now + trial.policy.review, ripe_at))


# --- uncharged work -------------------------------------------------------------------------------------------------
def _serve_uncharged(trial: Trial) -> None:
    """What no charged work can use now, less the headroom, in order of uncharged usage."""
    if not trial.state.waiting_sizes[False]:
        return
    new = [queue for queue in trial.state.unexplained if not queue.info.charged]
    new += below_caps(trial, charged=False) if trial.news else []
    roomy = trial.roomy_shapes(charged=False) if trial.news else []
    if new or roomy:
        turns = Turns(trial, Rules(by_uncharged_usage, _serve_one_uncharged, trial.lets_in_beside_headroom))
        for queue in new:
            turns.join(queue)
        for info in roomy:
            turns.join_for_room(info)
        turns.take()


def _serve_one_uncharged(trial: Trial, queue: Queue, news: bool) -> bool:
    pending = trial.head(queue)
    if pending is None or not (news or trial.lets_in(queue.info) or pending.waiting is None):
        return False
    leaf, info = queue.user.account, queue.info
    if leaf.capped and (cap := at_cap(trial, queue)) is not None:
        trial.wait(pending, cap)
        return False
    if not trial.beside_headroom(info.size):
        roomiest = max(info.pools, key=lambda number: (trial.slots_free(number), -number))
        if trial.slots_free(roomiest) >= info.slots:
            trial.wait(pending, HeadroomKept(trial.headroom(roomiest), trial.slots_free(roomiest)))
        else:
            trial.wait(pending, blocked_reason(trial, queue, NoClearing(0), None))
        return False
    place_ = place(trial, info, leaf)
    if place_ is None:
        trial.wait(pending, blocked_reason(trial, queue, NoClearing(0), None))
        return False
    ratio = trial.ratio(leaf)
    trial.start(queue, pending.id, place_, InOrder(leaf.path, ratio, owed=False))
    rate = info.rate_in(place_.pool)
    trial.add_uncharged(queue.user, rate * trial.policy.commitment_floor)
    return True
