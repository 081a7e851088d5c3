"""The tree of accounts: what each was promised, what it got, and how the two compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from operator import truediv

from mypy_extensions import mypyc_attr

from mirab.core.ledgers import Ledger
from mirab.core.meter import Commitment, Meter, add_up, usage_meter
from mirab.core.queues import Queue, ShapeInfo, User
from mirab.core.runs import Run
from mirab.model.accounts import Budgets, covers, ledger_path, left_by, parent_of, rest_path
from mirab.model.policy import Exemption
from mirab.model.units import (
    WHOLE,
    AccountPath,
    Charge,
    Duration,
    Instant,
    RunId,
    UserName,
)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Account:
    """One node of the tree.

    Attributes:
        share: its part of the whole cluster, in parts of `WHOLE`; 0 while closed.
        running: charge rate of all that runs in it and below it, whether it is charged or not.
        waiting: how many charged workloads wait there.
        lineage: from the root's child down to itself: paths part where two lineages first differ.
        window: that of its `ledger`.
        held: charge that holds granted to its gangs have committed.
        shapes: its charged queues, by shape.
        home: the account of its name in the main ledger; itself there. Caps are kept and GPUs are counted there, over
            all ledgers.
        capped: those homes of its lineage that have a cap on GPUs.
        gpus_max, gang_max: its caps on GPUs at once and on those of one piece of work; `gpus`: those that run.
        exposed: its runs that the contract no longer protects, in the order in which their minimums ended.
    """

    __slots__ = (
        "_par_share", "_par_until", "_pars", "capped", "children", "commitment", "entitlement", "equal_users",
        "exposed", "gang_max", "gpus", "gpus_max", "held", "home",
        "leaf", "ledger", "lineage", "parent", "path", "running", "save_for_gangs", "shapes", "share", "uncharged",
        "usage", "users", "waiting", "window",
    )  # fmt: skip

    def __init__(self, path: AccountPath, parent: Account | None, share: int, ledger: Ledger, now: Instant,
                 half_life: Duration | None) -> None:  # fmt: skip
        self.path = path
        self.parent = parent
        self.children: list[Account] = []
        self.leaf = True
        self.lineage: tuple[Account, ...] = (*(parent.lineage if parent else ()), self)
        self.home: Account = self
        self.ledger = ledger
        self.window = ledger.window
        self.share = share
        self.entitlement = Meter(0, share)
        self._par_share, self._par_until = share, self.window.capacity.total(now)
        self._pars: tuple[tuple[int, int], ...] = ()
        self.usage = usage_meter(now, half_life)
        self.uncharged = usage_meter(now, half_life)
        self.commitment = Commitment()
        self.held: Charge = 0
        self.users: dict[UserName, User] = {}
        self.exposed: dict[RunId, Run] = {}
        self.shapes: dict[ShapeInfo, dict[Queue, None]] = {}
        self.running = 0
        self.gpus = 0
        self.gpus_max: int | None = None
        self.gang_max: int | None = None
        self.capped: tuple[Account, ...] = ()
        self.waiting = 0
        self.save_for_gangs = False
        self.equal_users = True
        if parent:
            parent.children.append(self)
            parent.leaf = False

    def __repr__(self) -> str:
        return f"Account({self.path})"

    def used(self, now: Instant) -> Charge:
        """U: what was charged in the window; the part before the first day counts as delivered at par."""
        start, capacity_start, _ = self.window.at(now)
        used = self.usage.between(start, now)
        if self._par_until > capacity_start:
            used += self._par_share * (self._par_until - capacity_start) // WHOLE
            if self._pars:
                used += self._par_of_others(capacity_start)
        return used if used > 0 else 0

    def par(self, now: Instant) -> Charge:
        """What of `used` was never charged: the part of the window before its first day, delivered at par."""
        start = self.window.at(now)[1]
        return max(0, self._par_share * (self._par_until - start) // WHOLE) + self._par_of_others(start)

    def _par_of_others(self, start: Charge) -> Charge:
        """That of the accounts that it goes on for, and that began before it or shared its first day."""
        return sum(share * (until - start) // WHOLE for share, until in self._pars if until > start)

    def promised(self, now: Instant) -> int:
        """E in charge times parts of `WHOLE`: the integral of share x capacity over the window."""
        _, start, end = self.window.at(now)
        if self.entitlement.steady:
            return self.share * (end - start)
        return self.entitlement.between(start, end)

    def committed(self, now: Instant) -> Charge:
        """K: what its protected runs, its fresh starts and its holds will still use."""
        return self.commitment.at(now) + self.held

    def weigh(self, now: Instant) -> tuple[Charge, int]:
        """(U + K, E in charge times parts of `WHOLE`)."""
        return self.used(now) + self.committed(now), self.promised(now)

    def ratio(self, now: Instant) -> float:
        """(U + K) / E; infinite where nothing was promised."""
        return compared(*self.weigh(now))

    def take_over(self, other: Account, now: Instant) -> None:
        """What another used, was promised and has running counts here: this account goes on for it."""
        self.entitlement.absorb(other.entitlement)
        self.share += other.share
        pars = [(self._par_share, self._par_until), *self._pars, (other._par_share, other._par_until), *other._pars]
        pars.sort(key=lambda par: -par[1])
        self._par_share, self._par_until = pars[0]
        self._pars = tuple(pars[1:])
        add_up(self.usage, other.usage, now)
        add_up(self.uncharged, other.uncharged, now)
        self.commitment.shift(other.commitment)
        self.held += other.held
        self.running += other.running
        self.gpus += other.gpus

    def count_in(self, other: Account, now: Instant, sign: int) -> None:
        """What another has running counts here from now on (+1), or no more (-1). What it used stays where it is."""
        self.usage.change_rate(now, sign * other.usage.rate)
        self.uncharged.change_rate(now, sign * other.uncharged.rate)
        self.commitment.shift(other.commitment, sign)
        self.held += sign * other.held
        self.running += sign * other.running
        self.gpus += sign * other.gpus

    def set_share(self, now: Instant, share: int) -> None:
        """From now on; what was promised until now stays promised."""
        if share != self.share:
            self.share = share
            self.entitlement.set_rate(self.window.capacity.total(now), share)


def rows(budgets: Budgets, ledger: str = "") -> Iterator[tuple[AccountPath, int, AccountPath | None]]:
    """(path in the ledger, share of the whole, parent) of every account and implicit child, parents first."""
    for plain_path, budget, share in budgets.walk():
        parent = parent_of(plain_path)
        path = ledger_path(ledger, plain_path)
        yield path, share, ledger_path(ledger, parent) if parent else None
        if budget.children:
            yield rest_path(path), share * left_by(budget.children) // WHOLE, path


def compared(used: Charge, promised: int) -> float:
    """The ratio (U + K) / E, `promised` being charge times parts of `WHOLE`. Infinite where nothing was promised.

    One correctly rounded division of integers; compiled, the operator itself would round integers below 2**62 first.
    """
    if promised <= 0:
        return inf
    ratio: float = truediv(used * WHOLE, promised)
    return ratio


def parting(one: Account, other: Account) -> tuple[Account, Account]:
    """The two accounts at the level where the paths part: siblings, one on each side.

    What still runs for an account that has been divided since counts with its implicit child.
    """
    for mine, yours in zip(one.lineage, other.lineage, strict=False):
        if mine is not yours:
            return mine, yours
    if len(one.lineage) < len(other.lineage):
        return rest_of(one), other.lineage[len(one.lineage)]
    return one.lineage[len(other.lineage)], rest_of(other)


def rest_of(account: Account) -> Account:
    """The implicit child of an inner account."""
    return next(child for child in account.children if child.path == rest_path(account.path))


def extra_shares(
    shares: dict[AccountPath, int], exemptions: Iterable[Exemption], unassigned: int, ledger: str = ""
) -> dict[AccountPath, int]:
    """What exceptions in force add to each account of a ledger, and take from their donors or the unassigned rest."""
    extra = dict.fromkeys(shares, 0)
    for exemption in exemptions:
        if exemption.kind == "extra-share":
            account = ledger_path(ledger, exemption.account)
            donor = ledger_path(ledger, exemption.donor) if exemption.donor else AccountPath("")
            given = min(exemption.share, shares[donor] if donor else unassigned)
            for path in extra:
                extra[path] += _part_of(given, account, path, shares)
                extra[path] -= _part_of(given, donor, path, shares)
    return extra


def _part_of(share: int, taker: str, path: AccountPath, shares: dict[AccountPath, int]) -> int:
    """What a share given to (or by) one account is for another: all of it above, in proportion below."""
    if not taker or not (covers(path, taker) or covers(taker, path)):
        return 0
    if covers(path, taker):
        return share
    return share * shares[path] // max(1, shares[AccountPath(taker)])
