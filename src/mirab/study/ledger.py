"""The leaves of the trees of accounts, kept in step with capacity, budgets and exceptions.

Pools that some pay for alone have a tree of their own beside the main one: a *realm* each, with leaves of its own.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import replace

from mypy_extensions import mypyc_attr

from mirab.core.promises import promises
from mirab.model.accounts import REST, Budgets, Division, ledger_of, ledger_path, plain
from mirab.model.policy import Exemption, Reservation
from mirab.model.resources import Cluster, Shape
from mirab.model.units import AccountPath, ChargeRate, Instant
from mirab.study.demand import PoolSet
from mirab.study.owed import Leaf
from mirab.study.shares import leaf_of, leaf_shares


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Claim:
    """Nodes reserved for an account, charged from `begin` to `end` whether they are used or not.

    Attributes:
        rate: in milli-units; `accepted`: the pool that they are in, as a set.
        account: whose it is; `pool`: the number of that pool.
        counted: it counts now.
    """

    __slots__ = ("accepted", "account", "begin", "counted", "end", "leaf", "pool", "rate")

    def __init__(self, reservation: Reservation, leaf: Leaf, rate: ChargeRate, pool: int) -> None:
        self.account = AccountPath(reservation.account)
        self.leaf = leaf
        self.rate = rate
        self.pool = pool
        self.accepted: PoolSet = 1 << pool
        self.begin = reservation.begin
        self.end = reservation.end
        self.counted = False

    def count(self, active: bool) -> None:
        """Let it count, or not: what is reserved is wanted and delivered."""
        if active != self.counted:
            sign = 1 if active else -1
            self.counted = active
            self.leaf.charged_rate += sign * self.rate
            self.leaf.wanted.add(self.accepted, sign * self.rate)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Realm:
    """One ledger of the budgets: pools that are accounted for together.

    Attributes:
        accepted: its pools, as a set.
        shares: leaf -> share of all of it, with the extra shares in force.
        capacity: milli-units of its schedulable nodes, by pool, 0 for those of others; `whole`: their sum.
    """

    __slots__ = ("_budgets", "accepted", "capacity", "name", "shares", "whole")

    def __init__(self, division: Division) -> None:
        self.name = division.name
        self.accepted: PoolSet = sum(1 << pool for pool in division.pools)
        self._budgets = division.budgets
        self.shares: dict[AccountPath, int] = {}
        self.capacity: list[ChargeRate] = []
        self.whole: ChargeRate = 0

    def renew(self, exemptions: Iterable[Exemption], now: Instant) -> None:
        """Shares by the budgets and the exceptions in force."""
        found = leaf_shares(self._budgets, exemptions, now)
        self.shares = {ledger_path(self.name, path): share for path, share in found.items()}

    def set_capacity(self, capacity: list[ChargeRate]) -> None:
        """Its part of the milli-units of all pools."""
        self.capacity = [units if self.accepted >> pool & 1 else 0 for pool, units in enumerate(capacity)]
        self.whole = sum(self.capacity)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Ledger:
    """Every leaf by its path, in the order of the budgets; those of a pool's own tree as ``h100:vision``.

    Attributes:
        capacity: milli-units of the schedulable nodes, by pool.
        divided: there is a pool with a tree of its own; `parted`: there is, or was.
    """

    def __init__(self, budgets: Budgets, cluster: Cluster, capacity: list[ChargeRate], now: Instant) -> None:
        self._budgets = budgets
        self._cluster = cluster
        self._heirs = budgets.heirs()
        self._exemptions: dict[str, Exemption] = {}
        self._paying: dict[AccountPath, Leaf] = {}
        self._claims: dict[str, Claim] = {}
        self._turns: list[Instant] = []
        self.capacity = capacity
        self.leaves: dict[AccountPath, Leaf] = {}
        self.parted = False
        self._homes: dict[tuple[AccountPath, Shape], str] = {}
        self._divide(now)
        for path, share in self._shares.items():
            self.leaves[path] = Leaf(path, share, now)

    def _divide(self, now: Instant) -> None:
        """The realms, and the shares in each."""
        found = self._budgets.ledgers(self._cluster.pool_names)
        self._realms = {each.name: Realm(each) for each in found}
        self._by_pool = [next(each.name for each in found if pool in each.pools) for pool in range(len(self.capacity))]
        self._main = self._realms[""]
        self.divided = len(self._realms) > 1
        self.parted = self.parted or self.divided
        self._share_out(now)
        self._set_capacity()

    def _share_out(self, now: Instant) -> None:
        self._shares: dict[AccountPath, int] = {}
        self._homes.clear()
        for realm in self._realms.values():
            realm.renew(self._exemptions.values(), now)
            self._shares |= realm.shares

    def _set_capacity(self) -> None:
        for realm in self._realms.values():
            realm.set_capacity(self.capacity)

    # --- which of them -----------------------------------------------------------------------------------------------
    def of_pool(self, pool: int) -> str:
        """The name of the realm that a pool belongs to."""
        return self._by_pool[pool]

    def home(self, account: AccountPath, shape: Shape) -> str:
        """The name of the realm in which an account's work of a shape waits (see `promises`)."""
        known = self._homes.get((account, shape))
        if known is None:
            found = promises(shape, self._cluster, self._by_pool, lambda name: self._share(ledger_path(name, account)))
            known = self._homes[account, shape] = found[0][0] if found else ""
        return known

    def _share(self, account: AccountPath) -> int:
        return self._shares.get(leaf_of(self._heir(account), self._shares), 0)

    def accepted(self, name: str) -> PoolSet:
        """The pools of a realm."""
        return self._realms[name].accepted if name in self._realms else 0

    def share_of_all(self, leaf: Leaf) -> int:
        """Its share of all that is installed, in parts of `WHOLE`, whatever its realm."""
        pools = self._cluster.pools
        own = sum(
            pool.charge_units for pool, name in zip(pools, self._by_pool, strict=True) if name == ledger_of(leaf.path)
        )
        return leaf.share * own // max(1, self._cluster.charge_units)

    def parts(self) -> list[tuple[str, list[str], ChargeRate]]:
        """(name, pools, installed milli-units) of each realm, the main one first."""
        found = []
        for name in self._realms:
            pools = [pool for pool, realm in zip(self._cluster.pools, self._by_pool, strict=True) if realm == name]
            found.append((name, [pool.name for pool in pools], sum(pool.charge_units for pool in pools)))
        return found

    def leaf(self, account: AccountPath, now: Instant) -> Leaf:
        """The leaf that pays for an account's work; one of share 0 if the budgets do not know it.

        Args:
            account: as its realm calls it: ``h100:vision/anna``.
        """
        known = self._paying.get(account)
        if known is None:
            path = leaf_of(self._heir(account), self._shares)
            if path not in self.leaves:
                self.leaves[path] = Leaf(path, 0, now)
            known = self._paying[account] = self.leaves[path]
        return known

    def _heir(self, account: AccountPath) -> AccountPath:
        path = plain(account)
        return ledger_path(ledger_of(account), self._heirs.get(path, path))

    def reckon(self, leaf: Leaf) -> None:
        realm = self._main
        if self.divided:
            realm = self._realms.get(ledger_of(leaf.path), realm)
        leaf.reckon(realm.capacity, realm.whole)

    def set_capacity(self, capacity: list[ChargeRate], now: Instant) -> None:
        self.capacity = capacity
        self._set_capacity()
        self._renew(now)

    def set_cluster(self, cluster: Cluster, capacity: list[ChargeRate], now: Instant) -> None:
        """Another cluster: which pools there are, and what they have."""
        same = cluster.pool_names == self._cluster.pool_names
        self._cluster, self.capacity = cluster, capacity
        if same:
            self.set_capacity(capacity, now)
        else:
            self._divide(now)
            self.renew_shares(now)

    def set_budgets(self, budgets: Budgets, now: Instant) -> None:
        """A leaf that is renamed goes on under its new path. One that is merged into another keeps what it has and what
        it runs in a row of its own; what comes later is the other's."""
        self._budgets = budgets
        self._heirs = budgets.heirs(self._heirs)
        self._exemptions = {key: self._follow(exemption) for key, exemption in self._exemptions.items()}
        self._divide(now)
        shares = self._shares
        leaves: dict[AccountPath, Leaf] = {}
        for path, leaf in self.leaves.items():
            now_at = self._path_of(path, shares)
            leaf.path = path if now_at in self.leaves or now_at in leaves else now_at
            leaves[leaf.path] = leaf
        self.leaves = leaves
        self.renew_shares(now)
        self._claim_anew(now)

    def _path_of(self, path: AccountPath, shares: dict[AccountPath, int]) -> AccountPath:
        """Where the heir of a leaf's account pays; the path itself where there is none."""
        heir = self._heirs.get(AccountPath(plain(path).removesuffix(f"/{REST}")))
        return path if heir is None else leaf_of(ledger_path(ledger_of(path), heir), shares)

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
        leaf = self._payer(AccountPath(reservation.account), pool, now)
        self._claims[reservation.id] = Claim(reservation, leaf, rate, pool)
        self._turn_at(reservation.begin, reservation.end, now)
        self._count_claims(now)

    def _payer(self, account: AccountPath, pool: int, now: Instant) -> Leaf:
        return self.leaf(ledger_path(self.of_pool(pool), account) if self.divided else account, now)

    def _claim_anew(self, now: Instant) -> None:
        """Where a realm was made or given up, what is reserved in its pool is charged in the one that has it now."""
        for claim in self._claims.values():
            if self.of_pool(claim.pool) != ledger_of(claim.leaf.path):
                claim.leaf.settle(now)
                claim.count(False)
                self.reckon(claim.leaf)
                claim.leaf = self._payer(claim.account, claim.pool, now)
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

    def turn(self, instant: Instant, now: Instant) -> None:
        """An extra share or a reservation begins or ends at an instant; `now`: the same, or the end of what is measured
        if it lies before."""
        while self._turns and self._turns[0] <= instant:
            self._turns.pop(0)
        self.renew_shares(now)
        self._count_claims(now)

    def renew_shares(self, now: Instant) -> None:
        """Shares by the budgets and exceptions in force. Leaves that are gone keep what they have, at share 0."""
        self._share_out(now)
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
