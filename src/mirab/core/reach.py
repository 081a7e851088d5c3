"""How far it would reach to stop runs: a bound that spares most searches for victims."""

from __future__ import annotations

from collections.abc import Iterable

from mirab.core.nodes import give
from mirab.core.queues import ShapeInfo
from mirab.core.runs import Run
from mirab.core.trial import Trial
from mirab.model.units import NodeMask


class Reach:
    """The cluster as it would be if every run of a set had stopped.

    `among`: by pool, the only nodes that are looked at; None = all.
    """

    __slots__ = ("_levels", "_open", "_wide", "runs")

    def __init__(self, trial: Trial, runs: list[Run], among: dict[int, NodeMask] | None = None) -> None:
        self.runs = len(runs)
        self._open = [trial.unclaimed(number) for number in range(len(trial.banks))]
        if among is not None:
            self._open = [mask & among.get(number, 0) for number, mask in enumerate(self._open)]
        self._levels = [bank.free.copy() for bank in trial.banks]
        self._wide: dict[tuple[int, int], NodeMask] = {}
        for run in runs:
            given = run.allocation
            mask = given.mask & self._open[given.pool]
            if mask:
                give(self._levels[given.pool], mask, given.slots_per_node)

    def wide(self, pair: tuple[int, int]) -> NodeMask:
        """Nodes of a pool that would have so many slots free; `pair` = (pool, slots)."""
        found = self._wide.get(pair)
        if found is None:
            number, width = pair
            found = 0
            for mask in self._levels[number][width:]:
                found |= mask
            found = self._wide[pair] = found & self._open[number]
        return found

    def suffices(self, trial: Trial, info: ShapeInfo) -> bool:
        """Whether work of that shape would find room then, beside what is kept for others."""
        nodes = info.shape.nodes
        for pair in info.pairs:
            wide = self.wide(pair)
            if wide.bit_count() >= nodes and (wide & trial.open_to(pair[0], info)).bit_count() >= nodes:
                return True
        return False

    def cleared(self, trial: Trial, pools: Iterable[int]) -> int:
        """Nodes that would be empty and are not now, in the pool that has most of them."""
        return max(
            (self._levels[number][-1] & self._open[number] & ~trial.banks[number].free[-1]).bit_count()
            for number in pools
        )


def around(runs: list[Run]) -> dict[int, NodeMask]:
    """The nodes of some runs, by pool."""
    among: dict[int, NodeMask] = {}
    for run in runs:
        among[run.allocation.pool] = among.get(run.allocation.pool, 0) | run.allocation.mask
    return among
