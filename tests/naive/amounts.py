"""Capacity, demand, what is owed and delivered: looked up at an instant by walking over everything that happened.

Amounts are exact fractions; integrals are sums over the stretches between the instants at which anything changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import ceil

from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Outcome
from mirab.model.resources import Pool
from mirab.model.units import DAY
from mirab.model.workloads import Workload
from tests.naive.history import NEVER, History, Ran, Waits
from tests.naive.homes import home, ledger_at, part

SHARE = 1_000_000_000


def integral(history: History, rate: Callable[[int], Fraction], begin: int, end: int) -> Fraction:
    """The integral of a step function of time."""
    cuts = [begin, *[at for at in history.instants() if begin < at < end], end]
    return sum((rate(left) * (right - left) for left, right in pairwise(cuts) if right > left), Fraction(0))


# --- pools and requests ----------------------------------------------------------------------------------------------
def slots_of(pool: Pool) -> int:
    return pool.gpus_per_node if pool.gpus_per_node else pool.cpus_per_node


def width_in(workload: Workload, pool: Pool) -> int:
    return workload.shape.gpus_per_node if pool.gpus_per_node else workload.shape.cpus_per_node


def accepts(workload: Workload, pool: Pool) -> bool:
    """Whether the empty pool could hold the request (GPUs and types only: tests ask for nothing else)."""
    shape = workload.shape
    right_type = not shape.gpu_types or pool.gpu_type in shape.gpu_types
    return right_type and 0 < shape.gpus_per_node <= pool.gpus_per_node and shape.nodes <= len(pool.nodes)


def charge(workload: Workload, pool: Pool) -> int:
    """Dominant share of the pool times its charge units, at least the GPUs times the weight of their type."""
    shape, whole = workload.shape, slots_of(pool) * len(pool.nodes) * pool.weight
    asked = [Fraction(shape.nodes * width_in(workload, pool), slots_of(pool) * len(pool.nodes))]
    if pool.cpus_per_node:
        asked.append(Fraction(shape.nodes * shape.cpus_per_node, pool.cpus_per_node * len(pool.nodes)))
    return ceil(max(asked) * whole)


def preferred(history: History, workload: Workload) -> Pool | None:
    return next((pool for pool in history.pools if accepts(workload, pool)), None)


# --- ledgers ---------------------------------------------------------------------------------------------------------
def budgets_at(history: History, at: int) -> Budgets:
    return [budgets for since, budgets in history.budgets if since <= at][-1]


def ledger_of_pool(history: History, pool: Pool, at: int) -> str:
    return ledger_at(budgets_at(history, at), pool)


def ledger_of_wait(history: History, workload: Workload, at: int) -> str:
    return home(budgets_at(history, at), history.trace.cluster, workload)


def pools_for(history: History, workload: Workload, ledger: str, at: int) -> list[int]:
    """Numbers of the pools of a ledger that could hold it."""
    return [
        number
        for number, pool in enumerate(history.pools)
        if accepts(workload, pool) and ledger_of_pool(history, pool, at) == ledger
    ]


def apart(leaf: str) -> tuple[str, str]:
    """The ledger of a leaf as reports call it, and the leaf in it."""
    ledger, _, name = leaf.rpartition(":")
    return ledger, name


# --- what there is ---------------------------------------------------------------------------------------------------
def used_on(history: History, pool: int, node: int, at: int) -> int:
    return sum(run.width for run in history.runs if run.covers(at) and run.pool == pool and node in run.nodes)


def is_up(history: History, pool: int, node: int, at: int) -> bool:
    return not any(span.covers(at) for span in history.down.get((pool, node), []))


def capacity_of(history: History, pool: int, at: int) -> int:
    """Slots of the nodes that are up, and what still runs on the others."""
    total = 0
    for node in range(len(history.pools[pool].nodes)):
        up = is_up(history, pool, node, at)
        total += slots_of(history.pools[pool]) if up else used_on(history, pool, node, at)
    return total


def capacity(history: History, at: int) -> Fraction:
    return Fraction(sum(capacity_of(history, pool, at) for pool in range(len(history.pools))))


def busy(history: History, at: int) -> Fraction:
    return Fraction(sum(run.width * len(run.nodes) for run in history.runs if run.covers(at)))


def charge_capacity(history: History, at: int) -> list[int]:
    return [capacity_of(history, number, at) * pool.weight for number, pool in enumerate(history.pools)]


# --- what is asked ---------------------------------------------------------------------------------------------------
def asking(history: History, at: int) -> list[tuple[Workload, Pool, str]]:
    """Workloads that run or could start, each with the pool that it is in or would rather be in, and its ledger."""
    running = [(run.asked, history.pools[run.pool]) for run in history.runs if run.covers(at)]
    found = [(workload, pool, ledger_of_pool(history, pool, at)) for workload, pool in running]
    for wait in history.waits:
        if wait.covers(at):
            assert wait.workload is not None
            ledger = ledger_of_wait(history, wait.workload, at)
            pools = pools_for(history, wait.workload, ledger, at)
            if pools:
                found.append((wait.workload, history.pools[pools[0]], ledger))
    return found


def served(claims: Sequence[tuple[frozenset[int], int]], room: Sequence[int]) -> int:
    """The most of the claims that fits into the pools, by max-flow min-cut, trying every set of pools.

    For each set: what those pools hold, and all claims that would also do with another pool.
    """
    cuts = []
    for chosen in product((False, True), repeat=len(room)):
        full = frozenset(pool for pool, each in enumerate(chosen) if each)
        met = sum(amount for accepted, amount in claims if not accepted <= full)
        cuts.append(met + sum(room[pool] for pool in full))
    return min(cuts)


def demand_served(history: History, at: int) -> Fraction:
    """min(C, demand) in slots."""
    claims = [
        (frozenset(pools_for(history, workload, ledger, at)), workload.shape.nodes * width_in(workload, pool))
        for workload, pool, ledger in asking(history, at)
    ]  # fmt: skip
    return Fraction(served(claims, [capacity_of(history, pool, at) for pool in range(len(history.pools))]))


# --- leaves ----------------------------------------------------------------------------------------------------------
def shares_at(history: History, at: int) -> dict[str, Fraction]:
    """Leaf -> share. An inner account's own work belongs to `path/*`, which holds what the children leave."""
    return leaves_of(budgets_at(history, at))


def leaves_of(budgets: Budgets, ledger: str = "") -> dict[str, Fraction]:
    """Leaf -> share of a ledger; the leaf is written as in the budgets."""
    return dict(_leaves("", Fraction(1), budgets.roots, ledger))


def _leaves(above: str, whole: Fraction, siblings: Sequence[Budget], ledger: str) -> list[tuple[str, Fraction]]:
    found = []
    for budget in siblings:
        path, share = f"{above}{budget.name}", whole * Fraction(part(budget, siblings, ledger), SHARE)
        if budget.children:
            left = 1 - sum(Fraction(part(child, budget.children, ledger), SHARE) for child in budget.children)
            found += [(f"{path}/*", share * left), *_leaves(f"{path}/", share, budget.children, ledger)]
        else:
            found.append((path, share))
    return found


def leaf_of(history: History, workload: Workload) -> str:
    inner = f"{workload.account}/*"
    return inner if inner in shares_at(history, workload.submitted_at) else workload.account


def owed_rate(history: History, leaf: str, at: int) -> Fraction:
    """min(S C, demand) of a leaf in milli-units, demand bounded by what its pools could serve."""
    ledger, name = apart(leaf)
    room = [
        amount if ledger_of_pool(history, pool, at) == ledger else 0
        for pool, amount in zip(history.pools, charge_capacity(history, at), strict=True)
    ]
    claims = [
        (frozenset(pools_for(history, workload, ledger, at)), charge(workload, pool))
        for workload, pool, mine in asking(history, at)
        if workload.shape.min_runtime > 0 and leaf_of(history, workload) == name and mine == ledger
    ]
    share = leaves_of(budgets_at(history, at), ledger).get(name, Fraction(0))
    return min(share * sum(room), Fraction(served(claims, room)))


def belongs(history: History, run: Ran, leaf: str, at: int) -> bool:
    """Whether a run is a leaf's: by its account, and by the pool that it is in."""
    ledger, name = apart(leaf)
    return leaf_of(history, run.asked) == name and ledger_of_pool(history, history.pools[run.pool], at) == ledger


def running_rate(history: History, leaf: str, at: int, *, charged: bool) -> Fraction:
    """What the leaf's charged or uncharged runs are charged, from when they run."""
    return Fraction(
        sum(
            charge(run.asked, history.pools[run.pool])
            for run in history.runs
            if run.started <= at < run.end
            and (run.asked.shape.min_runtime > 0) is charged
            and belongs(history, run, leaf, at)
        )
    )


def credited(history: History, leaf: str, begin: int, end: int) -> Fraction:
    """What was given back for hardware failures in (begin, end]."""
    return Fraction(
        sum(
            charge(run.asked, history.pools[run.pool]) * min(run.lost, run.end - run.started)
            for run in history.runs
            if run.outcome is Outcome.NODE_FAIL
            and run.started < NEVER
            and run.asked.shape.min_runtime > 0
            and belongs(history, run, leaf, run.end)
            and begin < run.end <= end
        )
    )


def owed(history: History, leaf: str, begin: int, end: int) -> Fraction:
    return integral(history, lambda at: owed_rate(history, leaf, at), begin, end)


def usage(history: History, leaf: str, begin: int, end: int) -> Fraction:
    running = integral(history, lambda at: running_rate(history, leaf, at, charged=True), begin, end)
    return running - credited(history, leaf, begin, end)


def uncharged(history: History, leaf: str, begin: int, end: int) -> Fraction:
    return integral(history, lambda at: running_rate(history, leaf, at, charged=False), begin, end)


def within(history: History, leaf: str, begin: int, end: int) -> Fraction:
    return integral(
        history,
        lambda at: min(running_rate(history, leaf, at, charged=True), owed_rate(history, leaf, at)),
        begin,
        end,
    )


def windows(history: History, length: int) -> list[tuple[int, int]]:
    """The trailing window at each midnight from the third on, or the whole period if there is none."""
    starts, ends = history.trace.starts_at, history.trace.ends_at
    midnights = [starts + day * DAY for day in range(3, 10_000) if starts + day * DAY <= ends] or [ends]
    return [(max(starts, midnight - length), midnight) for midnight in midnights]


def delivered(history: History, leaf: str, begin: int, end: int) -> Fraction:
    return max(Fraction(0), min(usage(history, leaf, begin, end), owed(history, leaf, begin, end)))


# --- free GPUs -------------------------------------------------------------------------------------------------------
def held_idle(history: History, at: int) -> Fraction:
    """Free slots under holds on nodes that are up, counted once for each width of holds."""
    total = 0
    for number, pool in enumerate(history.pools):
        widths = {min(hold.width, slots_of(pool)) for hold in history.holds if hold.covers(at) and hold.pool == number}
        idle = 0
        for width in widths:
            nodes = {
                node
                for hold in history.holds
                if hold.covers(at) and hold.pool == number and min(hold.width, slots_of(pool)) == width
                for node in hold.nodes
                if is_up(history, number, node, at)
            }
            idle += sum(min(width, slots_of(pool) - used_on(history, number, node, at)) for node in nodes)
        total += min(idle, _free(history, number, at))
    return Fraction(total)


def fragmented(history: History, at: int) -> Fraction:
    """Free slots that nobody holds in pools for which a charged workload waits."""
    total = 0
    for number, pool in enumerate(history.pools):
        waited_for = any(_waits_for(history, wait, pool, at) for wait in history.waits)
        if waited_for:
            total += _free(history, number, at)
    alone = Fraction(total)
    return max(Fraction(0), alone - _held_where_waited(history, at))


def _held_where_waited(history: History, at: int) -> Fraction:
    """Idle under holds, in pools that somebody waits for."""
    kept = [pool for pool in history.pools if not any(_waits_for(history, wait, pool, at) for wait in history.waits)]
    other = History(history.trace, history.runs, history.waits,
                    [hold for hold in history.holds if history.pools[hold.pool] not in kept],
                    history.down, history.budgets, history.fates)  # fmt: skip
    return held_idle(other, at)


def _waits_for(history: History, wait: Waits, pool: Pool, at: int) -> bool:
    if not wait.covers(at) or wait.workload is None:
        return False
    mine = ledger_of_wait(history, wait.workload, at) == ledger_of_pool(history, pool, at)
    return wait.workload.shape.min_runtime > 0 and accepts(wait.workload, pool) and mine


def _free(history: History, pool: int, at: int) -> int:
    used = sum(run.width * len(run.nodes) for run in history.runs if run.covers(at) and run.pool == pool)
    return capacity_of(history, pool, at) - used


# --- waits and losses ------------------------------------------------------------------------------------------------
def waits(history: History) -> list[int]:
    """To the first start, or until the user gave up, or so far; without what the user set aside."""
    found = []
    for fate in history.fates.values():
        if fate.rejected:
            continue
        until = next(at for at in (fate.first_start, fate.gone_at, history.now) if at is not None)
        aside = fate.aside
        if fate.held_since is not None and fate.first_start is None:
            aside += until - fate.held_since
        found.append(max(0, until - fate.workload.submitted_at - aside))
    return sorted(found)


def nearest_rank(values: Sequence[int], percent: int) -> int:
    """The smallest value that at least `percent` per cent of all values do not exceed."""
    return next(
        each for each in sorted(values) if sum(value <= each for value in values) * 100 >= percent * len(values)
    )


def lost(history: History, begin: int, end: int) -> int:
    """Slot-milliseconds lost to preemption: what was not saved, and the restarts of the runs that came after."""
    total = 0
    before: dict[str, Ran] = {}
    for run in history.runs:
        slots, ran = run.width * len(run.nodes), run.end - run.started
        last = before.get(run.asked.id)
        restart = run.asked.restart if run.resumed and run.started < NEVER else 0
        if restart and last is not None and last.outcome is Outcome.PREEMPTED and begin <= run.started <= end:
            total += restart * slots
        if run.outcome is Outcome.PREEMPTED and run.started < NEVER and begin <= run.end <= end:
            total += min(run.lost, ran - restart) * slots
        if run.started < NEVER:
            before[run.asked.id] = run
    return total
