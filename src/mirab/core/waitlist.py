"""The tree of accounts as the budgets have it, and the queues of those who wait: what is brought in line together."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mirab.core.caps import install_caps
from mirab.core.charge import charge_rate, pools_for, slots_wanted
from mirab.core.queues import Pending, Queue, ShapeInfo, User
from mirab.core.shares import REST, Account, extra_shares, rows
from mirab.core.stock import Stock
from mirab.model.accounts import Budgets, left_by
from mirab.model.resources import Shape
from mirab.model.units import FOREVER, AccountPath, Duration, UserName


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Waitlist(Stock):
    """Accounts, their users, and who waits in which queue."""

    def install(self, budgets: Budgets) -> None:
        """Bring the accounts in line with a tree: new ones are born, missing ones close, all keep what they used."""
        self.budgets = budgets
        self.open_accounts = dict.fromkeys(budgets.open_paths())
        self.partings.clear()
        wanted = dict.fromkeys(self.accounts, 0)
        for path, share, parent in rows(budgets):
            wanted[path] = share
            if path not in self.accounts:
                above = self.accounts[parent] if parent else None
                self.accounts[path] = Account(path, above, share, self.window, self.now, self.policy.half_life)
        for path, budget, share in budgets.walk():
            if not budget.children and not self.accounts[path].leaf:
                wanted[AccountPath(f"{path}/{REST}")] = share
            self.accounts[path].save_for_gangs = budget.save_for_gangs
            self.accounts[path].equal_users = budget.equal_users
        self.minimum_caps = install_caps(self.accounts.values(), budgets)
        extra = extra_shares(wanted, self.exemptions_in_force.values(), left_by(budgets.roots))
        for path, share in wanted.items():
            self.accounts[path].set_share(self.now, max(0, share + extra[path]))

    def user_of(self, account: Account, name: UserName) -> User:
        """The user inside a leaf; where the team shares first come, first served, all are one."""
        if not account.equal_users:
            name = UserName("")
        user = account.users.get(name)
        if user is None:
            user = account.users[name] = User(name, account, self.now, self.policy.half_life)
        return user

    def info_for(self, shape: Shape, account: AccountPath) -> ShapeInfo:
        """What is known of a shape under the contract that the account has now."""
        minimum = self.minimum_in_force(account, shape.min_runtime)
        key = (shape, minimum)
        if key not in self.shapes:
            pools = pools_for(shape, self.cluster)
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
            info = self.info_for(workload.shape, account.path)
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
            raise AssertionError(f"{pending.workload.id} waits in no queue")
        was_head = queue.head is pending
        queue.remove(pending)
        del self.pending[pending.workload.id]
        for above in queue.user.account.lineage:
            above.waiting -= queue.info.charged
        if queue.entries:
            if was_head:
                self.unexplained[queue] = None
            return
        self.unexplained.pop(queue, None)
        self._forget_shape(queue)
        self.awaiting.pop(queue, None)
        self.short.pop(queue, None)
        self.at_cap.pop(queue, None)
        user, info = queue.user, queue.info
        del user.queues[pending.workload.shape]
        waiting = info.queues[user.account.path]
        del waiting[user.name]
        if not waiting:
            del info.queues[user.account.path]
            if not info.queues:
                sizes = self.waiting_sizes[info.charged][info.size]
                del sizes[info]
                if not sizes:
                    del self.waiting_sizes[info.charged][info.size]

    def _forget_shape(self, queue: Queue) -> None:
        shapes = queue.user.account.shapes
        queues = shapes.get(queue.info)
        if queues is not None:
            queues.pop(queue, None)
            if not queues:
                del shapes[queue.info]
