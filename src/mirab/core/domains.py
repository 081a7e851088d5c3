"""The topology domains (racks) of a pool, and how many nodes of a set each of them has."""

from __future__ import annotations

from typing import TypeAlias

from mypy_extensions import mypyc_attr

from mirab.model.resources import Pool, lowest
from mirab.model.units import NodeMask

Counts: TypeAlias = bytes | list[int]
"""One number for each domain: bytes are searched at once."""

_ONES = bytes(number.bit_count() for number in range(256))
_BYTE = 8
_MOST_AT_ONCE = 248
"""The largest domain whose count fits into a byte."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Domains:
    """The domains of one pool.

    `masks`: one for each, in their order. Equal domains of consecutive nodes, as clusters mostly have them, are counted
    all at once on the bytes of a set; others one by one.
    """

    __slots__ = ("_bytes", "_bytes_each", "_largest", "masks")

    def __init__(self, pool: Pool) -> None:
        self.masks = pool.domains
        self._bytes_each = _bytes_of_each(pool)
        self._bytes = len(pool.domains) * self._bytes_each
        self._largest = max([mask.bit_count() for mask in pool.domains], default=0)

    def counts(self, nodes: NodeMask) -> Counts:
        """How many of the nodes are in each domain."""
        if not self._bytes_each:
            return [(mask & nodes).bit_count() for mask in self.masks]
        by_byte = nodes.to_bytes(self._bytes, "little").translate(_ONES)
        if self._bytes_each == 1:
            return by_byte
        sums = 0
        for place in range(self._bytes_each):
            sums += int.from_bytes(by_byte[place :: self._bytes_each], "little")
        return sums.to_bytes(len(self.masks), "little")

    def choose(self, free: NodeMask, wanted: int) -> NodeMask:
        """`wanted` of the free nodes: in the fullest domain that has enough, else in as few domains as possible."""
        masks, counts = self.masks, self.counts(free)
        tightest = self._tightest(counts, wanted)
        if tightest:
            return lowest(masks[counts.index(tightest)] & free, wanted)
        chosen = 0
        for count in range(self._largest, 0, -1):
            index = -1
            for _ in range(counts.count(count)):
                index = counts.index(count, index + 1)
                if count >= wanted:
                    tightest = self._tightest(counts, wanted)
                    last = index if tightest == count else counts.index(tightest)
                    return chosen & free | lowest(masks[last] & free, wanted)
                chosen |= masks[index]
                wanted -= count
        chosen &= free
        return chosen | lowest(free ^ chosen, wanted)

    def _tightest(self, counts: Counts, wanted: int) -> int:
        """The least of the counts that is enough; 0 = none is."""
        for count in range(wanted, self._largest + 1):
            if count in counts:
                return count
        return 0


def _bytes_of_each(pool: Pool) -> int:
    """Bytes of a set that each domain takes up; 0 = they are not equal, not consecutive, or do not end at a byte."""
    size = pool.domains[0].bit_count() if pool.domains else 0
    if not size or size % _BYTE or size > _MOST_AT_ONCE:
        return 0
    nodes = len(pool.nodes)
    equal = tuple(((1 << min(size, nodes - begin)) - 1) << begin for begin in range(0, nodes, size))
    return size // _BYTE if pool.domains == equal else 0
