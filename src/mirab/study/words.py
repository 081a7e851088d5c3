"""A sentence for every typed reason: what blocks or blocked, its numbers, and what would remove it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mirab.model import reasons as why
from mirab.model.units import HOUR, SECOND, Duration, Instant
from mirab.study.formats import Names, plural, ratio, slot_word, span

NAMELESS = Names()
_Teller: TypeAlias = Callable[[Any, Names], str]
_TELLERS: dict[type, _Teller] = {}


def sentence(reason: why.Reason, names: Names = NAMELESS) -> str:
    """Plain English for a reason, without a full stop, so that it can stand in a table.

    Raises:
        KeyError: a reason that nobody has written a sentence for (a test enumerates them).
    """
    return _TELLERS[type(reason)](reason, names)


def tellable() -> frozenset[type]:
    """The reasons that have a sentence."""
    return frozenset(_TELLERS)


def _tells(kind: type) -> Callable[[_Teller], _Teller]:
    def register(teller: _Teller) -> _Teller:
        _TELLERS[kind] = teller
        return teller

    return register


def _span(duration: Duration) -> str:
    return span(duration / SECOND)


def _before(instant: Instant | None, names: Names) -> str:
    return f"before {names.at(instant)}" if instant is not None else "at any time known now"


def _request(nodes: int, slots_per_node: int, names: Names) -> str:
    """``4 nodes with 8 free GPUs each``, ``1 node with 2 free GPUs``."""
    free = f"{slots_per_node:,} free {slot_word(names.unit, slots_per_node)}"
    return f"1 node with {free}" if nodes == 1 else f"{nodes:,} nodes with {free} each"


# --- started -------------------------------------------------------------------------------------------------------
@_tells(why.InOrder)
def _in_order(reason: why.InOrder, names: Names) -> str:
    side = "below its share, so it went before all that are not" if reason.owed else "at or above its share"
    return f"its turn came and enough was free: {reason.account} stood at {ratio(reason.ratio)} of its share ({side})"


@_tells(why.OnHeldNodes)
def _on_held_nodes(reason: why.OnHeldNodes, names: Names) -> str:
    return (
        f"it runs for now on nodes held for {reason.holder}, who can take them back from {names.at(reason.until)} on; "
        "its minimum is over by then"
    )


@_tells(why.VictimsGone)
def _victims_gone(reason: why.VictimsGone, names: Names) -> str:
    return f"{plural(reason.victims, 'run')} made room for it and {'is' if reason.victims == 1 else 'are'} gone"


@_tells(why.HoldDue)
def _hold_due(reason: why.HoldDue, names: Names) -> str:
    return f"the nodes held for it since {names.at(reason.since)} are free"


@_tells(why.Reserved)
def _reserved(reason: why.Reserved, names: Names) -> str:
    return f"it runs inside its account's reservation {reason.reservation_id}"


# --- stopped -------------------------------------------------------------------------------------------------------
@_tells(why.PreemptedFor)
def _preempted_for(reason: why.PreemptedFor, names: Names) -> str:
    lost = reason.lost / HOUR
    cost = "next to no work was at stake, since it had just checkpointed"
    if lost >= 0.05:
        cost = f"{lost:,.1f} {names.slot}-hours of work since its last checkpoint were at stake"
    for_whom = f"stopped for {reason.beneficiary} of {reason.account}"
    if reason.hold:
        for_whom += ", for whom its nodes were held"
    if reason.uncharged:
        rule = "its minimum was 0, so charged work may stop it at any time"
    else:
        rule = (
            f"its minimum was over and its side had more of its share than the other, even with the newcomer counted "
            f"({ratio(reason.ratio_against)} against {ratio(reason.ratio_for)})"
        )
    return f"{for_whom}: {rule}; {cost}"


@_tells(why.DrainedFrom)
def _drained_from(reason: why.DrainedFrom, names: Names) -> str:
    cause = f" ({reason.cause})" if reason.cause else ""
    return f"node {reason.node} is sick{cause} and the minimums of all runs on it are over: it goes to repair"


@_tells(why.ReservationBegins)
def _reservation_begins(reason: why.ReservationBegins, names: Names) -> str:
    return (
        f"reservation {reason.reservation_id} of {reason.account} begins and needs the node; its own minimum was over"
    )


@_tells(why.StartTimedOut)
def _start_timed_out(reason: why.StartTimedOut, names: Names) -> str:
    return (
        f"it was still starting after {_span(reason.after)}: see what holds up its launch "
        "(image, file system, a sick node)"
    )


# --- waits ---------------------------------------------------------------------------------------------------------
@_tells(why.NoFreeGpus)
def _no_free_gpus(reason: why.NoFreeGpus, names: Names) -> str:
    verb = "is" if reason.nodes_free == 1 else "are"
    return (
        f"needs {_request(reason.nodes, reason.gpus_per_node, names)}; {reason.nodes_free:,} {verb} "
        f"({names.slots(reason.gpus_free)} free in all) and {reason.claimable:,} more can be cleared "
        f"{_before(reason.next_at, names)}"
    )


@_tells(why.ShareSpent)
def _share_spent(reason: why.ShareSpent, names: Names) -> str:
    return (
        f"its account has had {ratio(reason.ratio)} of its share and nobody may be stopped for it; "
        f"{reason.first} at {ratio(reason.first_ratio)} goes first; {plural(reason.nodes_free, 'node')} free for it. "
        "It starts when others leave room, or as its account's usage leaves the window; a larger share would move it up"
    )


@_tells(why.AwaitingCheckpoint)
def _awaiting_checkpoint(reason: why.AwaitingCheckpoint, names: Names) -> str:
    return (
        f"{plural(reason.victims, 'run')} will make room for it, and {'is' if reason.victims == 1 else 'are'} about "
        f"to checkpoint: it waits until {names.at(reason.until)} at the latest, so that less work is lost"
    )


@_tells(why.AwaitingVictims)
def _awaiting_victims(reason: why.AwaitingVictims, names: Names) -> str:
    return (
        f"{plural(reason.victims, 'run')} {'is' if reason.victims == 1 else 'are'} being stopped for it; "
        f"the last should be gone by {names.at(reason.until)}"
    )


@_tells(why.HoldsNodes)
def _holds_nodes(reason: why.HoldsNodes, names: Names) -> str:
    kept = "1 node is" if reason.nodes == 1 else f"{reason.nodes:,} nodes are"
    return f"{kept} kept for it; it starts at {names.at(reason.until)} at the latest, and earlier if they clear earlier"


@_tells(why.NotEnoughClaimable)
def _not_enough_claimable(reason: why.NotEnoughClaimable, names: Names) -> str:
    return (
        f"needs {plural(reason.nodes, 'node')}; only {reason.claimable:,} could be cleared at any time known now, so "
        "none are held for it. More come in reach as minimums and time limits are declared, as its account falls "
        "further behind the others, or with fewer nodes asked for"
    )


@_tells(why.HoldTaken)
def _hold_taken(reason: why.HoldTaken, names: Names) -> str:
    if reason.holder is not None:
        return (
            f"its account already has nodes held for {reason.holder}: it is next once that one has started "
            f"({plural(reason.holds, 'hold')} given in all)"
        )
    return f"all {plural(reason.holds, 'hold')} are given to others: one must start first (setting `holds_max`)"


@_tells(why.BehindOwnWork)
def _behind_own_work(reason: why.BehindOwnWork, names: Names) -> str:
    return (
        f"{plural(reason.ahead, 'older or more urgent workload')} of the same user and shape "
        f"{'goes' if reason.ahead == 1 else 'go'} first, next {reason.first}: "
        "cancel or lower those to move it up"
    )


@_tells(why.SavingUp)
def _saving_up(reason: why.SavingUp, names: Names) -> str:
    return (
        f"its account saves up for {reason.gang}, its oldest gang, which goes first "
        "(the budget's own setting `save_for_gangs`)"
    )


@_tells(why.BlockedBehind)
def _blocked_behind(reason: why.BlockedBehind, names: Names) -> str:
    if reason.until is None:
        return f"the order is strict and {reason.holder} goes first; when that will be is not known"
    return (
        f"it might still run when {reason.holder} is due at {names.at(reason.until)}: "
        "a shorter time limit or minimum would let it start before"
    )


@_tells(why.HeadroomKept)
def _headroom_kept(reason: why.HeadroomKept, names: Names) -> str:
    return (
        f"work without a minimum leaves {names.slots(reason.headroom)} free for small charged work; "
        f"{reason.gpus_free:,} free now: it starts when more is, or with a minimum above 0"
    )


@_tells(why.QuotaFull)
def _quota_full(reason: why.QuotaFull, names: Names) -> str:
    return (
        f"its account runs {reason.running:,} of its fixed quota of {names.slots(reason.quota)}: "
        "some of its own work must end first"
    )


@_tells(why.NeverFits)
def _never_fits(reason: why.NeverFits, names: Names) -> str:
    types = f" of type {' or '.join(reason.gpu_types)}" if reason.gpu_types else ""
    asked = f"{plural(reason.nodes, 'node')} x {names.slots(reason.gpus_per_node)}{types}"
    return (
        f"asks for {asked}; the most that is installed for it is {plural(reason.largest_nodes, 'node')} x "
        f"{names.slots(reason.largest_gpus_per_node)}: it can never run as asked; ask for less"
    )


@_tells(why.UnknownAccount)
def _unknown_account(reason: why.UnknownAccount, names: Names) -> str:
    return (
        f"account {reason.account} has no budget: submit for one that has, or add it to the budgets "
        "(or admit unknown accounts at share 0 by setting `unknown_accounts: zero`)"
    )


@_tells(why.HeldByUser)
def _held_by_user(reason: why.HeldByUser, names: Names) -> str:
    return f"held back ({reason.why or 'no reason given'}): it queues from its release on"
