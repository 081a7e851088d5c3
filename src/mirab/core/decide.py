"""One decision: who starts where, who stops for whom, who waits for what.

Pure: the state is read, a `Trial` is written, a `Plan` comes out. No clock, no IO, no randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from mirab.core.clearing import Clearing, NoClearing
from mirab.core.drains import serve_drains, serve_late, serve_unwanted
from mirab.core.explain import blocked_reason, never_fits
from mirab.core.holds import hold_for, serve_holds
from mirab.core.ordering import Key, by_uncharged_usage, leaf_key, queue_key
from mirab.core.placement import place
from mirab.core.queues import Pending, Queue, ShapeInfo
from mirab.core.reclaim import claim, reclaim
from mirab.core.reservations import serve_reservations
from mirab.core.shares import Account
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.core.victims import Reach, claimants, survey_due
from mirab.model.plans import Plan, Reject
from mirab.model.reasons import (
    AwaitingCheckpoint,
    BlockedBehind,
    HeadroomKept,
    HoldNotOwed,
    HoldTaken,
    InOrder,
    QuotaFull,
    SavingUp,
    WaitReason,
)
from mirab.model.units import HOUR, UNIT, WHOLE, Duration, Instant

Turns: TypeAlias = dict[Account, dict[Queue, bool]]
"""Queues to look at, by leaf. False: only if there still is room for it when its turn comes; nothing else is news."""
STALE: Duration = HOUR
"""The numbers in the reason of a gang that only waits are renewed when they have been due for so long."""


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
    if trial.policy.contract:
        _serve_uncharged(trial)
    _set_alarm(trial)
    return trial.plan()


def _reject(trial: Trial) -> None:
    for pending in trial.state.rejected.values():
        trial.actions.append(Reject(pending.workload.id, never_fits(trial, pending)))


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
    turns = _turns(trial)
    if turns:
        strict = trial.policy.backfill == "none"
        _take_turns(trial, turns, lambda leaf, queues: leaf_key(trial, leaf, queues), _serve, trial.lets_in, strict)


def _turns(trial: Trial) -> Turns:
    """The queues worth looking at, by leaf: those with room, those that may take from others, those new."""
    state = trial.state
    turns: Turns = {}
    for queue in state.unexplained:
        if queue.info.charged:
            _join(turns, queue)
    for info in _shapes_to_try(trial):
        if info.charged:
            _join_roomy(turns, info)
    if trial.surveyed:
        _join_claimants(trial, turns)
    for queue, ripe_at in state.awaiting.items():
        if ripe_at <= trial.now:
            _join(turns, queue)
        else:
            trial.wake(ripe_at)
    if trial.news:
        _join_gangs(trial, turns)
    return turns


def _join_gangs(trial: Trial, turns: Turns) -> None:
    """Gangs that were a few nodes short of a hold: those nodes may be free now, before others take them."""
    free = max(trial.wide(number)[bank.slots].bit_count() for number, bank in enumerate(trial.banks))
    if not free:
        return
    for queue, missing in trial.state.short.items():
        if missing <= free and _may_have_hold(trial, queue.user.account):
            _join(turns, queue)


def _shapes_to_try(trial: Trial) -> list[ShapeInfo]:
    """Shapes for which there may be room now. In strict order all: the blocked head has to stand before the others."""
    if trial.policy.backfill == "none":
        return [info for infos in trial.state.waiting_sizes.values() for info in infos]
    return trial.roomy_shapes() if trial.news else []


def _join(turns: Turns, queue: Queue) -> None:
    turns.setdefault(queue.user.account, {})[queue] = True


def _join_roomy(turns: Turns, info: ShapeInfo) -> None:
    for waiting in info.queues.values():
        for queue in waiting.values():
            turns.setdefault(queue.user.account, {}).setdefault(queue, False)


def _join_claimants(trial: Trial, turns: Turns) -> None:
    """Queues that may stop somebody's run, and gangs whose time it is to ask for a hold."""
    reaches = claimants(trial) if trial.policy.preemption != "none" else {}
    for size, infos in trial.state.waiting_sizes.items() if reaches else ():
        able = [leaf.path for leaf, reach in reaches.items() if reach.suffices(size)]
        for info in infos if able else ():
            if info.charged and not info.gang:
                for path in able:
                    for queue in info.queues.get(path, {}).values():
                        _join(turns, queue)
    for leaf, queues in trial.state.gangs.items():
        may_hold, reach = _may_have_hold(trial, leaf), reaches.get(leaf)
        for queue in queues:
            if queue.info.charged and _asks_again(trial, queue, may_hold, reach):
                _join(turns, queue)


def _may_have_hold(trial: Trial, leaf: Account) -> bool:
    """Whether the leaf's gangs may ask for a hold at all."""
    if trial.holds_given() >= trial.policy.holds_max:
        return False
    return not trial.policy.contract or (
        trial.ratio(leaf) < 1.0 and len(trial.hold_of.get(leaf, ())) < trial.policy.holds_per_leaf
    )


def _asks_again(trial: Trial, queue: Queue, may_hold: bool, reach: Reach | None) -> bool:
    """Whether a gang may get another answer than last time.

    It was refused a hold that it may have now; or its last answer is old, and there may be nodes to hold or runs to
    stop by now. If it only waits, its reason is told anew when its numbers are stale.
    """
    waiting = queue.head.waiting
    if waiting is None or waiting.again_at + STALE <= trial.now:
        return True
    if may_hold and (not trial.policy.contract or isinstance(waiting.reason, HoldTaken | HoldNotOwed)):
        return True
    return waiting.again_at <= trial.now and (may_hold or (reach is not None and reach.suffices(queue.info.size)))


_Attempt: TypeAlias = Callable[[Trial, Queue, bool], bool]
_Line: TypeAlias = list[tuple[Key, Queue]]


def _take_turns(trial: Trial, turns: Turns, key_of: Callable[[Account, _Line], Key], attempt: _Attempt,
                lets_in: Callable[[ShapeInfo], bool], strict: bool = False) -> None:  # fmt: skip
    """Always the first leaf, and its first queue; standing is compared anew after each start.

    Starting work can only worsen a standing, so a heap whose entries are checked as they surface is enough. Queues
    that came for room are dropped as soon as there is no room left for their shape.
    """
    came = dict.fromkeys(queue.info for queues in turns.values() for queue, news in queues.items() if not news)
    lines: dict[Account, _Line] = {}
    order: list[tuple[Key, str, Account]] = []
    for leaf, queues in turns.items():
        line = _line(trial, queues)
        if line:
            lines[leaf] = line
            order.append((key_of(leaf, line), leaf.path, leaf))
    heapify(order)
    while order:
        key, path, leaf = heappop(order)
        line = lines[leaf]
        current = key_of(leaf, line)
        if current > key:
            heappush(order, (current, path, leaf))
            continue
        queue = _first(trial, line)
        if queue is None:
            continue
        if attempt(trial, queue, turns[leaf][queue]):
            turns[leaf][queue] = True
            if trial.head(queue) is not None:
                heappush(line, (queue_key(trial, queue), queue))
            gone = [] if strict else [info for info in came if not lets_in(info)]
            if gone:
                for info in gone:
                    del came[info]
                _drop(trial, lines, turns, gone)
        elif strict:
            _all_behind(trial, queue, lines)
            return
        if line:
            heappush(order, (key_of(leaf, line), path, leaf))


def _drop(trial: Trial, lines: dict[Account, _Line], turns: Turns, gone: list[ShapeInfo]) -> None:
    """Take the queues that came only for room, and whose shapes have none left, out of the lines."""
    for leaf, line in lines.items():
        news = turns[leaf]
        line[:] = [
            pair for pair in line if news[pair[1]] or pair[1].info not in gone or _needs_reason(trial, pair[1])
        ]
        heapify(line)


def _all_behind(trial: Trial, blocked: Queue, lines: dict[Account, _Line]) -> None:
    """In strict order everybody waits for the blocked head."""
    first = trial.head(blocked)
    for line in lines.values():
        for _, queue in line:
            pending = trial.head(queue)
            if first is not None and pending is not None and pending is not first and pending.waiting is None:
                trial.wait(pending, BlockedBehind(first.workload.id, None))


def _line(trial: Trial, queues: dict[Queue, bool]) -> _Line:
    line = [(queue_key(trial, queue), queue) for queue in queues if trial.head(queue) is not None]
    heapify(line)
    return line


def _first(trial: Trial, line: _Line) -> Queue | None:
    """Take the first queue out of a leaf's line."""
    while line:
        key, queue = heappop(line)
        if trial.head(queue) is None:
            continue
        current = queue_key(trial, queue)
        if current > key:
            heappush(line, (current, queue))
            continue
        return queue
    return None


def _serve(trial: Trial, queue: Queue, news: bool) -> bool:
    """Start the head of a queue, or make room for it, or hold nodes for it, or say why it waits."""
    pending = trial.head(queue)
    if pending is None:
        return False
    leaf, info = queue.user.account, queue.info
    barrier = _barrier(trial, queue)
    if barrier is not None:
        trial.wait(pending, barrier)
        return False
    given = place(trial, info, leaf)
    if given is not None:
        ratio = trial.ratio(leaf)
        trial.start(queue, pending.workload.id, given, InOrder(leaf.path, ratio, ratio < 1.0))
        return True
    if not news and not _needs_reason(trial, queue):
        return False
    if trial.policy.preemption != "none" and len(trial.stopped) < trial.policy.preemptions_max:
        plan = reclaim(trial, queue, pending)
        if isinstance(plan, Clearing):
            claim(trial, queue, pending, plan)
            return True
    elif trial.policy.preemption != "none":
        trial.wake(trial.now + max(1, trial.policy.cadence))
        return False
    else:
        plan = NoClearing(0)
    return _hold_or_explain(trial, queue, plan)


def _needs_reason(trial: Trial, queue: Queue) -> bool:
    """Whether the head of the queue has never been told why it waits."""
    pending = trial.head(queue)
    return pending is not None and pending.waiting is None


def _hold_or_explain(trial: Trial, queue: Queue, plan: NoClearing) -> bool:
    pending = trial.head(queue)
    if pending is None:
        return False
    no_hold: WaitReason | None = None
    again_at = trial.now + trial.policy.review
    if queue.info.gang and queue.info.charged:
        no_hold = hold_for(trial, queue, pending)
        if no_hold is None:
            return True
        again_at = trial.now + trial.policy.hold_review
    elif plan.ripe_at is None and pending.waiting is not None and pending.waiting.again_at > trial.now:
        return False
    if plan.ripe_at is not None:
        again_at = min(again_at, plan.ripe_at)
        trial.wake(plan.ripe_at)
        reason: WaitReason = AwaitingCheckpoint(plan.ripe_at, plan.victims)
    else:
        reason = blocked_reason(trial, queue, plan, no_hold)
    trial.wait(pending, reason, again_at)
    return False


def _barrier(trial: Trial, queue: Queue) -> WaitReason | None:
    """What keeps it waiting whatever is free: a static quota, or its own account saving up for a gang."""
    leaf = queue.user.account
    if trial.policy.order == "quota":
        quota = trial.state.cluster.charge_units * leaf.share // WHOLE
        running = leaf.running + trial.given_charge.get(leaf, 0)
        if running + min(queue.info.rates) > quota:
            return QuotaFull(quota // UNIT, running // UNIT)
    if leaf.save_for_gangs and not queue.info.gang and trial.ratio(leaf) < 1.0:
        gang = oldest_gang(leaf)
        pending = trial.head(queue)
        if gang is not None and pending is not None and gang.rank[3] < pending.rank[3]:
            return SavingUp(gang.workload.id)
    return None


def oldest_gang(leaf: Account) -> Pending | None:
    """The gang that has waited longest in the leaf."""
    gangs = [queue.head for user in leaf.users.values() for queue in user.queues.values() if queue.info.gang]
    return min(gangs, key=lambda pending: pending.rank[3:], default=None)


# --- uncharged work -------------------------------------------------------------------------------------------------
def _serve_uncharged(trial: Trial) -> None:
    """What no charged work can use now, less the headroom, in order of uncharged usage."""
    turns: Turns = {}
    for queue in trial.state.unexplained:
        if not queue.info.charged:
            _join(turns, queue)
    if trial.news:
        for info in trial.roomy_shapes():
            if not info.charged and trial.beside_headroom(info):
                _join_roomy(turns, info)
    if not turns:
        return
    _take_turns(
        trial,
        turns,
        lambda leaf, _: by_uncharged_usage(trial, leaf),
        _serve_one_uncharged,
        lambda info: trial.lets_in(info) and trial.beside_headroom(info),
    )


def _serve_one_uncharged(trial: Trial, queue: Queue, news: bool) -> bool:
    pending = trial.head(queue)
    if pending is None or not (news or trial.has_room(queue.info.size) or _needs_reason(trial, queue)):
        return False
    leaf, info = queue.user.account, queue.info
    if not trial.beside_headroom(info):
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
    trial.start(queue, pending.workload.id, place_, InOrder(leaf.path, ratio, owed=False))
    rate = info.rates[info.pools.index(place_.pool)]
    trial.add_uncharged(queue.user, rate * trial.policy.commitment_floor)
    return True
