"""For whom or for what runs are stopped, as one word each."""

from __future__ import annotations

from mirab.model.policy import Policy
from mirab.model.reasons import DrainedFrom, PreemptedFor, ReservationBegins, StopReason

CAUSES = ("reclaim", "uncharged", "hold", "priority", "drain", "reservation", "start-timeout", "unasked")
"""`reclaim`: a charged run made room for a leaf with a lower ratio; `uncharged`: a run without a minimum made room for
charged work; `hold`: room for a gang whose hold came due; `priority`: room for a higher priority; `drain`: its node is
sick; `reservation`: one begins; `start-timeout`: it did not begin to run; `unasked`: stopped without an action."""


def cause_of(reason: StopReason, policy: Policy) -> str:
    """The cause by which a preemption is counted."""
    if isinstance(reason, PreemptedFor):
        if policy.preemption == "priority":
            return "priority"
        if reason.hold:
            return "hold"
        return "uncharged" if reason.uncharged else "reclaim"
    if isinstance(reason, DrainedFrom):
        return "drain"
    return "reservation" if isinstance(reason, ReservationBegins) else "start-timeout"
