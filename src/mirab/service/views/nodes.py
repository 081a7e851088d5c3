"""Nodes: how they are, what runs on them, until when they drain, and how broken up their free GPUs are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mirab.core.drains import paused_until
from mirab.core.nodes import Bank, Health, NodeState
from mirab.core.runs import Run
from mirab.core.state import State
from mirab.model.resources import nodes_of
from mirab.model.units import FOREVER, Instant, NodeName
from mirab.service.forms.machines import Node
from mirab.service.views.moments import iso

TROUBLED = {
    Health.DEGRADED: "degraded",
    Health.DRAINING: "draining",
    Health.REPAIR: "drained",
    Health.DOWN: "down",
}


def nodes(state: State, name: str | None = None) -> list[Node]:
    """All nodes in the order of the cluster file, or the one of that name (none, if there is none)."""
    wanted = None if name is None else state.places.get(NodeName(name))
    if name is not None and wanted is None:
        return []
    runs = _runs_by_place(state, wanted)
    found = []
    for number, bank in enumerate(state.banks):
        used = _used(bank)
        places = [(number, index) for index in range(len(used)) if wanted is None or wanted == (number, index)]
        found += [_node(state, place, used[place[1]], runs.get(place, [])) for place in places]
    return found


def _runs_by_place(state: State, wanted: tuple[int, int] | None) -> dict[tuple[int, int], list[Run]]:
    found: dict[tuple[int, int], list[Run]] = {}
    for run in state.runs.values():
        number, mask = run.allocation.pool, run.allocation.mask
        if wanted is not None:
            mask = mask & 1 << wanted[1] if number == wanted[0] else 0
        for index in nodes_of(mask):
            found.setdefault((number, index), []).append(run)
    return found


def _used(bank: Bank) -> list[int]:
    """Used slots of each node."""
    used = [bank.slots] * len(bank.pool.nodes)
    for level, mask in enumerate(bank.free):
        for index in nodes_of(mask) if level else ():
            used[index] = bank.slots - level
    return used


def _node(state: State, place: tuple[int, int], used: int, runs: list[Run]) -> Node:
    pool = state.cluster.pools[place[0]]
    trouble = state.troubled.get(place)
    until = drain_until(state, trouble, runs, pool.nodes[place[1]])
    return Node(
        name=pool.nodes[place[1]],
        pool=pool.name,
        state=_state(trouble, used, pool.slots_per_node),
        gpus=pool.gpus_per_node,
        gpus_used=used if pool.gpus_per_node else 0,
        gpu_type=pool.gpu_type,
        cpus=pool.cpus_per_node,
        jobs=[run.workload.id for run in runs],
        reason="" if trouble is None else trouble.cause,
        drain_until=None if until is None else iso(until),
    )


def _state(trouble: NodeState | None, used: int, slots: int) -> str:
    if trouble is not None:
        return TROUBLED[trouble.health]
    return "idle" if not used else "allocated" if used >= slots else "mixed"


def drain_until(state: State, trouble: NodeState | None, runs: Iterable[Run], node: NodeName) -> Instant | None:
    """When the last minimum on a draining node is over (and no exception pauses the drain), so that all are stopped.

    None = it does not drain, or by itself.
    """
    if trouble is None or trouble.health not in (Health.DEGRADED, Health.DRAINING):
        return None
    if state.policy.drains != "contract":
        return None
    runs = list(runs)
    until = max((run.unprotected_at for run in runs), default=state.now)
    until = max(until, paused_until(state, node)) if runs else until
    return None if until >= FOREVER else max(until, trouble.since)


def fragmentation(state: State) -> list[dict[str, Any]]:
    """Of each pool with GPUs: how many are free, and how many of those lie on nodes that are partly used.

    `largest_whole`: nodes that are free as a whole; `waiting_fits_by_count`: waiting charged jobs for which enough
    GPUs are free in all, but not on enough nodes at once.
    """
    return [_broken_up(state, number, bank) for number, bank in enumerate(state.banks) if bank.pool.gpus_per_node]


def _broken_up(state: State, number: int, bank: Bank) -> dict[str, Any]:
    usable = state.usable[number]
    by_free = {level: (mask & usable).bit_count() for level, mask in enumerate(bank.free) if level and mask & usable}
    free = sum(level * count for level, count in by_free.items())
    whole = by_free.get(bank.slots, 0)
    return {
        "pool": bank.pool.name,
        "gpus": bank.pool.slots,
        "free_gpus": free,
        "largest_whole": whole,
        "stranded_gpus": free - whole * bank.slots,
        "nodes_by_free_gpus": {str(level): count for level, count in by_free.items()},
        "waiting_fits_by_count": _kept_out(state, number, by_free, free),
    }


def _kept_out(state: State, number: int, by_free: dict[int, int], free: int) -> int:
    """Jobs that only the places of the free GPUs keep out."""
    count = 0
    for infos in state.waiting_sizes[True].values():
        for info in infos:
            width = dict(info.pairs).get(number)
            if width and info.shape.nodes * width <= free:
                wide = sum(nodes for level, nodes in by_free.items() if level >= width)
                if wide < info.shape.nodes:
                    count += sum(len(queue.entries) for users in info.queues.values() for queue in users.values())
    return count


def holds(state: State) -> list[dict[str, Any]]:
    """The nodes that are kept for somebody: for whom, which, and until when at the latest."""
    return [
        {
            "job": None if hold.reservation_id is not None else hold.workload_id,
            "reservation": hold.reservation_id,
            "nodes": [str(name) for name in state.nodes_named(hold.pool, hold.mask)],
            "gpus_per_node": hold.slots_per_node,
            "granted_at": iso(hold.granted_at),
            "until": iso(hold.until),
            "due": hold.claim,
        }
        for hold in (*state.holds.values(), *state.reserved.values())
    ]
