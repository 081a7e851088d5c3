"""How facts change the state: what people ask for, runs, nodes; and holds, which plans change, too."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappush
from typing import TYPE_CHECKING

from mirab.core.caps import too_large
from mirab.core.nodes import Health, NodeState
from mirab.core.queues import Pending
from mirab.core.runs import Run
from mirab.model import events as facts
from mirab.model.accounts import LEDGER_MARK
from mirab.model.events import Outcome, goes_back
from mirab.model.units import FOREVER, AccountPath, Instant

if TYPE_CHECKING:
    from mirab.core.state import State


# --- workloads ------------------------------------------------------------------------------------------------------
def submitted(state: State, event: facts.WorkloadSubmitted) -> None:
    workload, name = event.workload, event.workload.id
    if workload.account in state.heirs:
        workload = replace(workload, account=state.heirs[workload.account])
    if name in state.pending or name in state.held or name in state.rejected or name in state.running:
        return
    pending = Pending(workload, 1)
    if workload.held:
        state.held[workload.id] = (pending, "submitted on hold")
    else:
        admit(state, pending)


def admit(state: State, pending: Pending, known: bool = False) -> None:
    """Put it into its queue, or among those that the next decision has to reject.

    `known`: it was admitted before. A closed account takes nothing new, and keeps what it has at a share of 0.
    """
    path, shape = pending.workload.account, pending.workload.shape
    if not state.is_open(path) and state.policy.unknown_accounts == "zero" and _may_be_made(state, path):
        state.install(state.budgets.with_zero_share(path))
    account = state.account_for(path, shape)
    closed = not known and not state.is_open(path)
    if (
        account is None
        or closed
        or not state.info_for(shape, account).pools
        or (account.capped and not known and too_large(account, shape))
    ):
        state.rejected[pending.id] = pending
    else:
        state.enqueue(pending, account)


def _may_be_made(state: State, path: AccountPath) -> bool:
    """Whether an account that nobody decided about may come to be."""
    return LEDGER_MARK not in path and not state.budgets.is_closed(path)


def cancelled(state: State, event: facts.WorkloadCancelled) -> None:
    state.held.pop(event.workload_id, None)
    state.rejected.pop(event.workload_id, None)
    pending = state.pending.get(event.workload_id)
    if pending is not None:
        drop_hold(state, pending)
        state.dequeue(pending)
    run = state.running.get(event.workload_id)
    if run is not None:
        run.cancelled = True
        unwanted(state, run)


def requeue_requested(state: State, event: facts.RequeueRequested) -> None:
    run = state.running.get(event.workload_id)
    if run is not None:
        run.recalled = True
        unwanted(state, run)


def unwanted(state: State, run: Run) -> None:
    """Its user wants it gone: the next decision tells it to stop, unless it is stopping already."""
    if not run.stopping:
        state.unwanted[run.id] = run


def held(state: State, event: facts.WorkloadHeld) -> None:
    pending = state.pending.get(event.workload_id)
    if pending is not None:
        drop_hold(state, pending)
        state.dequeue(pending)
        state.held[event.workload_id] = (pending, event.why)


def released(state: State, event: facts.WorkloadReleased) -> None:
    pending, _ = state.held.pop(event.workload_id, (None, ""))
    if pending is not None:
        admit(state, pending)


# --- runs -----------------------------------------------------------------------------------------------------------
def run_started(state: State, event: facts.RunStarted) -> None:
    run = state.runs.get(event.run_id)
    if run is None or run.started_at is not None:
        return
    run.vouched = event.checkpoints_vouched
    begin(state, run, state.now)
    run.charged_since = max(event.at, run.charged_since)
    charge_late(state, run, run.charged_since, +1)


def charge_late(state: State, run: Run, at: Instant, sign: int) -> None:
    """What was told late: it is charged since then (+1), or has been charged since then for nothing (-1)."""
    if run.charged and run.rate and at < state.now:
        state.charge(run, sign * run.rate * (state.now - at))


def begin(state: State, run: Run, since: Instant) -> None:
    """It runs since then: its minimum counts from there, and it is charged from now on."""
    run.started_at = since
    run.protected_until = since + (run.min_runtime if state.policy.contract else 0)
    state.settle(run)
    committed_until = since + max(run.min_runtime, state.policy.commitment_floor)
    if run.rate and committed_until > state.now:
        state.commit_charge(run, committed_until)
    state.meter(run, +1)
    state.will_expose(run)


def checkpointed(state: State, event: facts.RunCheckpointed) -> None:
    run = state.runs.get(event.run_id)
    if run is not None and run.started_at is not None:
        run.checkpoint_at = event.at


def suspended(state: State, event: facts.RunSuspended) -> None:
    run = state.runs.get(event.run_id)
    if run is not None and run.started_at is not None and run.suspended_at is None:
        run.suspended_at = state.now
        run.protected_until += FOREVER
        state.settle(run)
        state.cover(run)


def continued(state: State, event: facts.RunContinued) -> None:
    """The clock of its minimum goes on where it stood still; a minimum that was over stays over."""
    run = state.runs.get(event.run_id)
    if run is not None and run.suspended_at is not None:
        was_until = run.protected_until - FOREVER
        left = was_until - run.suspended_at
        run.protected_until = state.now + left if left > 0 else was_until
        run.suspended_at = None
        if run.rate and left > 0:
            state.commit_charge(run, run.protected_until)
        state.will_expose(run)


def run_ended(state: State, event: facts.RunEnded) -> None:
    run = state.runs.pop(event.run_id, None)
    if run is None:
        return
    del state.running[run.workload.id]
    state.version += 1
    state.settle(run)
    if run.started_at is not None:
        state.meter(run, -1)
        if event.outcome is Outcome.NODE_FAIL:
            credit(state, run, event)
        if event.outcome is not Outcome.NODE_FAIL or event.lost is not None:
            charge_late(state, run, max(event.at, run.charged_since), -1)
    all_usable = state.book(run, -1)
    state.cover(run)
    state.late.pop(run.id, None)
    state.orphans.pop(run.id, None)
    state.unwanted.pop(run.id, None)
    state.count_running(run, -1)
    if run.beneficiary is not None:
        state.victims.get(run.beneficiary, {}).pop(run.id, None)
    if not all_usable:
        for sick in state.troubled.values():
            sick.runs.pop(run.id, None)
        state.capacity_changed(grown=False)
    if not run.cancelled and goes_back(event.outcome, run.workload.resume or run.recalled):
        vain = run.vain_if_ended(state.now) if event.outcome is Outcome.PREEMPTED else run.vain
        admit(state, Pending(run.workload, run.attempt + 1, vain), known=True)


def credit(state: State, run: Run, event: facts.RunEnded) -> None:
    """Time lost to a hardware failure is given back: nobody pays for work that the machine destroyed."""
    if run.charged and run.started_at is not None:
        lost = state.now - run.safe_at(state.now) if event.lost is None else event.lost
        state.charge(run, -run.rate * min(lost, state.now - run.started_at))


def refused(state: State, event: facts.ActionRefused) -> None:
    """The engine would not do it: a start is undone and tried anew, a stop is asked again by a later plan."""
    run = state.runs.get(event.run_id)
    if run is None:
        return
    if event.action == "start" and run.started_at is None:
        run_ended(state, facts.RunEnded(event.at, run.id, Outcome.LAUNCH_FAILED, 0))
    elif event.action == "preempt" and run.stopping:
        _stays(state, run)


def _stays(state: State, run: Run) -> None:
    """It goes on for now, and the claim that it was stopped for is void."""
    beneficiary = run.beneficiary
    run.stop_by = run.beneficiary = None
    run.for_colleague = False
    run.excused_until = state.now + state.policy.stop_timeout
    state.late.pop(run.id, None)
    state.orphans.pop(run.id, None)
    if run.cancelled or run.recalled:
        unwanted(state, run)
    if run.started_at is not None:
        state.will_expose(run)
    heappush(state.overdue, (state.overdue_at(run), run.id))
    state.claims += 1
    if beneficiary is not None:
        state.victims.get(beneficiary, {}).pop(run.id, None)
        pending, hold = state.pending.get(beneficiary), state.holds.get(beneficiary)
        if pending is not None and hold is not None and hold.claim:
            drop_hold(state, pending)


# --- nodes ----------------------------------------------------------------------------------------------------------
def degraded(state: State, event: facts.NodeDegraded) -> None:
    place = state.places[event.node]
    known = state.troubled.get(place)
    if known is None:
        sick = NodeState(Health.DEGRADED, state.now, event.cause, state.runs_on(place))
        state.troubled[place] = state.emptying[place] = sick
        _closes(state, place)
    else:
        known.healthy_again = False


def down(state: State, event: facts.NodeDown) -> None:
    place = state.places[event.node]
    state.troubled[place] = NodeState(Health.DOWN, state.now, event.cause, state.runs_on(place))
    state.emptying.pop(place, None)
    _closes(state, place)


def _closes(state: State, place: tuple[int, int]) -> None:
    """The node takes nothing new."""
    number, node = place
    state.usable[number] &= ~(1 << node)
    state.banks[number].look_anew()
    state.capacity_changed(grown=False)


def up(state: State, event: facts.NodeUp) -> None:
    place = state.places[event.node]
    known = state.troubled.get(place)
    if known is None:
        return
    if known.health is Health.DRAINING:
        known.healthy_again = True
    else:
        node_returns(state, place)


def node_returns(state: State, place: tuple[int, int]) -> None:
    number, node = place
    state.troubled.pop(place, None)
    state.emptying.pop(place, None)
    state.usable[number] |= 1 << node
    state.banks[number].look_anew()
    state.capacity_changed(grown=True)


# --- holds -----------------------------------------------------------------------------------------------------------
def commit_hold(state: State, pending: Pending, pool: int, sign: int) -> None:
    """The gang's whole minimum enters (or leaves) the commitment of its account and user."""
    queue = pending.queue
    if queue is None:
        return
    info = queue.info
    amount = sign * info.rate_in(pool) * info.commitment if info.charged else 0
    for account in queue.user.account.lineage:
        account.held += amount
    queue.user.held += amount


def drop_hold(state: State, pending: Pending) -> None:
    """Give back what is held for it; runs that are stopping for it stop all the same."""
    granted = state.holds.get(pending.id)
    if granted is not None:
        commit_hold(state, pending, granted.pool, -1)
        forget_hold(state, pending)


def forget_hold(state: State, pending: Pending) -> None:
    """The same for one that is committed to nobody any more."""
    granted = state.holds.pop(pending.id, None)
    if granted is not None:
        pending.waiting = None
        if pending.queue is not None:
            state.unexplained[pending.queue] = None
        orphans = {run_id: state.runs[run_id] for run_id in state.victims.pop(pending.id, {})}
        state.orphans.update(orphans)
        state.version += 1
        if orphans or not granted.claim:
            state.claims += 1
