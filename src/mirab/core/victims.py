"""Whose runs may be stopped for whom.

A run may be stopped for a workload only if its minimum is over, and it is uncharged or the accounts' ratios say so
(`Trial.may_take`; inside one leaf the same between two users).
"""

from __future__ import annotations

from mirab.core.queues import Pending, Queue, ShapeInfo
from mirab.core.reach import Reach, around, count_stoppable, stoppable
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.standing import Claim
from mirab.core.trial import Trial
from mirab.model.units import Charge


def survey_due(trial: Trial) -> bool:
    """Whether this decision has to ask again, for all that waits, whose runs might be stopped.

    It must if something happened that opens new claims, and after `Policy.review`, since standings drift with time.
    """
    if trial.state.claims != trial.state.seen_claims or trial.reviewing:
        return True
    return trial.policy.preemption == "priority" and bool(_newly_wanted(trial))


def able_shapes(trial: Trial, leaf: Account) -> dict[ShapeInfo, None]:
    """The leaf's waiting shapes for which it is worth looking for runs to stop."""
    first = reach_of(trial, leaf, 0) if leaf.shapes else None
    able: dict[ShapeInfo, None] = {}
    for info in leaf.shapes if first is not None else ():
        if first is not None and first.suffices(trial, info):
            reach = reach_of(trial, leaf, info.stake)
            if reach is first or (reach is not None and reach.suffices(trial, info)):
                able[info] = None
    return able


def takers(trial: Trial) -> list[Queue]:
    """Charged queues that might stop somebody's run because the minimums of some runs have just ended.

    Work for one node has to fit on one of theirs; work for several may use others beside them.
    """
    runs = _newly_wanted(trial)
    if not runs:
        return []
    exposed, among = trial.state.exposed_leaves, around(runs)
    near = {ledger: Reach(trial, ledger, exposed, among=among) for ledger in trial.state.ledgers.values()}
    found: list[Queue] = []
    for leaf in trial.state.accounts.values():
        if not leaf.shapes or not _may_take_any(trial, trial.claim(leaf, 0), runs):
            continue
        queues = [
            queue
            for info in leaf.shapes
            if info.nodes > 1 or near[leaf.ledger].suffices(trial, info)
            for queue in leaf.shapes[info]
            if not info.gang or _is_due(trial, queue)
        ]
        queues = [queue for queue in queues if _may_take_any(trial, trial.claim(leaf, queue.info.stake), runs)]
        able = able_shapes(trial, leaf) if queues else {}
        found += [queue for queue in queues if queue.info in able and is_able(trial, queue)]
    return found


def _may_take_any(trial: Trial, claim: Claim, runs: list[Run]) -> bool:
    """Whether `added` more of the leaf may stop any of these runs, as far as the accounts are concerned."""
    for run in runs:  # noqa: SIM110  # asked for every queue that waits
        if run.account is claim.leaf or trial.may_take(claim, run.account):
            return True
    return False


def _is_due(trial: Trial, queue: Queue) -> bool:
    """Whether the last answer that a queue was given is old."""
    waiting = queue.head.waiting
    return waiting is None or waiting.again_at <= trial.now


def is_able(trial: Trial, queue: Queue) -> bool:
    """Of a shape that is able to take: whether its user is, too. Inside one leaf nobody takes from himself."""
    leaf, stake = queue.user.account, queue.info.stake
    those = givers(trial, leaf, stake) if trial.policy.preemption == "budget" else []
    if leaf not in those:
        return True
    others = _reach(trial, leaf, tuple(other for other in those if other is not leaf))
    if others is not None and others.suffices(trial, queue.info):
        return True
    return bool(_of_other_users(trial, queue, stake))


def reach_of(trial: Trial, leaf: Account, added: Charge) -> Reach | None:
    """How far it reaches to stop all that may be stopped for `added` more of the leaf; None = nothing may be.

    Runs that this decision has stopped, and those of the same user, count too: it is a bound.
    """
    if trial.policy.preemption == "none":
        return None
    return _reach(trial, leaf, tuple(givers(trial, leaf, added)) if trial.policy.preemption == "budget" else ())


def _reach(trial: Trial, leaf: Account, those: tuple[Account, ...]) -> Reach | None:
    key = (leaf.ledger, those)
    if key not in trial.reaches:
        by_budget = trial.policy.preemption == "budget"
        leaves = those if by_budget else trial.state.exposed_leaves
        some = count_stoppable(trial.state, leaf.ledger, leaves, by_budget)
        trial.reaches[key] = Reach(trial, leaf.ledger, leaves, by_budget) if some else None
    return trial.reaches[key]


def _newly_wanted(trial: Trial) -> list[Run]:
    """Runs whose minimum has just ended and that somebody who waits may take."""
    return [
        run
        for run in trial.state.newly_exposed
        if run.charged and run.account.exposed and trial.ratio(run.account) >= 1.0 and _wanted(trial, run.account)
    ]


def _wanted(trial: Trial, leaf: Account) -> bool:
    """Whether an account with waiting work stands so far below that it may take runs of the leaf."""
    for account in leaf.lineage:
        siblings = account.parent.children if account.parent else trial.state.roots_of(account.ledger)
        bound = trial.ratio(account) * 1000
        for other in siblings:
            if other is not account and other.waiting and trial.ratio(other) * (1000 + trial.policy.margin) <= bound:
                return True
    return leaf.waiting > 0


def eligible(trial: Trial, queue: Queue, pending: Pending) -> list[Run]:
    """Runs past their minimum that may be stopped for the workload, in a stable order."""
    if trial.policy.preemption == "priority":
        return _of_lower_priority(trial, queue.user.account, pending)
    if not queue.info.charged:
        return []
    state, leaf, stopped = trial.state, queue.user.account, trial.stopped
    added = queue.info.stake
    found = [run for run in state.orphans.values() if not run.stuck]
    found += [run for run in state.uncharged_runs.values() if run.id not in stopped]
    for giver in givers(trial, leaf, added):
        candidates = _of_other_users(trial, queue, added) if giver is leaf else giver.exposed.values()
        found += [run for run in candidates if run.id not in stopped and run.reservation is None]
    return state.within(leaf.ledger, found)


def givers(trial: Trial, leaf: Account, added: Charge) -> list[Account]:
    """Leaves with runs past their minimum that may be stopped for `added` more of this leaf, itself perhaps.

    Theirs is not below its share, and where the paths part the ratios differ by more than the margin.
    """
    claim = trial.claim(leaf, added)
    known = claim.givers
    if known is None:
        known = claim.givers = []
        for other, ours, bound in _rivals(trial, leaf):
            if other is leaf or trial.needed(claim, ours) <= bound:
                known.append(other)
    return known


def _rivals(trial: Trial, leaf: Account) -> list[tuple[Account, Account, float]]:
    """(leaf above its share, our side where the paths part, the ratio of theirs in parts per thousand)."""
    known = trial.rivals.get(leaf)
    if known is None:
        known = trial.rivals[leaf] = []
        for other in above_share(trial) if trial.weigh(leaf)[1] > 0 else ():
            if other.ledger is not leaf.ledger:
                continue
            ours, against = (leaf, leaf) if other is leaf else trial.sides(leaf, other)
            known.append((other, ours, trial.ratio(against) * 1000))
    return known


def above_share(trial: Trial) -> list[Account]:
    """Leaves with runs past their minimum that are not below their share; none whose runs are guaranteed."""
    known = trial.above_share
    if known is None:
        state = trial.state
        known = trial.above_share = [
            leaf
            for leaf in state.exposed_leaves
            if trial.ratio(leaf) >= 1.0 and not (state.exemptions_in_force and state.guaranteed(leaf.path))
        ]
    return known


def _of_other_users(trial: Trial, queue: Queue, added: Charge) -> list[Run]:
    """Inside one leaf: of users whose U + K exceeds this one's, with the commitment added, by the margin."""
    mine = queue.user
    return [run for run in mine.account.exposed.values() if trial.may_take_inside(mine, run, added)]


def _of_lower_priority(trial: Trial, leaf: Account, pending: Pending) -> list[Run]:
    return [
        run
        for run in stoppable(trial.state, leaf.ledger, trial.state.exposed_leaves, orphans=False)
        if run.workload.priority < pending.workload.priority and run.id not in trial.stopped
    ]
