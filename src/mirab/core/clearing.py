"""Which runs to stop: the complete plan that makes room and loses least.

Order of plans: no charged victims, least loss, fewest gangs, lowest id. Victims that a plan does not need are spared.
"""

from __future__ import annotations

from typing import TypeAlias

from mirab.core.nodes import Bank, without
from mirab.core.queues import Queue
from mirab.core.reservations import barred
from mirab.core.runs import Run
from mirab.core.trial import Trial
from mirab.model.plans import Hold
from mirab.model.resources import lowest, nodes_of
from mirab.model.units import Charge, Instant, NodeMask, RunId


class Clearing:
    """Nodes that stopping the victims makes room on."""

    __slots__ = ("mask", "pool", "victims", "width")

    def __init__(self, pool: int, mask: NodeMask, width: int, victims: tuple[Run, ...]) -> None:
        self.pool = pool
        self.mask = mask
        self.width = width
        self.victims = victims


class NoClearing:
    """There is none.

    `victims`: runs that could be stopped at all; `nodes`: nodes that this would clear; `ripe_at`: a plan exists then,
    once they have checkpointed.
    """

    __slots__ = ("nodes", "ripe_at", "victims")

    def __init__(self, victims: int, nodes: int = 0, ripe_at: Instant | None = None) -> None:
        self.victims = victims
        self.nodes = nodes
        self.ripe_at = ripe_at


def clear(trial: Trial, queue: Queue, victims: list[Run], number: int, width: int) -> Clearing | None:
    """The plan that loses least in one pool: inside the account's own reservation if there is one, else outside."""
    here = [run for run in victims if run.pool == number]
    whole = queue.info.nodes > 1 and width >= trial.banks[number].slots
    for room in trial.rooms(number, queue.info, queue.user.account, trial.policy.grace_max):
        if whole:
            plan = _clear_whole(trial, here, number, room, queue.info.nodes)
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
        reach |= run.mask
    reach &= among
    if (reach | free).bit_count() < wanted:
        return None
    among = free | _only(trial, number, runs, reach)
    spare = among.bit_count() - wanted
    if spare < 0:
        return None
    order = _cheapest_first(trial, runs)
    needed, cleared, spare = _without_dearest(order, among, spare)
    chosen: list[Run] = []
    for run in reversed(order[:needed]):
        here = cleared & run.mask
        count = run.count(here)
        if count <= spare:
            cleared ^= here
            spare -= count
        else:
            chosen.append(run)
    return Clearing(number, _trim(cleared, free, wanted), bank.slots, tuple(reversed(chosen)))


def _without_dearest(order: list[Run], nodes: NodeMask, spare: int) -> tuple[int, NodeMask, int]:
    """(how many of the runs, cheapest first, have to stop, the nodes clear then, how many of these are not needed)."""
    needed = len(order)
    while needed:
        run = order[needed - 1]
        blocked = nodes & run.mask
        count = run.count(blocked)
        if count > spare:
            break
        nodes ^= blocked
        spare -= count
        needed -= 1
    return needed, nodes, spare


def _only(trial: Trial, number: int, runs: list[Run], reach: NodeMask) -> NodeMask:
    """Nodes of `reach` on which nothing runs but these runs."""
    ours = {run.id for run in runs}
    for run in trial.state.runs.values():
        if run.pool == number and run.id not in ours and run.mask & reach:
            reach = without(reach, run.mask)
    for mask in trial.fresh[number]:
        reach = without(reach, mask)
    return reach


def _trim(cleared: NodeMask, free: NodeMask, wanted: int) -> NodeMask:
    """Exactly `wanted` of the cleared nodes: all victims' nodes, then free ones; the lowest of each."""
    surplus = cleared.bit_count() - wanted
    if surplus <= 0:
        return cleared
    spare = cleared & free
    count = spare.bit_count()
    if count < surplus:
        return lowest(cleared ^ spare, wanted)
    return cleared ^ spare ^ lowest(spare, count - surplus)


def _cheapest_first(trial: Trial, runs: list[Run]) -> list[Run]:
    """Uncharged first, then by loss per slot; runs that share one node go together, since it is cleared by all."""
    cap, now = trial.policy.claimed_loss_cap, trial.now
    per_node: dict[NodeMask, tuple[bool, Charge, int]] = {}
    for run in runs:
        if run.nodes == 1:
            charged, loss, slots = per_node.get(run.mask, (False, 0, 0))
            per_node[run.mask] = charged or _charged_victim(run), loss + run.loss(now, cap), slots + run.slots
    ranked: list[tuple[bool, float, NodeMask, RunId, Run]] = []
    for run in runs:
        if run.nodes == 1:
            charged, loss, slots = per_node[run.mask]
        else:
            charged, loss, slots = _charged_victim(run), run.loss(now, cap), run.slots
        ranked.append((charged, loss / max(1, slots), run.mask, run.id, run))
    ranked.sort()
    return [run for _, _, _, _, run in ranked]


class Cell:
    """Nodes of a pool that look alike: on each of them the same slots are free and the same runs could go.

    Attributes:
        leaving: slots of each that are coming free anyway.
        runs: those that could go, in the order in which they were given.
    """

    __slots__ = ("free", "leaving", "mask", "runs")

    def __init__(self, mask: NodeMask, free: int) -> None:
        self.mask = mask
        self.free = free
        self.leaving = 0
        self.runs: list[Run] = []

    def split(self, mask: NodeMask) -> Cell:
        """Only the nodes of the mask from now on; the others are returned as a cell of their own."""
        rest = Cell(self.mask ^ mask, self.free)
        rest.leaving = self.leaving
        rest.runs = self.runs.copy()
        self.mask = mask
        return rest


def _cells(bank: Bank, runs: list[Run], leaving: list[Run], among: NodeMask) -> list[Cell]:
    """The nodes of `among` on which some of the runs are, in cells, without a loop over nodes."""
    reach = 0
    for run in runs:
        reach |= run.mask
    reach &= among
    cells = [Cell(free & reach, level) for level, free in enumerate(bank.free) if free & reach]
    for run in runs:
        for cell in _covered(cells, run.mask & reach):
            cell.runs.append(run)
    for run in leaving:
        for cell in _covered(cells, run.mask & reach):
            cell.leaving += run.width
    return cells


def _covered(cells: list[Cell], mask: NodeMask) -> list[Cell]:
    """The cells that make up the mask, once those that it cuts have been divided."""
    found: list[Cell] = []
    for cell in cells.copy() if mask else ():
        here = cell.mask & mask
        if here:
            if here != cell.mask:
                cells.append(cell.split(here))
            found.append(cell)
            mask ^= here
            if not mask:
                break
    return found


Cost: TypeAlias = tuple[bool, Charge, int, RunId]
"""What a plan of victims costs: some of them are charged, what is lost, gangs among them; the lowest id."""

CellPlan: TypeAlias = tuple[Cost, NodeMask, Cell, list[Run]]
"""What it costs to clear the nodes of a cell, the lowest of these, the cell, and the victims."""


def _clear_parts(
    trial: Trial, queue: Queue, runs: list[Run], number: int, among: NodeMask, width: int
) -> Clearing | None:
    """Part of a node, on one node or several: the cheapest victims of each node, then the cheapest nodes."""
    bank, wanted = trial.banks[number], queue.info.nodes
    plans: list[CellPlan] = []
    for cell in _cells(bank, runs, [], among):
        plan = _clear_cell(trial, cell, width)
        if plan is not None:
            plans.append((plan[0], _lowest_node(cell), cell, plan[1]))
    plans.sort()
    if wanted == 1:
        return Clearing(number, plans[0][1], width, tuple(plans[0][3])) if plans else None
    free = bank.with_free(width) & among
    missing = wanted - free.bit_count()
    if missing <= 0:
        return None
    chosen = _cheapest_nodes(plans, missing)
    if chosen is None:
        return None
    stopped: dict[RunId, Run] = {}
    for cell, victims in chosen:
        free |= cell.mask
        for run in victims:
            stopped[run.id] = run
    return Clearing(number, free, width, tuple(_needed(trial, [cell for cell, _ in chosen], width, stopped)))


def _cheapest_nodes(plans: list[CellPlan], missing: int) -> list[tuple[Cell, list[Run]]] | None:
    """So many nodes with their victims, the cheapest first, of equal cost the lowest; None = there are not enough."""
    chosen: list[tuple[Cell, list[Run]]] = []
    place = 0
    while missing > 0:
        alike = place
        mask = 0
        while alike < len(plans) and plans[alike][0] == plans[place][0]:
            mask |= plans[alike][2].mask
            alike += 1
        if not mask:
            return None
        mask = lowest(mask, min(missing, mask.bit_count()))
        missing -= mask.bit_count()
        for _, _, cell, victims in plans[place:alike]:
            if cell.mask & mask:
                cell.mask &= mask
                chosen.append((cell, victims))
        place = alike
    return chosen


def _needed(trial: Trial, cells: list[Cell], width: int, stopped: dict[RunId, Run]) -> list[Run]:
    """The victims without those that the others make superfluous, dearest spared first."""
    free = [cell.free + sum([run.width for run in cell.runs if run.id in stopped]) for cell in cells]
    for run in reversed(_by_dearness(trial, list(stopped.values()))):
        here = [place for place, cell in enumerate(cells) if run.mask & cell.mask]
        if all(free[place] - run.width >= width for place in here):
            del stopped[run.id]
            for place in here:
                free[place] -= run.width
    return list(stopped.values())


def needed_on(trial: Trial, hold: Hold, runs: list[Run]) -> list[Run]:
    """Those of the runs that have to go so that each held node has the held slots free."""
    bank, stopped = trial.banks[hold.pool], dict[RunId, Run]()
    leaving = [run for run in trial.going() if run.pool == hold.pool and not run.stuck]
    cells = _cells(bank, runs, leaving, hold.mask)
    cells.sort(key=_lowest_node)
    for cell in cells:
        plan = _clear_cell(trial, cell, hold.slots_per_node - cell.leaving)
        if plan is not None:
            stopped.update((run.id, run) for run in plan[1])
    return list(stopped.values())


def _lowest_node(cell: Cell) -> NodeMask:
    return cell.mask & -cell.mask


def coming_free(trial: Trial, queue: Queue) -> Clearing | None:
    """A node where victims of others' claims leave more than those claims need: nobody else has to stop."""
    if queue.info.nodes > 1:
        return None
    for number, width in queue.info.pairs:
        coming = _coming(trial, number)
        closed = barred(trial, queue, number) if coming and trial.state.reserved else 0
        for node, slots in coming:
            if slots >= width and not closed >> node & 1:
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
    place = number, node
    return sum([run.width for run in trial.going() if not run.stuck and run.is_on(place)])


def _clear_cell(trial: Trial, cell: Cell, width: int) -> tuple[Cost, list[Run]] | None:
    """The cheapest victims that free `width` slots of each of the nodes, and what that costs."""
    missing = needed = width - cell.free
    if needed <= 0:
        return None
    ordered = _by_dearness(trial, cell.runs)
    chosen: list[Run] = []
    for run in ordered:
        if needed <= 0:
            break
        chosen.append(run)
        needed -= run.width
    if needed > 0:
        return None
    for run in reversed(chosen.copy()):
        if run.width + needed <= 0:
            chosen.remove(run)
            needed += run.width
    cost = plan_cost(trial, chosen)
    for run in ordered:
        if run.width >= missing:
            alone = plan_cost(trial, [run])
            return (alone, [run]) if alone < cost else (cost, chosen)
    return cost, chosen


def plan_cost(trial: Trial, victims: list[Run]) -> Cost:
    cap, now = trial.policy.claimed_loss_cap, trial.now
    charged, loss, gangs, first = False, 0, 0, RunId("")
    for run in victims:
        charged = charged or _charged_victim(run)
        loss += run.loss(now, cap)
        gangs += run.workload.shape.nodes > 1
        if not first or run.id < first:
            first = run.id
    return charged, loss, gangs, first


def _by_dearness(trial: Trial, runs: list[Run]) -> list[Run]:
    """Runs that are stopping anyway come first, then uncharged ones, then by what is lost, then by id."""
    if len(runs) < 2:
        return runs
    cap, now = trial.policy.claimed_loss_cap, trial.now
    ranked = [(run.stop_by is None, run.charged, run.loss(now, cap), run.id, run) for run in runs]
    ranked.sort()
    return [run for _, _, _, _, run in ranked]


def _charged_victim(run: Run) -> bool:
    """Whether stopping it takes something from a charged run that is not going anyway."""
    return run.charged and run.stop_by is None
