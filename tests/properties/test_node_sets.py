"""Sets of nodes: the quick ways to count and choose against plain ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from mirab.core.domains import Domains
from mirab.model.resources import Pool, lowest, nodes_of
from mirab.model.units import NodeMask, NodeName


def _pool(nodes: int, size: int) -> Pool:
    masks = tuple(((1 << min(size, nodes - begin)) - 1) << begin for begin in range(0, nodes, size))
    return Pool("p", tuple(NodeName(f"n{number}") for number in range(nodes)), 8, domains=masks)


def _mask(random: Random, nodes: int) -> NodeMask:
    full = (1 << nodes) - 1
    return random.choice((random.getrandbits(nodes), random.getrandbits(nodes) & random.getrandbits(nodes), full, 0))


def _scattered(pool: Pool, random: Random) -> Pool:
    """The same nodes in domains of other sizes and without an order; some nodes are in none."""
    masks = [0] * 5
    for node in range(len(pool.nodes)):
        place = random.randrange(6)
        if place < 5:
            masks[place] |= 1 << node
    return replace(pool, domains=tuple(masks))


def _plainly(domains: tuple[NodeMask, ...], free: NodeMask, wanted: int) -> NodeMask:
    """The fullest domain that has enough; else whole domains, fullest first, and the fullest that has the rest."""
    rest = {index: set(nodes_of(mask & free)) for index, mask in enumerate(domains)}
    left, chosen = set(nodes_of(free)), set[int]()
    while wanted:
        enough = [index for index in rest if len(rest[index]) >= wanted]
        if enough:
            tightest = min(enough, key=lambda index: (len(rest[index]), index))
            return sum(1 << node for node in [*chosen, *sorted(rest[tightest])[:wanted]])
        fullest = max(rest, key=lambda index: (len(rest[index]), -index), default=None)
        if fullest is None or not rest[fullest]:
            return sum(1 << node for node in [*chosen, *sorted(left - chosen)[:wanted]])
        wanted -= len(rest[fullest])
        chosen |= rest.pop(fullest)
    return sum(1 << node for node in chosen)


@pytest.mark.parametrize("seed", range(40))
def test_gangs_go_to_the_domains_that_a_plain_search_finds(seed: int) -> None:
    random = Random(seed)
    size = random.choice((1, 3, 8, 16, 24, 64))
    pool = _pool(random.randrange(2, 300), size)
    if seed % 3 == 0:
        pool = _scattered(pool, random)
    domains = Domains(pool)
    for _ in range(30):
        free = _mask(random, len(pool.nodes))
        assert list(domains.counts(free)) == [(mask & free).bit_count() for mask in pool.domains]
        if free:
            wanted = random.randint(1, free.bit_count())
            assert domains.choose(free, wanted) == _plainly(pool.domains, free, wanted), (pool, free, wanted)


def test_the_lowest_nodes_are_those_of_a_list() -> None:
    random = Random(1)
    for _ in range(2000):
        mask = _mask(random, random.choice((1, 5, 64, 200)))
        count = random.randint(0, mask.bit_count())
        assert nodes_of(lowest(mask, count)) == nodes_of(mask)[:count]
