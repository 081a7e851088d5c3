"""What the scheduler knows, and what can be read off it. It changes in `mirab.core.state` and the classes between."""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from mirab.core.ledgers import Ledger, Window
from mirab.core.nodes import Bank, NodeState
from mirab.core.promises import promises
from mirab.core.queues import Pending, Queue, ShapeInfo, Size, User
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.model.accounts import Budgets, covers, ledger_path, plain, rest_path
from mirab.model.plans import Hold
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.reasons import AtCap
from mirab.model.resources import Cluster, Shape, nodes_of
from mirab.model.units import AccountPath, Charge, ChargeRate, Duration, Instant, NodeMask, NodeName, RunId, WorkloadId


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Stock:
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
        ledgers: by name, the main one ("") first; `by_pool`: their names, by the number of the pool.
        choices: which ledger work goes to that may go to several, by account and shape.
        minimum_caps: accounts whose budgets, or one above, cap the minimum: the shortest such cap.
        at_cap: queues whose head waits because an account is at its cap, and what it was told.
        given_back: workloads that lost their hold since their ledger is another, until a plan has said so.
        unexplained: queues whose head has no reason yet.
        troubled: nodes that are not up; `emptying`: of these, the sick and the draining ones, which work still leaves.
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
        self.emptying: dict[tuple[int, int], NodeState] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.by_pool: list[str] = []
        self.choices: dict[tuple[AccountPath, Shape], str] = {}
        self.divide(budgets)
        self.accounts: dict[AccountPath, Account] = {}
        self.open_accounts: dict[AccountPath, None] = {}
        self.heirs = budgets.heirs()
        self.minimum_caps: dict[AccountPath, Duration] = {}
        self.at_cap: dict[Queue, AtCap] = {}
        self.partings: dict[tuple[Account, Account], tuple[Account, Account]] = {}
        self.budgets = budgets
        self.runs: dict[RunId, Run] = {}
        self.running: dict[WorkloadId, Run] = {}
        self.pending: dict[WorkloadId, Pending] = {}
        self.held: dict[WorkloadId, tuple[Pending, str]] = {}
        self.rejected: dict[WorkloadId, Pending] = {}
        self.shapes: dict[tuple[Shape, Duration, str], ShapeInfo] = {}
        self.waiting_sizes: dict[bool, dict[Size, dict[ShapeInfo, None]]] = {True: {}, False: {}}
        self.short: dict[Queue, int] = {}
        self.awaiting: dict[Queue, Instant] = {}
        self.unexplained: dict[Queue, None] = {}
        self.holds: dict[WorkloadId, Hold] = {}
        self.given_back: dict[WorkloadId, None] = {}
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

    @property
    def window(self) -> Window:
        """That of the main ledger."""
        return self.ledgers[""].window

    def roots_of(self, ledger: Ledger) -> list[Account]:
        """The accounts at the top of a ledger."""
        return [root for root in self.accounts.values() if root.parent is None and root.ledger is ledger]

    # --- ledgers
    def divide(self, budgets: Budgets) -> bool:
        """Bring the ledgers in line with the budgets; returns whether a pool belongs to another than before.

        A new one begins as if its pool had been whole until now. One that has no pool any more is only history.
        """
        found = budgets.ledgers(self.cluster.pool_names)
        before = self.by_pool
        self.by_pool = [""] * len(self.cluster.pools)
        named = {each.name: None for each in found}
        for ledger in self.ledgers.values():
            if ledger.name not in named:
                ledger.pools = ()
        for each in found:
            known = self.ledgers.get(each.name)
            if known is None or not known.in_force:
                window = Window(self.policy.window, self.now, self.installed(each.pools))
                self.ledgers[each.name] = Ledger(each.name, each.pools, each.budgets, window)
            else:
                known.pools, known.budgets = each.pools, each.budgets
            for number in each.pools:
                self.by_pool[number] = each.name
        return before != self.by_pool

    @property
    def divided(self) -> bool:
        """Whether there is, or was, another ledger than the main one."""
        return len(self.ledgers) > 1

    def installed(self, pools: Sequence[int]) -> ChargeRate:
        """Charge units of all that is installed in some pools."""
        return sum([self.cluster.pools[number].charge_units for number in pools])

    def share_in(self, ledger: str, path: AccountPath) -> int:
        """The share that work of an account has in a ledger."""
        leaf = self.leaf_for(ledger_path(ledger, path))
        return 0 if leaf is None else leaf.share

    def promised(self, path: AccountPath, shape: Shape) -> list[tuple[str, int]]:
        """What the ledgers that could hold the work of an account promise to it (see `promises`), best first."""
        return promises(shape, self.cluster, self.by_pool, lambda name: self.share_in(name, path))

    def ledger_for(self, path: AccountPath, shape: Shape) -> str:
        """The name of the ledger that work of an account belongs to as long as budgets and cluster stay."""
        if not self.divided:
            return ""
        name = self.choices.get((path, shape))
        if name is None:
            promised = self.promised(path, shape)
            name = self.choices[path, shape] = promised[0][0] if promised else ""
        return name

    def account_for(self, path: AccountPath, shape: Shape) -> Account | None:
        """The leaf that work of an account belongs to, in the ledger that it goes to."""
        return self.leaf_for(ledger_path(self.ledger_for(path, shape), path))

    def account_on(self, pool: int, path: AccountPath) -> Account | None:
        """The leaf, in the ledger of a pool, for an account as it is written in any ledger."""
        return self.leaf_for(ledger_path(self.by_pool[pool], plain(path)))

    def leaf_for(self, path: AccountPath) -> Account | None:
        """The account that work for `path` belongs to: itself, or the implicit child of an inner account."""
        account = self.accounts.get(path)
        if account is None or account.leaf:
            return account
        return self.accounts.get(rest_path(path))

    def is_open(self, path: AccountPath) -> bool:
        """Whether the budgets in force name the account; closed ones keep what they used and take nothing new."""
        return path in self.open_accounts

    def minimum_in_force(self, account: AccountPath, declared: Duration) -> Duration:
        """The contract: what was declared, bounded by the caps of policy and budgets, or an exemption's longer one."""
        if not self.policy.contract:
            return declared
        cap = self.policy.min_runtime_cap
        if self.minimum_caps:
            cap = min(cap, self.minimum_caps.get(account, cap))
        for exemption in self.exemptions_in_force.values():
            if exemption.kind == "longer-minimum" and covers(exemption.account, plain(account)):
                cap = max(cap, exemption.cap)
        return min(declared, cap)

    def guaranteed(self, account: AccountPath) -> bool:
        """Whether an exemption makes its runs nobody's victims."""
        return any(
            exemption.kind == "guaranteed" and covers(exemption.account, plain(account))
            for exemption in self.exemptions_in_force.values()
        )

    def within(self, ledger: Ledger, runs: list[Run]) -> list[Run]:
        """Those of some runs that are in a ledger."""
        return [run for run in runs if run.pool in ledger.pools] if self.divided else runs

    def schedulable(self, pools: Sequence[int]) -> ChargeRate:
        """C: charge units of the usable nodes of some pools; draining ones count for what still runs on them."""
        total = 0
        for number in pools:
            bank = self.banks[number]
            total += self.usable[number].bit_count() * bank.slots * bank.pool.weight
        emptying: dict[int, NodeMask] = {}
        for number, node in self.emptying:
            if number in pools:
                emptying[number] = emptying.get(number, 0) | 1 << node
        for number, mask in emptying.items():
            total += self.banks[number].used_charge(mask)
        return total

    def user_usage(self, user: User, now: Instant) -> Charge:
        """U + K of a user inside the leaf."""
        return user.usage.between(user.account.window.at(now)[0], now) + user.commitment.at(now) + user.held

    def node_at(self, place: tuple[int, int]) -> NodeName:
        """The name of a node, given as (pool, number in the pool)."""
        number, node = place
        return self.cluster.pools[number].nodes[node]

    def nodes_named(self, pool: int, mask: NodeMask) -> list[NodeName]:
        names = self.cluster.pools[pool].nodes
        return [names[index] for index in nodes_of(mask)]

    def runs_on(self, place: tuple[int, int]) -> dict[RunId, Run]:
        """The runs that have a part on a node, given as (pool, number in the pool)."""
        number, node = place[0], 1 << place[1]
        return {run.id: run for run in self.runs.values() if run.pool == number and run.mask & node}

    def overdue_at(self, run: Run) -> Instant:
        return run.overdue_at(self.policy.start_timeout, self.policy.stop_timeout)

    def uncharged_rate(self, run: Run) -> ChargeRate:
        """What a run under no minimum would be charged, for the order among its like."""
        return run.slots * self.cluster.pools[run.pool].weight
