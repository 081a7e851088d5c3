"""Work on a copy of the whole process's memory, thrown away afterwards: what a dry run decides on.

`fork` copies nothing but page tables, whatever the number of jobs; copying the state as bytes would visit each of them,
and nothing could be decided meanwhile. The child is one thread of pure
Python: it touches no file, lock, log or clock, keeps no descriptor open but its pipe, and ends by `_exit`.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore
from time import monotonic
from typing import Any, NoReturn

from mirab.service.desk.errors import DeskError

AT_ONCE = 2
"""Copies at a time: each may come to use as much memory as the service."""
PATIENCE = 20.0
"""Seconds after which a copy is given up."""

_places = BoundedSemaphore(AT_ONCE)


class Sandbox:
    """One copy: `begin` it while the state is held, ask for its `result` when that is free again."""

    def __init__(self) -> None:
        if not _places.acquire(timeout=PATIENCE):
            raise DeskError("unavailable", "several dry runs are being worked out already: try again in a moment")
        self._pid = 0
        self._pipe = -1

    def begin(self, work: Callable[[], Any]) -> None:
        """Let a copy of this process work. What it returns is to be of builtin types: it is read back from bytes."""
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _work(work, writer)
        os.close(writer)
        self._pid, self._pipe = pid, reader

    def result(self) -> Any:
        """What the work returned.

        Raises:
            DeskError: it failed, or took too long.
        """
        data = _read(self._pipe, monotonic() + PATIENCE)
        try:
            done, value = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError, ValueError):
            raise DeskError("unavailable", "the dry run took too long or was ended: try again in a moment") from None
        if not done:
            raise DeskError("unavailable", f"the dry run failed ({value}); submit it, or try again")
        return value

    def close(self) -> None:
        """End the copy, whatever it does."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            os.close(self._pipe)
            self._pid = 0
        _places.release()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(work: Callable[[], Any], writer: int) -> NoReturn:
    """In the child. Whatever happens, it ends here."""
    try:
        gc.disable()
        signal.alarm(int(PATIENCE) + 1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        _close_all_but(writer)
        try:
            answer = True, work()
        except BaseException as error:
            answer = False, f"{type(error).__name__}: {error}"
        data = pickle.dumps(answer)
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """No socket, lock or database of the service stays open here: if the service dies, nothing of it is left over."""
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, kept)
    os.closerange(kept + 1, most if most > 0 else 1 << 20)


def _read(pipe: int, until: float) -> bytes:
    parts: list[bytes] = []
    while True:
        left = until - monotonic()
        ready, _, _ = select.select([pipe], [], [], max(0.0, left))
        if not ready:
            return b""
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
