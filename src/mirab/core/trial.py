"""A scratch world in which a decision is tried out: the state itself is only read.

Node sets are integers and so cost little to copy; ratios start from the meters and grow by what this decision has
given away so far. Nothing is rolled back because nothing is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirab.core.nodes import Bank
from mirab.core.queues import Pending, Queue, ShapeInfo, User
from mirab.core.runs import Run
from mirab.core.shares import Account, compared, parting
from mirab.core.state import State, covers
from mirab.model.plans import Action, Hold, HoldChange, Plan, Preempt, Start, Waiting
from mirab.model.reasons import (
    AwaitingVictims,
    HoldsNodes,
    OnHeldNodes,
    Reserved,
    StartReason,
    StopReason,
    WaitReason,
)
from mirab.model.resources import Allocation
from mirab.model.units import (
    FOREVER,
    Charge,
    Duration,
    Instant,
    NodeMask,
    RunId,
    WorkloadId,
)

if TYPE_CHECKING:
    from mirab.core.reclaim import NoClearing, Reach


@dataclass(slots=True, eq=False)
class Kept:
    """Nodes that not everybody may use: held until an instant, claimed, or reserved for an account."""

    mask: NodeMask
    until: Instant
    """What can be stopped by then may run here; 0 = nothing may start."""
    holder: WorkloadId
    account: str = ""
    """An active reservation's: its work may start, and uncharged work of anybody."""
    reservation_id: str | None = None


class Trial:
    """One decision in the making."""

    def __init__(self, state: State, now: Instant) -> None:
        self.state = state
        self.policy = state.policy
        self.now = now
        self.news = state.version != state.seen_version
        """Whether anything was freed since the last decision; if not, what was blocked is blocked still."""
        self.surveyed = False
        self.reviewing = now >= state.seen_at + state.policy.review
        self.usable: list[NodeMask] = list(state.usable)
        self.banks: list[Bank] = [bank.copy() for bank in state.banks]
        self._kept: list[list[Kept]] | None = None
        self.actions: list[Action] = []
        self.hold_changes: list[HoldChange] = []
        self.waiting: list[Waiting] = []
        self.started: dict[WorkloadId, None] = {}
        self.stopped: dict[RunId, None] = {}
        self.taken: dict[Queue, int] = {}
        self.holds: dict[WorkloadId, Hold] = dict(state.holds)
        self.hold_of: dict[Account, list[WorkloadId]] = {}
        self.given_slots: dict[Account, int] = {}
        self.wake_at: Instant = FOREVER
        self._first: Account | None = None
        self._all_used: Charge | None = None
        self._first_known = False
        self._weighed: dict[Account, tuple[Charge, int]] = {}
        self.reaches: dict[tuple[RunId, ...], Reach] = {}
        self.failed: dict[tuple[tuple[RunId, ...], ShapeInfo], NoClearing] = {}
        self.given_uncharged: dict[Account, Charge] = {}
        self._uncharged_ratios: dict[Account, float] = {}
        self._ratios: dict[Account, float] = {}
        self._user_usage: dict[User, Charge] = {}
        self._wide: list[list[NodeMask] | None] = [None] * len(self.banks)
        self._pinned: list[dict[Account, NodeMask] | None] = [None] * len(self.banks)
        self._open: dict[tuple[int, Instant], NodeMask] = {}

    # --- time ------------------------------------------------------------------------------------------------------
    def wake(self, at: Instant) -> None:
        """Decide again at that instant at the latest."""
        if self.now < at < self.wake_at:
            self.wake_at = at

    # --- nodes -----------------------------------------------------------------------------------------------------
    @property
    def kept(self) -> list[list[Kept]]:
        """By pool, the nodes that are not for everybody; worked out when first asked for."""
        if self._kept is None:
            self._kept = [[] for _ in self.banks]
            for hold in self.state.holds.values():
                self.keep(hold)
            for hold in self.state.reserved.values():
                self.keep_reserved(hold)
        return self._kept

    def keep(self, hold: Hold) -> None:
        self.kept[hold.pool].append(Kept(hold.mask, 0 if hold.claim else self._free_by(hold), hold.workload_id))
        self._open.clear()

    def _free_by(self, hold: Hold) -> Instant:
        """By when what starts on held nodes must be stoppable: T, and if T is far, not much later than is usual.

        Limits are mostly longer than runs: the gang will often start well before a far T.
        """
        usual = hold.granted_at + self.policy.min_runtime_cap + self.policy.grace_max
        soon = self.now + self.policy.urgent_minimum + self.policy.grace_max
        return min(hold.until, max(usual, soon))

    def keep_reserved(self, hold: Hold) -> None:
        reservation = self.state.reservations.get(hold.reservation_id or "")
        if reservation is None:
            return
        active = reservation.begin <= self.now
        self.kept[hold.pool].append(
            Kept(hold.mask, 0 if active else reservation.begin, hold.workload_id,
                 reservation.account if active else "", reservation.id)
        )  # fmt: skip

    def release(self, workload_id: WorkloadId) -> None:
        """Forget the nodes kept for it."""
        for kept in self.kept:
            kept[:] = [entry for entry in kept if entry.holder != workload_id or entry.reservation_id]
        self.holds.pop(workload_id, None)
        self._open.clear()

    def wide(self, number: int) -> list[NodeMask]:
        """`wide(p)[w]`: the usable nodes of pool p with at least w slots free, whoever they are kept for."""
        masks = self._wide[number]
        if masks is None:
            bank, usable = self.banks[number], self.usable[number]
            masks = [0] * (bank.slots + 2)
            for level in range(bank.slots, -1, -1):
                masks[level] = masks[level + 1] | bank.free[level] & usable
            self._wide[number] = masks
        return masks

    def horizon(self) -> Instant:
        """How far ahead nodes may be held: without a contract as far as limits are known."""
        if not self.policy.contract:
            return FOREVER - 1
        return self.now + max(self.policy.hold_horizon, self.policy.min_runtime_cap + self.policy.grace_max)

    def pinned(self, number: int) -> dict[Account, NodeMask]:
        """By leaf, the nodes that its charged runs keep beyond the horizon unless they may be stopped."""
        masks = self._pinned[number]
        if masks is None:
            masks, horizon = {}, self.horizon()
            for run in self.state.runs.values():
                if run.allocation.pool == number and run.charged and run.stop_by is None and run.limit_at() > horizon:
                    masks[run.account] = masks.get(run.account, 0) | run.allocation.mask
            self._pinned[number] = masks
        return masks

    def forget_open_nodes(self) -> None:
        """What was kept has changed."""
        self._open.clear()

    def node_returns(self, place: tuple[int, int]) -> None:
        """An undone drain: the node takes work in this very decision."""
        self.usable[place[0]] |= 1 << place[1]
        self._wide[place[0]] = None
        self._open.clear()
        self.news = True

    def gone_by(self, info: ShapeInfo) -> Instant:
        """When a run of this shape that starts now can be made to have left."""
        shape = info.shape
        if self.policy.backfill == "limit":
            return FOREVER if shape.time_limit is None else self.now + shape.time_limit
        return self.now + info.min_runtime + min(shape.grace, self.policy.grace_max)

    def open_nodes(self, number: int, info: ShapeInfo, account: Account, delay: Duration = 0) -> NodeMask:
        """Usable nodes on which work of this shape and account may start now, or after a delay."""
        kept = self.kept[number]
        if not kept:
            return self.usable[number]
        mask = self._open_until(number, self.gone_by(info) + delay)
        for entry in kept:
            if entry.account and self._welcome(entry, info, account):
                mask |= entry.mask & self.usable[number]
        return mask

    def _open_until(self, number: int, gone: Instant) -> NodeMask:
        """Usable nodes that are kept for nobody before that instant."""
        mask = self._open.get((number, gone))
        if mask is None:
            mask = self.usable[number]
            for entry in self.kept[number]:
                if entry.until < gone:
                    mask &= ~entry.mask
            self._open[number, gone] = mask
        return mask

    def _welcome(self, entry: Kept, info: ShapeInfo, account: Account) -> bool:
        return not info.charged or covers(entry.account, account.path)

    def waiting_shapes(self) -> list[ShapeInfo]:
        return [info for infos in self.state.waiting_sizes.values() for info in infos]

    def roomy_shapes(self) -> list[ShapeInfo]:
        """The waiting shapes for which enough nodes seem to be free; `place` knows for sure."""
        certain: list[list[int]] = []
        possible: list[list[int]] = []
        for number, kept in enumerate(self.kept):
            masks, hidden = self.wide(number), 0
            possible.append([mask.bit_count() for mask in masks])
            for entry in kept:
                hidden |= entry.mask
            certain.append([(mask & ~hidden).bit_count() for mask in masks] if hidden else possible[-1])
        found: list[ShapeInfo] = []
        for (pairs, nodes), infos in self.state.waiting_sizes.items():
            if any(nodes <= certain[number][width] for number, width in pairs):
                found += infos
            elif any(nodes <= possible[number][width] for number, width in pairs):
                found += [info for info in infos if self._enters(info)]
        return found

    def _enters(self, info: ShapeInfo) -> bool:
        """Whether nodes that are kept for others let the shape in."""
        gone, nodes = self.gone_by(info), info.shape.nodes
        for number, width in info.pairs:
            mask = self._open_until(number, gone)
            for entry in self.kept[number]:
                if entry.account:
                    mask |= entry.mask
            if (mask & self.wide(number)[width]).bit_count() >= nodes:
                return True
        return False

    def fresh_masks(self, number: int) -> list[NodeMask]:
        """Nodes on which this decision itself has started something."""
        return [
            action.allocation.mask
            for action in self.actions
            if isinstance(action, Start) and action.allocation.pool == number
        ]

    def headroom(self) -> int:
        """Slots that uncharged work leaves free."""
        return self.state.cluster.slots * self.policy.headroom // 1000

    def gpus_free(self) -> int:
        """Free slots on usable nodes."""
        return sum(bank.free_slots(usable) for bank, usable in zip(self.banks, self.usable, strict=True))

    def kept_entry(self, number: int, mask: NodeMask) -> Kept | None:
        """Whose kept nodes these are, if anybody's."""
        for entry in self.kept[number]:
            if entry.mask & mask:
                return entry
        return None

    # --- ratios ----------------------------------------------------------------------------------------------------
    def weigh(self, account: Account) -> tuple[Charge, int]:
        """(U + K with what this decision has added, E in parts of `WHOLE`)."""
        weighed = self._weighed.get(account)
        if weighed is None:
            used = account.used(self.now)
            if self.policy.order == "fair-tree":
                weighed = used, account.share * max(1, self._total_used())
            else:
                weighed = used + account.committed(self.now), account.promised(self.now)
            self._weighed[account] = weighed
        return weighed

    def _total_used(self) -> Charge:
        """Decayed usage of all: Fair Tree compares shares of what was used with shares of what was promised."""
        if self._all_used is None:
            self._all_used = sum(account.used(self.now) for account in self.state.roots)
        return self._all_used

    def ratio(self, account: Account, added: Charge = 0) -> float:
        """(U + K) / E as this decision has made it, with `added` more."""
        if added:
            used, promised = self.weigh(account)
            return compared(used + added, promised)
        ratio = self._ratios.get(account)
        if ratio is None:
            ratio = self._ratios[account] = compared(*self.weigh(account))
        return ratio

    def may_take(self, mine: Account, theirs: Account, added: Charge) -> bool:
        """Whether runs of leaf `theirs` past their minimum may make room for `added` more of leaf `mine`.

        Theirs is not below its share, and where the paths part the ratios differ by more than the margin.
        """
        if self.ratio(theirs) < 1.0 or self.weigh(mine)[1] <= 0:
            return False
        ours, against = parting(mine, theirs)
        return self.ratio(ours, added) * (1000 + self.policy.margin) <= self.ratio(against) * 1000

    def sides(self, mine: Account, theirs: Account) -> tuple[Account, Account]:
        """Whose ratios are compared: the two accounts where the paths part."""
        return parting(mine, theirs)

    def first_leaf(self) -> Account | None:
        """The leaf with waiting charged work that goes first as this decision began."""
        if not self._first_known:
            self._first_known = True
            for account in self.state.accounts.values():
                if (
                    account.waiting
                    and account.leaf
                    and (self._first is None or self.standing(account) < self.standing(self._first))
                ):
                    self._first = account
        return self._first

    def standing(self, leaf: Account) -> tuple[bool, float]:
        ratio = self.ratio(leaf)
        return ratio >= 1.0, ratio

    def user_usage(self, user: User) -> Charge:
        used = self._user_usage.get(user)
        if used is None:
            used = self._user_usage[user] = self.state.user_usage(user, self.now)
        return used

    def uncharged_ratio(self, account: Account) -> float:
        """Uncharged usage over entitlement, with what this decision has given."""
        ratio = self._uncharged_ratios.get(account)
        if ratio is None:
            used = account.uncharged.between(self.now - self.policy.window, self.now)
            ratio = compared(used + self.given_uncharged.get(account, 0), account.promised(self.now))
            self._uncharged_ratios[account] = ratio
        return ratio

    def add_uncharged(self, leaf: Account, amount: Charge) -> None:
        for account in leaf.lineage:
            self.given_uncharged[account] = self.given_uncharged.get(account, 0) + amount
            self._uncharged_ratios.pop(account, None)

    def add_commitment(self, user: User, amount: Charge) -> None:
        for account in user.account.lineage:
            used, promised = self.weigh(account)
            self._weighed[account] = used + amount, promised
            self._ratios.pop(account, None)
        self._user_usage[user] = self.user_usage(user) + amount

    # --- decisions -------------------------------------------------------------------------------------------------
    def start(self, queue: Queue, workload_id: WorkloadId, given: Allocation, reason: StartReason) -> None:
        """Give the nodes to the workload."""
        info, pending = queue.info, self.state.pending[workload_id]
        run_id = RunId(f"{workload_id}.{pending.attempt}")
        minimum = self._minimum(queue)
        entry = self.kept_entry(given.pool, given.mask) if self.kept[given.pool] else None
        if entry is not None and entry.holder != workload_id:
            reason = (
                Reserved(entry.reservation_id)
                if entry.reservation_id and covers(entry.account or "/", queue.user.account.path)
                else OnHeldNodes(entry.holder, entry.until)
            )
            self.wake(entry.until - min(info.shape.grace, self.policy.grace_max))
        self.banks[given.pool].take(given)
        self._wide[given.pool] = None
        if workload_id in self.holds:
            self.release(workload_id)
            self.news = True
        elif info.charged:
            rate = info.rates[info.pools.index(given.pool)]
            self.add_commitment(queue.user, rate * max(minimum, self.policy.commitment_floor))
        self.actions.append(Start(run_id, workload_id, given, minimum, reason, pending.attempt > 1))
        self.started[workload_id] = None
        leaf = queue.user.account
        self.given_slots[leaf] = self.given_slots.get(leaf, 0) + given.slots
        if info.charged:
            self.wake(self.now + minimum)

    def _minimum(self, queue: Queue) -> Duration:
        """The minimum in force: a policy may bound it for what starts beyond its account's entitlement."""
        minimum, bound = queue.info.min_runtime, self.policy.surplus_minimum_cap
        if bound is not None and minimum > bound and self.ratio(queue.user.account) >= 1.0:
            return bound
        return minimum

    def stop(self, run: Run, reason: StopReason) -> Instant:
        """Tell the run to go; returns when it should be gone."""
        grace = min(run.workload.shape.grace, self.policy.grace_max)
        self.actions.append(Preempt(run.id, grace, reason))
        self.stopped[run.id] = None
        self.wake(self.now + grace + self.policy.stop_timeout)
        return self.now + grace

    def holds_given(self) -> int:
        """Holds in force, without claims on nodes that are being emptied at once."""
        return sum(not hold.claim for hold in self.holds.values())

    def grant(self, queue: Queue, hold: Hold) -> None:
        """Keep nodes for a workload; a first grant commits its minimum."""
        if hold.workload_id not in self.holds:
            info = queue.info
            rate = info.rates[info.pools.index(hold.pool)]
            if info.charged:
                self.add_commitment(queue.user, rate * info.commitment)
        else:
            self.release(hold.workload_id)
        self.holds[hold.workload_id] = hold
        self.hold_changes.append(hold)
        self.keep(hold)

    def wait(self, pending: Pending, reason: WaitReason, again_at: Instant = FOREVER) -> None:
        """Record why a workload waits, if that is news."""
        again_at = min(again_at, self.now + self.policy.review) if again_at == FOREVER else again_at
        lasting = isinstance(reason, AwaitingVictims | HoldsNodes)
        known, queue = pending.waiting, pending.queue
        if queue is None or (known is not None and known.reason == reason and (known.again_at > self.now or lasting)):
            return
        user = queue.user
        self.waiting.append(
            Waiting(user.account.path, user.name, queue.info.shape, pending.workload.id, reason, again_at)
        )

    def head(self, queue: Queue) -> Pending | None:
        """The first workload of the queue that this decision has not started and for which no nodes are held."""
        place = self.taken.get(queue, 0)
        entries = queue.entries
        while place < len(entries):
            workload_id = entries[place].workload.id
            if workload_id not in self.started and workload_id not in self.holds:
                break
            place += 1
        self.taken[queue] = place
        return entries[place] if place < len(entries) else None

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
