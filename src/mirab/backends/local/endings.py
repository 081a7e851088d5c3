"""How a run ends: who wanted it to, by when, and what its end is called. Values only; the shim imports this."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
PREEMPTED: Final = "PREEMPTED"
NODE_FAIL: Final = "NODE_FAIL"
CANCELLED: Final = "CANCELLED"
TIMEOUT: Final = "TIMEOUT"
LAUNCH_FAILED: Final = "LAUNCH_FAILED"
REQUEUED: Final = "REQUEUED"

OVERRIDES = frozenset(
    {
        (PREEMPTED, CANCELLED),
        (PREEMPTED, REQUEUED),
        (REQUEUED, CANCELLED),
        (NODE_FAIL, CANCELLED),
    }
)
"""(first wish, later wish): the later one decides what the end is called. Otherwise the first does."""


def stronger(first: str, later: str) -> str:
    """What a run that is already ending as `first` ends as, when somebody also wants `later`."""
    return later if (first, later) in OVERRIDES else first


def outcome(wish: str, code: int, finished: bool) -> str:
    """What the end of a run is called.

    Args:
        wish: how it was told to end; "" = it was not.
        code: its exit code, as a shell gives it.
        finished: it has said (``mirab checkpoint --finished``) that no work is left.

    A run that was given notice and then exits with 0 has most likely saved its state, not finished its work: it
    counts as stopped unless it says that it has finished. Slurm does the same with what it preempts.
    """
    if code == 0 and (finished or not wish):
        return COMPLETED
    return wish or FAILED


def limit_instants(limit_s: float, grace_s: float, custom: bool) -> tuple[float, float]:
    """Seconds after its start at which a run with a time limit gets its notice, and is killed.

    A notice of the user's own choice (``--signal USR1@120``) comes before the limit, as in Slurm, so that the run is
    gone by then; but not in the first half of the time. The plain SIGTERM comes at the limit, and the kill a grace
    later: a run that needs its last seconds is not ended by a signal that it does not know.
    """
    if custom:
        return max(limit_s - grace_s, limit_s / 2), limit_s
    return limit_s, limit_s + grace_s
