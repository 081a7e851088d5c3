"""What the scheduler knows, and what can be read off it. It changes in `mirab.core.state` and the classes between."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mirab.core.nodes import Bank, NodeState
from mirab.core.queues import Pending, Queue, ShapeInfo, Size, User
from mirab.core.runs import Run
from mirab.core.shares import REST, Account, Window, covers
from mirab.model.accounts import Budgets
from mirab.model.plans import Hold
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Cluster, Shape
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
        minimum_caps: accounts whose budgets, or one above, cap the minimum: the shortest such cap.
        at_cap: queues whose head waits because an account is at its cap.
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
        self.minimum_caps: dict[AccountPath, Duration] = {}
        self.at_cap: dict[Queue, None] = {}
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
        """The contract: what was declared, bounded by the caps of policy and budgets, or an exemption's longer one."""
        if not self.policy.contract:
            return declared
        cap = self.policy.min_runtime_cap
        if self.minimum_caps:
            cap = min(cap, self.minimum_caps.get(account, cap))
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
        emptying: dict[int, NodeMask] = {}
        for (number, node), state in self.troubled.items():
            if state.counts_what_runs:
                emptying[number] = emptying.get(number, 0) | 1 << node
        for number, mask in emptying.items():
            total += self.banks[number].used_charge(mask)
        return total

    def user_usage(self, user: User, now: Instant) -> Charge:
        """U + K of a user inside the leaf."""
        return user.usage.between(self.window.at(now)[0], now) + user.commitment.at(now) + user.held

    def nodes_named(self, pool: int, mask: NodeMask) -> list[NodeName]:
        names = self.cluster.pools[pool].nodes
        return [names[index] for index in range(mask.bit_length()) if mask >> index & 1]

    def runs_on(self, place: tuple[int, int]) -> dict[RunId, Run]:
        """The runs that have a part on a node, given as (pool, number in the pool)."""
        return {run.id: run for run in self.runs.values() if run.is_on(place)}

    def overdue_at(self, run: Run) -> Instant:
        return run.overdue_at(self.policy.start_timeout, self.policy.stop_timeout)

    def uncharged_rate(self, run: Run) -> ChargeRate:
        """What a run under no minimum would be charged, for the order among its like."""
        return run.slots * self.cluster.pools[run.pool].weight
