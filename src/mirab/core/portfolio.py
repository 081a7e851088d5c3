"""Decisions of people that change what the scheduler stands on: budgets, exceptions, reservations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirab.core.charge import charge_rate
from mirab.core.folding import admit, commit_hold, forget_hold
from mirab.core.queues import Pending
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.succession import succeed, successions
from mirab.model import events as facts
from mirab.model.accounts import Budgets, plain
from mirab.model.policy import Reservation
from mirab.model.units import AccountPath, ChargeRate

if TYPE_CHECKING:
    from mirab.core.state import State


# --- budgets --------------------------------------------------------------------------------------------------------
def budgets_changed(state: State, event: facts.BudgetsChanged) -> None:
    """Everybody leaves the queues while the tree changes, and queues anew."""
    waiting = _leave_queues(state)
    _leave_ledgers(state, event.budgets)
    going = successions(state, event.budgets)
    if going:
        succeed(state, event.budgets, going, waiting)
    state.install(event.budgets)
    _enter_rests(state)
    _enter_ledgers(state)
    _count_gpus(state)
    _queue_anew(state, waiting)


def _leave_ledgers(state: State, budgets: Budgets) -> None:
    """Where nobody names a pool any more, what runs there counts in the main ledger from now on."""
    there = {each.name: None for each in budgets.ledgers(state.cluster.pool_names)}
    if all(name in there for name in state.ledgers):
        return
    for run in state.runs.values():
        if run.account.ledger.name not in there:
            state.move(run, _known(state.leaf_for(plain(run.account.path)), run.account))
    for reservation_id, (account, _) in state.charging.items():
        if account.ledger.name not in there:
            _charge(state, reservation_id, _known(state.leaf_for(plain(account.path)), account))


def _enter_ledgers(state: State) -> None:
    """What runs counts in the ledger of its pool, and what it used stays where it was charged."""
    for run in state.runs.values():
        if run.account.ledger.name != state.by_pool[run.pool]:
            state.move(run, _known(state.account_on(run.pool, run.account.path), run.account))
    for reservation_id in state.charging:
        charge_elsewhere(state, reservation_id)


def _count_gpus(state: State) -> None:
    """Anew, since accounts may have other homes than before."""
    for account in state.accounts.values():
        account.gpus = 0
    for run in state.runs.values():
        for above in run.account.lineage:
            above.home.gpus += run.workload.shape.gpus


def _enter_rests(state: State) -> None:
    """Where an account has been divided, what runs for it belongs to what its parts leave."""
    for run in state.runs.values():
        if not run.account.leaf:
            state.move(run, _known(state.leaf_for(run.account.path), run.account))


def _known(there: Account | None, old: Account) -> Account:
    if there is None:
        raise AssertionError(f"nobody goes on for {old.path}, for which something still runs or is reserved")
    return there


def charge_elsewhere(state: State, reservation_id: str) -> None:
    """If a reservation is charged in another ledger than that of its pool, it is charged there from now on."""
    account, _ = state.charging.get(reservation_id, (None, 0))
    pool = state.reserved[reservation_id].pool
    if account is not None and account.ledger.name != state.by_pool[pool]:
        _charge(state, reservation_id, _known(state.account_on(pool, account.path), account))


def _charge(state: State, reservation_id: str, account: Account) -> None:
    """From now on this account pays for the reservation."""
    old, rate = state.charging[reservation_id]
    _change_rate(state, old, -rate)
    _change_rate(state, account, rate)
    state.charging[reservation_id] = account, rate


def requeue_all(state: State) -> None:
    """The tree or the contract changed: everybody queues anew, with the same seniority; holds stay.

    All leave before the first comes back, those with a hold too, so that no queue lives on with what held before.
    """
    _queue_anew(state, _leave_queues(state))


def _leave_queues(state: State) -> list[Pending]:
    leaving = list(state.pending.values())
    for pending in leaving:
        hold = state.holds.get(pending.id)
        if hold is not None:
            commit_hold(state, pending, hold.pool, -1)
        state.dequeue(pending)
    return leaving


def _queue_anew(state: State, leaving: list[Pending]) -> None:
    for pending in leaving:
        admit(state, pending, known=True)
        hold = state.holds.get(pending.id)
        if hold is not None and (pending.queue is None or hold.pool not in pending.queue.info.pools):
            state.given_back[pending.id] = None
            forget_hold(state, pending)
        elif hold is not None:
            commit_hold(state, pending, hold.pool, +1)
    state.version += 1
    state.claims += 1


# --- exceptions and reservations ------------------------------------------------------------------------------------
def reservation_approved(state: State, event: facts.ReservationApproved) -> None:
    reservation, account = event.reservation, AccountPath(event.reservation.account)
    state.reservations[reservation.id] = replace(reservation, account=state.heirs.get(account, account))


def reservation_cancelled(state: State, event: facts.ReservationCancelled) -> None:
    if event.reservation_id in state.reservations:
        end_reservation(state, event.reservation_id)


def exemption_granted(state: State, event: facts.ExemptionGranted) -> None:
    exemption, heirs = event.exemption, state.heirs
    account, donor = AccountPath(exemption.account), AccountPath(exemption.donor)
    state.exemptions[exemption.id] = replace(
        exemption, account=heirs.get(account, account), donor=heirs.get(donor, donor)
    )


def exemption_revoked(state: State, event: facts.ExemptionRevoked) -> None:
    if state.exemptions.pop(event.exemption_id, None) is not None:
        state.exemptions_in_force.pop(event.exemption_id, None)
        state.install(state.budgets)
        requeue_all(state)


def charge_for(state: State, reservation: Reservation) -> None:
    """From now on its account is charged for it, used or not, once there are nodes for it."""
    hold = state.reserved.get(reservation.id)
    if hold is None or reservation.id in state.charging:
        return
    account = state.account_on(hold.pool, AccountPath(reservation.account))
    if account is not None:
        rate = hold.mask.bit_count() * hold.slots_per_node * state.cluster.pools[hold.pool].weight
        state.charging[reservation.id] = account, rate
        _change_rate(state, account, rate)


def _change_rate(state: State, account: Account, rate: ChargeRate) -> None:
    for above in account.lineage:
        above.usage.change_rate(state.now, rate)


def end_reservation(state: State, reservation_id: str) -> None:
    account, rate = state.charging.pop(reservation_id, (None, 0))
    if account is not None:
        _change_rate(state, account, -rate)
    for run in state.runs.values():
        if run.reservation == reservation_id:
            leave_reservation(state, run)
    state.reservations.pop(reservation_id, None)
    state.reserved.pop(reservation_id, None)
    state.accepted.pop(reservation_id, None)
    state.version += 1
    state.claims += 1


def leave_reservation(state: State, run: Run) -> None:
    """It goes on after the reservation that paid for it: from now on like any other run."""
    run.reservation = None
    run.charged_since = state.now
    if run.charged:
        run.rate = charge_rate(run.workload.shape, state.cluster.pools[run.allocation.pool])
        if run.started_at is not None:
            state.meter(run, +1)
    if run.started_at is not None and run.unprotected_at <= state.now and not run.stopping:
        state.will_expose(run)
