"""Who stands where, as one decision sees it: ratios from the meters, grown by what it has given away so far."""

from __future__ import annotations

from mirab.core.caps import is_full
from mirab.core.ledgers import Ledger
from mirab.core.queues import User
from mirab.core.runs import Run
from mirab.core.shares import Account, compared, parting
from mirab.core.space import Space
from mirab.core.state import State
from mirab.model.units import Charge, Instant


class Claim:
    """`added` more of a leaf: whose runs may make room for it, as a decision stands. Each is worked out once.

    Attributes:
        may_take: by leaf, what `Standings.may_take` says of it.
        needed: by account, its ratio with so much more.
        givers: see `mirab.core.victims.givers`; None = nobody has asked yet.
    """

    __slots__ = ("added", "givers", "leaf", "may_take", "needed")

    def __init__(self, leaf: Account, added: Charge) -> None:
        self.leaf = leaf
        self.added = added
        self.may_take: dict[Account, bool] = {}
        self.needed: dict[Account, float] = {}
        self.givers: list[Account] | None = None


class Standings(Space):
    """Who stands where over the room there is: ratios and usages, each worked out once and kept up to date."""

    def __init__(self, state: State, now: Instant) -> None:
        super().__init__(state, now)
        self.given = 0
        """How often this decision has given something away: before the next time all standings stay as they are."""
        self._claims: dict[tuple[Account, Charge], Claim] = {}
        self.rivals: dict[Account, list[tuple[Account, Account, float]]] = {}
        self.above_share: list[Account] | None = None
        self._user_uncharged: dict[User, Charge] = {}
        self._given_uncharged: dict[Account, Charge] = {}
        self._weighed: dict[Account, tuple[Charge, int]] = {}
        self._given: dict[Account | User, Charge] = {}
        self._ratios: dict[Account, float] = {}
        self._uncharged_ratios: dict[Account, float] = {}
        self._user_usage: dict[User, Charge] = {}
        self._all_used: dict[Ledger, Charge] = {}
        self._first: dict[Ledger, Account | None] = {}

    def weigh(self, account: Account) -> tuple[Charge, int]:
        """(U + K with what this decision has added, E in parts of `WHOLE`)."""
        weighed = self._weighed.get(account)
        if weighed is None:
            if self.policy.order == "fair-tree":
                used, promised = account.used(self.now), account.share * max(1, self._total_used(account.ledger))
            else:
                used, promised = account.weigh(self.now)
            weighed = used + self._given.get(account, 0), promised
            self._weighed[account] = weighed
        return weighed

    def _total_used(self, ledger: Ledger) -> Charge:
        """Decayed usage of all: Fair Tree compares shares of what was used with shares of what was promised."""
        total = self._all_used.get(ledger)
        if total is None:
            total = self._all_used[ledger] = sum(root.used(self.now) for root in self.state.roots_of(ledger))
        return total

    def ratio(self, account: Account) -> float:
        """(U + K) / E as this decision has made it."""
        ratio = self._ratios.get(account)
        if ratio is None:
            used, promised = self.weigh(account)
            ratio = self._ratios[account] = compared(used, promised)
        return ratio

    def ratio_with(self, account: Account, added: Charge) -> float:
        """The same with so much more."""
        used, promised = self.weigh(account)
        return compared(used + added, promised)

    def claim(self, leaf: Account, added: Charge) -> Claim:
        """`added` more of a leaf, until something is given away."""
        claim = self._claims.get((leaf, added))
        if claim is None:
            claim = self._claims[leaf, added] = Claim(leaf, added)
        return claim

    def may_take(self, claim: Claim, theirs: Account) -> bool:
        """Whether runs of leaf `theirs` past their minimum may make room for the claim.

        Theirs is not below its share, and where the paths part the ratios differ by more than the margin.
        """
        may = claim.may_take.get(theirs)
        if may is None:
            may = claim.may_take[theirs] = self._may_take(claim, theirs)
        return may

    def _may_take(self, claim: Claim, theirs: Account) -> bool:
        mine = claim.leaf
        if mine.ledger is not theirs.ledger or self.ratio(theirs) < 1.0 or self.weigh(mine)[1] <= 0:
            return False
        ours, against = self.sides(mine, theirs)
        return self.needed(claim, ours) <= self.ratio(against) * 1000

    def needed(self, claim: Claim, ours: Account) -> float:
        """The ratio that an account must have, in parts per thousand, for ours on the other side to take from it."""
        needed = claim.needed.get(ours)
        if needed is None:
            ratio = self.ratio_with(ours, claim.added) if claim.added else self.ratio(ours)
            needed = claim.needed[ours] = ratio * (1000 + self.policy.margin)
        return needed

    def may_take_inside(self, mine: User, run: Run, added: Charge) -> bool:
        """The same between two users of one leaf: by U + K, since all of them are promised as much; and no run that has
        its turn, because too many before it came to nothing.
        """
        theirs = run.user
        if mine is theirs or run.has_its_turn(self.now):
            return False
        bound = (self.user_usage(mine) + added) * (1000 + self.policy.margin)
        return bound <= self.user_usage(theirs) * 1000

    def sides(self, mine: Account, theirs: Account) -> tuple[Account, Account]:
        """Whose ratios are compared: the two accounts where the paths part."""
        sides = self.state.partings.get((mine, theirs))
        if sides is None:
            sides = self.state.partings[mine, theirs] = parting(mine, theirs)
        return sides

    def first_leaf(self, ledger: Ledger) -> Account | None:
        """The leaf with waiting charged work, not at its cap, that goes first in a ledger as this decision began."""
        if ledger not in self._first:
            first: Account | None = None
            for account in self.state.accounts.values():
                if (
                    account.waiting
                    and account.leaf
                    and account.ledger is ledger
                    and not (account.capped and is_full(account))
                    and (first is None or self.standing(account) < self.standing(first))
                ):
                    first = account
            self._first[ledger] = first
        return self._first[ledger]

    def standing(self, leaf: Account) -> tuple[bool, float]:
        ratio = self.ratio(leaf)
        return ratio >= 1.0, ratio

    def user_usage(self, user: User) -> Charge:
        used = self._user_usage.get(user)
        if used is None:
            used = self._user_usage[user] = self.state.user_usage(user, self.now) + self._given.get(user, 0)
        return used

    def user_uncharged(self, user: User) -> Charge:
        """Uncharged usage of a user, with what this decision has given."""
        used = self._user_uncharged.get(user)
        if used is None:
            used = self._user_uncharged[user] = user.uncharged.between(user.account.window.at(self.now)[0], self.now)
        return used

    def uncharged_ratio(self, account: Account) -> float:
        """Uncharged usage over entitlement, with what this decision has given."""
        ratio = self._uncharged_ratios.get(account)
        if ratio is None:
            used = account.uncharged.between(account.window.at(self.now)[0], self.now)
            ratio = compared(used + self._given_uncharged.get(account, 0), account.promised(self.now))
            self._uncharged_ratios[account] = ratio
        return ratio

    def add_uncharged(self, user: User, amount: Charge) -> None:
        self.given += 1
        self._user_uncharged[user] = self.user_uncharged(user) + amount
        for account in user.account.lineage:
            self._given_uncharged[account] = self._given_uncharged.get(account, 0) + amount
            self._uncharged_ratios.pop(account, None)

    def add_commitment(self, user: User, amount: Charge) -> None:
        """This decision gives so much to the user: what is known of the standings is as good as forgotten."""
        self.given += 1
        self._claims.clear()
        self.rivals.clear()
        self.above_share = None
        given = self._given
        for account in user.account.lineage:
            given[account] = given.get(account, 0) + amount
            weighed = self._weighed.get(account)
            if weighed is not None:
                self._weighed[account] = weighed[0] + amount, weighed[1]
            self._ratios.pop(account, None)
        given[user] = given.get(user, 0) + amount
        self._user_usage.pop(user, None)
