"""The cluster at this moment, for one look: the four measures, the nodes, and who runs and waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirab.core.runs import Run
from mirab.core.state import State
from mirab.model.units import WHOLE, AccountPath, RunId
from mirab.service.views import nodes
from mirab.service.views.accruals import Got
from mirab.service.views.moments import iso
from mirab.study.owed import scaled_unit_hours

Part = dict[str, Any]
PEOPLE_MOST = 40
"""Lines of who runs what; the rest is one sum."""
LETTERS: Mapping[str, str] = {
    "idle": "i", "mixed": "m", "allocated": "a", "degraded": "g", "draining": "d", "drained": "r", "down": "x",
}  # fmt: skip


@dataclass(slots=True)
class Crowd:
    """What one user has of one account."""

    account: str
    user: str
    gpus: int = 0
    runs: int = 0
    waiting_jobs: int = 0
    waiting_gpus: int = 0


@dataclass(slots=True)
class Seen:
    """What is read from the state while it is held; the rest is made of it when it is free again."""

    at: str
    window_s: float
    pools: list[Part] = field(default_factory=list)
    holds: list[Part] = field(default_factory=list)
    crowds: dict[tuple[str, str], Crowd] = field(default_factory=dict)
    gpus_of_runs: dict[RunId, int] = field(default_factory=dict)
    held_jobs: int = 0


def seen(state: State, now: int) -> Seen:
    """A short look at the state."""
    found = Seen(iso(now), state.policy.window / 1000, held_jobs=len(state.held))
    counted = _counted(state)
    broken = {each["pool"]: each for each in nodes.fragmentation(state)}
    by_pool: dict[str, list[Any]] = {}
    for node in nodes.nodes(state):
        by_pool.setdefault(node.pool, []).append(node)
    found.pools = [_pool(state, number, by_pool[pool.name], broken.get(pool.name), number in counted)
                   for number, pool in enumerate(state.cluster.pools)]  # fmt: skip
    found.holds = [{**hold, **_whose(state, hold["job"])} for hold in nodes.holds(state)]
    for run in state.runs.values():
        _count_run(found, run, counted)
    _count_waiting(found, state)
    return found


def _counted(state: State) -> frozenset[int]:
    """The pools with GPUs; all, where none has any."""
    pools = state.cluster.pools
    return frozenset(number for number, pool in enumerate(pools) if pool.gpus_per_node) or frozenset(range(len(pools)))


def _pool(state: State, number: int, members: Sequence[Any], broken: Part | None, counted: bool) -> Part:
    bank, pool = state.banks[number], state.cluster.pools[number]
    everything = (1 << len(pool.nodes)) - 1
    usable = state.usable[number]
    sick = everything & ~usable
    leaving = sick.bit_count() * bank.slots - bank.free_slots(sick)
    free = bank.free_slots(usable)
    schedulable = usable.bit_count() * bank.slots + leaving
    return {
        "name": pool.name,
        "gpu_type": pool.gpu_type,
        "unit": "GPU" if pool.gpus_per_node else "core",
        "counted": counted,
        "per_node": bank.slots,
        "installed": pool.slots,
        "schedulable": schedulable,
        "busy": schedulable - free,
        "leaving": leaving,
        "free": free,
        "whole_free": 0 if broken is None else broken["largest_whole"],
        "stranded": 0 if broken is None else broken["stranded_gpus"],
        "kept_out": 0 if broken is None else broken["waiting_fits_by_count"],
        "nodes": [
            [each.name, LETTERS.get(each.state, "x"), _used(each, pool.gpus_per_node), each.jobs] for each in members
        ],
    }


def _used(node: Any, gpus: int) -> int:
    """Slots in use; of a pool without GPUs all or nothing, as its state says."""
    if gpus:
        return int(node.gpus_used)
    return {"allocated": 2, "mixed": 1}.get(node.state, 0)


def _whose(state: State, job: str | None) -> Part:
    pending = None if job is None else state.pending.get(job)  # type: ignore[call-overload]
    workload = None if pending is None else pending.workload
    return {"account": getattr(workload, "account", ""), "user": getattr(workload, "user", "")}


def _count_run(found: Seen, run: Run, counted: frozenset[int]) -> None:
    workload = run.workload
    key = (workload.account, workload.user)
    crowd = found.crowds.get(key)
    if crowd is None:
        crowd = found.crowds[key] = Crowd(*key)
    gpus = run.allocation.slots if run.allocation.pool in counted else 0
    crowd.gpus += gpus
    crowd.runs += 1
    if gpus:
        found.gpus_of_runs[run.id] = gpus


def _count_waiting(found: Seen, state: State) -> None:
    for account in state.accounts.values():
        for user in account.users.values():
            for queue in user.queues.values():
                count = len(queue.entries)
                if count:
                    key = (queue.head.workload.account, queue.head.workload.user)
                    crowd = found.crowds.setdefault(key, Crowd(*key))
                    crowd.waiting_jobs += count
                    crowd.waiting_gpus += count * queue.info.shape.gpus


def present(
    found: Seen, got: Mapping[AccountPath, Got] | None, activity: Callable[[RunId], float | None], silent: int
) -> Part:
    """All of it, in plain values."""
    crowds = sorted(found.crowds.values(), key=lambda each: (-each.gpus, -each.waiting_gpus, each.account, each.user))
    return {
        "at": found.at,
        "pyramid": _pyramid(found, crowds, got, activity),
        "pools": found.pools,
        "holds": found.holds,
        "people": [_line(crowd) for crowd in crowds[:PEOPLE_MOST]],
        "people_more": _sum(crowds[PEOPLE_MOST:]),
        "total": _sum(crowds),
        "held_jobs": found.held_jobs,
        "silent_runs": silent,
    }


def _line(crowd: Crowd) -> Part:
    return {
        "account": crowd.account, "user": crowd.user, "gpus": crowd.gpus, "runs": crowd.runs,
        "waiting_jobs": crowd.waiting_jobs, "waiting_gpus": crowd.waiting_gpus,
    }  # fmt: skip


def _sum(crowds: Sequence[Crowd]) -> Part:
    return {
        "lines": len(crowds),
        "gpus": sum(each.gpus for each in crowds),
        "runs": sum(each.runs for each in crowds),
        "waiting_jobs": sum(each.waiting_jobs for each in crowds),
        "waiting_gpus": sum(each.waiting_gpus for each in crowds),
    }


# --- the four measures ----------------------------------------------------------------------------------------------
def _pyramid(found: Seen, crowds: Sequence[Crowd], got: Mapping[AccountPath, Got] | None,
             activity: Callable[[RunId], float | None]) -> list[Part]:  # fmt: skip
    """Availability, occupancy, impact, utilization: each means something only above the one before it."""
    pools = [pool for pool in found.pools if pool["counted"]]
    installed, schedulable, busy = (sum(pool[key] for pool in pools) for key in ("installed", "schedulable", "busy"))
    wanted = min(schedulable, busy + sum(crowd.waiting_gpus for crowd in crowds))
    unit = pools[0]["unit"] if pools else "GPU"
    return [
        _level("availability", schedulable, installed, unit),
        {**_level("occupancy", busy, schedulable, unit), "wanted": wanted},
        _impact(got, found.window_s),
        _utilization(found.gpus_of_runs, activity),
    ]


def _level(name: str, part: float, whole: float, unit: str) -> Part:
    return {"name": name, "part": part, "whole": whole, "unit": unit, "ratio": part / whole if whole else None}


def _impact(got: Mapping[AccountPath, Got] | None, window_s: float) -> Part:
    """Delivered of owed over the window; without books there is no such number yet."""
    owed = 0 if got is None else sum(each.owed for each in got.values())
    delivered = 0 if got is None else sum(each.delivered for each in got.values())
    level = _level("impact", scaled_unit_hours(delivered), scaled_unit_hours(owed), "GPU-h")
    share = delivered / owed if owed >= WHOLE else None
    return {**level, "ratio": share, "window_s": window_s, "ready": got is not None}


def _utilization(gpus_of: Mapping[RunId, int], activity: Callable[[RunId], float | None]) -> Part:
    """Mean GPU activity over the GPUs whose runs are measured; absent where nothing measures."""
    measured = list(_measured(gpus_of.items(), activity))
    gpus = sum(count for count, _ in measured)
    level = _level("utilization", sum(count * share for count, share in measured), gpus, "GPU")
    return {**level, "running": sum(gpus_of.values())}


def _measured(
    runs: Iterable[tuple[RunId, int]], activity: Callable[[RunId], float | None]
) -> Iterator[tuple[int, float]]:
    for run_id, gpus in runs:
        share = activity(run_id)
        if share is not None:
            yield gpus, share
