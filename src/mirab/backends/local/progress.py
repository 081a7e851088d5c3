"""Signs that a run's work is safe: files that it, or `mirab checkpoint`, has touched. The shim imports this."""

from __future__ import annotations

import os

from mirab.backends.local import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mirab.backends.local.child import Identity


class Progress:
    """Looks at the files again and again, with the user's rights.

    Attributes:
        checkpoint_at: when work was last made safe, in Unix milliseconds; None = not yet.
        finished: it said last that no work is left.
    """

    def __init__(self, own: str, declared: str, who: Identity, now: Callable[[], int]) -> None:
        """`own`: the file of `mirab checkpoint`; `declared`: the one that the job named, "" = none."""
        self.own, self.paths, self.who, self.now = own, [own, declared] if declared else [own], who, now
        self.seen: dict[str, tuple[int, int, int] | None] = {}
        self.checkpoint_at: int | None = None
        self.finished = False

    def look(self, started_at: int | None) -> bool:
        """Whether there is a new sign. What was there at the first look, before the run began, is none."""
        news = [path for path in self.paths if self.touched(path)]
        for path in news:
            age = max(0, rundir.now_ms() - (self.seen[path] or (0,))[0] // 1_000_000)
            self.checkpoint_at = max(self.now() - age, started_at or self.now(), self.checkpoint_at or 0)
            if path == self.own:
                self.finished = says_finished(path)
        return bool(news)

    def touched(self, path: str) -> bool:
        with self.who.acting():
            mark = mark_of(path)
        known = path in self.seen
        changed = mark is not None and mark != self.seen.get(path)
        self.seen[path] = mark
        return known and changed


def mark_of(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_ino, stat.st_size)


def says_finished(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(64).strip() == rundir.FINISHED
    except OSError:
        return False
