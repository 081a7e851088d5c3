"""What is asked for, by the pools that would do, and how much of it the cluster could serve at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from mirab.core.charge import charge_rate, pools_for, slots_wanted
from mirab.model.resources import Cluster, Shape
from mirab.model.units import MINUTE, ChargeRate
from mirab.model.workloads import Workload

PoolSet = int
"""A set of pools: bit i stands for pool number i."""

CLASSES = ("all", "session", "debug", "small", "medium", "large", "huge")
"""Classes of workloads, in the order of reports. Every workload is in `all` and in one other."""

DEBUG_MINIMUM = 15 * MINUTE
DEBUG_SLOTS = 2
_BY_SIZE = ((8, "small"), (32, "medium"), (128, "large"))


class Ask(NamedTuple):
    """What one shape asks for.

    Attributes:
        pools: numbers of the pools that could hold it, preferred ones first; empty = it can never run.
        rates: its charge in each of them, in milli-units.
        slots: its slots in each of them that reports count (see `counted_pools`), else 0.
        size: (slots in all, nodes), by which waiting shapes are compared.
        kind: its class by size; a session is told by its label.
        rate: its charge while it waits: that of the pool it would rather have.
        waiting_slots: the slots it waits for: those of the first counted pool.
    """

    pools: tuple[int, ...]
    accepted: PoolSet
    counted: PoolSet
    rates: Mapping[int, ChargeRate]
    slots: Mapping[int, int]
    size: tuple[int, int]
    charged: bool
    kind: str
    rate: ChargeRate
    waiting_slots: int


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Asks:
    """The asks of a cluster's shapes, each worked out once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counted = counted_pools(cluster)
        self._known: dict[Shape, Ask] = {}
        self._among: dict[tuple[Shape, PoolSet], Ask] = {}

    def of(self, shape: Shape) -> Ask:
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = self._work_out(shape, pools_for(shape, self._cluster))
        return known

    def among(self, shape: Shape, accepted: PoolSet) -> Ask:
        """The same where only some of the pools are for it: those of its ledger."""
        known = self._among.get((shape, accepted))
        if known is None:
            pools = tuple(pool for pool in pools_for(shape, self._cluster) if accepted >> pool & 1)
            known = self._among[shape, accepted] = self._work_out(shape, pools)
        return known

    def _work_out(self, shape: Shape, pools: tuple[int, ...]) -> Ask:
        installed = self._cluster.pools
        slots = {
            pool: shape.nodes * slots_wanted(shape, installed[pool]) if pool in self._counted else 0 for pool in pools
        }
        rates = {pool: charge_rate(shape, installed[pool]) for pool in pools}
        size = max(slots.values(), default=shape.gpus)
        return Ask(
            pools=pools,
            accepted=sum(1 << pool for pool in pools),
            counted=sum(1 << pool for pool in pools if slots[pool]),
            rates=rates,
            slots=slots,
            size=(size, shape.nodes),
            charged=shape.min_runtime > 0,
            kind=kind_of(shape, size),
            rate=rates[pools[0]] if pools else 0,
            waiting_slots=next((slots[pool] for pool in pools if slots[pool]), 0),
        )


def counted_pools(cluster: Cluster) -> tuple[int, ...]:
    """The pools whose slots occupancy, availability and loss are about: those with GPUs, or all if none has any."""
    with_gpus = tuple(number for number, pool in enumerate(cluster.pools) if pool.gpus_per_node)
    return with_gpus or tuple(range(len(cluster.pools)))


def class_of(workload: Workload, ask: Ask) -> str:
    """The class of a workload: that of its ask, but for sessions, which their label names."""
    return "session" if "session" in workload.label.lower() else ask.kind


def kind_of(shape: Shape, slots: int) -> str:
    """The class by size and minimum: `debug` is small and short, the others go by slots."""
    if slots <= DEBUG_SLOTS and 0 < shape.min_runtime <= DEBUG_MINIMUM:
        return "debug"
    return next((name for most, name in _BY_SIZE if slots <= most), "huge")


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Wanted:
    """A sum of demands, kept apart by the set of pools that each accepts."""

    __slots__ = ("_claims", "total")

    def __init__(self) -> None:
        self.total = 0
        self._claims: dict[PoolSet, int] = {}

    def add(self, accepted: PoolSet, amount: int) -> None:
        """More demand, or less (negative)."""
        self.total += amount
        self._claims[accepted] = self._claims.get(accepted, 0) + amount

    def servable(self, capacity: Sequence[int]) -> int:
        """The most of it that pools of these capacities could serve at the same time."""
        if len(capacity) == 1:
            return self.total if self.total < capacity[0] else capacity[0]
        return Flow({accepted: amount for accepted, amount in self._claims.items() if amount}, capacity).total


class Flow:
    """The largest flow of claims into pools (Ford and Fulkerson).

    Claims that accept few pools are served first; that alone is the best wherever accepted sets are nested or apart.
    Then whoever is left over pushes others to pools that they accept as well.
    """

    def __init__(self, claims: Mapping[PoolSet, int], capacity: Sequence[int]) -> None:
        self._left = list(capacity)
        self._pools = {accepted: _members(accepted) for accepted in claims}
        self._given: list[dict[PoolSet, int]] = [{} for _ in capacity]
        self._closed: set[int] = set()
        self.total = 0
        unmet = []
        for accepted in sorted(claims, key=lambda each: (each.bit_count(), each)):
            rest = claims[accepted] - self._fill(accepted, claims[accepted])
            if rest:
                unmet.append((accepted, rest))
        for accepted, rest in unmet:
            while rest and (pushed := self._push(accepted, rest)):
                rest -= pushed

    def _fill(self, accepted: PoolSet, amount: int) -> int:
        """Give the claim what is free in its pools."""
        filled = 0
        for pool in self._pools[accepted]:
            part = min(amount - filled, self._left[pool])
            if part:
                self._give(pool, accepted, part)
                self._left[pool] -= part
                filled += part
        self.total += filled
        return filled

    def _push(self, accepted: PoolSet, amount: int) -> int:
        """Make room by the shortest chain of claims that move on; 0 if there is none (then there never will be)."""
        came_by: dict[int, tuple[PoolSet, int | None]] = {}
        queue: deque[tuple[PoolSet, int | None]] = deque([(accepted, None)])
        while queue:
            claim, source = queue.popleft()
            for pool in self._pools[claim]:
                if pool in came_by or pool in self._closed:
                    continue
                came_by[pool] = (claim, source)
                if self._left[pool]:
                    return self._shift(pool, came_by, amount)
                queue.extend((other, pool) for other, given in self._given[pool].items() if given)
        self._closed.update(came_by)
        return 0

    def _shift(self, end: int, came_by: Mapping[int, tuple[PoolSet, int | None]], amount: int) -> int:
        """Move claims along the chain that ends in a pool with room."""
        chain, pool = [], end
        while True:
            claim, source = came_by[pool]
            chain.append((pool, claim, source))
            if source is None:
                break
            amount = min(amount, self._given[source][claim])
            pool = source
        amount = min(amount, self._left[end])
        self._left[end] -= amount
        for to, claim, source in chain:
            self._give(to, claim, amount)
            if source is not None:
                self._give(source, claim, -amount)
        self.total += amount
        return amount

    def _give(self, pool: int, accepted: PoolSet, amount: int) -> None:
        given = self._given[pool]
        given[accepted] = given.get(accepted, 0) + amount


def _members(pools: PoolSet) -> tuple[int, ...]:
    return tuple(pool for pool in range(pools.bit_length()) if pools >> pool & 1)
