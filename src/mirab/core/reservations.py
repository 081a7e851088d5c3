"""Reservations: nodes for an account from a fixed instant on, met whatever anybody's ratio is.

Nodes are chosen the *lead* ahead: the longest minimum that anybody may declare until then, two notices, and the time
that a start may take. From then on only work that can be stopped before the reservation begins may start on them, so
at `begin` every run there is past its minimum. Whoever asks for one later may meet runs that were promised more.
"""

from __future__ import annotations

from dataclasses import replace

from mirab.core.nodes import without
from mirab.core.queues import Queue
from mirab.core.runs import Run
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.plans import Hold, HoldReleased
from mirab.model.policy import Reservation
from mirab.model.reasons import ReservationBegins
from mirab.model.resources import Pool, lowest
from mirab.model.units import FOREVER, AccountPath, Duration, Instant, NodeMask, WorkloadId


def serve_reservations(trial: Trial) -> None:
    """Choose nodes in time, clear them at the beginning, give them back at the end."""
    if not trial.state.reservations:
        return
    for reservation in sorted(trial.state.reservations.values(), key=lambda each: (each.begin, each.id)):
        choose_at = reservation.begin - lead(trial.state, reservation.begin)
        hold = trial.state.reserved.get(reservation.id)
        if reservation.id not in trial.state.accepted and not can_be_met(trial, reservation):
            why = "refused: too few nodes beside other reservations and longer minimums"
            trial.hold_changes.append(HoldReleased(_holder(reservation), why, reservation.id))
        elif trial.now >= reservation.end:
            trial.hold_changes.append(HoldReleased(_holder(reservation), "the reservation has ended", reservation.id))
            _forget(trial, reservation)
            trial.news = True
        elif hold is None and trial.now < choose_at:
            trial.wake(choose_at)
        elif hold is None or without(hold.mask, trial.usable[hold.pool]) or hold.mask.bit_count() < reservation.nodes:
            _choose(trial, reservation, hold)
        else:
            _clear(trial, reservation, hold)


def longest_minimum(state: State, until: Instant) -> Duration:
    """The longest minimum of a run that begins before `until`: the policy's cap, or that of an exception."""
    longest = state.policy.min_runtime_cap
    for exemption in state.exemptions.values():
        if exemption.kind == "longer-minimum" and exemption.begin < until:
            longest = max(longest, exemption.cap)
    return longest


def lead(state: State, until: Instant) -> Duration:
    """How long before it begins a reservation's nodes are chosen; one approved earlier has them at its begin.

    The longest minimum, what a start may take, as minimums begin with runs, and two notices: for those who make room
    for a start that is on its way, and for what is stopped last. One approved later, but not later than the longest
    minimum ahead, has its nodes at most as much after its begin as its approval came after the lead.
    """
    policy = state.policy
    return longest_minimum(state, until) + 2 * policy.grace_max + policy.start_timeout


def earliest(state: State, reservation: Reservation, now: Instant) -> Instant | None:
    """The first begin from which on the same reservation could be promised; None = beside all others it never can."""
    trial, lasts = Trial(state, now), reservation.end - reservation.begin
    begins = [now + lead(state, FOREVER)]
    begins += [each.end for each in state.reservations.values()]
    begins += [run.unprotected_at for run in state.runs.values()]
    for begin in sorted(each for each in begins if each >= reservation.begin):
        if can_be_met(trial, replace(reservation, begin=begin, end=begin + lasts)):
            return begin
    return None


def can_be_met(trial: Trial, reservation: Reservation) -> bool:
    """Whether some pool has enough nodes beside what is promised to others for any part of the time.

    Judged once, at the first decision after the approval: which runs will still be inside their minimum. See `lead`.
    """
    for number, pool in enumerate(trial.state.cluster.pools):
        if not _suits(reservation, pool):
            continue
        late = 0
        for run in trial.state.runs.values():
            if run.pool == number and run.unprotected_at > reservation.begin:
                late |= run.mask
        left = without(trial.usable[number], late).bit_count()
        for other in trial.state.reservations.values():
            overlaps = other.begin < reservation.end and reservation.begin < other.end
            if other.id != reservation.id and other.id in trial.state.accepted and overlaps and _suits(other, pool):
                left -= other.nodes
        if left >= reservation.nodes:
            return True
    return False


def barred(trial: Trial, queue: Queue, number: int) -> NodeMask:
    """Nodes of reservations on which the queue's work may not start once runs have been given their notice."""
    gone = trial.now + queue.info.stay + trial.policy.grace_max
    mask = 0
    for entry in trial.kept[number]:
        inside = entry.admits(queue.info.charged, queue.user.account)
        if entry.reservation_id is not None and entry.until < gone and not inside:
            mask |= entry.mask
    return mask


def _suits(reservation: Reservation, pool: Pool) -> bool:
    return reservation.pool in ("", pool.name) and pool.slots_per_node >= reservation.gpus_per_node


def _holder(reservation: Reservation) -> WorkloadId:
    return WorkloadId(f"reservation:{reservation.id}")


def _forget(trial: Trial, reservation: Reservation) -> None:
    for kept in trial.kept:
        kept[:] = [entry for entry in kept if entry.reservation_id != reservation.id]
    trial.nodes_opened()


def _choose(trial: Trial, reservation: Reservation, lost: Hold | None) -> None:
    """The nodes that will be clear soonest; a lost node is replaced, the rest stays. Fewer than asked beat none."""
    if lost is not None:
        _forget(trial, reservation)
    number = _pool_for(trial, reservation, lost)
    kept = lost.mask & trial.usable[lost.pool] if lost is not None and lost.pool == number else 0
    among = kept if number is None else _not_kept(trial, number, reservation.nodes, kept)
    if number is None or not among:
        trial.wake(trial.now + trial.policy.review)
        return
    mask = _soonest(trial, number, among, reservation, kept)
    if mask.bit_count() < reservation.nodes:
        trial.wake(trial.now + trial.policy.review)
    if lost is not None and (lost.pool, lost.mask) == (number, mask):
        hold = lost
    else:
        hold = Hold(_holder(reservation), number, mask, trial.banks[number].slots, reservation.begin, trial.now,
                    reservation_id=reservation.id)  # fmt: skip
        trial.hold_changes.append(hold)
    trial.keep_reserved(hold)
    trial.nodes_opened()
    _clear(trial, reservation, hold)


def _pool_for(trial: Trial, reservation: Reservation, lost: Hold | None) -> int | None:
    """The first of its pools that has enough nodes, else that which has most; where it has some, it stays."""
    if lost is not None and lost.mask & trial.usable[lost.pool]:
        return lost.pool
    fitting = [number for number, pool in enumerate(trial.state.cluster.pools) if _suits(reservation, pool)]
    room = {number: min(reservation.nodes, _free_of(trial, number, True).bit_count()) for number in fitting}
    return max(fitting, key=lambda number: (room[number], -number), default=None)


def _free_of(trial: Trial, number: int, gangs: bool) -> NodeMask:
    """Usable nodes that no reservation and no gang has; `gangs`: those of gangs too.

    Nodes that are being emptied for somebody count: what starts there now can be stopped by then. See `lead`.
    """
    among = trial.usable[number]
    for entry in trial.kept[number]:
        if entry.reservation_id is not None or (entry.until and not gangs):
            among = without(among, entry.mask)
    return among


def _not_kept(trial: Trial, number: int, wanted: int, own: NodeMask) -> NodeMask:
    """Nodes to choose from, its own too: where too few are kept for nobody, gangs lose theirs, the latest first."""
    among = _free_of(trial, number, False) | own
    holds = [hold for hold in trial.holds.values() if hold.pool == number and not hold.claim]
    for hold in sorted(holds, key=lambda each: (-each.granted_at, each.workload_id)):
        if among.bit_count() >= wanted:
            break
        trial.release(hold.workload_id)
        trial.news = True
        trial.hold_changes.append(HoldReleased(hold.workload_id, "its nodes are reserved for others"))
        among = _free_of(trial, number, False) | own
    return among


def _soonest(trial: Trial, number: int, among: NodeMask, reservation: Reservation, kept: NodeMask) -> NodeMask:
    """The kept nodes, then those on which every minimum ends before the reservation begins, then the rest by when.

    Runs that nobody may stop for another's are disturbed last, and nodes that are being emptied for somebody.
    """
    late = guarded = 0
    for entry in trial.kept[number]:
        guarded |= entry.mask
    runs: list[tuple[Instant, Run]] = []
    for run in trial.state.runs.values():
        if run.pool == number and run.mask & among:
            if (at := _clear_by(trial, run)) > reservation.begin:
                late |= run.mask
                runs.append((at, run))
            elif trial.state.exemptions_in_force and trial.state.guaranteed(run.account.path):
                guarded |= run.mask
    chosen = lowest(kept, min(kept.bit_count(), reservation.nodes)) if kept else 0
    parts = [without(among, late | guarded), without(among, late), *_by_clearing(runs, among & late)]
    for part in parts:
        part = without(part, chosen)
        missing = reservation.nodes - chosen.bit_count()
        if missing > 0 and part:
            chosen |= lowest(part, min(missing, part.bit_count()))
    return chosen


def _by_clearing(runs: list[tuple[Instant, Run]], late: NodeMask) -> list[NodeMask]:
    """The late nodes in groups, those first that are clear first."""
    groups: list[NodeMask] = []
    for _, run in sorted(runs, key=lambda entry: (-entry[0], entry[1].id)):
        groups.append(run.mask & late)
        late = without(late, run.mask)
    return groups[::-1]


def _clear_by(trial: Trial, run: Run) -> Instant:
    """When it has gone at the latest, if it is told as soon as it may be; a start may still take its time."""
    starting = trial.policy.start_timeout if run.started_at is None else 0
    return run.unprotected_at + starting + trial.policy.grace_max


def _clear(trial: Trial, reservation: Reservation, hold: Hold) -> None:
    """Stop what is left, each run so that its notice ends as the reservation begins."""
    for run in trial.state.runs.values():
        if run.pool != hold.pool or not run.mask & hold.mask or run.reservation == reservation.id:
            continue
        if trial.is_going(run) or (trial.now > reservation.begin and not run.charged):
            continue
        at = max(reservation.begin - trial.notice(run), run.unprotected_at)
        if trial.now < at:
            trial.wake(at)
        elif run.started_at is not None:
            trial.stop(run, ReservationBegins(reservation.id, AccountPath(reservation.account)))
    trial.wake(reservation.begin)
    trial.wake(reservation.end)
