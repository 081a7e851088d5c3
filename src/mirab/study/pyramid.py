"""Availability and occupancy, and where free GPUs went: under holds, or past the shapes that waited."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from mirab.model.plans import Hold, HoldChange, HoldReleased
from mirab.model.resources import Cluster
from mirab.model.units import ChargeRate, Duration, NodeName, WorkloadId
from mirab.study.demand import Wanted, counted_pools
from mirab.study.pools import PoolUse, Waiting


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Usage:
    """The counted slots of the whole cluster, and their integrals over the measured period in slot-milliseconds.

    Attributes:
        capacity, busy, held: schedulable, allocated, and idle under holds, now.
        wanted: slots of all workloads that run or could start.
        served_time: integral of min(C, demand); `demand_time`: of the demand itself.
        held_time, idle_time: idle under holds; idle, not held, while a charged workload waits, by the smallest shape
            that waits for the pool.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.pools = [PoolUse(pool) for pool in cluster.pools]
        self._counted = [self.pools[number] for number in counted_pools(cluster)]
        self._home = {name: use for use in self.pools for name in use.place}
        self._holds: dict[WorkloadId, Hold] = {}
        self.wanted = Wanted()
        self.installed = sum(use.capacity for use in self._counted)
        self.capacity = self.busy = self.held = self._served = self._demand = 0
        self.stale = True
        self.capacity_time = self.busy_time = self.held_time = self.served_time = self.demand_time = 0
        self.idle_time: dict[Waiting, int] = {}

    def accrue(self, span: Duration) -> None:
        """Let time pass with everything as it is."""
        if self.stale:
            self._sum()
        self.capacity_time += self.capacity * span
        self.busy_time += self.busy * span
        self.served_time += self._served * span
        self.demand_time += self._demand * span
        self.held_time += self.held * span
        for use in self._counted:
            smallest = use.smallest
            if smallest is not None:
                idle = use.capacity - use.busy - use.held
                if idle > 0:
                    self.idle_time[smallest] = self.idle_time.get(smallest, 0) + idle * span

    def _sum(self) -> None:
        self.stale = False
        self._demand = self.wanted.total
        if len(self.pools) == 1:
            only = self.pools[0]
            self.capacity, self.busy, self.held = only.capacity, only.busy, only.held
            self._served = min(self.capacity, self._demand)
            return
        self.capacity = sum(use.capacity for use in self._counted)
        self.busy = sum(use.busy for use in self._counted)
        self.held = sum(use.held for use in self._counted)
        self._served = min(self.capacity, self.wanted.servable([use.capacity for use in self.pools]))

    def charge_capacity(self) -> list[ChargeRate]:
        """Milli-units of the schedulable nodes, by pool."""
        return [use.charge_capacity for use in self.pools]

    def set_health(self, node: NodeName, *, up: bool) -> None:
        self._home[node].set_health(node, up=up)
        self.stale = True

    def pool_and_bit(self, node: NodeName) -> tuple[int, int]:
        """The number of a node's pool, and the node as a set."""
        use = self._home[node]
        return self.pools.index(use), 1 << use.place[node]

    def wait(self, pools: Iterable[int], shape: Waiting) -> None:
        """A charged workload waits for these pools."""
        for pool in pools:
            self.pools[pool].wait(shape)

    def unwait(self, pools: Iterable[int], shape: Waiting) -> None:
        for pool in pools:
            self.pools[pool].unwait(shape)

    def change_holds(self, changes: Iterable[HoldChange]) -> None:
        """Grant, move and release holds."""
        touched = set()
        for change in changes:
            before = self._holds.pop(change.workload_id, None)
            if before is not None:
                touched.add(before.pool)
            if not isinstance(change, HoldReleased):
                self._holds[change.workload_id] = change
                touched.add(change.pool)
        for pool in sorted(touched):
            self._renew_holds(pool)

    def end_hold(self, holder: WorkloadId) -> None:
        """Its holder has started or gone."""
        hold = self._holds.pop(holder, None)
        if hold is not None:
            self._renew_holds(hold.pool)

    def end_reservation(self, reservation_id: str) -> None:
        """It has been cancelled."""
        for holder in [key for key, hold in self._holds.items() if hold.reservation_id == reservation_id]:
            self.end_hold(holder)

    def _renew_holds(self, pool: int) -> None:
        self.pools[pool].set_holds([hold for hold in self._holds.values() if hold.pool == pool])
        self.stale = True


def shape_name(shape: Waiting) -> str:
    """``16x8``: nodes x slots on each."""
    slots, nodes = shape
    return f"{nodes}x{slots // nodes}"
