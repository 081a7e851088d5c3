"""Everything the scheduler knows. It changes only by folding a fact, by `advance`, and by committing a plan."""

from __future__ import annotations

from heapq import heappop, heappush

from mypy_extensions import mypyc_attr

from mirab.core import facts, intentions, invariants, portfolio
from mirab.core.charge import charge_rate, pools_for, slots_wanted
from mirab.core.nodes import Bank, NodeState
from mirab.core.queues import Pending, Queue, ShapeInfo, Size, User
from mirab.core.runs import Run
from mirab.core.shares import REST, Account, Window, covers, extra_shares, rows
from mirab.model.accounts import Budgets, left_by
from mirab.model.events import Event
from mirab.model.plans import Hold, Plan
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Cluster, Shape
from mirab.model.units import (
    FOREVER,
    AccountPath,
    Charge,
    ChargeRate,
    Duration,
    Instant,
    NodeMask,
    NodeName,
    RunId,
    UserName,
    WorkloadId,
)


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class State:
    """The cluster, the accounts, who runs, who waits, what is held.

    Attributes:
        version: grows whenever something happens that could let a blocked workload start.
        claims: grows whenever something happens that could let a blocked workload stop somebody's run.
        seen_version, seen_claims, seen_at: what the last decision that looked at everybody knew, and when it was.
        uncharged_runs, exposed_leaves: the runs that the contract does not protect (any more).
        exposures: heap of (end of minimum, run): protection that will run out.
        settlements: heap of (end of commitment, run).
        waiting_sizes: shapes that wait, charged ones (True) and uncharged ones apart, by what they need room for.
        short: gangs that lack so many nodes for a hold.
        awaiting: queues whose victims are about to checkpoint, and when they will have.
        unexplained: queues whose head has no reason yet.
        troubled: nodes that are not up.
        overdue: heap of (instant, run): starts and stops that should have happened by then; `late` = that did not.
        orphans: runs that are stopping for a workload that no longer wants their nodes.
        unwanted: runs that their users cancelled or want back in the queue, and that nobody has told to stop yet.
    """

    def __init__(self, cluster: Cluster, budgets: Budgets, policy: Policy, now: Instant = 0) -> None:
        self.cluster = cluster
        self.policy = policy
        self.now = now
        self.folded = 0
        self.version = 0
        self.claims = 0
        self.seen_version = self.seen_claims = -1
        self.seen_at: Instant = now
        self.banks = [Bank(pool) for pool in cluster.pools]
        self.usable: list[NodeMask] = [(1 << len(pool.nodes)) - 1 for pool in cluster.pools]
        self.places: dict[NodeName, tuple[int, int]] = {
            node: (number, index) for number, pool in enumerate(cluster.pools) for index, node in enumerate(pool.nodes)
        }
        self.troubled: dict[tuple[int, int], NodeState] = {}
        self.window = Window(policy.window, now, cluster.charge_units)
        self.accounts: dict[AccountPath, Account] = {}
        self.open_accounts: dict[AccountPath, None] = {}
        self.heirs = budgets.heirs()
        self.partings: dict[tuple[Account, Account], tuple[Account, Account]] = {}
        self.budgets = budgets
        self.runs: dict[RunId, Run] = {}
        self.running: dict[WorkloadId, Run] = {}
        self.pending: dict[WorkloadId, Pending] = {}
        self.held: dict[WorkloadId, tuple[Pending, str]] = {}
        self.rejected: dict[WorkloadId, Pending] = {}
        self.shapes: dict[tuple[Shape, Duration], ShapeInfo] = {}
        self.waiting_sizes: dict[bool, dict[Size, dict[ShapeInfo, None]]] = {True: {}, False: {}}
        self.short: dict[Queue, int] = {}
        self.awaiting: dict[Queue, Instant] = {}
        self.unexplained: dict[Queue, None] = {}
        self.holds: dict[WorkloadId, Hold] = {}
        self.victims: dict[WorkloadId, dict[RunId, None]] = {}
        self.reservations: dict[str, Reservation] = {}
        self.accepted: dict[str, None] = {}
        self.reserved: dict[str, Hold] = {}
        self.charging: dict[str, tuple[Account, ChargeRate]] = {}
        self.exemptions: dict[str, Exemption] = {}
        self.exemptions_in_force: dict[str, Exemption] = {}
        self.uncharged_runs: dict[RunId, Run] = {}
        self.exposed_leaves: dict[Account, None] = {}
        self.newly_exposed: list[Run] = []
        self.exposures: list[tuple[Instant, RunId]] = []
        self.settlements: list[tuple[Instant, RunId]] = []
        self.overdue: list[tuple[Instant, RunId]] = []
        self.late: dict[RunId, Run] = {}
        self.orphans: dict[RunId, Run] = {}
        self.unwanted: dict[RunId, Run] = {}
        self.install(budgets)

    # --- change ----------------------------------------------------------------------------------------------------
    def fold(self, event: Event) -> None:
        """Take in one fact. Facts come in order of time; one that is late counts from now."""
        self.folded += 1
        if event.at > self.now:
            self.now = event.at
        facts.FACTS[type(event)](self, event)

    def advance(self, now: Instant) -> None:
        """Let time pass: commitments settle, minimums end."""
        if now > self.now:
            self.now = now
        self._settle_until(now)
        self._expose_until(now)
        self._miss_until(now)
        if self.exemptions or self.exemptions_in_force:
            self._enforce_exemptions(now)
        for reservation in list(self.reservations.values()) if self.reservations else ():
            if reservation.begin <= now < reservation.end:
                portfolio.charge_reservation(self, reservation.id, +1)

    def _settle_until(self, now: Instant) -> None:
        while self.settlements and self.settlements[0][0] <= now:
            until, run_id = heappop(self.settlements)
            run = self.runs.get(run_id)
            if run is not None and run.committed_until == until:
                self.settle(run)

    def _expose_until(self, now: Instant) -> None:
        while self.exposures:
            until, run_id = self.exposures[0]
            run = self.runs.get(run_id)
            current = run is not None and run.unprotected_at == until and not run.stopping
            if current and until > now:
                return
            heappop(self.exposures)
            if current and run is not None:
                self.expose(run)

    def _miss_until(self, now: Instant) -> None:
        while self.overdue:
            at, run_id = self.overdue[0]
            run = self.runs.get(run_id)
            current = run is not None and self.overdue_at(run) == at
            if current and at > now:
                return
            heappop(self.overdue)
            if current and run is not None:
                self.late[run_id] = run

    def overdue_at(self, run: Run) -> Instant:
        return run.overdue_at(self.policy.start_timeout, self.policy.stop_timeout)

    def _enforce_exemptions(self, now: Instant) -> None:
        """Exceptions begin and, above all, end by themselves."""
        in_force = {key: value for key, value in self.exemptions.items() if value.begin <= now < value.end}
        if in_force != self.exemptions_in_force:
            self.exemptions_in_force = in_force
            self.install(self.budgets)
            portfolio.requeue_all(self)

    def commit(self, plan: Plan) -> None:
        """Take in what was decided. The engine's answers come later, as facts."""
        self.folded += 1
        if plan.surveyed:
            self.seen_at, self.seen_claims = plan.at, self.claims
        self.seen_version = self.version
        self.newly_exposed.clear()
        self.accepted.update(dict.fromkeys(self.reservations))
        if not self.policy.observing:
            self._intend(plan)
        for waiting in plan.waiting:
            intentions.explained(self, waiting)

    def _intend(self, plan: Plan) -> None:
        for change in plan.holds:
            intentions.INTENTIONS[type(change)](self, change, plan.at)
        for action in plan.actions:
            intentions.INTENTIONS[type(action)](self, action, plan.at)

    def check(self) -> None:
        """Assert every invariant, with the subject's story in the message."""
        invariants.check(self)

    # --- read ------------------------------------------------------------------------------------------------------
    @property
    def roots(self) -> list[Account]:
        """The accounts at the top."""
        return [account for account in self.accounts.values() if account.parent is None]

    def leaf_for(self, path: AccountPath) -> Account | None:
        """The account that work for `path` belongs to: itself, or the implicit child of an inner account."""
        account = self.accounts.get(path)
        if account is None or account.leaf:
            return account
        return self.accounts.get(AccountPath(f"{path}/{REST}"))

    def is_open(self, path: AccountPath) -> bool:
        """Whether the budgets in force name the account; closed ones keep what they used and take nothing new."""
        return path in self.open_accounts

    def minimum_in_force(self, account: AccountPath, declared: Duration) -> Duration:
        """The contract: what was declared, bounded by the cap (or by an exemption's longer one)."""
        if not self.policy.contract:
            return declared
        cap = self.policy.min_runtime_cap
        for exemption in self.exemptions_in_force.values():
            if exemption.kind == "longer-minimum" and covers(exemption.account, account):
                cap = max(cap, exemption.cap)
        return min(declared, cap)

    def guaranteed(self, account: AccountPath) -> bool:
        """Whether an exemption makes its runs nobody's victims."""
        return any(
            exemption.kind == "guaranteed" and covers(exemption.account, account)
            for exemption in self.exemptions_in_force.values()
        )

    def schedulable(self) -> ChargeRate:
        """C: charge units of the usable nodes; draining ones count for what still runs on them."""
        total = 0
        for number, bank in enumerate(self.banks):
            total += self.usable[number].bit_count() * bank.slots * bank.pool.weight
        for (number, node), state in self.troubled.items():
            if state.counts_what_runs:
                total += self.banks[number].used_charge(1 << node)
        return total

    def first_waiting(self, path: AccountPath, now: Instant) -> WorkloadId | None:
        """The charged workload of a leaf whose turn is first, were there room for any."""
        account = self.accounts[path]
        best: tuple[Charge, UserName, tuple[object, ...]] | None = None
        first = None
        for user in account.users.values():
            heads = [queue.head for queue in user.queues.values() if queue.info.charged]
            if heads:
                head = min(heads, key=lambda pending: pending.rank)
                key = (self.user_usage(user, now), user.name, head.rank)
                if best is None or key < best:
                    best, first = key, head.workload.id
        return first

    def user_usage(self, user: User, now: Instant) -> Charge:
        """U + K of a user inside the leaf."""
        return user.usage.between(self.window.at(now)[0], now) + user.commitment.at(now) + user.held

    def nodes_named(self, pool: int, mask: NodeMask) -> list[NodeName]:
        names = self.cluster.pools[pool].nodes
        return [names[index] for index in range(mask.bit_length()) if mask >> index & 1]

    # --- small steps shared by the folding functions ----------------------------------------------------------------
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
        extra = extra_shares(wanted, self.exemptions_in_force.values(), left_by(budgets.roots))
        for path, share in wanted.items():
            self.accounts[path].set_share(self.now, max(0, share + extra[path]))

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

    def user_of(self, account: Account, name: UserName) -> User:
        """The user inside a leaf; where the team shares first come, first served, all are one."""
        if not account.equal_users:
            name = UserName("")
        user = account.users.get(name)
        if user is None:
            user = account.users[name] = User(name, account, self.now, self.policy.half_life)
        return user

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

    def occupy(self, run: Run) -> None:
        """Its nodes are taken, and it is among the runs."""
        self.banks[run.allocation.pool].take(run.allocation)
        self.runs[run.id] = self.running[run.workload.id] = run
        self.count_running(run, +1)
        for place, sick in self.troubled.items():
            if run.is_on(place):
                sick.runs[run.id] = run

    def runs_on(self, place: tuple[int, int]) -> dict[RunId, Run]:
        """The runs that have a part on a node, given as (pool, number in the pool)."""
        return {run.id: run for run in self.runs.values() if run.is_on(place)}

    def count_running(self, run: Run, sign: int) -> None:
        """Its slots count as running (+1), or no more (-1), in its account and all above."""
        rate = sign * self.uncharged_rate(run)
        for account in run.account.lineage:
            account.running += rate

    def _forget_shape(self, queue: Queue) -> None:
        shapes = queue.user.account.shapes
        queues = shapes.get(queue.info)
        if queues is not None:
            queues.pop(queue, None)
            if not queues:
                del shapes[queue.info]

    def will_expose(self, run: Run) -> None:
        """Let it be known when its minimum ends, if the policy lets anybody stop it then."""
        if self.policy.preemption == "budget" or (self.policy.preemption == "priority" and run.workload.preemptible):
            heappush(self.exposures, (run.unprotected_at, run.id))

    def expose(self, run: Run) -> None:
        """Its minimum is over: the contract protects it no longer."""
        if run.charged:
            run.account.exposed[run.id] = run
            self.exposed_leaves[run.account] = None
            self.newly_exposed.append(run)
        else:
            self.uncharged_runs[run.id] = run

    def cover(self, run: Run) -> None:
        """It is nobody's victim any more: it is stopping, gone, or protected again."""
        self.uncharged_runs.pop(run.id, None)
        if run.account.exposed.pop(run.id, None) is not None and not run.account.exposed:
            del self.exposed_leaves[run.account]

    def commit_charge(self, run: Run, until: Instant) -> None:
        """Count the run as committed until then."""
        run.committed_until = until
        for account in run.account.lineage:
            account.commitment.add(run.rate, until)
        run.user.commitment.add(run.rate, until)
        heappush(self.settlements, (until, run.id))

    def settle(self, run: Run) -> None:
        """Its commitment is over, exactly once."""
        if run.committed_until:
            for account in run.account.lineage:
                account.commitment.add(-run.rate, run.committed_until)
            run.user.commitment.add(-run.rate, run.committed_until)
            run.committed_until = 0

    def meter(self, run: Run, sign: int) -> None:
        """Start (+1) or stop (-1) charging it."""
        for account in run.account.lineage:
            self.meter_account(run, account, sign)
        self.meter_user(run, sign)

    def meter_account(self, run: Run, account: Account, sign: int) -> None:
        if run.charged:
            account.usage.change_rate(self.now, sign * run.rate)
        else:
            account.uncharged.change_rate(self.now, sign * self.uncharged_rate(run))

    def meter_user(self, run: Run, sign: int) -> None:
        if run.charged:
            run.user.usage.change_rate(self.now, sign * run.rate)
        else:
            run.user.uncharged.change_rate(self.now, sign * self.uncharged_rate(run))

    def uncharged_rate(self, run: Run) -> ChargeRate:
        """What a run under no minimum would be charged, for the order among its like."""
        return run.slots * self.cluster.pools[run.allocation.pool].weight

    def capacity_changed(self, grown: bool) -> None:
        """There are more schedulable nodes, which may complete somebody's claim, or fewer, which opens none."""
        self.window.set_capacity(self.now, self.schedulable())
        self.version += 1
        self.claims += grown
