"""Which runs to stop: the complete plan that makes room and loses least.

Order of plans: no charged victims, least loss, fewest gangs, lowest id. Victims that a plan does not need are spared.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirab.core.nodes import Bank
from mirab.core.queues import Queue
from mirab.core.runs import Run
from mirab.core.trial import Trial
from mirab.model.plans import Hold
from mirab.model.resources import nodes_of
from mirab.model.units import Charge, Duration, Instant, NodeMask, RunId


@dataclass(frozen=True, slots=True)
class Clearing:
    """Nodes that stopping the victims makes room on."""

    pool: int
    mask: NodeMask
    width: int
    victims: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class NoClearing:
    """There is none.

    `victims`: runs that could be stopped at all; `nodes`: nodes that this would clear; `ripe_at`: a plan exists then,
    once they have checkpointed.
    """

    victims: int
    nodes: int = 0
    ripe_at: Instant | None = None


def clear(trial: Trial, queue: Queue, victims: list[Run], number: int, width: int) -> Clearing | None:
    """The plan that loses least in one pool: inside the account's own reservation if there is one, else outside."""
    here = [run for run in victims if run.allocation.pool == number]
    whole = queue.info.shape.nodes > 1 and width >= trial.banks[number].slots
    for room in trial.rooms(number, queue.info, queue.user.account, trial.policy.grace_max):
        if whole:
            plan = _clear_whole(trial, here, number, room, queue.info.shape.nodes)
        else:
            plan = _clear_parts(trial, queue, here, number, room, width)
        if plan is not None:
            return plan
    return None


def _clear_whole(trial: Trial, runs: list[Run], number: int, among: NodeMask, wanted: int) -> Clearing | None:
    """Whole nodes: stop the cheapest runs until enough nodes are clear, then spare those that are not needed."""
    bank = trial.banks[number]
    free = bank.free[bank.slots] & among
    reach = 0
    for run in runs:
        reach |= run.allocation.mask
    if (reach & among | free).bit_count() < wanted:
        return None
    among &= free | _only(trial, number, runs, reach & among)
    if among.bit_count() < wanted:
        return None
    order = _cheapest_first(trial, runs)
    uncleared = 0
    blocked_by_rest = [0] * (len(order) + 1)
    for place in range(len(order) - 1, -1, -1):
        uncleared |= order[place].allocation.mask
        blocked_by_rest[place] = uncleared
    needed = next(place for place in range(len(order) + 1) if (among & ~blocked_by_rest[place]).bit_count() >= wanted)
    cleared = among & ~blocked_by_rest[needed]
    chosen: list[Run] = []
    for run in reversed(order[:needed]):
        without = cleared & ~run.allocation.mask
        if without.bit_count() >= wanted:
            cleared = without
        else:
            chosen.append(run)
    return Clearing(number, _trim(cleared, free, wanted), bank.slots, tuple(reversed(chosen)))


def _only(trial: Trial, number: int, runs: list[Run], reach: NodeMask) -> NodeMask:
    """Nodes of `reach` on which nothing runs but these runs."""
    ours = {run.id for run in runs}
    for run in trial.state.runs.values():
        if run.allocation.pool == number and run.allocation.mask & reach and run.id not in ours:
            reach &= ~run.allocation.mask
    for mask in trial.fresh[number]:
        reach &= ~mask
    return reach


def _trim(cleared: NodeMask, free: NodeMask, wanted: int) -> NodeMask:
    """Exactly `wanted` of the cleared nodes: all victims' nodes, then free ones."""
    surplus = cleared.bit_count() - wanted
    spare = cleared & free
    while surplus > 0 and spare:
        high = 1 << (spare.bit_length() - 1)
        spare ^= high
        cleared ^= high
        surplus -= 1
    while surplus > 0:
        cleared ^= 1 << (cleared.bit_length() - 1)
        surplus -= 1
    return cleared


def _cheapest_first(trial: Trial, runs: list[Run]) -> list[Run]:
    """Uncharged first, then by loss per slot; runs that share one node go together, since it is cleared by all."""
    cap, now = trial.policy.claimed_loss_cap, trial.now
    losses = {run.id: run.loss(now, cap) for run in runs}
    per_node: dict[int, list[int]] = {}
    for run in runs:
        mask = run.allocation.mask
        if not mask & (mask - 1):
            total = per_node.setdefault(mask, [0, 0, 0])
            total[0] += losses[run.id]
            total[1] += run.slots
            total[2] |= _charged_victim(run)

    def cost(run: Run) -> tuple[bool, float, int, str]:
        alone = losses[run.id], run.slots, _charged_victim(run)
        loss, slots, charged = per_node.get(run.allocation.mask) or alone
        return bool(charged), loss / max(1, slots), run.allocation.mask, run.id

    return sorted(runs, key=cost)


def _clear_parts(
    trial: Trial, queue: Queue, runs: list[Run], number: int, among: NodeMask, width: int
) -> Clearing | None:
    """Part of a node, on one node or several: the cheapest victims of each node, then the cheapest nodes."""
    on_node: dict[int, list[Run]] = {}
    for run in runs:
        for node in nodes_of(run.allocation.mask & among):
            on_node.setdefault(node, []).append(run)
    bank, wanted = trial.banks[number], queue.info.shape.nodes
    plans = _plans(trial, bank, on_node, width)
    if wanted == 1:
        if not plans:
            return None
        _, node, victims = min(plans, key=lambda plan: plan[0])
        return Clearing(number, 1 << node, width, tuple(victims))
    free = bank.with_free(width) & among
    missing = wanted - free.bit_count()
    others = sorted((plan for plan in plans if not free >> plan[1] & 1), key=lambda plan: plan[0])
    if missing <= 0 or len(others) < missing:
        return None
    nodes, stopped = [node for _, node, _ in others[:missing]], dict[RunId, Run]()
    for _, _, victims in others[:missing]:
        stopped.update((run.id, run) for run in victims)
    mask = free | sum(1 << node for node in nodes)
    return Clearing(number, mask, width, tuple(_needed(trial, bank, nodes, width, stopped)))


def _plans(
    trial: Trial, bank: Bank, on_node: dict[int, list[Run]], width: int
) -> list[tuple[tuple[bool, Charge, int, str], int, list[Run]]]:
    """(cost, node, victims) for each node that can be cleared, lowest first; the same runs cost the same anywhere."""
    known: dict[tuple[int, tuple[RunId, ...]], tuple[tuple[bool, Charge, int, str], int, list[Run]] | None] = {}
    plans = []
    for node in sorted(on_node):
        runs = on_node[node]
        key = bank.level(node), tuple([run.id for run in runs])
        if key not in known:
            known[key] = _clear_node(trial, bank, node, runs, width)
        plan = known[key]
        if plan is not None:
            plans.append((plan[0], node, plan[2]))
    return plans


def _needed(trial: Trial, bank: Bank, nodes: list[int], width: int, stopped: dict[RunId, Run]) -> list[Run]:
    """The victims without those that the others make superfluous, dearest spared first."""
    cap, now = trial.policy.claimed_loss_cap, trial.now
    for run in sorted(stopped.values(), key=lambda run: _dearness(run, now, cap), reverse=True):
        rest = [other.allocation for other in stopped.values() if other is not run]
        if all(
            bank.level(node) + sum(given.slots_per_node for given in rest if given.mask >> node & 1) >= width
            for node in nodes
        ):
            del stopped[run.id]
    return list(stopped.values())


def needed_on(trial: Trial, hold: Hold, runs: list[Run]) -> list[Run]:
    """Those of the runs that have to go so that each held node has the held slots free."""
    bank, stopped = trial.banks[hold.pool], dict[RunId, Run]()
    for node in nodes_of(hold.mask):
        here = [run for run in runs if run.allocation.mask >> node & 1]
        missing = hold.slots_per_node - _leaving(trial, hold.pool, node)
        plan = _clear_node(trial, bank, node, here, missing)
        if plan is not None:
            stopped.update((run.id, run) for run in plan[2])
    return list(stopped.values())


def coming_free(trial: Trial, queue: Queue) -> Clearing | None:
    """A node where victims of others' claims leave more than those claims need: nobody else has to stop."""
    if queue.info.shape.nodes > 1:
        return None
    for number, width in queue.info.pairs:
        for node, slots in _coming(trial, number):
            if slots >= width:
                return Clearing(number, 1 << node, width, ())
    return None


def _coming(trial: Trial, number: int) -> list[tuple[int, int]]:
    """(node, slots) beyond what claims on parts of it need, once those that are leaving have left; lowest first."""
    known = trial.coming.get(number)
    if known is None:
        promised: dict[int, int] = {}
        for hold in trial.holds.values():
            if hold.claim and hold.pool == number and hold.slots_per_node < trial.banks[number].slots:
                for node in nodes_of(hold.mask & trial.usable[number]):
                    promised[node] = promised.get(node, 0) + hold.slots_per_node
        level = trial.banks[number].level
        known = trial.coming[number] = [
            (node, _leaving(trial, number, node) + level(node) - slots) for node, slots in sorted(promised.items())
        ]
    return known


def _leaving(trial: Trial, number: int, node: int) -> int:
    """Slots of the node that runs which were told to stop will free."""
    return sum(
        run.allocation.slots_per_node
        for run in trial.going()
        if run.allocation.pool == number and run.allocation.mask >> node & 1 and not run.stuck
    )


def _clear_node(
    trial: Trial, bank: Bank, node: int, runs: list[Run], width: int
) -> tuple[tuple[bool, Charge, int, str], int, list[Run]] | None:
    """The cheapest victims that free `width` slots of one node: (cost, node, victims)."""
    needed = width - bank.level(node)
    if needed <= 0:
        return None
    cap, now = trial.policy.claimed_loss_cap, trial.now
    ordered = sorted(runs, key=lambda run: _dearness(run, now, cap))
    chosen: list[Run] = []
    for run in ordered:
        if needed <= 0:
            break
        chosen.append(run)
        needed -= run.allocation.slots_per_node
    if needed > 0:
        return None
    for run in reversed(chosen[:]):
        if run.allocation.slots_per_node + needed <= 0:
            chosen.remove(run)
            needed += run.allocation.slots_per_node
    single = next((run for run in ordered if run.allocation.slots_per_node >= width - bank.level(node)), None)
    options = [chosen] + ([[single]] if single is not None else [])
    cost, victims = min(((plan_cost(trial, option), option) for option in options), key=lambda pair: pair[0])
    return cost, node, victims


def plan_cost(trial: Trial, victims: list[Run]) -> tuple[bool, Charge, int, str]:
    cap = trial.policy.claimed_loss_cap
    return (
        any(_charged_victim(run) for run in victims),
        sum(run.loss(trial.now, cap) for run in victims),
        sum(run.workload.shape.nodes > 1 for run in victims),
        min((run.id for run in victims), default=""),
    )


def _dearness(run: Run, now: Instant, cap: Duration) -> tuple[bool, bool, Charge, RunId]:
    """Runs that are stopping anyway come first, then uncharged ones, then by what is lost, then by id."""
    return run.stop_by is None, run.charged, run.loss(now, cap), run.id


def _charged_victim(run: Run) -> bool:
    """Whether stopping it takes something from a charged run that is not going anyway."""
    return run.charged and run.stop_by is None
