"""Whose runs may be stopped for whom, and which: the complete plan that loses least.

A run may be stopped for a workload only if its minimum is over, and it is uncharged or the accounts' ratios say so
(`Trial.may_take`; inside one leaf the same between two users). Nothing is stopped unless the plan is complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirab.core.nodes import Bank
from mirab.core.queues import Pending, Queue, ShapeInfo
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.model.plans import Hold
from mirab.model.reasons import PreemptedFor
from mirab.model.resources import nodes_of
from mirab.model.units import Charge, Instant, NodeMask, RunId


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


class Reach:
    """How much stopping every run of a set could make room for: a bound that spares most searches.

    `whole[p]`: nodes of pool p that would be clear, `added[p]` those of them that are not now; `part[p]`: most slots
    that would be free on one node.
    """

    __slots__ = ("added", "part", "whole")

    def __init__(self, trial: Trial, runs: list[Run]) -> None:
        self.whole: list[int] = []
        self.part: list[int] = []
        self.added: list[int] = []
        for number, bank in enumerate(trial.banks):
            usable = trial.usable[number]
            for entry in trial.kept[number]:
                if not entry.until and not entry.account:
                    usable &= ~entry.mask
            mine = [run.allocation for run in runs if run.allocation.pool == number]
            touched, freed = 0, dict[int, int]()
            for given in mine:
                touched |= given.mask
                if given.slots_per_node < bank.slots:
                    for node in nodes_of(given.mask):
                        freed[node] = freed.get(node, 0) + given.slots_per_node
            clear = bank.free[bank.slots] | touched
            clear ^= sum(1 << node for node, slots in freed.items() if slots + bank.level(node) < bank.slots)
            self.whole.append((clear & usable).bit_count())
            self.added.append((clear & usable & ~bank.free[bank.slots]).bit_count())
            best = max((slots + bank.level(node) for node, slots in freed.items() if usable >> node & 1), default=0)
            self.part.append(bank.slots if self.whole[-1] else best)

    def suffices(self, info: ShapeInfo) -> bool:
        """Whether it is worth looking for victims for the shape."""
        return any(
            info.shape.nodes <= self.whole[number] or (info.shape.nodes == 1 and width <= self.part[number])
            for number, width in info.pairs
        )


def survey_due(trial: Trial) -> bool:
    """Whether this decision has to ask again, for all that waits, whose runs might be stopped.

    It must if something happened that opens new claims, if the minimum of a run has ended that somebody may take, and
    after `Policy.review`, since standings drift with time.
    """
    state = trial.state
    if state.claims != state.seen_claims or trial.reviewing:
        return True
    return any(
        run.charged and run.account.exposed and trial.ratio(run.account) >= 1.0 and _wanted(trial, run.account)
        for run in state.newly_exposed
    )


def _wanted(trial: Trial, leaf: Account) -> bool:
    """Whether an account with waiting work stands so far below that it may take runs of the leaf."""
    for account in leaf.lineage:
        siblings = account.parent.children if account.parent else trial.state.roots
        bound = trial.ratio(account) * 1000
        for other in siblings:
            if other is not account and other.waiting and trial.ratio(other) * (1000 + trial.policy.margin) <= bound:
                return True
    return leaf.waiting > 0


def claimants(trial: Trial) -> dict[Account, Reach]:
    """Leaves whose waiting work might stop somebody's run, and how far it would reach."""
    state = trial.state
    waiting = [account for account in state.accounts.values() if account.waiting and account.leaf]
    if trial.policy.preemption == "priority":
        reach = Reach(trial, _unprotected(trial))
        return dict.fromkeys(waiting, reach)
    reaches: dict[tuple[Account, ...], Reach] = {}
    found: dict[Account, Reach] = {}
    common = [*state.orphans.values(), *state.uncharged_runs.values()]
    if not common and not state.exposed_leaves:
        return found
    for leaf in waiting:
        givers = tuple(
            other
            for other in state.exposed_leaves
            if (trial.ratio(other) >= 1.0 if other is leaf else trial.may_take(leaf, other, 0))
        )
        if givers or common:
            if givers not in reaches:
                reaches[givers] = Reach(trial, [*common, *(run for each in givers for run in each.exposed.values())])
            found[leaf] = reaches[givers]
    return found


def _unprotected(trial: Trial) -> list[Run]:
    state = trial.state
    return [*state.uncharged_runs.values(), *(run for leaf in state.exposed_leaves for run in leaf.exposed.values())]


def eligible(trial: Trial, queue: Queue, pending: Pending) -> list[Run]:
    """Runs past their minimum that may be stopped for the workload, in a stable order."""
    if trial.policy.preemption == "priority":
        return _of_lower_priority(trial, pending)
    if not queue.info.charged:
        return []
    state, user = trial.state, queue.user
    added = max(queue.info.rates) * queue.info.commitment
    found = [run for run in state.orphans.values() if not run.stuck]
    found += [run for run in state.uncharged_runs.values() if run.id not in trial.stopped]
    for leaf in state.exposed_leaves:
        if state.exemptions_in_force and state.guaranteed(leaf.path):
            continue
        if leaf is user.account:
            candidates = _of_other_users(trial, queue, added)
        elif trial.may_take(user.account, leaf, added):
            candidates = list(leaf.exposed.values())
        else:
            continue
        found += [run for run in candidates if run.id not in trial.stopped and run.reservation is None]
    return found


def _of_other_users(trial: Trial, queue: Queue, added: Charge) -> list[Run]:
    """Inside one leaf: of users whose U + K exceeds this one's, with the commitment added, by the margin."""
    leaf, mine = queue.user.account, queue.user
    if trial.ratio(leaf) < 1.0:
        return []
    bound = (trial.user_usage(mine) + added) * (1000 + trial.policy.margin)
    return [run for run in leaf.exposed.values() if run.user is not mine and bound <= trial.user_usage(run.user) * 1000]


def _of_lower_priority(trial: Trial, pending: Pending) -> list[Run]:
    return [
        run
        for run in _unprotected(trial)
        if run.workload.priority < pending.workload.priority and run.id not in trial.stopped
    ]


def reclaim(trial: Trial, queue: Queue, pending: Pending) -> Clearing | NoClearing:
    """The complete plan of victims that loses least for a workload that free nodes cannot take.

    Order of plans: no charged victims, least loss, fewest gangs, lowest id. A workload that is not urgent takes only
    victims that have just checkpointed.
    """
    coming = _coming_free(trial, queue)
    if coming is not None:
        return coming
    found = eligible(trial, queue, pending)
    if not found:
        return NoClearing(0)
    names = tuple(run.id for run in found)
    failed = trial.failed.get((names, queue.info))
    if failed is None:
        reach = trial.reaches.get(names)
        if reach is None:
            reach = trial.reaches[names] = Reach(trial, found)
        plan = _search(trial, queue, found, reach)
        if isinstance(plan, Clearing):
            return plan
        failed = trial.failed[names, queue.info] = plan
    return failed


def _search(trial: Trial, queue: Queue, found: list[Run], reach: Reach) -> Clearing | NoClearing:
    info, now, grace = queue.info, trial.now, trial.policy.checkpoint_grace
    nodes = max((reach.added[number] for number in info.pools), default=0)
    if not reach.suffices(info):
        return NoClearing(len(found), nodes)
    urgent = info.min_runtime <= trial.policy.urgent_minimum
    ripe = found if urgent else [run for run in found if run.ripe_at(now, grace) <= now]
    plan = _clear_any(trial, queue, ripe)
    if plan is None and len(ripe) < len(found):
        later = _clear_any(trial, queue, found)
        if later is not None:
            ripe_at = min(at for run in later.victims if (at := run.ripe_at(now, grace)) > now)
            return NoClearing(len(later.victims), nodes, ripe_at)
    return plan or NoClearing(len(found), nodes)


def _clear_any(trial: Trial, queue: Queue, victims: list[Run]) -> Clearing | None:
    """In the first pool where it can be done."""
    for number, width in queue.info.pairs if victims else ():
        plan = _clear(trial, queue, victims, number, width)
        if plan is not None:
            return plan
    return None


def _clear(trial: Trial, queue: Queue, victims: list[Run], number: int, width: int) -> Clearing | None:
    here = [run for run in victims if run.allocation.pool == number]
    among = trial.open_nodes(number, queue.info, queue.user.account, trial.policy.grace_max)
    if queue.info.shape.nodes > 1 and width >= trial.banks[number].slots:
        return _clear_whole(trial, here, number, among, queue.info.shape.nodes)
    return _clear_parts(trial, queue, here, number, among, width)


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
    for action_mask in trial.fresh_masks(number):
        reach &= ~action_mask
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
            total[1] += run.allocation.slots
            total[2] |= run.charged

    def cost(run: Run) -> tuple[bool, float, int, str]:
        loss, slots, charged = per_node.get(run.allocation.mask) or (losses[run.id], run.allocation.slots, run.charged)
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
    plans = []
    for node in sorted(on_node):
        plan = _clear_node(trial, bank, node, on_node[node], width)
        if plan is not None:
            plans.append(plan)
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


def _needed(trial: Trial, bank: Bank, nodes: list[int], width: int, stopped: dict[RunId, Run]) -> list[Run]:
    """The victims without those that the others make superfluous, dearest spared first."""
    cap, now = trial.policy.claimed_loss_cap, trial.now
    for run in sorted(stopped.values(), key=lambda run: (run.charged, run.loss(now, cap), run.id), reverse=True):
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


def _coming_free(trial: Trial, queue: Queue) -> Clearing | None:
    """A node where victims of others' claims leave more than those claims need: nobody else has to stop."""
    if queue.info.shape.nodes > 1:
        return None
    for number, width in queue.info.pairs:
        promised: dict[int, int] = {}
        for hold in trial.holds.values():
            if hold.claim and hold.pool == number and hold.slots_per_node < trial.banks[number].slots:
                for node in nodes_of(hold.mask & trial.usable[number]):
                    promised[node] = promised.get(node, 0) + hold.slots_per_node
        for node, slots in sorted(promised.items()):
            if _leaving(trial, number, node) + trial.banks[number].level(node) - slots >= width:
                return Clearing(number, 1 << node, width, ())
    return None


def _leaving(trial: Trial, number: int, node: int) -> int:
    """Slots of the node that runs which were told to stop will free."""
    return sum(
        run.allocation.slots_per_node
        for run in trial.state.runs.values()
        if run.allocation.pool == number
        and run.allocation.mask >> node & 1
        and not run.stuck
        and (run.stopping or run.id in trial.stopped)
    )


def _clear_node(
    trial: Trial, bank: Bank, node: int, runs: list[Run], width: int
) -> tuple[tuple[bool, Charge, int, str], int, list[Run]] | None:
    """The cheapest victims that free `width` slots of one node: (cost, node, victims)."""
    needed = width - bank.level(node)
    if needed <= 0:
        return None
    cap, now = trial.policy.claimed_loss_cap, trial.now
    ordered = sorted(runs, key=lambda run: (run.charged, run.loss(now, cap), run.id))
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
    cost, victims = min(((_cost(trial, option), option) for option in options), key=lambda pair: pair[0])
    return cost, node, victims


def _cost(trial: Trial, victims: list[Run]) -> tuple[bool, Charge, int, str]:
    cap = trial.policy.claimed_loss_cap
    return (
        any(run.charged for run in victims),
        sum(run.loss(trial.now, cap) for run in victims),
        sum(run.workload.shape.nodes > 1 for run in victims),
        min(run.id for run in victims),
    )


def claim(trial: Trial, queue: Queue, pending: Pending, plan: Clearing) -> None:
    """Stop the victims and keep the nodes for the beneficiary until it starts."""
    until = trial.now
    for run in plan.victims:
        gone_at = run.stop_by or trial.stop(run, reason_for(trial, queue, pending, run))
        until = max(until, gone_at)
    trial.grant(
        queue,
        Hold(
            pending.workload.id,
            plan.pool,
            plan.mask,
            plan.width,
            until,
            trial.now,
            claim=True,
            victims=len(plan.victims),
        ),
    )
    trial.wake(until + trial.policy.stop_timeout)


def reason_for(trial: Trial, queue: Queue, pending: Pending, run: Run, hold: bool = False) -> PreemptedFor:
    """The numbers by which this run had to give way."""
    mine, theirs = queue.user.account, run.account
    added = max(queue.info.rates) * queue.info.commitment
    if mine is theirs:
        ratio_for, ratio_against = trial.ratio(mine), trial.ratio(theirs)
    else:
        ours, against = trial.sides(mine, theirs)
        ratio_for, ratio_against = trial.ratio(ours, added), trial.ratio(against)
    loss = run.loss(trial.now, trial.policy.claimed_loss_cap)
    return PreemptedFor(pending.workload.id, mine.path, ratio_for, ratio_against, loss, not run.charged, hold)
