"""The tree of accounts as the budgets have it, and the queues of those who wait: what is brought in line together."""

from __future__ import annotations

from typing import TypeVar

from mypy_extensions import mypyc_attr

from mirab.core.caps import install_caps, minimum_caps
from mirab.core.charge import charge_rate, pools_for, slots_wanted
from mirab.core.ledgers import Ledger
from mirab.core.queues import Pending, Queue, ShapeInfo, User
from mirab.core.shares import Account, extra_shares, rows
from mirab.core.stock import Stock
from mirab.model.accounts import Budgets, ledger_path, left_by, plain, rest_path
from mirab.model.resources import Shape
from mirab.model.units import FOREVER, AccountPath, Duration, UserName

K = TypeVar("K")
L = TypeVar("L")
V = TypeVar("V")


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Waitlist(Stock):
    """Accounts, their users, and who waits in which queue."""

    def install(self, budgets: Budgets) -> None:
        """Bring the accounts in line with a tree: new ones are born, missing ones close, all keep what they used."""
        self.budgets = budgets
        self.open_accounts = dict.fromkeys(budgets.open_paths())
        self.partings.clear()
        self.choices.clear()
        if self.divide(budgets):
            self._pools_changed()
        wanted: dict[str, dict[AccountPath, int]] = {name: {} for name in self.ledgers}
        for path, account in self.accounts.items():
            wanted[account.ledger.name][path] = 0
        for name, ledger in self.ledgers.items():
            if ledger.in_force:
                self._install_in(ledger, wanted[name])
        for account in self.accounts.values():
            account.home = self.accounts.get(plain(account.path), account)
        install_caps(self.accounts.values(), budgets)
        self.minimum_caps = minimum_caps(self.accounts.values(), budgets)
        for name, ledger in self.ledgers.items():
            self._promise(ledger, wanted[name])

    def _promise(self, ledger: Ledger, shares: dict[AccountPath, int]) -> None:
        """Let the accounts of a ledger have their shares, with what exceptions add and take."""
        exemptions = self.exemptions_in_force.values() if ledger.in_force else ()
        extra = extra_shares(shares, exemptions, left_by(ledger.budgets.roots), ledger.name)
        for path, share in shares.items():
            self.accounts[path].set_share(self.now, max(0, share + extra[path]))

    def _pools_changed(self) -> None:
        """Pools belong to other ledgers than before: what has come back is new, and capacities are others from now."""
        self.shapes.clear()
        for path, account in list(self.accounts.items()):
            if account.ledger is not self.ledgers[account.ledger.name]:
                del self.accounts[path]
        for ledger in self.ledgers.values():
            ledger.window.set_capacity(self.now, self.schedulable(ledger.pools))

    def _install_in(self, ledger: Ledger, wanted: dict[AccountPath, int]) -> None:
        """The accounts of one ledger; `wanted` gets their shares of it."""
        for path, share, parent in rows(ledger.budgets, ledger.name):
            wanted[path] = share
            if path not in self.accounts:
                above = self.accounts[parent] if parent else None
                self.accounts[path] = Account(path, above, share, ledger, self.now, self.policy.half_life)
        if ledger.name:
            for account in [each for each in self.accounts.values() if not each.ledger.name]:
                wanted.setdefault(self._mirrored(ledger, account).path, 0)
        for plain_path, budget, share in ledger.budgets.walk():
            account = self.accounts[ledger_path(ledger.name, plain_path)]
            if not budget.children and not account.leaf:
                wanted[rest_path(account.path)] = share
            account.save_for_gangs = budget.save_for_gangs
            account.equal_users = budget.equal_users

    def _mirrored(self, ledger: Ledger, account: Account) -> Account:
        """The account of a ledger for one of the main ledger; those that no budget names any more have no share."""
        path = ledger_path(ledger.name, account.path)
        if path not in self.accounts:
            above = None if account.parent is None else self._mirrored(ledger, account.parent)
            self.accounts[path] = Account(path, above, 0, ledger, self.now, self.policy.half_life)
        return self.accounts[path]

    def user_of(self, account: Account, name: UserName) -> User:
        """The user inside a leaf; where the team shares first come, first served, all are one."""
        if not account.equal_users:
            name = UserName("")
        user = account.users.get(name)
        if user is None:
            user = account.users[name] = User(name, account, self.now, self.policy.half_life)
        return user

    def info_for(self, shape: Shape, account: Account) -> ShapeInfo:
        """What is known of a shape in the account's ledger, under the contract that it has now."""
        minimum, ledger = self.minimum_in_force(account.path, shape.min_runtime), account.ledger
        key = (shape, minimum, ledger.name)
        if key not in self.shapes:
            pools = tuple([number for number in pools_for(shape, self.cluster) if number in ledger.pools])
            self.shapes[key] = ShapeInfo(
                shape,
                pools,
                tuple(slots_wanted(shape, self.cluster.pools[number]) for number in pools),
                tuple(charge_rate(shape, self.cluster.pools[number]) for number in pools),
                minimum,
                max(minimum, self.policy.commitment_floor),
                self._stay(shape, minimum),
                minimum > 0 or not self.policy.contract,
                shape.nodes >= self.policy.hold_smallest_nodes and self.policy.backfill != "any",
            )
        return self.shapes[key]

    def _stay(self, shape: Shape, minimum: Duration) -> Duration:
        """How long what starts now may keep its nodes from others: its minimum and notice, or its time limit."""
        if self.policy.backfill == "limit":
            return FOREVER if shape.time_limit is None else shape.time_limit
        return max(minimum, self.policy.guest_minimum) + min(shape.grace, self.policy.grace_max)

    def enqueue(self, pending: Pending, account: Account) -> None:
        workload = pending.workload
        user = self.user_of(account, workload.user)
        queue = user.queues.get(workload.shape)
        if queue is None:
            info = self.info_for(workload.shape, account)
            queue = user.queues[workload.shape] = Queue(user, info)
            info.queues.setdefault(account.path, {})[user.name] = queue
            self.waiting_sizes[info.charged].setdefault(info.size, {})[info] = None
            if info.charged:
                account.shapes.setdefault(info, {})[queue] = None
        queue.push(pending)
        for above in account.lineage:
            above.waiting += queue.info.charged
        self.pending[workload.id] = pending
        if queue.head is pending:
            self.unexplained[queue] = None

    def dequeue(self, pending: Pending) -> None:
        queue = pending.queue
        if queue is None:
            raise AssertionError(f"{pending.id} waits in no queue")
        was_head = queue.head is pending
        queue.remove(pending)
        del self.pending[pending.id]
        for above in queue.user.account.lineage:
            above.waiting -= queue.info.charged
        if not queue.entries:
            self._disband(queue)
        elif was_head:
            self.unexplained[queue] = None

    def _disband(self, queue: Queue) -> None:
        """Nobody waits in it any more: it is taken out of all that knows it."""
        user, info = queue.user, queue.info
        del user.queues[info.shape]
        _drop(user.account.shapes, info, queue)
        _drop(info.queues, user.account.path, user.name)
        if not info.queues:
            _drop(self.waiting_sizes[info.charged], info.size, info)
        self.unexplained.pop(queue, None)
        self.awaiting.pop(queue, None)
        self.short.pop(queue, None)
        self.at_cap.pop(queue, None)


def _drop(index: dict[K, dict[L, V]], key: K, entry: L) -> None:
    """Take an entry out from under a key, and the key if it was the last."""
    entries = index.get(key)
    if entries is not None:
        entries.pop(entry, None)
        if not entries:
            del index[key]
