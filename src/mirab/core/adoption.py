"""Runs that no plan started: the engine has a scheduler of its own, and the ledger counts what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirab.core.charge import charge_rate
from mirab.core.folding import begin, charge_late, drop_hold
from mirab.core.queues import Pending
from mirab.core.runs import Run
from mirab.model import events
from mirab.model.resources import Allocation
from mirab.model.units import attempt_of

if TYPE_CHECKING:
    from mirab.core.state import State


def run_adopted(state: State, event: events.RunAdopted) -> None:
    """As if a plan had started it and it had begun to run; its minimum counts from when it really did, and
    it is charged since the instant of the fact: what ran before there was a ledger is in none."""
    if event.run_id in state.runs or event.workload_id in state.running:
        return
    pending = _leaves_the_queue(state, event)
    account = None if pending is None else state.account_on(event.allocation.pool, pending.workload.account)
    if pending is None or account is None:
        return
    workload, given = pending.workload, _what_is_free(state, event.allocation)
    pool = state.cluster.pools[given.pool]
    charged = event.min_runtime > 0 or not state.policy.contract
    rate = charge_rate(workload.shape, pool) if charged else 0
    user = state.user_of(account, workload.user)
    run = Run(event.run_id, workload, attempt_of(event.run_id), user, given, rate, event.min_runtime, event.started_at)
    run.charged, run.adopted = charged, True
    state.occupy(run)
    begin(state, run, event.started_at)
    run.charged_since = event.at
    charge_late(state, run, event.at, +1)


def _leaves_the_queue(state: State, event: events.RunAdopted) -> Pending | None:
    pending = state.pending.get(event.workload_id)
    if pending is not None:
        drop_hold(state, pending)
        state.dequeue(pending)
        return pending
    held, _ = state.held.pop(event.workload_id, (None, ""))
    return held


def _what_is_free(state: State, given: Allocation) -> Allocation:
    """The nodes of the allocation on which the slots are free as far as the scheduler knows."""
    return given._replace(mask=given.mask & state.banks[given.pool].with_free(given.slots_per_node))
