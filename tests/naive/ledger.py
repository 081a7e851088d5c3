"""Usage, entitlement, commitment and ratio of an account, by adding up everything that happened inside the window.

An account of a pool's own ledger is written ``pool:account``. At any instant a run counts in the ledger of its pool.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import inf

from mirab.model.accounts import Budgets
from mirab.model.events import Outcome
from mirab.model.policy import Policy
from tests.naive.amounts import charge, charge_capacity, integral, leaf_of, leaves_of
from tests.naive.history import NEVER, Held, History, Ran
from tests.naive.homes import ledger_at

FLOOR = 15 * 60_000
"""Every charged run counts as committed for at least a quarter of an hour."""


def path_of(leaf: str) -> list[str]:
    """The accounts from the top of the tree down to a leaf."""
    names = leaf.split("/")
    return ["/".join(names[: depth + 1]) for depth in range(len(names))]


def below(leaf: str, account: str) -> bool:
    return account in path_of(leaf)


def parted(account: str) -> tuple[str, str]:
    """(ledger, account as the budgets have it)"""
    ledger, _, plain = account.rpartition(":")
    return ledger, plain


def budgets_at(history: History, at: int) -> Budgets:
    return [budgets for since, budgets in history.budgets if since <= at][-1]


# --- which ledger ----------------------------------------------------------------------------------------------------
def pools_at(history: History, ledger: str, at: int) -> list[int]:
    """The pools of a ledger."""
    budgets = budgets_at(history, at)
    return [number for number, pool in enumerate(history.pools) if ledger_at(budgets, pool) == ledger]


def opened(history: History, ledger: str, now: int) -> int:
    """Since when the ledger has been there without a break; the main one, and those of the first budgets, since 0."""
    since = max(now, 0)
    for at, _ in reversed([each for each in history.budgets if each[0] <= now]):
        if ledger and not pools_at(history, ledger, at):
            break
        since = max(at, 0)
    return since


def share_at(history: History, account: str, at: int) -> Fraction:
    ledger, plain = parted(account)
    shares = leaves_of(budgets_at(history, at), ledger)
    return sum((share for leaf, share in shares.items() if below(leaf, plain)), Fraction(0))


def born(history: History, account: str, now: int) -> int:
    """The first instant at which some budgets name the account, since its ledger has been there."""
    ledger, plain = parted(account)
    named = [at for at, budgets in history.budgets if any(below(leaf, plain) for leaf in leaves_of(budgets))]
    return max(opened(history, ledger, now), min(named))


def capacity_at(history: History, ledger: str, at: int, now: int) -> Fraction:
    """C; before the ledger began, all that is installed."""
    since = opened(history, ledger, now)
    pools = pools_at(history, ledger, max(at, since))
    if at < since:
        return Fraction(sum(history.pools[number].charge_units for number in pools))
    return Fraction(sum(charge_capacity(history, at)[number] for number in pools))


# --- what is compared ------------------------------------------------------------------------------------------------
def entitlement(history: History, account: str, now: int, window: int) -> Fraction:
    return _integral(history, account, now - window, now, now)


def usage(history: History, account: str, now: int, window: int, user: str | None = None) -> Fraction:
    """Charged in the window, less credits; an account's time before its first day counts as delivered at par."""
    start, total = now - window, Fraction(0)
    ledger, _ = parted(account)
    for run in _charged(history, account, user):
        rate = charge(run.asked, history.pools[run.pool])
        total += rate * _time_in(history, ledger, run, start, now)
        if (
            run.outcome is Outcome.NODE_FAIL
            and start < run.end <= now
            and run.pool in pools_at(history, ledger, run.end)
        ):
            total -= rate * min(run.lost, run.end - run.started)
    if user is None and start < born(history, account, now):
        total += _integral(history, account, start, min(now, born(history, account, now)), now)
    return max(total, Fraction(0)) if user is None else total


def _time_in(history: History, ledger: str, run: Ran, begin: int, now: int) -> int:
    """How long the run counted in the ledger from `begin` to now, since the ledger has been there."""
    begin, end = max(begin, run.started, opened(history, ledger, now)), min(run.end, now)
    if end <= begin:
        return 0
    cuts = [begin, *[at for at, _ in history.budgets if begin < at < end], end]
    return sum(right - left for left, right in pairwise(cuts) if run.pool in pools_at(history, ledger, left))


def _integral(history: History, account: str, begin: int, end: int, now: int) -> Fraction:
    """S C added up; before its first day an account has the share of its first day."""
    ledger, _ = parted(account)
    first, since = born(history, account, now), opened(history, ledger, now)

    def rate(at: int) -> Fraction:
        return share_at(history, account, max(at, first)) * capacity_at(history, ledger, at, now)

    before = integral(history, lambda at: rate(min(at, since - 1)), begin, min(end, since)) if begin < since else 0
    return before + integral(history, rate, max(begin, since), max(end, since))


def commitment(history: History, account: str, now: int, user: str | None = None) -> Fraction:
    """What protected runs, fresh starts and holds will still use."""
    total = 0
    pools = pools_at(history, parted(account)[0], now)
    for run in _charged(history, account, user, started=False):
        if run.covers(now) and run.pool in pools:
            since = run.begin if run.started == NEVER else run.started
            until = since + max(run.minimum, FLOOR)
            total += charge(run.asked, history.pools[run.pool]) * max(0, until - now)
    for hold in history.holds:
        workload = history.fates[hold.holder].workload
        if hold.covers(now) and hold.pool in pools and _counts(history, hold, account, user):
            pool = history.pools[hold.pool]
            total += charge(workload, pool) * max(workload.shape.min_runtime, FLOOR)
    return Fraction(total)


def _counts(history: History, hold: Held, account: str, user: str | None) -> bool:
    workload = history.fates[hold.holder].workload
    mine = below(leaf_of(history, workload), parted(account)[1]) and user in (None, workload.user)
    return mine and workload.shape.min_runtime > 0


def _charged(history: History, account: str, user: str | None, *, started: bool = True) -> list[Ran]:
    """The account's charged runs, in any ledger."""
    return [
        run
        for run in history.runs
        if run.asked.shape.min_runtime > 0
        and (run.started < NEVER or not started)
        and below(leaf_of(history, run.asked), parted(account)[1])
        and user in (None, run.asked.user)
    ]


def used_and_committed(history: History, account: str, now: int, policy: Policy) -> Fraction:
    return usage(history, account, now, policy.window) + commitment(history, account, now)


def ratio(history: History, account: str, now: int, policy: Policy) -> float:
    """(U + K) / E, rounded once; infinite where nothing was promised."""
    promised = entitlement(history, account, now, policy.window)
    return float(used_and_committed(history, account, now, policy) / promised) if promised else inf
