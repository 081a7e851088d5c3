"""The topology domains (racks) of a pool, and how many nodes of a set each of them has."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from mirab.model.resources import Pool, lowest
from mirab.model.units import NodeMask

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

    __slots__ = ("_bytes", "_bytes_each", "masks")

    def __init__(self, pool: Pool) -> None:
        self.masks = pool.domains
        self._bytes_each = _bytes_of_each(pool)
        self._bytes = len(pool.domains) * self._bytes_each

    def counts(self, nodes: NodeMask) -> list[int]:
        """How many of the nodes are in each domain."""
        if not self._bytes_each:
            return [(mask & nodes).bit_count() for mask in self.masks]
        by_byte = int.from_bytes(nodes.to_bytes(self._bytes, "little").translate(_ONES), "little")
        sums = by_byte
        for further in range(1, self._bytes_each):
            sums += by_byte >> _BYTE * further
        return list(sums.to_bytes(self._bytes, "little")[:: self._bytes_each])

    def choose(self, free: NodeMask, wanted: int) -> NodeMask:
        """`wanted` of the free nodes: in the fullest domain that has enough, else in as few domains as possible."""
        masks = self.masks
        by_count: dict[int, list[int]] = {}
        for index, count in enumerate(self.counts(free)):
            if count:
                by_count.setdefault(count, []).append(index)
        tightest = _tightest(by_count, wanted)
        if tightest:
            return lowest(masks[by_count[tightest][0]] & free, wanted)
        chosen = 0
        for count in sorted(by_count, reverse=True):
            for index in by_count[count]:
                if count >= wanted:
                    tightest = _tightest(by_count, wanted)
                    last = index if tightest == count else by_count[tightest][0]
                    return chosen & free | lowest(masks[last] & free, wanted)
                chosen |= masks[index]
                wanted -= count
        chosen &= free
        return chosen | lowest(free ^ chosen, wanted)


def _tightest(counts: Iterable[int], wanted: int) -> int:
    """The least of the counts that is enough; 0 = none is."""
    return min([count for count in counts if count >= wanted], default=0)


def _bytes_of_each(pool: Pool) -> int:
    """Bytes of a set that each domain takes up; 0 = they are not equal, not consecutive, or do not end at a byte."""
    size = pool.domains[0].bit_count() if pool.domains else 0
    if not size or size % _BYTE or size > _MOST_AT_ONCE:
        return 0
    nodes = len(pool.nodes)
    equal = tuple(((1 << min(size, nodes - begin)) - 1) << begin for begin in range(0, nodes, size))
    return size // _BYTE if pool.domains == equal else 0
