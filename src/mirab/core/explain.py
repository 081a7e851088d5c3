"""The typed reason of a workload that waits: its true blocker, with the numbers of this decision."""

from __future__ import annotations

from mirab.core.caps import too_large
from mirab.core.charge import pools_for
from mirab.core.clearing import NoClearing
from mirab.core.nodes import without
from mirab.core.ordering import by_ratio
from mirab.core.queues import Pending, Queue, ShapeInfo
from mirab.core.trial import Trial
from mirab.model.accounts import ledger_of
from mirab.model.reasons import (
    AccountClosed,
    BlockedBehind,
    GangTooLarge,
    HoldNotOwed,
    HoldTaken,
    NeverFits,
    NoFreeGpus,
    NotEnoughClaimable,
    ShareSpent,
    UnknownAccount,
    WaitReason,
)
from mirab.model.resources import Cluster, Shape


def never_fits(trial: Trial, pending: Pending) -> NeverFits | UnknownAccount | AccountClosed | GangTooLarge:
    """Why a workload can never run as asked: its account, or its shape against the largest pool that it accepts."""
    workload, state = pending.workload, trial.state
    if not state.is_open(workload.account):
        if workload.account in state.accounts and not ledger_of(workload.account):
            return AccountClosed(workload.account, state.budgets.closed_since(workload.account))
        return UnknownAccount(workload.account)
    shape, leaf = workload.shape, state.leaf_for(workload.account)
    if leaf is not None and pools_for(shape, state.cluster) and (large := too_large(leaf, shape)) is not None:
        return large
    return too_large_for_all(shape, state.cluster)


def too_large_for_all(shape: Shape, cluster: Cluster) -> NeverFits:
    """What a shape asks for, and the most of what it accepts that is installed."""
    pools = [pool for pool in cluster.pools if not shape.gpu_types or pool.gpu_type in shape.gpu_types]
    return NeverFits(
        shape.nodes,
        shape.gpus_per_node,
        shape.gpu_types,
        max((len(pool.nodes) for pool in pools), default=0),
        max((pool.gpus_per_node for pool in pools), default=0),
    )


def blocked_reason(trial: Trial, queue: Queue, plan: NoClearing, no_hold: WaitReason | None) -> WaitReason:
    """Why nothing could be done for the head of a queue.

    In this order: nodes are free but kept for somebody; a hold that it was refused; its account's standing; too few
    free GPUs.
    """
    kept = _kept_for(trial, queue)
    if kept is not None:
        return kept
    if isinstance(no_hold, HoldTaken):
        return no_hold
    standing = _standing(trial, queue, plan)
    if standing is not None and not plan.victims:
        return standing
    if isinstance(no_hold, NotEnoughClaimable | HoldNotOwed):
        return no_hold
    return no_free_gpus(trial, queue, plan.nodes)


def _kept_for(trial: Trial, queue: Queue) -> BlockedBehind | None:
    info = queue.info
    for number, width in info.pairs:
        wide = trial.wide(number, width)
        if trial.count(number, width) >= info.nodes:
            hidden = without(wide, trial.open_nodes(number, info, queue.user.account))
            entry = trial.kept_entry(number, hidden)
            if entry is not None:
                return BlockedBehind(entry.holder, entry.until or None)
    return None


def _standing(trial: Trial, queue: Queue, plan: NoClearing) -> ShareSpent | None:
    """The account that goes first, if it is another one."""
    if not trial.contract or not queue.info.charged:
        return None
    mine = queue.user.account
    first = trial.first_leaf(mine.ledger)
    if first is None or first is mine or by_ratio(trial, mine) <= by_ratio(trial, first):
        return None
    return ShareSpent(trial.ratio(mine), first.path, trial.ratio(first), _nodes_free(trial, queue))


def _told_of(info: ShapeInfo) -> list[tuple[int, int]]:
    """(pool, slots per node) of the pools whose slots a request is told in.

    Work without GPUs asks for cores where there are pools without GPUs, and for no slot of the others.
    """
    most = max(info.widths)
    return [(number, width) for number, width in info.pairs if width == most]


def _nodes_free(trial: Trial, queue: Queue) -> int:
    info = queue.info
    return max(
        (trial.open_nodes(number, info, queue.user.account) & trial.wide(number, width)).bit_count()
        if trial.kept[number]
        else trial.count(number, width)
        for number, width in _told_of(info)
    )


def no_free_gpus(trial: Trial, queue: Queue, claimable: int) -> NoFreeGpus:
    info = queue.info
    exposures = trial.state.exposures
    return NoFreeGpus(
        info.nodes,
        max(info.widths),
        _nodes_free(trial, queue),
        sum(
            trial.banks[number].free_slots(trial.open_nodes(number, info, queue.user.account))
            if trial.kept[number]
            else trial.slots_free(number)
            for number, _ in _told_of(info)
        ),
        claimable,
        exposures[0][0] if exposures else None,
    )
