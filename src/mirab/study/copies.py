"""Work on a copy of the whole process, thrown away afterwards: each run forward needs a state of its own to use up.

`fork` copies page tables only, whatever the state's size. The copy is one thread of pure Python: it touches no file,
lock or log that another thread of the process might have held.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

LONGEST = 600
"""Seconds after which a copy ends itself, whatever it does: nothing is left over if its maker dies."""


class CopyError(Exception):
    """The work failed, or the copy was ended before it was done."""


class Copy:
    """A copy of this process that does one piece of work. What that returns is read back by `result`.

    Args:
        longest: seconds after which it ends itself.
        apart: it keeps no descriptor of this process open (no database, no socket, no lock).
    """

    def __init__(self, work: Callable[[], Any], longest: int = LONGEST, *, apart: bool = False) -> None:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _work(work, reader, writer, longest, apart)
        os.close(writer)
        self._pipe = reader

    def result(self) -> Any:
        """Wait for it.

        Raises:
            CopyError: it failed or was ended.
        """
        with open(self._pipe, "rb") as pipe:
            data = pipe.read()
        os.waitpid(self.pid, 0)
        self.pid = 0
        try:
            done, value = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError):
            raise CopyError("a copy of the process ended before its work was done") from None
        if not done:
            raise CopyError(f"a copy of the process failed: {value}")
        return value

    def end(self) -> None:
        """End it now, if it has not been waited for."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._pipe)
            self.pid = 0


def _work(work: Callable[[], Any], reader: int, writer: int, longest: int, apart: bool) -> NoReturn:
    """In the copy. Whatever happens, it ends here."""
    try:
        os.close(reader)
        if apart:
            most = os.sysconf("SC_OPEN_MAX")
            os.closerange(3, writer)
            os.closerange(writer + 1, most if most > 0 else 1 << 20)
        gc.disable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(longest)
        try:
            answer: tuple[bool, Any] = True, work()
        except BaseException as error:
            answer = False, f"{type(error).__name__}: {error}"
        with open(writer, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
    finally:
        os._exit(0)
