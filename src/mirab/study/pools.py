"""How many GPUs of each pool are there, schedulable, busy, held and idle, as sets of nodes held in integers.

Written apart from `mirab.core.nodes`, so that the measures do not inherit an error of the scheduler's own books.
"""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from mirab.model.plans import Hold
from mirab.model.resources import Allocation, Pool
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
        "_held_masks", "_held_nodes", "_idle_held", "_nodes", "_planes", "_stale", "busy", "capacity", "place", "slots",
        "smallest", "up", "waiting", "weight",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.slots = pool.slots_per_node
        self.weight: ChargeRate = pool.weight
        self.place: dict[NodeName, int] = {name: index for index, name in enumerate(pool.nodes)}
        self.up: NodeMask = (1 << len(pool.nodes)) - 1
        self._nodes: NodeMask = self.up
        self._planes: list[NodeMask] = [0] * max(1, self.slots.bit_length())
        self.capacity = pool.slots
        self.busy = 0
        self._held_masks: dict[int, NodeMask] = {}
        """By slots wanted, the nodes that holds keep."""
        self._held_nodes: NodeMask = 0
        self._idle_held = 0
        self._stale = False
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
        self.busy += given.mask.bit_count() * width
        self._touched(given.mask, -width)

    def give(self, given: Allocation) -> None:
        """A run's slots come back."""
        width, borrow_in, planes = given.slots_per_node, given.mask, self._planes
        for bit in range(width.bit_length()):
            if width >> bit & 1:
                borrow, level = borrow_in, bit
                while borrow:
                    changed = planes[level] ^ borrow
                    planes[level], borrow = changed, changed & borrow
                    level += 1
        self.busy -= given.mask.bit_count() * width
        self._touched(given.mask, width)

    def used(self, among: NodeMask) -> int:
        """Used slots on the nodes of a set."""
        total = 0
        for bit, plane in enumerate(self._planes):
            total += (plane & among).bit_count() << bit
        return total

    def set_health(self, node: NodeName, *, up: bool) -> None:
        """The node is schedulable, or takes nothing new: it is sick, being drained or repaired, or dead."""
        bit = 1 << self.place[node]
        if bool(self.up & bit) != up:
            self.up ^= bit
        self._count()

    def set_holds(self, holds: Iterable[Hold]) -> None:
        """The holds on this pool, all of them."""
        masks: dict[int, NodeMask] = {}
        for hold in holds:
            width = min(hold.slots_per_node or self.slots, self.slots)
            masks[width] = masks.get(width, 0) | hold.mask
        self._held_masks = masks
        self._held_nodes = 0
        for mask in masks.values():
            self._held_nodes |= mask
        self._stale = True

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
        if self._stale:
            self._stale = False
            self._idle_held = 0
            for width, mask in self._held_masks.items():
                self._idle_held += self._idle_under(width, mask & self.up)
        free = self.capacity - self.busy
        return self._idle_held if self._idle_held < free else free

    def _touched(self, mask: NodeMask, freed: int) -> None:
        """So many slots have come free on each of the nodes, or have been taken (negative)."""
        if mask & self._held_nodes and not self._stale:
            self._follow_holds(mask, freed)
        if (mask & self.up) != mask:
            self._count()

    def _follow_holds(self, mask: NodeMask, freed: int) -> None:
        """Under holds of whole nodes as many slots are idle more; under others it depends on what else is free."""
        for width, held in self._held_masks.items():
            here = mask & held
            if here and width < self.slots:
                self._stale = True
            elif here:
                self._idle_held += freed * (here & self.up).bit_count()

    def _count(self) -> None:
        """Slots of schedulable nodes, and whatever is still used on the others."""
        self.capacity = self.up.bit_count() * self.slots + self.used(self._nodes ^ self.up)
        self._stale = True

    def _idle_under(self, width: int, mask: NodeMask) -> int:
        """Idle slots on the nodes, `width` of each at most: by sets of nodes of which as many slots are used."""
        if width == self.slots:
            return mask.bit_count() * width - self.used(mask)
        idle = 0
        alike = [(mask, self.slots)]
        for bit, plane in enumerate(self._planes):
            alike = [part for whole, free in alike for part in _split(whole, plane, free, free - (1 << bit)) if part[0]]
        for nodes, free in alike:
            idle += nodes.bit_count() * min(width, free)
        return idle


def _split(nodes: NodeMask, plane: NodeMask, free: int, less: int) -> tuple[tuple[NodeMask, int], tuple[NodeMask, int]]:
    """The nodes that are not in the plane and those that are, with their free slots."""
    used = nodes & plane
    return (nodes ^ used, free), (used, less)
