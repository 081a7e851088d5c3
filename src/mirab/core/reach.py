"""How far it would reach to stop runs: a bound that spares most searches for victims."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mirab.core.ledgers import Ledger
from mirab.core.nodes import give, without
from mirab.core.queues import ShapeInfo
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.units import NodeMask


class Occupied:
    """The nodes on which something runs as a decision begins, by pool, apart by who might be stopped.

    Attributes:
        bound: nodes of runs that nobody may stop.
        orphans: nodes of runs that are stopping for nobody.
        exposed: by leaf, nodes of its runs past their minimum.
    """

    __slots__ = ("bound", "exposed", "orphans")

    def __init__(self, state: State) -> None:
        pools = len(state.banks)
        self.bound: list[NodeMask] = [0] * pools
        self.orphans: list[NodeMask] = [0] * pools
        self.exposed: dict[Account, list[NodeMask]] = {leaf: [0] * pools for leaf in state.exposed_leaves}
        for run in state.runs.values():
            if not run.loose:
                masks = self.orphans if state.orphans and run.id in state.orphans else self.bound
            elif run.charged:
                masks = self.exposed[run.account]
            else:
                continue
            if run.width:
                masks[run.pool] |= run.mask

    def without(self, pool: int, leaves: Collection[Account], orphans: bool) -> NodeMask:
        """The nodes of a pool that stay taken once the uncharged runs and those of the leaves have stopped."""
        mask = self.bound[pool] if orphans else self.bound[pool] | self.orphans[pool]
        for leaf, masks in self.exposed.items():
            if leaf not in leaves:
                mask |= masks[pool]
        return mask


class Reach:
    """A ledger's pools as they would be if the runs past their minimum of some leaves had stopped, and all uncharged
    ones.

    `orphans`: those that are stopping for nobody, too. `among`: by pool, the only nodes that are looked at; None = all.
    Whole nodes, which are asked for most, are known at once; free slots only when they are asked for.

    Attributes:
        runs: how many would stop.
    """

    __slots__ = ("_counts", "_leaves", "_ledger", "_levels", "_open", "_orphans", "_stopped", "_wide", "runs")

    def __init__(
        self,
        trial: Trial,
        ledger: Ledger,
        leaves: Collection[Account],
        orphans: bool = True,
        among: dict[int, NodeMask] | None = None,
    ) -> None:
        state = trial.state
        self.runs = count_stoppable(state, ledger, leaves, orphans)
        self._ledger = ledger
        self._leaves = leaves
        self._orphans = orphans
        self._open: dict[int, NodeMask] = {}
        self._levels: dict[int, list[NodeMask]] = {}
        self._stopped = False
        self._wide: dict[tuple[int, int], NodeMask] = {}
        self._counts: dict[tuple[int, int], int] = {}
        occupied = trial.occupied = trial.occupied or Occupied(state)
        for number in ledger.pools:
            bank, open_ = trial.banks[number], trial.unclaimed(number)
            if among is not None:
                open_ &= among.get(number, 0)
            taken = trial.given_nodes[number] | occupied.without(number, leaves, orphans)
            self._open[number] = open_
            self._levels[number] = bank.free.copy()
            self._wide[number, bank.slots] = without(open_, taken)

    def wide(self, trial: Trial, pair: tuple[int, int]) -> NodeMask:
        """Nodes of a pool that would have so many slots free; `pair` = (pool, slots)."""
        found = self._wide.get(pair)
        if found is None:
            number, width = pair
            if not self._stopped:
                self._stop(trial)
            found = 0
            for mask in self._levels[number][width:]:
                found |= mask
            found = self._wide[pair] = found & self._open[number]
        return found

    def _stop(self, trial: Trial) -> None:
        """Free what the runs have: at once for all of a width that share no node."""
        self._stopped = True
        runs = stoppable(trial.state, self._ledger, self._leaves, self._orphans)
        for number, levels in self._levels.items():
            together = [0] * len(levels)
            for run in runs:
                if run.pool == number:
                    mask, width = run.mask & self._open[number], run.width
                    if together[width] & mask:
                        give(levels, together[width], width)
                        together[width] = mask
                    else:
                        together[width] |= mask
            for width, mask in enumerate(together):
                if mask:
                    give(levels, mask, width)

    def suffices(self, trial: Trial, info: ShapeInfo) -> bool:
        """Whether work of that shape would find room then, beside what is kept for others."""
        nodes = info.nodes
        for pair in info.pairs:
            count = self._counts.get(pair, -1)
            if count < 0:
                count = self._counts[pair] = self.wide(trial, pair).bit_count()
            if count >= nodes and (not trial.kept[pair[0]] or self._suffices_beside(trial, info, pair)):
                return True
        return False

    def _suffices_beside(self, trial: Trial, info: ShapeInfo, pair: tuple[int, int]) -> bool:
        return (self._wide[pair] & trial.open_to(pair[0], info)).bit_count() >= info.nodes

    def cleared(self, trial: Trial, pools: Iterable[int]) -> int:
        """Nodes that would be empty and are not now, in the pool that has most of them."""
        most = 0
        for number in pools:
            bank = trial.banks[number]
            most = max(most, without(self._wide[number, bank.slots], bank.free[-1]).bit_count())
        return most


def stoppable(state: State, ledger: Ledger, leaves: Iterable[Account], orphans: bool) -> list[Run]:
    """In a ledger: uncharged runs, those past their minimum of some leaves, and those that are stopping for nobody."""
    runs = list(state.orphans.values()) if orphans else []
    runs += state.uncharged_runs.values()
    for leaf in leaves:
        runs += leaf.exposed.values()
    return state.within(ledger, runs)


def count_stoppable(state: State, ledger: Ledger, leaves: Iterable[Account], orphans: bool) -> int:
    """How many there are; where there is but one ledger, without a look at any."""
    if state.divided:
        return len(stoppable(state, ledger, leaves, orphans))
    count = len(state.uncharged_runs) + (len(state.orphans) if orphans else 0)
    for leaf in leaves:
        count += len(leaf.exposed)
    return count


def around(runs: list[Run]) -> dict[int, NodeMask]:
    """The nodes of some runs, by pool."""
    among: dict[int, NodeMask] = {}
    for run in runs:
        among[run.pool] = among.get(run.pool, 0) | run.mask
    return among
