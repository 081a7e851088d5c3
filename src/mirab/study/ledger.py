"""The leaves of the tree of accounts, kept in step with capacity, budgets and exceptions."""

from __future__ import annotations

from bisect import insort
from dataclasses import replace

from mypy_extensions import mypyc_attr

from mirab.model.accounts import Budgets
from mirab.model.policy import Exemption, Reservation
from mirab.model.units import AccountPath, ChargeRate, Instant
from mirab.study.demand import PoolSet
from mirab.study.owed import Leaf
from mirab.study.shares import REST, leaf_of, leaf_shares


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Claim:
    """Nodes reserved for an account, charged from `begin` to `end` whether they are used or not.

    Attributes:
        rate: in milli-units; `accepted`: the pool that they are in, as a set.
        counted: it counts now.
    """

    __slots__ = ("accepted", "begin", "counted", "end", "leaf", "rate")

    def __init__(self, leaf: Leaf, rate: ChargeRate, accepted: PoolSet, begin: Instant, end: Instant) -> None:
        self.leaf = leaf
        self.rate = rate
        self.accepted = accepted
        self.begin = begin
        self.end = end
        self.counted = False

    def count(self, active: bool) -> None:
        """Let it count, or not: what is reserved is wanted and delivered."""
        if active != self.counted:
            sign = 1 if active else -1
            self.counted = active
            self.leaf.charged_rate += sign * self.rate
            self.leaf.wanted.add(self.accepted, sign * self.rate)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Ledger:
    """Every leaf by its path, in the order of the budgets.

    Attributes:
        capacity: milli-units of the schedulable nodes, by pool.
    """

    def __init__(self, budgets: Budgets, capacity: list[ChargeRate], now: Instant) -> None:
        self._budgets = budgets
        self._heirs = budgets.heirs()
        self._exemptions: dict[str, Exemption] = {}
        self._paying: dict[AccountPath, Leaf] = {}
        self._claims: dict[str, Claim] = {}
        self._turns: list[Instant] = []
        self._shares = leaf_shares(budgets)
        self.capacity = capacity
        self._whole = sum(capacity)
        self.leaves: dict[AccountPath, Leaf] = {path: Leaf(path, share, now) for path, share in self._shares.items()}

    def leaf(self, account: AccountPath, now: Instant) -> Leaf:
        """The leaf that pays for an account's work; one of share 0 if the budgets do not know it."""
        known = self._paying.get(account)
        if known is None:
            path = leaf_of(self._heirs.get(account, account), self._shares)
            if path not in self.leaves:
                self.leaves[path] = Leaf(path, 0, now)
            known = self._paying[account] = self.leaves[path]
        return known

    def reckon(self, leaf: Leaf) -> None:
        leaf.reckon(self.capacity, self._whole)

    def set_capacity(self, capacity: list[ChargeRate], now: Instant) -> None:
        self.capacity = capacity
        self._whole = sum(capacity)
        self._renew(now)

    def set_budgets(self, budgets: Budgets, now: Instant) -> None:
        """A leaf that is renamed goes on under its new path. One that is merged into another keeps what it has and what
        it runs in a row of its own; what comes later is the other's."""
        self._budgets = budgets
        self._heirs = budgets.heirs(self._heirs)
        self._exemptions = {key: self._follow(exemption) for key, exemption in self._exemptions.items()}
        shares = leaf_shares(budgets)
        leaves: dict[AccountPath, Leaf] = {}
        for path, leaf in self.leaves.items():
            now_at = self._path_of(path, shares)
            leaf.path = path if now_at in self.leaves or now_at in leaves else now_at
            leaves[leaf.path] = leaf
        self.leaves = leaves
        self.renew_shares(now)

    def _path_of(self, path: AccountPath, shares: dict[AccountPath, int]) -> AccountPath:
        """Where the heir of a leaf's account pays; the path itself where there is none."""
        heir = self._heirs.get(AccountPath(path.removesuffix(f"/{REST}")))
        return path if heir is None else leaf_of(heir, shares)

    def _follow(self, exemption: Exemption) -> Exemption:
        account, donor = AccountPath(exemption.account), AccountPath(exemption.donor)
        heirs = self._heirs
        return replace(exemption, account=heirs.get(account, account), donor=heirs.get(donor, donor))

    def grant(self, exemption: Exemption, now: Instant) -> None:
        """An exception: extra shares begin and end by themselves (see `next_turn`)."""
        if exemption.kind != "extra-share":
            return
        self._exemptions[exemption.id] = self._follow(exemption)
        self._turn_at(exemption.begin, exemption.end, now)
        self.renew_shares(now)

    def revoke(self, exemption_id: str, now: Instant) -> None:
        if self._exemptions.pop(exemption_id, None) is not None:
            self.renew_shares(now)

    def reserve(self, reservation: Reservation, pool: int, rate: ChargeRate, now: Instant) -> None:
        """Nodes of a pool have been set aside for a reservation; they are charged whole."""
        self.unreserve(reservation.id, now)
        leaf = self.leaf(AccountPath(reservation.account), now)
        self._claims[reservation.id] = Claim(leaf, rate, 1 << pool, reservation.begin, reservation.end)
        self._turn_at(reservation.begin, reservation.end, now)
        self._count_claims(now)

    def unreserve(self, reservation_id: str, now: Instant) -> None:
        """They have been given back."""
        claim = self._claims.pop(reservation_id, None)
        if claim is not None:
            claim.leaf.settle(now)
            claim.count(False)
            self.reckon(claim.leaf)

    def _count_claims(self, now: Instant) -> None:
        for claim in self._claims.values():
            claim.leaf.settle(now)
            claim.count(claim.begin <= now < claim.end)
            self.reckon(claim.leaf)

    def _turn_at(self, begin: Instant, end: Instant, now: Instant) -> None:
        for turn in (begin, end):
            if turn > now:
                insort(self._turns, turn)

    @property
    def next_turn(self) -> Instant | None:
        """When a share or a reservation begins or ends next although no fact says so."""
        return self._turns[0] if self._turns else None

    def turn(self, now: Instant) -> None:
        """An extra share or a reservation begins or ends now."""
        while self._turns and self._turns[0] <= now:
            self._turns.pop(0)
        self.renew_shares(now)
        self._count_claims(now)

    def renew_shares(self, now: Instant) -> None:
        """Shares by the budgets and exceptions in force. Leaves that are gone keep what they have, at share 0."""
        self._shares = leaf_shares(self._budgets, self._exemptions.values(), now)
        self._paying.clear()
        for path in self._shares:
            self.leaf(path, now)
        for path, leaf in self.leaves.items():
            leaf.settle(now)
            leaf.share = self._shares.get(path, 0)
        self._renew(now)

    def _renew(self, now: Instant) -> None:
        for leaf in self.leaves.values():
            leaf.settle(now)
            self.reckon(leaf)

    def mark(self, now: Instant) -> None:
        for leaf in self.leaves.values():
            leaf.mark(now)
