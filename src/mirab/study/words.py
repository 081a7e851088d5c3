"""A sentence for every typed reason: what blocks or blocked, its numbers, and what would remove it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mirab.model import reasons as why
from mirab.model.units import HOUR, SECOND, Duration, Instant
from mirab.study.formats import Names, plural, ratio, slot_word, span, standing, times_word

NAMELESS = Names()
ADOPTED = "the engine started it by itself"
"""Of a run that no plan started."""
_Teller: TypeAlias = Callable[[Any, Names], str]
_TELLERS: dict[type, _Teller] = {}
_ADVICE: dict[type, str] = {}


def sentence(reason: why.Reason, names: Names = NAMELESS) -> str:
    """Plain English for a reason and what would remove it, without a full stop, so that it can stand in a table.

    Raises:
        KeyError: a reason that nobody has written a sentence for (a test enumerates them).
    """
    remedy = advice(reason)
    return f"{fact(reason, names)}. {remedy}" if remedy else fact(reason, names)


def fact(reason: why.Reason, names: Names = NAMELESS) -> str:
    """What is so, with its numbers."""
    return _TELLERS[type(reason)](reason, names)


def advice(reason: why.Reason) -> str:
    """What would remove it, the same for all reasons of a kind; empty where the fact says it already."""
    return _ADVICE.get(type(reason), "")


def tellable() -> frozenset[type]:
    """The reasons that have a sentence."""
    return frozenset(_TELLERS)


def _tells(kind: type, remedy: str = "") -> Callable[[_Teller], _Teller]:
    def register(teller: _Teller) -> _Teller:
        _TELLERS[kind] = teller
        if remedy:
            _ADVICE[kind] = remedy
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
    stood = f"{reason.account} stood at {standing(reason.ratio)} of its share"
    if names.order != "budget":
        return f"its turn came in the order of policy {names.order} and enough was free; {stood}"
    side = "at or above its share" if reason.ratio >= 1 else "without a minimum it goes after all that is charged"
    if reason.owed:
        side = "below its share, so it went before all that are not"
    return f"its turn came and enough was free: {stood} ({side})"


@_tells(why.OnHeldNodes)
def _on_held_nodes(reason: why.OnHeldNodes, names: Names) -> str:
    kept = f"it runs for now on nodes held for {reason.holder}, who can take them back"
    if not reason.until:
        return f"{kept} at any time"
    return f"{kept} from {names.at(reason.until)} on; its minimum is over by then"


@_tells(why.VictimsGone)
def _victims_gone(reason: why.VictimsGone, names: Names) -> str:
    if not reason.victims:
        return "runs that were leaving anyway made room for it and are gone"
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
    held = ", for whom its nodes were held" if reason.hold else ""
    lost = reason.lost / HOUR
    cost = "next to no work was at stake, since it had just checkpointed"
    if lost >= 0.05:
        cost = f"{lost:,.1f} {names.slot}-hours of work since its last checkpoint were at stake"
    return f"stopped for {reason.beneficiary} of {reason.account}{held}: {right_to_stop(reason, names)}; {cost}"


def right_to_stop(reason: why.PreemptedFor, names: Names) -> str:
    """The rule by which it had to give way, with the ratios of the two sides."""
    if names.preemption == "priority":
        return "its priority was lower, and it was declared preemptible"
    if reason.uncharged:
        return "its minimum was 0, so charged work may stop it at any time"
    against, mine = ratio(reason.ratio_against), ratio(reason.ratio_for)
    if reason.ratio_for == reason.ratio_against:
        return f"its minimum was over and its user had had more than the other of the same account (which is at {mine})"
    if reason.hold:
        return (
            "its minimum was over, and when the nodes were held its side had more of its share than the other "
            f"(by now {against} against {mine})"
        )
    return (
        "its minimum was over and its side had more of its share than the other, even with the newcomer counted "
        f"({against} against {mine})"
    )


@_tells(why.DrainedFrom)
def _drained_from(reason: why.DrainedFrom, names: Names) -> str:
    cause = f" ({reason.cause})" if reason.cause else ""
    return f"node {reason.node} is sick{cause} and the minimums of all runs on it are over: it goes to repair"


@_tells(why.ReservationBegins)
def _reservation_begins(reason: why.ReservationBegins, names: Names) -> str:
    return (
        f"reservation {reason.reservation_id} of {reason.account} begins and needs the node; its own minimum was over"
    )


@_tells(why.StartTimedOut, "See what holds up its launch: image, file system, a sick node")
def _start_timed_out(reason: why.StartTimedOut, names: Names) -> str:
    return f"it was still starting after {_span(reason.after)}"


# --- waits ---------------------------------------------------------------------------------------------------------
@_tells(why.NoFreeGpus)
def _no_free_gpus(reason: why.NoFreeGpus, names: Names) -> str:
    if reason.nodes_free >= reason.nodes:
        return f"needs {_request(reason.nodes, reason.gpus_per_node, names)}; {_lacking_else(reason, names)}"
    verb = "is" if reason.nodes_free == 1 else "are"
    return (
        f"needs {_request(reason.nodes, reason.gpus_per_node, names)}; {reason.nodes_free:,} {verb} "
        f"({names.slots(reason.gpus_free)} free in all) and {reason.claimable:,} more can be cleared "
        f"{_before(reason.next_at, names)}"
    )


def _lacking_else(reason: why.NoFreeGpus, names: Names) -> str:
    """Slots enough, and still no room: what is short is what nodes have beside them."""
    cleared = f"that it asks for beside, and {reason.claimable:,} more can be cleared {_before(reason.next_at, names)}"
    if names.unit == "cpu":
        return f"too few have them together with the memory {cleared}"
    have = f"{reason.nodes_free:,} {'has' if reason.nodes_free == 1 else 'have'} them"
    return f"{have} ({names.slots(reason.gpus_free)} free in all), but not the cores or the memory {cleared}"


@_tells(
    why.ShareSpent,
    "It starts when others leave room, or as its account's usage leaves the window; a larger share would move it up",
)
def _share_spent(reason: why.ShareSpent, names: Names) -> str:
    return (
        f"its account has had {ratio(reason.ratio)} of its share and nobody may be stopped for it; "
        f"{reason.first} at {ratio(reason.first_ratio)} goes first; {plural(reason.nodes_free, 'node')} free for it"
    )


@_tells(why.AwaitingCheckpoint)
def _awaiting_checkpoint(reason: why.AwaitingCheckpoint, names: Names) -> str:
    if reason.victims > 1:
        return (
            f"{plural(reason.victims, 'run')} could make room for it, but would lose too much of their work since "
            f"their checkpoints: it looks again at {names.at(reason.until)}, when the first of them has saved"
        )
    return (
        f"1 run will make room for it, and is about to checkpoint: it waits until {names.at(reason.until)} at the "
        "latest, so that less work is lost"
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


@_tells(
    why.NotEnoughClaimable,
    "More come in reach as runs declare minimums and time limits, as its account falls further behind the others, "
    "or with fewer nodes asked for",
)
def _not_enough_claimable(reason: why.NotEnoughClaimable, names: Names) -> str:
    return (
        f"needs {plural(reason.nodes, 'node')}; only {reason.claimable:,} could be cleared at any time known now, so "
        "none are held for it"
    )


@_tells(why.HoldTaken, "Its turn to hold nodes comes when one of those has started")
def _hold_taken(reason: why.HoldTaken, names: Names) -> str:
    if reason.holder is not None:
        return f"its account already has {plural(reason.holds, 'hold')}, for {reason.holder} first"
    return f"as many holds as the policy allows (`holds_max`) are given to others ({reason.holds} in all)"


@_tells(why.HoldNotOwed, "Nodes will be held for it once its account is below its share")
def _hold_not_owed(reason: why.HoldNotOwed, names: Names) -> str:
    return f"no nodes are held for it, since its account already has {reason.ratio:.2f} of its share"


@_tells(why.SavingUp, "That is the budget's own choice: its setting `save_for_gangs`")
def _saving_up(reason: why.SavingUp, names: Names) -> str:
    return f"its account saves up for {reason.gang}, its oldest gang, which goes first"


@_tells(why.BlockedBehind, "A shorter time limit or minimum may let it start before")
def _blocked_behind(reason: why.BlockedBehind, names: Names) -> str:
    if reason.until is None:
        return f"nodes are free, but {reason.holder} goes first, and when that will be is not known"
    return f"nodes are free, but it might still run when {reason.holder} is due on them at {names.at(reason.until)}"


@_tells(why.HeadroomKept, "It starts when more is free, or with a minimum above 0")
def _headroom_kept(reason: why.HeadroomKept, names: Names) -> str:
    return (
        f"work without a minimum leaves {names.slots(reason.headroom)} free for small charged work; "
        f"{reason.gpus_free:,} free now"
    )


@_tells(why.QuotaFull, "Some of its own work must end first")
def _quota_full(reason: why.QuotaFull, names: Names) -> str:
    return f"its account runs {reason.running:,} of its fixed quota of {names.slots(reason.quota)}"


@_tells(why.AtCap, "Some of that account's work must end first, or its budget must allow more (`gpus_max`)")
def _at_cap(reason: why.AtCap, names: Names) -> str:
    asked = f"this asks for {names.slots(reason.wanted)}"
    return f"{reason.account} uses or keeps {reason.held:,} of the {names.slots(reason.cap)} of its cap, and {asked}"


@_tells(why.GangTooLarge, "Ask for less, or let the budget allow more (`gang_gpus_max`, `gpus_max`)")
def _gang_too_large(reason: why.GangTooLarge, names: Names) -> str:
    return (
        f"asks for {names.slots(reason.wanted)} at once; one piece of work of {reason.account} may have "
        f"{names.slots(reason.cap)} at most"
    )


@_tells(why.NeverFits, "It can never run as asked: ask for less")
def _never_fits(reason: why.NeverFits, names: Names) -> str:
    types = f" of type {' or '.join(reason.gpu_types)}" if reason.gpu_types else ""
    asked = f"{plural(reason.nodes, 'node')} x {names.slots(reason.gpus_per_node)}{types}"
    largest = f"{plural(reason.largest_nodes, 'node')} x {names.slots(reason.largest_gpus_per_node)}"
    return f"asks for {asked}; the most that is installed for it is {largest}"


@_tells(
    why.UnknownAccount,
    "Submit for an account that has one, or add it to the budgets, or admit unknown accounts at share 0 "
    "(setting `unknown_accounts`)",
)
def _unknown_account(reason: why.UnknownAccount, names: Names) -> str:
    return f"account {reason.account} has no budget"


@_tells(why.AccountClosed, "Submit for an account that is open: `mirab share` lists them")
def _account_closed(reason: why.AccountClosed, names: Names) -> str:
    return (
        f"account {reason.account} is closed"
        + (f" since {reason.since}" if reason.since else "")
        + (" and takes no new work")
    )


# --- kept out of the queue, or behind its like ------------------------------------------------------------------------
@_tells(why.HeldByUser, "`mirab release` lets it go")
def _held_by_user(reason: why.HeldByUser, names: Names) -> str:
    return f"{reason.user} holds it back"


@_tells(why.HeldByOperator, "Only an operator can release it")
def _held_by_operator(reason: why.HeldByOperator, names: Names) -> str:
    return f"operator {reason.operator} holds it back" + (f": {reason.because}" if reason.because else "")


@_tells(why.UnmetDependency)
def _unmet_dependency(reason: why.UnmetDependency, names: Names) -> str:
    return f"it waits for other jobs ({reason.dependency})"


@_tells(why.ArrayLimitReached, "It goes on when one of them has ended")
def _array_limit_reached(reason: why.ArrayLimitReached, names: Names) -> str:
    return f"its array lets {plural(reason.limit, 'task')} wait or run at a time"


@_tells(why.LaunchesFailed, "See its last attempts, put right what keeps it from starting, then `mirab release` it")
def _launches_failed(reason: why.LaunchesFailed, names: Names) -> str:
    return f"it could not be launched {times_word(reason.failures)} in a row"


@_tells(why.DependencyNeverSatisfied, "Submit it again, with a dependency that can be met")
def _dependency_never_satisfied(reason: why.DependencyNeverSatisfied, names: Names) -> str:
    return f"its dependency {reason.dependency} can never be met, since that ended as {reason.state}"


@_tells(why.BehindOwn)
def _behind_own(reason: why.BehindOwn, names: Names) -> str:
    goes = "goes" if reason.ahead == 1 else "go"
    return f"{plural(reason.ahead, 'workload')} of the same user and shape {goes} before it, {reason.first} next"
