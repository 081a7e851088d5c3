"""Work on a copy of the whole process's memory, thrown away afterwards: what a dry run decides on.

`fork` copies nothing but page tables, whatever the number of jobs; copying the state as bytes would visit each of them,
and nothing could be decided meanwhile. See `mirab.study.copies` for what a copy may do, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any

from mirab.service.desk.errors import DeskError
from mirab.study.copies import Copies, Copy, CopyError

AT_ONCE = 2
"""Copies at a time: each may come to use as much memory as the service."""
PATIENCE = 20.0
"""Seconds after which a copy is given up."""

_places = BoundedSemaphore(AT_ONCE)


class Sandbox:
    """One copy: `begin` it while the state is held, ask for its `result` when that is free again.

    `copies`: those of the service, which end with it.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._copy: Copy | None = None
        if not _places.acquire(timeout=PATIENCE):
            raise DeskError("unavailable", "several dry runs are being worked out already: try again in a moment")

    def begin(self, work: Callable[[], Any]) -> None:
        """Let a copy of this process work. What it returns is to be of builtin types: it is read back from bytes.

        Raises:
            DeskError: the service ends.
        """
        try:
            self._copy = self._copies.begin(work, int(PATIENCE) + 1)
        except CopyError as error:
            raise DeskError("unavailable", f"{error}; nothing was done") from None

    def result(self) -> Any:
        """What the work returned.

        Raises:
            DeskError: it failed, or took too long.
        """
        assert self._copy is not None
        try:
            return self._copy.result(PATIENCE)
        except CopyError as error:
            if error.fault:
                why = f"the dry run failed ({error.fault}); submit it, or try again"
            else:
                why = "the dry run took too long or was ended: try again in a moment"
            raise DeskError("unavailable", why) from None

    def close(self) -> None:
        """End the copy, whatever it does."""
        if self._copy is not None:
            self._copy.end()
            self._copy = None
        _places.release()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
