"""The nodes that can be clear for a gang earliest, and when: what a hold keeps.

Each run of a pool is gone at some instant: it is stopping, it may be stopped for the gang once its minimum is over, or
its time limit ends it.
"""

from __future__ import annotations

from typing import TypeAlias

from mirab.core.nodes import without
from mirab.core.queues import Pending, Queue
from mirab.core.runs import Run
from mirab.core.standing import Claim
from mirab.core.trial import Trial
from mirab.model.plans import Hold
from mirab.model.reasons import NotEnoughClaimable
from mirab.model.resources import lowest
from mirab.model.units import FOREVER, Instant, NodeMask, RunId


def find(trial: Trial, queue: Queue, pending: Pending, prefer: NodeMask = 0) -> Hold | NotEnoughClaimable:
    """The nodes claimable earliest, and T, when the last of them is.

    Walks the runs from the one that is claimable last: the first set large enough without the rest gives T.
    """
    info, best_seen = queue.info, 0
    wanted, found = info.nodes, list[Hold]()
    for number, width in info.pairs:
        among = _left_to(trial, pending, number)
        seen = _within_horizon(trial, queue, number, among).bit_count()
        best_seen = max(best_seen, seen)
        if seen < wanted and width >= trial.banks[number].slots:
            continue
        runs = _claimable(trial, queue, number)
        mask, until, seen = _earliest(trial, number, width, wanted, among, runs)
        best_seen = max(best_seen, seen)
        if mask:
            chosen = _tidy(wanted, mask, until, runs, prefer)
            spared = tuple([run.id for _, _, run, mine in runs if not mine and run.mask & chosen])
            found.append(Hold(pending.id, number, chosen, width, until, trial.now, spared=spared))
    if not found:
        return NotEnoughClaimable(wanted, best_seen)
    return min(found, key=lambda hold: (hold.until, not hold.mask & prefer, hold.pool))


def _left_to(trial: Trial, pending: Pending, number: int) -> NodeMask:
    """The usable nodes of a pool that are kept for nobody else, and given to nobody in this decision."""
    among = trial.usable[number]
    for entry in trial.kept[number]:
        if entry.holder != pending.id:
            among = without(among, entry.mask)
    for mask in trial.fresh[number]:
        among = without(among, mask)
    return among


def finds_before(trial: Trial, queue: Queue, pending: Pending, before: Instant) -> bool:
    """Whether `find` would come to a T before that instant: what it finds costs a look at every run, in order."""
    before = min(before, trial.horizon() + 1)
    return any(_clears(trial, queue, pending, pair, before) for pair in queue.info.pairs)


def _clears(trial: Trial, queue: Queue, pending: Pending, pair: tuple[int, int], before: Instant) -> bool:
    """Whether enough nodes of a pool stay without the runs that are still there at that instant."""
    number, width = pair
    wanted, whole = queue.info.nodes, width >= trial.banks[number].slots
    open_ = _left_to(trial, pending, number)
    if whole and _within_horizon(trial, queue, number, open_).bit_count() < wanted:
        return False
    claim, left = trial.claim(queue.user.account, queue.info.stake), open_.bit_count()
    for run in trial.state.runs.values():
        if left < wanted:
            break
        late = run.mask & open_ if run.pool == number else 0
        if late and _gone_at(trial, queue, run, claim)[0] >= before:
            late = _blocked(trial, late, number, width, whole)
            open_ ^= late
            left -= run.count(late)
    return left >= wanted


def _within_horizon(trial: Trial, queue: Queue, number: int, among: NodeMask) -> NodeMask:
    """Whole nodes that could be clear within the horizon: a bound that costs nothing per run once it is known."""
    claim = trial.claim(queue.user.account, queue.info.stake)
    for leaf, mask in trial.pinned(number).items():
        late = mask & among
        if late and not (trial.ratio(leaf) >= 1.0 if leaf is claim.leaf else trial.may_take(claim, leaf)):
            among ^= late
    return among


Claimable: TypeAlias = tuple[Instant, RunId, Run, bool]
"""Minus the instant at which a run is gone, its id, itself, and whether it would be stopped for it."""


def _claimable(trial: Trial, queue: Queue, number: int) -> list[Claimable]:
    """All runs of a pool, those that are gone last first."""
    claim = trial.claim(queue.user.account, queue.info.stake)
    found: list[Claimable] = []
    for run in trial.state.runs.values():
        if run.pool == number:
            at, mine = _gone_at(trial, queue, run, claim)
            found.append((-at, run.id, run, mine))
    found.sort()
    return found


def _gone_at(trial: Trial, queue: Queue, run: Run, claim: Claim) -> tuple[Instant, bool]:
    if trial.is_going(run):
        return (FOREVER if run.stuck else max(trial.now, run.stop_by or trial.now + trial.policy.grace_max)), True
    if trial.policy.preemption == "budget" and _may_stop(trial, queue, run, claim):
        return max(trial.now, run.unprotected_at) + trial.notice(run), True
    limit_at = run.limit_at()
    return (limit_at if limit_at > trial.now else trial.now + trial.policy.review), False


def _may_stop(trial: Trial, queue: Queue, run: Run, claim: Claim) -> bool:
    if not run.charged:
        return True
    leaf, mine = run.account, queue.user
    if run.reservation is not None or (trial.state.exemptions_in_force and trial.state.guaranteed(leaf.path)):
        return False
    if leaf is mine.account:
        return trial.ratio(leaf) >= 1.0 and leaf.share > 0 and trial.may_take_inside(mine, run, claim.added)
    return trial.may_take(claim, leaf)


def _earliest(trial: Trial, number: int, width: int, wanted: int, among: NodeMask,
              runs: list[Claimable]) -> tuple[NodeMask, Instant, int]:  # fmt: skip
    """(nodes claimable by T, T, how many nodes are claimable within the horizon)."""
    horizon, whole = trial.horizon(), width >= trial.banks[number].slots
    blocked = place = 0
    while place < len(runs) and -runs[place][0] > horizon:
        blocked |= _blocked(trial, runs[place][2].mask, number, width, whole)
        place += 1
    open_ = without(among, blocked)
    seen = open_.bit_count()
    if seen < wanted:
        return 0, 0, seen
    spare = seen - wanted
    while place < len(runs):
        minus_until, _, run, _ = runs[place]
        late = _blocked(trial, run.mask & open_, number, width, whole)
        if late:
            spare -= run.count(late)
            if spare < 0:
                return open_, -minus_until, seen
            open_ ^= late
        place += 1
    return open_, trial.now, seen


def _blocked(trial: Trial, nodes: NodeMask, number: int, width: int, whole: bool) -> NodeMask:
    """Of a run's nodes those that it keeps from the gang while it is there: where the rest is too little."""
    return nodes if whole else without(nodes, trial.wide(number, width))


def _tidy(wanted: int, mask: NodeMask, until: Instant, runs: list[Claimable],
          prefer: NodeMask) -> NodeMask:  # fmt: skip
    """Exactly `wanted` of the nodes: those preferred, then those claimable before T, then the lowest."""
    chosen = lowest(mask & prefer, min(wanted, (mask & prefer).bit_count())) if mask & prefer else 0
    late = 0
    for minus_at, _, run, _ in runs:
        if -minus_at < until:
            break
        late |= run.mask
    for part in (without(mask, late), mask):
        part = without(part, chosen)
        missing = wanted - chosen.bit_count()
        if missing > 0 and part:
            chosen |= lowest(part, min(missing, part.bit_count()))
    return chosen
