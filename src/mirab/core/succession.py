"""Accounts that are renamed, merged or moved: what they used, were promised and have running goes to their heirs.

* Renamed or moved: the account itself lives on at the other path, with all that lies below it.
* Merged: window by window the sum of both; users of one name are one.
* Split: the part that names it in `Budget.formerly` goes on for it; the others are new and begin at par.
* Accounts above keep what was charged to them until now; what runs counts from now on above where the account is now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from mirab.core.ledgers import Ledger
from mirab.core.queues import Pending, User
from mirab.core.shares import Account, rows
from mirab.model.accounts import Budgets, ledger_path
from mirab.model.policy import Exemption
from mirab.model.units import AccountPath

if TYPE_CHECKING:
    from mirab.core.state import State


def successions(state: State, budgets: Budgets) -> dict[Account, AccountPath]:
    """The accounts that have an heir in a new tree, in each ledger, each with the path of the heir."""
    heirs = budgets.heirs(state.heirs)
    state.heirs = heirs
    going: dict[Account, AccountPath] = {}
    for name in _going_on(state, budgets):
        for old, path in heirs.items():
            account = state.accounts.get(ledger_path(name, old))
            if account is not None:
                going[account] = ledger_path(name, path)
    return going


def _going_on(state: State, budgets: Budgets) -> dict[str, Budgets]:
    """The ledgers that there are and will be, with their new trees."""
    present = [name for name, ledger in state.ledgers.items() if ledger.in_force]
    found = budgets.ledgers(state.cluster.pool_names)
    return {each.name: each.budgets for each in found if each.name in present}


def succeed(state: State, budgets: Budgets, going: dict[Account, AccountPath], waiting: Iterable[Pending]) -> None:
    """Let the heirs go on for the accounts `going`. Nobody waits in a queue meanwhile: `waiting` are all who did."""
    succession = _Succession(state, going)
    succession.part()
    for name, tree in _going_on(state, budgets).items():
        for path, share, parent in rows(tree, name):
            succession.fill(path, share, state.accounts[parent] if parent else None, state.ledgers[name])
    succession.finish(waiting)


class _Succession:
    """One change of the tree.

    Attributes:
        heir: what was merged -> what it was merged into.
    """

    def __init__(self, state: State, going: dict[Account, AccountPath]) -> None:
        self.state = state
        self.going = going
        self.before = dict(state.accounts)
        self.heir: dict[Account, Account] = {}

    def part(self) -> None:
        """Those that go elsewhere have no account's name until they are there, since others may come to theirs."""
        for number, source in enumerate(self.going):
            self._name(source, AccountPath(f"/{number}"))

    def fill(self, path: AccountPath, share: int, above: Account | None, ledger: Ledger) -> None:
        """Bring those that end at a path there; where nobody is then, an account is born."""
        state = self.state
        for source in [account for account, heir in self.going.items() if heir == path]:
            target = state.accounts.get(path)
            if target is None:
                self._move(source, above, path)
            else:
                self._merge(source, target)
            del self.going[source]
        if path not in state.accounts:
            state.accounts[path] = Account(path, above, share, ledger, state.now, state.policy.half_life)

    def _move(self, source: Account, above: Account | None, path: AccountPath) -> None:
        """The account, with all below it, stands at another path from now on."""
        lineage = above.lineage if above is not None else ()
        self._count_above(source, lineage)
        _detach(source)
        _attach(source, above)
        self._name(source, path)

    def _merge(self, source: Account, target: Account) -> None:
        """One account goes on for both, and for what lies below them."""
        state = self.state
        inside = target in source.lineage
        self._count_above(source, target.lineage if inside else target.lineage[:-1])
        was_leaf = source.leaf
        if not inside:
            target.take_over(source, state.now)
        for child in list(source.children):
            _attach(child, target)
            self._name(child, child.path)
            if child not in self.going:
                self._settle_below(child, AccountPath(f"{target.path}/{_name_of(child)}"))
        home = state.leaf_for(target.path) if was_leaf else target
        if home is None:
            raise AssertionError(f"{target.path} has no leaf")
        if was_leaf and home is not target:
            home.take_over(source, state.now)
        self._bring_people(source, home)
        _detach(source)
        del state.accounts[source.path]
        self.heir[source] = target

    def _settle_below(self, child: Account, path: AccountPath) -> None:
        there = self.state.accounts.get(path)
        if there is None:
            self._name(child, path)
        elif there is not child:
            self._merge(child, there)

    def _count_above(self, source: Account, lineage: tuple[Account, ...]) -> None:
        now = self.state.now
        for account in source.lineage[:-1]:
            if account not in lineage:
                account.count_in(source, now, -1)
        for account in lineage:
            if account not in source.lineage:
                account.count_in(source, now, +1)

    def _name(self, account: Account, path: AccountPath) -> None:
        """Its path, its lineage, and those of all below it; those that go elsewhere are named there."""
        accounts = self.state.accounts
        del accounts[account.path]
        account.path = path
        accounts[path] = account
        account.lineage = (*(account.parent.lineage if account.parent else ()), account)
        for child in account.children:
            self._name(child, child.path if child in self.going else AccountPath(f"{path}/{_name_of(child)}"))

    def _bring_people(self, source: Account, home: Account) -> None:
        """Users, runs, and reservations that are charged."""
        state = self.state
        became: dict[User, User] = {}
        for name, user in source.users.items():
            known = home.users.get(name)
            if known is None:
                home.users[name] = became[user] = user
                user.account = home
            else:
                known.take_over(user, state.now)
                became[user] = known
        for run in state.runs.values():
            if run.account is source:
                run.account, run.user = home, became[run.user]
        if source.exposed:
            exposed = sorted([*home.exposed.values(), *source.exposed.values()], key=lambda run: run.unprotected_at)
            home.exposed = {run.id: run for run in exposed}
            state.exposed_leaves[home] = None
            del state.exposed_leaves[source]
        for reservation_id, (account, rate) in state.charging.items():
            if account is source:
                state.charging[reservation_id] = home, rate

    def finish(self, waiting: Iterable[Pending]) -> None:
        """What names an account by its path names it by the new one; accounts stay in their order."""
        state = self.state
        moved = {path: now for path, account in self.before.items() if (now := self._now(account).path) != path}
        places = {account: place for place, account in enumerate(self.before.values())}
        found = sorted(state.accounts.values(), key=lambda account: places.get(account, len(places)))
        state.accounts = {account.path: account for account in found}
        for run in state.runs.values():
            account = run.workload.account
            run.workload = replace(run.workload, account=moved.get(account, account))
        for pending in [*waiting, *(held for held, _ in state.held.values()), *state.rejected.values()]:
            self._rename(pending, moved)
        for kept in (state.exemptions, state.exemptions_in_force):
            kept.update({key: _follow(exemption, moved) for key, exemption in kept.items()})
        for key, reservation in state.reservations.items():
            account = AccountPath(reservation.account)
            state.reservations[key] = replace(reservation, account=moved.get(account, account))

    def _rename(self, pending: Pending, moved: dict[AccountPath, AccountPath]) -> None:
        account, told = pending.workload.account, pending.waiting
        if account in moved:
            pending.workload = replace(pending.workload, account=moved[account])
        if told is not None and told.account in moved:
            leaf = self.state.leaf_for(moved[told.account])
            pending.waiting = None if leaf is None else replace(told, account=leaf.path)

    def _now(self, account: Account) -> Account:
        while account in self.heir:
            account = self.heir[account]
        return account


def _detach(account: Account) -> None:
    if account.parent is not None:
        account.parent.children.remove(account)


def _attach(account: Account, above: Account | None) -> None:
    account.parent = above
    if above is not None:
        above.children.append(account)
        above.leaf = False


def _name_of(account: Account) -> str:
    return account.path.rpartition("/")[2]


def _follow(exemption: Exemption, moved: dict[AccountPath, AccountPath]) -> Exemption:
    account, donor = AccountPath(exemption.account), AccountPath(exemption.donor)
    return replace(exemption, account=moved.get(account, account), donor=moved.get(donor, donor))
