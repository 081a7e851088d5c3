"""How far it would reach to stop runs: a bound that spares most searches for victims."""

from __future__ import annotations

from collections.abc import Iterable

from mirab.core.nodes import give, without
from mirab.core.queues import ShapeInfo
from mirab.core.runs import Run
from mirab.core.trial import Trial
from mirab.model.units import NodeMask


class Reach:
    """The cluster as it would be if every run of a set had stopped.

    `among`: by pool, the only nodes that are looked at; None = all.
    """

    __slots__ = ("_counts", "_levels", "_open", "_wide", "runs")

    def __init__(self, trial: Trial, runs: list[Run], among: dict[int, NodeMask] | None = None) -> None:
        self.runs = len(runs)
        self._open = [trial.unclaimed(number) for number in range(len(trial.banks))]
        if among is not None:
            self._open = [mask & among.get(number, 0) for number, mask in enumerate(self._open)]
        self._levels = [bank.free.copy() for bank in trial.banks]
        self._wide: dict[tuple[int, int], NodeMask] = {}
        self._counts: dict[tuple[int, int], int] = {}
        for number, levels in enumerate(self._levels):
            self._stop([run for run in runs if run.pool == number], levels, self._open[number])

    def _stop(self, runs: list[Run], levels: list[NodeMask], open_: NodeMask) -> None:
        """Free what the runs of one pool have: at once for all runs of a width that share no node."""
        together = [0] * len(levels)
        for run in runs:
            mask, width = run.mask & open_, run.width
            if together[width] & mask:
                give(levels, together[width], width)
                together[width] = mask
            else:
                together[width] |= mask
        for width, mask in enumerate(together):
            if mask:
                give(levels, mask, width)

    def wide(self, pair: tuple[int, int]) -> NodeMask:
        """Nodes of a pool that would have so many slots free; `pair` = (pool, slots)."""
        found = self._wide.get(pair)
        if found is None:
            number, width = pair
            found = 0
            for mask in self._levels[number][width:]:
                found |= mask
            found = self._wide[pair] = found & self._open[number]
            self._counts[pair] = found.bit_count()
        return found

    def suffices(self, trial: Trial, info: ShapeInfo) -> bool:
        """Whether work of that shape would find room then, beside what is kept for others."""
        nodes = info.nodes
        for pair in info.pairs:
            wide = self.wide(pair)
            if self._counts[pair] >= nodes and (
                not trial.kept[pair[0]] or (wide & trial.open_to(pair[0], info)).bit_count() >= nodes
            ):
                return True
        return False

    def cleared(self, trial: Trial, pools: Iterable[int]) -> int:
        """Nodes that would be empty and are not now, in the pool that has most of them."""
        most = 0
        for number in pools:
            whole = without(self._levels[number][-1], trial.banks[number].free[-1])
            most = max(most, (whole & self._open[number]).bit_count())
        return most


def around(runs: list[Run]) -> dict[int, NodeMask]:
    """The nodes of some runs, by pool."""
    among: dict[int, NodeMask] = {}
    for run in runs:
        among[run.pool] = among.get(run.pool, 0) | run.mask
    return among
