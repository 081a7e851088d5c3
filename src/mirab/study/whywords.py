"""What would remove each kind of blocker, and the sentences about standing that `why` adds to the recorded reason."""

from __future__ import annotations

from mirab.model import reasons as why
from mirab.model.units import SECOND, Duration, Instant
from mirab.study.formats import Names, plural, ratio, span
from mirab.study.words import advice


def action(reason: why.Reason, names: Names) -> str:
    """What would remove the blocker: the advice of its kind, or one with the reason's own numbers."""
    match reason:
        case why.NoFreeGpus():
            more = reason.nodes - reason.nodes_free
            if more <= 0:
                return "Cores or memory must come free there; asking for less of them may start it before"
            need = f"{plural(more, 'more node')} must come free for it"
            if reason.nodes == reason.gpus_per_node == 1:
                return f"{names.slots(1)} must come free for it"
            asked = "fewer nodes" if reason.nodes > 1 else f"fewer {names.many}"
            return f"{need}; asking for {asked} may start it before"
        case why.AwaitingCheckpoint() | why.AwaitingVictims() | why.HoldsNodes():
            return "Nothing: its turn has come, and it starts when they have gone"
        case why.BehindOwn():
            return "They start or end first; `mirab cancel` or `mirab hold` takes them out of its way"
        case why.UnmetDependency():
            return "They have to end as it says; `mirab show` tells how they stand"
        case why.NotEnoughClaimable():
            most = plural(max(1, reason.claimable), "node")
            return f"Asking for at most {most} brings a hold in reach. {advice(reason)}"
    return advice(reason)


def level_sentence(mine: str, my_ratio: float, first: str, first_ratio: float, at: Instant | None, window: Duration,
                   names: Names) -> str:  # fmt: skip
    """Where the account stands beside the first, and when it will be level if all goes on as now."""
    stands = f"{mine} stands at {ratio(my_ratio)} of its share, {first} at {ratio(first_ratio)} goes first"
    if at is None:
        return f"{stands}; at the present mix they are not level within {span(window / SECOND)}"
    return f"{stands}; at the present mix they are level at about {names.at(at)}"


def changed_minimum(new: Duration, old: Duration) -> str:
    """``with a minimum of 1 h instead of 8 h``."""
    return f"with {_minimum(new)} instead of {span(old / SECOND) if old else 'none'}"


def _minimum(span_of: Duration) -> str:
    return f"a minimum of {span(span_of / SECOND)}" if span_of else "no minimum (not charged, stopped at any time)"


def changed_nodes(new: int, old: int) -> str:
    return f"with {plural(new, 'node')} instead of {old:,}"


def changed_slots(new: int, old: int, names: Names) -> str:
    return f"with {names.slots(new)} a node instead of {old:,}"


def would(decision: str, sentence: str) -> str:
    """What a rehearsal decided."""
    if decision == "start":
        return "it would start now"
    return f"it would {'be rejected' if decision == 'reject' else 'still wait'}: {sentence}"
