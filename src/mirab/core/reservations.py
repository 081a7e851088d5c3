"""Reservations: nodes for an account from a fixed instant on, met whatever anybody's ratio is.

Nodes are chosen `cap + grace` ahead. From then on only work whose minimum ends before the reservation begins may
start on them, so at `begin` every run there is past its minimum and can be stopped.
"""

from __future__ import annotations

from mirab.core.trial import Trial
from mirab.model.plans import Hold, HoldReleased
from mirab.model.policy import Reservation
from mirab.model.reasons import ReservationBegins
from mirab.model.resources import Pool, lowest
from mirab.model.units import AccountPath, Instant, NodeMask, WorkloadId


def serve_reservations(trial: Trial) -> None:
    """Choose nodes in time, clear them at the beginning, give them back at the end."""
    if not trial.state.reservations:
        return
    for reservation in sorted(trial.state.reservations.values(), key=lambda each: (each.begin, each.id)):
        choose_at = reservation.begin - trial.policy.min_runtime_cap - 2 * trial.policy.grace_max
        hold = trial.state.reserved.get(reservation.id)
        if reservation.id not in trial.state.accepted and not _can_be_met(trial, reservation):
            why = "refused: too few nodes beside other reservations and longer minimums"
            trial.hold_changes.append(HoldReleased(_holder(reservation), why, reservation.id))
        elif trial.now >= reservation.end:
            trial.hold_changes.append(HoldReleased(_holder(reservation), "the reservation has ended", reservation.id))
            _forget(trial, reservation)
            trial.news = True
        elif trial.now < choose_at:
            trial.wake(choose_at)
        elif hold is None or hold.mask & ~trial.usable[hold.pool]:
            _choose(trial, reservation, hold)
        else:
            _clear(trial, reservation, hold)


def _can_be_met(trial: Trial, reservation: Reservation) -> bool:
    """Whether some pool has enough nodes beside what is promised to others for any part of the time.

    Judged once, at the first decision after the approval; one accepted at least cap and grace ahead is then met as
    long as enough nodes are up.
    """
    for number, pool in enumerate(trial.state.cluster.pools):
        if not _suits(reservation, pool):
            continue
        late = 0
        for run in trial.state.runs.values():
            if run.allocation.pool == number and _clear_by(trial, run.unprotected_at) > reservation.begin:
                late |= run.allocation.mask
        left = (trial.usable[number] & ~late).bit_count()
        for other in trial.state.reservations.values():
            overlaps = other.begin < reservation.end and reservation.begin < other.end
            if other.id in trial.state.accepted and overlaps and _suits(other, pool):
                left -= other.nodes
        if left >= reservation.nodes:
            return True
    return False


def _suits(reservation: Reservation, pool: Pool) -> bool:
    return reservation.pool in ("", pool.name) and pool.slots_per_node >= reservation.gpus_per_node


def _holder(reservation: Reservation) -> WorkloadId:
    return WorkloadId(f"reservation:{reservation.id}")


def _forget(trial: Trial, reservation: Reservation) -> None:
    for kept in trial.kept:
        kept[:] = [entry for entry in kept if entry.reservation_id != reservation.id]
    trial.nodes_opened()


def _choose(trial: Trial, reservation: Reservation, lost: Hold | None) -> None:
    """The nodes that will be clear soonest; a lost node is replaced, the rest stays."""
    if lost is not None:
        _forget(trial, reservation)
    for number, pool in enumerate(trial.state.cluster.pools):
        if not _suits(reservation, pool):
            continue
        among = trial.usable[number]
        for entry in trial.kept[number]:
            among &= ~entry.mask
        if among.bit_count() < reservation.nodes:
            continue
        kept = lost.mask & among if lost is not None and lost.pool == number else 0
        mask = _soonest(trial, number, among, reservation, kept)
        hold = Hold(_holder(reservation), number, mask, pool.slots_per_node, reservation.begin, trial.now,
                    reservation_id=reservation.id)  # fmt: skip
        trial.hold_changes.append(hold)
        trial.keep_reserved(hold)
        _clear(trial, reservation, hold)
        return
    trial.wake(trial.now + trial.policy.review)


def _soonest(trial: Trial, number: int, among: NodeMask, reservation: Reservation, kept: NodeMask) -> NodeMask:
    """Nodes on which every minimum ends before the reservation begins, the kept ones first."""
    late = 0
    for run in trial.state.runs.values():
        if run.allocation.pool == number and _clear_by(trial, run.unprotected_at) > reservation.begin:
            late |= run.allocation.mask
    chosen = lowest(kept, min(kept.bit_count(), reservation.nodes)) if kept else 0
    for part in (among & ~late, among):
        part &= ~chosen
        missing = reservation.nodes - chosen.bit_count()
        if missing > 0 and part:
            chosen |= lowest(part, min(missing, part.bit_count()))
    return chosen


def _clear_by(trial: Trial, protected_until: Instant) -> Instant:
    return protected_until + trial.policy.grace_max


def _clear(trial: Trial, reservation: Reservation, hold: Hold) -> None:
    """Stop what is left, each run so that its notice ends as the reservation begins."""
    for run in trial.state.runs.values():
        if run.allocation.pool != hold.pool or not run.allocation.mask & hold.mask or run.reservation == reservation.id:
            continue
        if run.stop_by is not None or run.id in trial.stopped or (trial.now > reservation.begin and not run.charged):
            continue
        at = max(reservation.begin - min(run.workload.shape.grace, trial.policy.grace_max), run.unprotected_at)
        if trial.now < at:
            trial.wake(at)
        elif run.started_at is not None:
            trial.stop(run, ReservationBegins(reservation.id, AccountPath(reservation.account)))
    trial.wake(reservation.begin)
    trial.wake(reservation.end)
