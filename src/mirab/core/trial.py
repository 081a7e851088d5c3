"""A scratch world in which a decision is tried out: the state itself is only read.

Nothing is rolled back because nothing is touched: what a decision gives away is kept in its own `Space` and
`Standings`, which start from the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirab.core.ledgers import Ledger
from mirab.core.nodes import without
from mirab.core.queues import Pending, Queue, Size, User
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.standing import Standings
from mirab.core.state import State
from mirab.model.plans import Action, Cancel, Hold, HoldChange, Plan, Preempt, Start, Waiting
from mirab.model.reasons import (
    AtCap,
    AwaitingVictims,
    HeadroomKept,
    HoldsNodes,
    NoFreeGpus,
    OnHeldNodes,
    Reserved,
    ShareSpent,
    StartReason,
    StopReason,
    WaitReason,
)
from mirab.model.resources import Allocation
from mirab.model.units import (
    FOREVER,
    Charge,
    ChargeRate,
    Duration,
    Instant,
    RunId,
    WorkloadId,
)

if TYPE_CHECKING:
    from mirab.core.clearing import NoClearing
    from mirab.core.reach import Occupied, Reach


class Trial(Standings):
    """One decision in the making.

    Attributes:
        surveyed: it asks for all that waits whose runs might be stopped; reviewing: because it is time to.
        taken: how many of a queue's entries are dealt with.
        occupied: which nodes are taken by whose runs, once somebody has asked.
        reaches: how far it would reach to stop the runs of some leaves, as things stand.
        no_room_inside: who, at a cap, can stop nobody of the account.
        passed_over: queues that wait at a cap: others go on, whatever the order.
        hopeless: by who, size and urgency, the least minimum for which no victims were found, and what was said.
        coming: by pool, (node, slots) that will be free once runs that are leaving have left.
    """

    def __init__(self, state: State, now: Instant) -> None:
        super().__init__(state, now)
        self.surveyed = False
        self.reviewing = now >= state.seen_at + state.policy.review
        self.actions: list[Action] = []
        self.hold_changes: list[HoldChange] = []
        self.waiting: list[Waiting] = []
        self.started: dict[WorkloadId, None] = {}
        self.stopped: dict[RunId, None] = {}
        self._going: list[Run] | None = None
        self.taken: dict[Queue, int] = {}
        self._hold_of: dict[Account, list[WorkloadId]] | None = None
        self.given_running: dict[Account, ChargeRate] = {}
        self._given_gpus: dict[Account, int] = {}
        self.no_room_inside: dict[tuple[User, Size, Charge], None] = {}
        self.passed_over: dict[Queue, None] = {}
        self.occupied: Occupied | None = None
        self.reaches: dict[tuple[Ledger, tuple[Account, ...]], Reach | None] = {}
        self.hopeless: dict[tuple[Account | User | int, Size, bool], tuple[Duration, NoClearing]] = {}
        self.coming: dict[int, list[tuple[int, int]]] = {}
        self.wake_at: Instant = FOREVER

    def wake(self, at: Instant) -> None:
        """Decide again at that instant at the latest."""
        if self.now < at < self.wake_at:
            self.wake_at = at

    def wakes_by(self, at: Instant) -> bool:
        """Whether `wake` would change nothing, since it decides again by that instant anyway."""
        return self.now < at and self.wake_at <= at

    def start(self, queue: Queue, workload_id: WorkloadId, given: Allocation, reason: StartReason) -> None:
        """Give the nodes to the workload."""
        info, pending, leaf = queue.info, self.state.pending[workload_id], queue.user.account
        run_id = RunId(f"{workload_id}.{pending.attempt}")
        minimum = self._minimum(queue)
        entry = self.kept_entry(given.pool, given.mask) if self.kept[given.pool] else None
        prepaid = None if entry is None else self._prepaid(given, leaf)
        if prepaid is not None:
            reason = Reserved(prepaid)
        elif entry is not None and entry.holder != workload_id:
            reason = OnHeldNodes(entry.holder, entry.until)
            self.wake(entry.until - min(info.shape.grace, self.policy.grace_max))
        self.take(given)
        if workload_id in self.holds:
            self.release(workload_id)
            self.news = True
        elif info.charged:
            rate = info.rate_in(given.pool)
            self.add_commitment(queue.user, rate * max(minimum, self.policy.commitment_floor))
        self.actions.append(Start(run_id, workload_id, given, minimum, reason, pending.attempt > 1))
        self.started[workload_id] = None
        weight = self.banks[given.pool].pool.weight
        self.given_running[leaf] = self.given_running.get(leaf, 0) + info.nodes * given.slots_per_node * weight
        for account in leaf.capped:
            self._given_gpus[account] = self._given_gpus.get(account, 0) + info.shape.gpus
        if info.charged:
            self.wake(self.now + minimum)

    def _prepaid(self, given: Allocation, leaf: Account) -> str | None:
        """The reservation that pays for a start that is wholly inside it, also where room had to be made first."""
        for entry in self.kept[given.pool]:
            if entry.reservation_id and not without(given.mask, entry.mask) and entry.admits(True, leaf):
                return entry.reservation_id
        return None

    def gpus_used(self, account: Account) -> int:
        """GPUs that run in an account with a cap, or will from now on."""
        return account.gpus + self._given_gpus.get(account, 0)

    def _minimum(self, queue: Queue) -> Duration:
        """The minimum in force: a policy may bound it for what starts beyond its account's entitlement."""
        minimum, bound = queue.info.min_runtime, self.policy.surplus_minimum_cap
        if bound is not None and minimum > bound and self.ratio(queue.user.account) >= 1.0:
            return bound
        return minimum

    def going(self) -> list[Run]:
        """The runs that were told to stop."""
        if self._going is None:
            self._going = [run for run in self.state.runs.values() if self.is_going(run)]
        return self._going

    def is_going(self, run: Run) -> bool:
        """Whether it was told to stop, before this decision or in it."""
        return run.stop_by is not None or run.id in self.stopped

    def stop(self, run: Run, reason: StopReason) -> Instant:
        """Tell the run to go; returns when it should be gone."""
        return self._send_away(run, Preempt(run.id, self.notice(run), reason))

    def cancel(self, run: Run) -> Instant:
        """Tell a run to go that its user does not want any more; returns when it should be gone."""
        return self._send_away(run, Cancel(run.id, self.notice(run), requeue=not run.cancelled))

    def notice(self, run: Run) -> Duration:
        """How long before its end a run that is to go is told so."""
        return min(run.grace, self.policy.grace_max)

    def _send_away(self, run: Run, action: Preempt | Cancel) -> Instant:
        self.actions.append(action)
        self.stopped[run.id] = None
        self.coming.clear()
        if self._going is not None:
            self._going.append(run)
        self.wake(self.now + action.grace + self.policy.stop_timeout)
        return self.now + action.grace

    @property
    def hold_of(self) -> dict[Account, list[WorkloadId]]:
        """The workloads of each leaf for which nodes were held as this decision began, and those that it adds."""
        if self._hold_of is None:
            self._hold_of = {}
            for workload_id, hold in self.state.holds.items():
                queue = self.state.pending[workload_id].queue
                if queue is not None and not hold.claim:
                    self._hold_of.setdefault(queue.user.account, []).append(workload_id)
        return self._hold_of

    def holds_given(self) -> int:
        """Holds in force, without claims on nodes that are being emptied at once."""
        return sum(not hold.claim for hold in self.holds.values())

    def grant(self, queue: Queue, hold: Hold) -> None:
        """Keep nodes for a workload; a first grant commits its minimum. Nodes that a moved hold leaves are news."""
        if hold.workload_id not in self.holds:
            info = queue.info
            rate = info.rate_in(hold.pool)
            if info.charged:
                self.add_commitment(queue.user, rate * info.commitment)
        else:
            before = self.holds[hold.workload_id]
            self.release(hold.workload_id)
            self.news = self.news or (before.pool, before.mask) != (hold.pool, hold.mask)
        self.holds[hold.workload_id] = hold
        self.coming.clear()
        self.reaches.clear()
        self.hold_changes.append(hold)
        self.keep(hold)

    def wait(self, pending: Pending, reason: WaitReason, again_at: Instant | None = None) -> None:
        """Record why a workload waits, if that is news."""
        again_at = self.now + self.policy.review if again_at is None else again_at
        known, queue = pending.waiting, pending.queue
        if queue is None or (known is not None and self._is_old_news(known, reason)):
            return
        user = queue.user
        self.waiting.append(Waiting(user.account.path, user.name, queue.info.shape, pending.id, reason, again_at))

    def _is_old_news(self, known: Waiting, reason: WaitReason) -> bool:
        """The same reason; numbers that only drift are told again when it is time to look again."""
        if known.reason == reason and isinstance(reason, AwaitingVictims | HoldsNodes):
            return True
        if known.again_at <= self.now:
            return False
        drifts = isinstance(reason, AtCap | HeadroomKept | NoFreeGpus | ShareSpent) and type(reason) is type(
            known.reason
        )
        return drifts or known.reason == reason

    def head(self, queue: Queue) -> Pending | None:
        """The first workload of the queue that this decision has not started and for which no nodes are held."""
        entries, started, holds = queue.entries, self.started, self.holds
        place = self.taken.get(queue, 0)
        while place < len(entries):
            first = entries[place]
            workload_id = first.id
            if workload_id not in holds and workload_id not in started:
                return first
            place += 1
            self.taken[queue] = place
        return None

    def plan(self) -> Plan:
        """What was decided."""
        wake_at = None if self.wake_at == FOREVER else self.wake_at
        return Plan(
            self.now,
            self.state.folded,
            tuple(self.actions),
            tuple(self.hold_changes),
            tuple(self.waiting),
            wake_at,
            self.surveyed,
        )
