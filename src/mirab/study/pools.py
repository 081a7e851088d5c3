"""How many GPUs of each pool are there, schedulable, busy, held and idle, as sets of nodes held in integers.

Written apart from `mirab.core.nodes`, so that the measures do not inherit an error of the scheduler's own books.
"""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from mirab.model.plans import Hold
from mirab.model.resources import Allocation, Pool, nodes_of
from mirab.model.units import ChargeRate, NodeMask, NodeName

Waiting = tuple[int, int]
"""A waiting shape, ordered by size: (GPUs in all, nodes)."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class PoolUse:
    """One pool's nodes and what is on them.

    The count of used slots of every node is kept vertically: `_planes[b]` is the set of nodes whose count has bit b.
    Booking a gang is a ripple-carry addition on whole sets, whatever the number of its nodes.
    """

    __slots__ = (
        "_held", "_held_masks", "_held_stale", "_planes", "busy", "capacity", "place", "slots", "smallest", "up",
        "waiting", "weight",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.slots = pool.slots_per_node
        self.weight: ChargeRate = pool.weight
        self.place: dict[NodeName, int] = {name: index for index, name in enumerate(pool.nodes)}
        self.up: NodeMask = (1 << len(pool.nodes)) - 1
        self._planes: list[NodeMask] = [0] * max(1, self.slots.bit_length())
        self.capacity = pool.slots
        self.busy = 0
        self._held = 0
        self._held_stale = False
        self._held_masks: dict[int, NodeMask] = {}
        self.waiting: dict[Waiting, int] = {}
        self.smallest: Waiting | None = None

    @property
    def charge_capacity(self) -> ChargeRate:
        """C: milli-units of the schedulable nodes, and of what still runs on draining ones."""
        return self.capacity * self.weight

    def take(self, given: Allocation) -> None:
        """A run gets its slots."""
        width, carry_in, planes = given.slots_per_node, given.mask, self._planes
        for bit in range(width.bit_length()):
            if width >> bit & 1:
                carry, level = carry_in, bit
                while carry:
                    planes[level], carry = planes[level] ^ carry, planes[level] & carry
                    level += 1
        self.busy += given.slots
        self._touched(given.mask)

    def give(self, given: Allocation) -> None:
        """A run's slots come back."""
        width, borrow_in, planes = given.slots_per_node, given.mask, self._planes
        for bit in range(width.bit_length()):
            if width >> bit & 1:
                borrow, level = borrow_in, bit
                while borrow:
                    planes[level], borrow = planes[level] ^ borrow, ~planes[level] & borrow
                    level += 1
        self.busy -= given.slots
        self._touched(given.mask)

    def used(self, among: NodeMask) -> int:
        """Used slots on the nodes of a set."""
        total = 0
        for bit, plane in enumerate(self._planes):
            total += (plane & among).bit_count() << bit
        return total

    def set_health(self, node: NodeName, *, up: bool) -> None:
        """The node is schedulable, or takes nothing new: it is sick, being drained or repaired, or dead."""
        bit = 1 << self.place[node]
        self.up = self.up | bit if up else self.up & ~bit
        self._count()

    def set_holds(self, holds: Iterable[Hold]) -> None:
        """The holds on this pool, all of them."""
        masks: dict[int, NodeMask] = {}
        for hold in holds:
            width = min(hold.slots_per_node or self.slots, self.slots)
            masks[width] = masks.get(width, 0) | hold.mask
        self._held_masks = masks
        self._held_stale = True

    def wait(self, shape: Waiting) -> None:
        """One more charged workload of this shape waits for the pool."""
        self.waiting[shape] = self.waiting.get(shape, 0) + 1
        if self.smallest is None or shape < self.smallest:
            self.smallest = shape

    def unwait(self, shape: Waiting) -> None:
        left = self.waiting[shape] - 1
        if left:
            self.waiting[shape] = left
            return
        del self.waiting[shape]
        if shape == self.smallest:
            self.smallest = min(self.waiting, default=None)

    @property
    def held(self) -> int:
        """Free slots under holds, counted when asked for. Holds may overlap: no more is held than is free."""
        if self._held_stale:
            self._held_stale = False
            idle = 0
            for width, mask in self._held_masks.items():
                idle += self._idle_under(width, mask & self.up)
            free = self.capacity - self.busy
            self._held = idle if idle < free else free
        return self._held

    def _touched(self, mask: NodeMask) -> None:
        self._held_stale = True
        if mask & ~self.up:
            self._count()

    def _count(self) -> None:
        """Slots of schedulable nodes, and whatever is still used on the others."""
        self.capacity = self.up.bit_count() * self.slots + self.used(~self.up)
        self._held_stale = True

    def _idle_under(self, width: int, mask: NodeMask) -> int:
        if width == self.slots:
            return mask.bit_count() * width - self.used(mask)
        return sum(min(width, self.slots - self.used(1 << node)) for node in nodes_of(mask))
