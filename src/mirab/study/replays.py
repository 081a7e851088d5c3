"""One replay with its report, and what it cost to make."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

from mirab.control.ports import Journal
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import Instant
from mirab.sim.engine import Replayed, replay
from mirab.study.measures import Measures


class Watching(TypedDict, total=False):
    """What may be asked of a replay beside its measures.

    Attributes:
        journals: told of every decision too.
        progress: called with the instant reached now and then.
        until: decide nothing after this instant.
        finished: told how the replay ended.
    """

    journals: Sequence[Journal]
    progress: Callable[[Instant], None] | None
    until: Instant | None
    finished: Callable[[Replayed], None] | None


def replay_report(trace: Trace, policy: Policy, **watching: Unpack[Watching]) -> dict[str, Any]:
    """Replay a trace under a policy; its report, with the `performance` of the replay.

    Raises:
        ValueError: the trace's period ends before it starts, its node events name a node that the cluster does not
            have, or two workloads have one id.
    """
    measures, cost = measure(trace, policy, **watching)
    return measures.report(cost)


def measure(trace: Trace, policy: Policy, **watching: Unpack[Watching]) -> tuple[Measures, dict[str, Any]]:
    """The same before it is put into a report: everything that was counted, and what the replay cost."""
    finished = watching.get("finished")
    measures = Measures(trace, policy)
    began = time.perf_counter()
    done = replay(
        trace,
        policy,
        journals=(measures, *watching.get("journals", ())),
        progress=watching.get("progress"),
        until=watching.get("until"),
        attach=measures.attach,
    )
    wall = time.perf_counter() - began
    if finished is not None:
        finished(done)
    return measures, performance(wall, len(trace.arrivals), done.passes)


def performance(wall_s: float, workloads: int, passes: int) -> dict[str, Any]:
    """The `performance` part of a report."""
    return {
        "wall_s": round(wall_s, 3),
        "workloads_per_s": round(workloads / wall_s, 1) if wall_s > 0 else None,
        "passes": passes,
        "peak_rss_mib": peak_rss_mib(),
    }


def peak_rss_mib() -> float | None:
    """Most memory that this process has held so far, the log included; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)
