"""One replay: the trace through the policy, watched, measured and, where asked, recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirab.cli.output import say, whole
from mirab.cli.progress import bar

if TYPE_CHECKING:
    from mirab.model.policy import Policy
    from mirab.model.trace import Trace
    from mirab.sim.engine import Replayed


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
    from mirab.study.journalfile import JournalFile
    from mirab.study.replays import replay_report

    with ExitStack() as open_things:
        journals = []
        if journal is not None:
            path = open_things.enter_context(whole(Path(journal)))
            journals.append(open_things.enter_context(JournalFile(path, trace, policy)))
        tell = open_things.enter_context(bar(f"Replaying under {policy.name}", trace.ends_at, quiet=quiet))
        return replay_report(
            trace, policy, journals=journals, progress=reached or tell, until=until, finished=warn_of_leftovers
        )


def warn_of_leftovers(done: Replayed) -> None:
    """Say that work is left that will never end; where `--until` ended the replay, that is as asked."""
    from mirab.sim.engine import Ending

    if done.ending in (Ending.STUCK, Ending.CIRCLING):
        say(f"{done.unfinished:,} workloads never ended: {done.ending.value}. `mirab explain` on a --journal says why.")
