"""Usage, entitlement, commitment and ratio of an account, by adding up everything that happened inside the window."""

from __future__ import annotations

from fractions import Fraction
from math import inf

from mirab.model.events import Outcome
from mirab.model.policy import Policy
from tests.naive.amounts import charge, charge_capacity, integral, leaf_of, leaves_of
from tests.naive.history import NEVER, Held, History, Ran

FLOOR = 15 * 60_000
"""Every charged run counts as committed for at least a quarter of an hour."""


def path_of(leaf: str) -> list[str]:
    """The accounts from the top of the tree down to a leaf."""
    names = leaf.split("/")
    return ["/".join(names[: depth + 1]) for depth in range(len(names))]


def below(leaf: str, account: str) -> bool:
    return account in path_of(leaf)


def share_at(history: History, account: str, at: int) -> Fraction:
    budgets = [budgets for since, budgets in history.budgets if since <= at][-1]
    return sum((share for leaf, share in leaves_of(budgets).items() if below(leaf, account)), Fraction(0))


def born(history: History, account: str) -> int:
    """The first instant at which some budgets name the account; the ledger itself begins at 0."""
    named = [at for at, budgets in history.budgets if any(below(leaf, account) for leaf in leaves_of(budgets))]
    return max(0, min(named))


def capacity_at(history: History, at: int) -> Fraction:
    """C; before the ledger began, all that is installed."""
    if at < 0:
        return Fraction(sum(pool.charge_units for pool in history.pools))
    return Fraction(sum(charge_capacity(history, at)))


def promised_rate(history: History, account: str, at: int) -> Fraction:
    """S C; before its first day an account has the share of its first day."""
    return share_at(history, account, max(at, born(history, account))) * capacity_at(history, at)


def entitlement(history: History, account: str, now: int, window: int) -> Fraction:
    return _integral(history, account, now - window, now)


def usage(history: History, account: str, now: int, window: int, user: str | None = None) -> Fraction:
    """Charged in the window, less credits; an account's time before its first day counts as delivered at par."""
    start = now - window
    total = Fraction(0)
    for run in _charged(history, account, user):
        rate = charge(run.asked, history.pools[run.pool])
        total += rate * max(0, min(run.end, now) - max(run.started, start))
        if run.outcome is Outcome.NODE_FAIL and start < run.end <= now:
            total -= rate * min(run.lost, run.end - run.started)
    if user is None and start < born(history, account):
        total += _integral(history, account, start, min(now, born(history, account)))
    return max(total, Fraction(0)) if user is None else total


def _integral(history: History, account: str, begin: int, end: int) -> Fraction:
    before = integral(history, lambda at: promised_rate(history, account, at), begin, min(end, 0)) if begin < 0 else 0
    return before + integral(history, lambda at: promised_rate(history, account, at), max(begin, 0), max(end, 0))


def commitment(history: History, account: str, now: int, user: str | None = None) -> Fraction:
    """What protected runs, fresh starts and holds will still use."""
    total = 0
    for run in _charged(history, account, user, started=False):
        if run.covers(now):
            since = run.begin if run.started == NEVER else run.started
            until = since + max(run.minimum, FLOOR)
            total += charge(run.asked, history.pools[run.pool]) * max(0, until - now)
    for hold in history.holds:
        workload = history.fates[hold.holder].workload
        if hold.covers(now) and _counts(history, hold, account, user):
            pool = history.pools[hold.pool]
            total += charge(workload, pool) * max(workload.shape.min_runtime, FLOOR)
    return Fraction(total)


def _counts(history: History, hold: Held, account: str, user: str | None) -> bool:
    workload = history.fates[hold.holder].workload
    mine = below(leaf_of(history, workload), account) and user in (None, workload.user)
    return mine and workload.shape.min_runtime > 0


def _charged(history: History, account: str, user: str | None, *, started: bool = True) -> list[Ran]:
    return [
        run
        for run in history.runs
        if run.asked.shape.min_runtime > 0
        and (run.started < NEVER or not started)
        and below(leaf_of(history, run.asked), account)
        and user in (None, run.asked.user)
    ]


def used_and_committed(history: History, account: str, now: int, policy: Policy) -> Fraction:
    return usage(history, account, now, policy.window) + commitment(history, account, now)


def ratio(history: History, account: str, now: int, policy: Policy) -> float:
    """(U + K) / E, rounded once; infinite where nothing was promised."""
    promised = entitlement(history, account, now, policy.window)
    return float(used_and_committed(history, account, now, policy) / promised) if promised else inf
