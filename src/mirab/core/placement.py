"""Where: whole gangs, tight fits, one topology domain where one suffices."""

from __future__ import annotations

from mirab.core.nodes import Bank
from mirab.core.queues import ShapeInfo
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.model.resources import Allocation, Shape, lowest
from mirab.model.units import NodeMask


def place(trial: Trial, info: ShapeInfo, account: Account) -> Allocation | None:
    """Free nodes for the shape, in the first of its pools that has enough; None = there are none."""
    shape = info.shape
    for number, width in info.pairs:
        if trial.count(number, width) < shape.nodes:
            continue
        for room in trial.rooms(number, info, account):
            mask = choose(trial.banks[number], room, shape, width)
            if mask:
                return allocation(number, mask, shape, width)
    return None


def allocation(number: int, mask: NodeMask, shape: Shape, width: int) -> Allocation:
    return Allocation(number, mask, width, shape.cpus_per_node, shape.memory_mib_per_node)


def choose(bank: Bank, among: NodeMask, shape: Shape, width: int) -> NodeMask:
    """The nodes to use out of `among`, 0 = not enough.

    (1) least free slots first, so that whole nodes stay whole; (2) for whole nodes, one domain if one fits (the
    fullest such), else the fewest domains; (3) lowest number.
    """
    wanted = shape.nodes
    if width >= bank.slots and wanted > 1 and bank.domains.masks:
        free = bank.roomy(bank.free[width] & among, shape.cpus_per_node, shape.memory_mib_per_node)
        return bank.domains.choose(free, wanted) if free.bit_count() >= wanted else 0
    chosen = 0
    for level in range(width, bank.slots + 1):
        fit = bank.free[level] & among
        if fit:
            fit = bank.roomy(fit, shape.cpus_per_node, shape.memory_mib_per_node)
            count = fit.bit_count()
            if count >= wanted:
                return chosen | lowest(fit, wanted)
            chosen |= fit
            wanted -= count
    return 0
