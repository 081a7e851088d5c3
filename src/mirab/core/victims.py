"""Whose runs may be stopped for whom.

A run may be stopped for a workload only if its minimum is over, and it is uncharged or the accounts' ratios say so
(`Trial.may_take`; inside one leaf the same between two users).
"""

from __future__ import annotations

from mirab.core.queues import Pending, Queue, Size
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.trial import Trial
from mirab.model.resources import nodes_of
from mirab.model.units import Charge


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
            clear, freed = bank.free[bank.slots], dict[int, int]()
            for run in runs:
                given = run.allocation
                if given.pool == number:
                    clear |= given.mask
                    if given.slots_per_node < bank.slots:
                        for node in nodes_of(given.mask & usable):
                            freed[node] = freed.get(node, 0) + given.slots_per_node
            best = 0
            for node, slots in freed.items():
                slots += bank.level(node)
                if slots < bank.slots:
                    clear &= ~(1 << node)
                    best = max(best, slots)
            clear &= usable
            self.whole.append(clear.bit_count())
            self.added.append((clear & ~bank.free[bank.slots]).bit_count())
            self.part.append(bank.slots if clear else best)

    def suffices(self, size: Size) -> bool:
        """Whether it is worth looking for victims for work of that size."""
        pairs, nodes = size
        return any(
            nodes <= self.whole[number] or (nodes == 1 and width <= self.part[number]) for number, width in pairs
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
    if not common and not any(trial.ratio(leaf) >= 1.0 for leaf in state.exposed_leaves):
        return found
    for leaf in waiting:
        those = tuple(givers(trial, leaf, 0))
        if those or common:
            if those not in reaches:
                reaches[those] = Reach(trial, [*common, *(run for each in those for run in each.exposed.values())])
            found[leaf] = reaches[those]
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
    state, leaf = trial.state, queue.user.account
    added = max(queue.info.rates) * queue.info.commitment
    found = [run for run in state.orphans.values() if not run.stuck]
    found += [run for run in state.uncharged_runs.values() if run.id not in trial.stopped]
    for giver in givers(trial, leaf, added):
        candidates = _of_other_users(trial, queue, added) if giver is leaf else giver.exposed.values()
        found += [run for run in candidates if run.id not in trial.stopped and run.reservation is None]
    return found


def givers(trial: Trial, leaf: Account, added: Charge) -> list[Account]:
    """Leaves with runs past their minimum that may be stopped for `added` more of this leaf, itself perhaps."""
    known = trial.givers.get((leaf, added))
    if known is None:
        state = trial.state
        may_within = trial.ratio(leaf) >= 1.0 and leaf.share > 0
        candidates = givers(trial, leaf, 0) if added else list(state.exposed_leaves)
        known = trial.givers[leaf, added] = [
            other
            for other in candidates
            if (may_within if other is leaf else trial.may_take(leaf, other, added))
            and not (state.exemptions_in_force and state.guaranteed(other.path))
        ]
    return known


def _of_other_users(trial: Trial, queue: Queue, added: Charge) -> list[Run]:
    """Inside one leaf: of users whose U + K exceeds this one's, with the commitment added, by the margin."""
    leaf, mine = queue.user.account, queue.user
    bound = (trial.user_usage(mine) + added) * (1000 + trial.policy.margin)
    return [run for run in leaf.exposed.values() if run.user is not mine and bound <= trial.user_usage(run.user) * 1000]


def _of_lower_priority(trial: Trial, pending: Pending) -> list[Run]:
    return [
        run
        for run in _unprotected(trial)
        if run.workload.priority < pending.workload.priority and run.id not in trial.stopped
    ]
