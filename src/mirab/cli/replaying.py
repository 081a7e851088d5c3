"""One replay: the trace through the policy, watched, measured and, where asked, recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any

from mirab.cli.output import say, whole
from mirab.cli.progress import bar

if TYPE_CHECKING:
    from mirab.control.ports import Journal
    from mirab.model.policy import Policy
    from mirab.model.trace import Trace


def measured(
    trace: Trace,
    policy: Policy,
    *,
    journal: str | None = None,
    until: int | None = None,
    quiet: bool = False,
    reached: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """The report of a replay.

    Args:
        journal: file for the record of every decision.
        until: instant after which nothing is decided.
        reached: told the instants that the replay reaches, in place of a bar.
    """
    from mirab.sim.engine import Ending, replay
    from mirab.study.journalfile import JournalFile
    from mirab.study.measures import Measures

    began = time.perf_counter()
    measures = Measures(trace, policy)
    journals: list[Journal] = [measures]
    with ExitStack() as open_things:
        if journal is not None:
            path = open_things.enter_context(whole(Path(journal)))
            journals.append(open_things.enter_context(JournalFile(path, trace, policy)))
        tell = open_things.enter_context(bar(f"Replaying under {policy.name}", trace.ends_at, quiet=quiet))
        done = replay(trace, policy, journals=journals, progress=reached or tell, until=until, attach=measures.attach)
    report = measures.report(_performance(time.perf_counter() - began, len(trace.arrivals), done.passes))
    if done.ending is Ending.STUCK:
        say(f"{done.unfinished:,} workloads never ended: {done.ending.value}. `mirab explain` on a --journal says why.")
    return report


def _performance(wall_s: float, workloads: int, passes: int) -> dict[str, Any]:
    """What the replay took; the memory is the process's most, the log included."""
    return {
        "wall_s": round(wall_s, 3),
        "workloads_per_s": round(workloads / wall_s, 1) if wall_s else None,
        "passes": passes,
        "peak_rss_mib": round(getrusage(RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
