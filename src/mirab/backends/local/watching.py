"""What the files of a run say, turned into facts, each once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mirab.backends.local import endings, rundir
from mirab.model.events import Event, Outcome, RunCheckpointed, RunEnded, RunStarted
from mirab.model.units import Instant, RunId


@dataclass(slots=True)
class Watched:
    """A run that is not known to be over.

    Attributes:
        stray: the state does not know it: it is stopped, and what it does is nobody's fact.
        lost: its shim is gone, and what is left of it is being ended.
        pidfd: of its shim; None = not known (yet, or any more).
        launched_at: on the monotonic clock, when a shim was last started for it.
    """

    run_id: RunId
    directory: str
    spec: dict[str, Any]
    stray: bool = False
    lost: bool = False
    pidfd: int | None = None
    launched_at: float = 0.0
    started_at: Instant | None = None
    checkpoint_at: Instant | None = None
    ended: bool = False

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def news(self) -> Iterator[Event]:
        """The facts that its files tell and that have not been told yet. Sets `ended`."""
        last_word = rundir.read_json(self.path(rundir.EXIT))
        said = last_word or rundir.read_json(self.path(rundir.STATUS)) or {}
        if self.started_at is None and said.get("started_at") is not None:
            self.started_at = int(said["started_at"])
            yield RunStarted(self.started_at, self.run_id)
        if said.get("checkpoint_at") not in (None, self.checkpoint_at):
            self.checkpoint_at = int(said["checkpoint_at"])
            yield RunCheckpointed(self.checkpoint_at, self.run_id)
        if last_word is not None and not self.ended:
            self.ended = True
            yield ended(self.run_id, last_word)


def ended(run_id: RunId, last_word: dict[str, Any]) -> RunEnded:
    code = last_word["exit_code"]
    return RunEnded(
        int(last_word["ended_at"]),
        run_id,
        Outcome(last_word["outcome"]),
        lost=int(last_word["lost_ms"]),
        exit_code=None if code is None else int(code),
    )


def shim_pidfd(directory: str) -> int | None:
    """A handle of the living shim of a run; None: there is none (any more).

    A pid may have been given to another process since, so its start time and the machine's boot id must agree.
    """
    own = rundir.read_json(os.path.join(directory, rundir.SHIM))
    if own is None or own["boot"] != rundir.boot_id():
        return None
    try:
        pidfd = os.pidfd_open(own["pid"])
    except OSError:
        return None
    fields = rundir.stat_fields(own["pid"])
    if fields is None or fields[0] in "ZX" or int(fields[19]) != own["start"]:
        os.close(pidfd)
        return None
    return pidfd


def order_stop(directory: str, outcome: str, grace: int, why: str) -> None:
    """Write how a run is to end, unless that or more is written already; ring in any case.

    Raises:
        OSError: it cannot be written.
    """
    path = os.path.join(directory, rundir.STOP)
    before = rundir.read_json(path)
    if before is None or endings.stronger(str(before["outcome"]), outcome) != before["outcome"]:
        rundir.write_reserved(path, {"outcome": outcome, "grace_ms": grace, "why": why})
    rundir.ring(os.path.join(directory, rundir.BELL))


def last_line(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        lines = file.read()[-2000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
    return "it said nothing"
