"""Where there is room, as one decision sees it: free nodes, less what is kept for others, less what it has given.

Node sets are integers, so that a scratch copy of the whole cluster costs a few words.
"""

from __future__ import annotations

from mirab.core.nodes import Bank, without
from mirab.core.queues import ShapeInfo, Size
from mirab.core.shares import Account
from mirab.core.state import State
from mirab.model.accounts import covers
from mirab.model.plans import Hold
from mirab.model.resources import Allocation
from mirab.model.units import FOREVER, Duration, Instant, NodeMask, WorkloadId

OPEN: Instant = 2 * FOREVER
"""Later than what starts now and stays for ever."""


class Kept:
    """Nodes that not everybody may use: held until an instant, claimed, or reserved for an account.

    Attributes:
        until: what can be stopped by then may run here; 0 = nothing may start.
        account: an active reservation's: its work may start, and uncharged work of anybody.
    """

    __slots__ = ("account", "holder", "mask", "reservation_id", "until")

    def __init__(
        self,
        mask: NodeMask,
        until: Instant,
        holder: WorkloadId,
        account: str = "",
        reservation_id: str | None = None,
    ) -> None:
        self.mask = mask
        self.until = until
        self.holder = holder
        self.account = account
        self.reservation_id = reservation_id

    def admits(self, charged: bool, account: Account) -> bool:
        """Whether it is an active reservation in which work of the account, charged or not, may start."""
        return bool(self.account) and (not charged or covers(self.account, account.home.path))


class Space:
    """The nodes in a decision.

    Attributes:
        news: whether anything was freed since the last decision; if not, what was blocked is blocked still.
        fresh: by pool, the nodes on which this decision itself starts something.
        given_nodes: by pool, all nodes of which it has given slots away.
        holds: those in force, with what this decision has granted and released.
    """

    def __init__(self, state: State, now: Instant) -> None:
        self.state = state
        self.policy = state.policy
        self.contract = state.policy.contract
        self.now = now
        self.news = state.version != state.seen_version
        self.usable: list[NodeMask] = list(state.usable)
        self.banks: list[Bank] = list(state.banks)
        self.fresh: list[list[NodeMask]] = [[] for _ in state.banks]
        self.given_nodes: list[NodeMask] = [0] * len(state.banks)
        self.holds: dict[WorkloadId, Hold] = dict(state.holds)
        self._kept: list[list[Kept]] | None = None
        self._pinned: list[dict[Account, NodeMask] | None] = [None] * len(self.banks)
        self._open: dict[tuple[int, Instant], NodeMask] = {}
        self._closing: dict[Size, Instant] = {}
        self._unclaimed: dict[int, NodeMask] = {}
        self._in_order: dict[int, list[Kept]] = {}

    @property
    def kept(self) -> list[list[Kept]]:
        """By pool, the nodes that are not for everybody; worked out when first asked for."""
        if self._kept is None:
            self._kept = [[] for _ in self.banks]
            for hold in self.state.holds.values():
                self._kept[hold.pool].append(self._entry(hold))
            for hold in self.state.reserved.values():
                self.keep_reserved(hold)
        return self._kept

    def keep(self, hold: Hold) -> None:
        self.kept[hold.pool].append(self._entry(hold))
        self.nodes_opened()

    def _entry(self, hold: Hold) -> Kept:
        """What starts on held nodes must be stoppable by T, and if T is far, not much later than is usual.

        Limits are mostly longer than runs: the gang will often start well before a far T.
        """
        if hold.claim:
            return Kept(hold.mask, 0, hold.workload_id)
        policy, until = self.policy, hold.until
        usual = hold.granted_at + policy.min_runtime_cap + policy.grace_max
        if usual < until:
            soon = self.now + max(policy.urgent_minimum, policy.guest_minimum) + policy.grace_max
            until = min(until, max(usual, soon))
        return Kept(hold.mask, until, hold.workload_id)

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
        self.nodes_opened()

    def wide(self, number: int, width: int) -> NodeMask:
        """The usable nodes of a pool with at least so many slots free, whoever they are kept for."""
        bank = self.banks[number]
        masks = bank.look.wide
        least = bank.slots - width
        if len(masks) <= least:
            usable = self.usable[number]
            found = masks[-1] if masks else 0
            for level in range(bank.slots - len(masks), width - 1, -1):
                found |= bank.free[level] & usable
                masks.append(found)
        return masks[least]

    def count(self, number: int, width: int) -> int:
        """How many nodes of `wide` there are."""
        counts = self.banks[number].look.counts
        count = counts[width]
        if count < 0:
            count = counts[width] = self.wide(number, width).bit_count()
        return count

    def horizon(self) -> Instant:
        """How far ahead nodes may be held: without a contract as far as limits are known."""
        if not self.contract:
            return FOREVER - 1
        return self.now + max(self.policy.hold_horizon, self.policy.min_runtime_cap + self.policy.grace_max)

    def pinned(self, number: int) -> dict[Account, NodeMask]:
        """By leaf, the nodes that its charged runs keep beyond the horizon unless they may be stopped."""
        masks = self._pinned[number]
        if masks is None:
            masks, horizon = {}, self.horizon()
            for run in self.state.runs.values():
                if run.pool == number and run.charged and run.stop_by is None and run.limit_at() > horizon:
                    masks[run.account] = masks.get(run.account, 0) | run.mask
            self._pinned[number] = masks
        return masks

    def nodes_opened(self) -> None:
        """What was kept has changed."""
        self._open.clear()
        self._closing.clear()
        self._unclaimed.clear()
        self._in_order.clear()

    def node_returns(self, place: tuple[int, int]) -> None:
        """An undone drain: the node takes work in this very decision."""
        number, node = place
        self.usable[number] |= 1 << node
        self.banks[number] = self.banks[number].copy()
        self.banks[number].look_anew()
        self.nodes_opened()
        self.news = True

    def open_nodes(self, number: int, info: ShapeInfo, account: Account, delay: Duration = 0) -> NodeMask:
        """Usable nodes on which work of this shape and account may start now, or after a delay."""
        mask = 0
        for room in self.rooms(number, info, account, delay):
            mask |= room
        return mask

    def rooms(self, number: int, info: ShapeInfo, account: Account, delay: Duration = 0) -> list[NodeMask]:
        """The same apart: inside each running reservation of the account, then outside.

        A gang is wholly inside or wholly outside, else it would be half prepaid. Uncharged work of anybody may use
        the idle part of a reservation.
        """
        kept = self.kept[number]
        if not kept:
            return [self.usable[number]]
        gone = self.now + info.stay + delay
        outside = self._open_until(number, gone)
        if not any(entry.account for entry in kept):
            return [outside]
        inside = []
        for entry in kept:
            if entry.admits(info.charged, account):
                mask = entry.mask & self.usable[number]
                for other in kept:
                    if other is not entry and other.until < gone:
                        mask = without(mask, other.mask)
                inside.append(mask)
        if not info.charged:
            return [outside | sum(inside)] if len(inside) < 2 else [*inside, outside]
        return [*inside, outside]

    def open_to(self, number: int, info: ShapeInfo) -> NodeMask:
        """At least the nodes on which the shape may start, for any account, once runs have been given their notice."""
        kept = self.kept[number]
        if not kept:
            return self.usable[number]
        mask = self._open_until(number, self.now + info.stay + self.policy.grace_max)
        for entry in kept:
            if entry.account:
                mask |= entry.mask
        return mask

    def _open_until(self, number: int, gone: Instant) -> NodeMask:
        """Usable nodes that are kept for nobody before that instant."""
        mask = self._open.get((number, gone))
        if mask is None:
            mask = self.usable[number]
            for entry in self.kept[number]:
                if entry.until < gone:
                    mask = without(mask, entry.mask)
            self._open[number, gone] = mask
        return mask

    def unclaimed(self, number: int) -> NodeMask:
        """Usable nodes less those on which nothing may start but what they were cleared for."""
        mask = self._unclaimed.get(number)
        if mask is None:
            mask = self.usable[number]
            for entry in self.kept[number]:
                if not entry.until and not entry.account:
                    mask = without(mask, entry.mask)
            self._unclaimed[number] = mask
        return mask

    def has_room(self, size: Size) -> bool:
        """Whether free nodes are enough for the size, whoever they are kept for."""
        pairs, nodes = size
        for number, width in pairs:  # noqa: SIM110  # asked for every size that waits
            if self.count(number, width) >= nodes:
                return True
        return False

    def closes_at(self, size: Size) -> Instant:
        """By when what starts now must be gone so that free nodes are enough for the size.

        `OPEN` = they are enough whoever they are kept for, 0 = not even with all that are kept.
        """
        known = self._closing.get(size)
        if known is None:
            pairs, nodes = size
            known = 0
            for number, width in pairs:
                if self.count(number, width) >= nodes:
                    known = max(known, self._closes_at(number, width, nodes))
            self._closing[size] = known
        return known

    def _closes_at(self, number: int, width: int, nodes: int) -> Instant:
        kept, shared = self.kept[number], 0
        if not kept:
            return OPEN
        for entry in kept:
            if entry.account:
                shared |= entry.mask
        wide, count = self.wide(number, width), self.count(number, width)
        for entry in self._by_until(number):
            lost = wide & without(entry.mask, shared)
            if lost:
                wide ^= lost
                count -= lost.bit_count()
                if count < nodes:
                    return entry.until
        return OPEN

    def _by_until(self, number: int) -> list[Kept]:
        """What is kept in a pool, by when it closes."""
        known = self._in_order.get(number)
        if known is None:
            known = self._in_order[number] = sorted(self.kept[number], key=_until)
        return known

    def lets_in(self, info: ShapeInfo) -> bool:
        """Whether free nodes, and those of them that are kept for others, let the shape in; `place` knows for sure."""
        return self.now + info.stay <= self.closes_at(info.size)

    def lets_in_beside_headroom(self, info: ShapeInfo) -> bool:
        return self.beside_headroom(info.size) and self.lets_in(info)

    def roomy_shapes(self, charged: bool) -> list[ShapeInfo]:
        """The waiting shapes for which there seems to be room; uncharged ones leave the headroom."""
        found: list[ShapeInfo] = []
        for size, infos in self.state.waiting_sizes[charged].items():
            if self.has_room(size) and (charged or self.beside_headroom(size)):
                left = self.closes_at(size) - self.now
                found += [info for info in infos if info.stay <= left]
        return found

    def take(self, given: Allocation) -> None:
        """Book free slots for something that this decision starts."""
        bank = self.banks[given.pool]
        if bank is self.state.banks[given.pool]:
            bank = self.banks[given.pool] = bank.copy()
        bank.take(given, usable=True)
        self._closing.clear()
        self.fresh[given.pool].append(given.mask)
        if given.slots_per_node:
            self.given_nodes[given.pool] |= given.mask

    def headroom(self, number: int) -> int:
        """Slots of a pool that uncharged work leaves free."""
        return self.banks[number].pool.slots * self.policy.headroom // 1000

    def slots_free(self, number: int) -> int:
        """Free slots on the usable nodes of a pool."""
        bank = self.banks[number]
        look = bank.look
        if look.slots_free < 0:
            look.slots_free = bank.free_slots(self.usable[number])
        return look.slots_free

    def beside_headroom(self, size: Size) -> bool:
        """Whether some pool would keep its headroom, or all that it can, beside one more of the size."""
        pairs, nodes = size
        for number, width in pairs:  # noqa: SIM110  # asked for every size that waits
            if self.slots_free(number) >= self._with_headroom(number, width * nodes):
                return True
        return False

    def _with_headroom(self, number: int, slots: int) -> int:
        """Slots that must be free for so many to be taken beside the headroom, or all the rest if that is less."""
        total = self.banks[number].total
        return min(slots + total * self.policy.headroom // 1000, total)

    def kept_entry(self, number: int, mask: NodeMask) -> Kept | None:
        """Whose kept nodes these are, if anybody's."""
        for entry in self.kept[number]:
            if entry.mask & mask:
                return entry
        return None


def _until(entry: Kept) -> Instant:
    return entry.until
