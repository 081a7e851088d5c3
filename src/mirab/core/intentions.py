"""How each intention of a plan changes the state, before the engine has done anything about it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import TYPE_CHECKING, Any, TypeVar

from mirab.core.folding import commit_hold, drop_hold, node_returns
from mirab.core.nodes import Health
from mirab.core.portfolio import charge_elsewhere, end_reservation
from mirab.core.queues import Queue
from mirab.core.runs import Run
from mirab.model import plans
from mirab.model.reasons import (
    AtCap,
    AwaitingCheckpoint,
    DrainedFrom,
    NotEnoughClaimable,
    OnHeldNodes,
    PreemptedFor,
    ReservationBegins,
    Reserved,
    StartTimedOut,
)
from mirab.model.units import Instant

if TYPE_CHECKING:
    from mirab.core.state import State

V = TypeVar("V")


def start(state: State, action: plans.Start, now: Instant) -> None:
    pending = state.pending[action.workload_id]
    queue = pending.queue
    if queue is None:
        raise AssertionError(f"{action.workload_id} was started and waits in no queue")
    user, info = queue.user, queue.info
    drop_hold(state, pending)
    state.dequeue(pending)
    rate = info.rate_in(action.allocation.pool) if info.charged else 0
    run = Run(action.run_id, pending.workload, pending.attempt, user, action.allocation, rate, action.min_runtime, now)
    run.vain = pending.vain
    run.charged = info.charged
    if isinstance(action.reason, Reserved):
        run.reservation, run.rate = action.reason.reservation_id, 0
    if isinstance(action.reason, OnHeldNodes):
        run.guest_until = action.reason.until
    state.occupy(run)
    if run.rate:
        state.commit_charge(run, now + max(run.min_runtime, state.policy.commitment_floor))
    heappush(state.overdue, (state.overdue_at(run), run.id))


def preempt(state: State, action: plans.Preempt, now: Instant) -> None:
    run = _tell_to_stop(state, action, now)
    if isinstance(action.reason, DrainedFrom | ReservationBegins | StartTimedOut):
        state.orphans[run.id] = run
    if isinstance(action.reason, PreemptedFor):
        run.beneficiary = action.reason.beneficiary
        run.for_colleague = action.reason.account == run.account.path
        state.victims.setdefault(run.beneficiary, {})[run.id] = None


def cancel(state: State, action: plans.Cancel, now: Instant) -> None:
    run = _tell_to_stop(state, action, now)
    state.orphans[run.id] = run


def _tell_to_stop(state: State, action: plans.Preempt | plans.Cancel, now: Instant) -> Run:
    """It is on its way out: nobody's victim, and overdue if it does not go."""
    run = state.runs[action.run_id]
    run.stop_by = now + action.grace
    state.cover(run)
    state.late.pop(run.id, None)
    state.orphans.pop(run.id, None)
    state.unwanted.pop(run.id, None)
    heappush(state.overdue, (state.overdue_at(run), run.id))
    return run


def drain(state: State, action: plans.Drain, now: Instant) -> None:
    state.troubled[state.places[action.node]].health = Health.DRAINING


def repair(state: State, action: plans.Repair, now: Instant) -> None:
    place = state.places[action.node]
    state.troubled[place].health = Health.REPAIR
    state.emptying.pop(place, None)


def resume(state: State, action: plans.Resume, now: Instant) -> None:
    node_returns(state, state.places[action.node])


def call_human(state: State, action: plans.CallHuman, now: Instant) -> None:
    run = state.late.pop(action.run_id, None)
    if run is not None:
        run.stuck = True
        state.version += 1
        state.orphans.pop(run.id, None)
    known = state.troubled.get(state.places[action.node])
    if known is not None:
        known.human_called = True


def reject(state: State, action: plans.Reject, now: Instant) -> None:
    state.rejected.pop(action.workload_id, None)


def hold_granted(state: State, granted: plans.Hold, now: Instant) -> None:
    if granted.reservation_id is not None:
        before = state.reserved.get(granted.reservation_id)
        state.reserved[granted.reservation_id] = granted
        if before is not None and state.by_pool[before.pool] != state.by_pool[granted.pool]:
            charge_elsewhere(state, granted.reservation_id)
        return
    pending = state.pending[granted.workload_id]
    queue = pending.queue
    if queue is None:
        raise AssertionError(f"{granted.workload_id} holds nodes and waits in no queue")
    moved = state.holds.get(granted.workload_id)
    if moved is not None:
        commit_hold(state, pending, moved.pool, -1)
    commit_hold(state, pending, granted.pool, +1)
    state.holds[granted.workload_id] = granted
    state.victims.setdefault(granted.workload_id, {})


def hold_released(state: State, change: plans.HoldReleased, now: Instant) -> None:
    if change.reservation_id is not None:
        end_reservation(state, change.reservation_id)
        return
    pending = state.pending.get(change.workload_id)
    if pending is not None:
        drop_hold(state, pending)


INTENTIONS: dict[type[Any], Callable[[State, Any, Instant], None]] = {
    plans.Start: start,
    plans.Preempt: preempt,
    plans.Cancel: cancel,
    plans.Drain: drain,
    plans.Repair: repair,
    plans.Resume: resume,
    plans.CallHuman: call_human,
    plans.Reject: reject,
    plans.Hold: hold_granted,
    plans.HoldReleased: hold_released,
}


def explained(state: State, waiting: plans.Waiting) -> None:
    """Keep the reason with the workload that it is about."""
    pending = state.pending.get(waiting.workload_id)
    if pending is None or pending.queue is None:
        return
    queue, reason = pending.queue, waiting.reason
    pending.waiting = waiting
    state.unexplained.pop(queue, None)
    _list(state.awaiting, queue, reason.until if isinstance(reason, AwaitingCheckpoint) else None)
    _list(state.short, queue, reason.nodes - reason.claimable if isinstance(reason, NotEnoughClaimable) else None)
    _list(state.at_cap, queue, reason if isinstance(reason, AtCap) else None)


def _list(those: dict[Queue, V], queue: Queue, lacks: V | None) -> None:
    """Let a queue be among those that wait for one thing, or no more (None)."""
    if lacks is None:
        those.pop(queue, None)
    else:
        those[queue] = lacks
