"""Work on a copy of the whole process, thrown away afterwards: each run forward needs a state of its own to use up.

`fork` copies page tables only, whatever the state's size. The copy is one thread of pure Python: it touches no file,
lock or log that another thread of the process might have held, and it ends with the thread that made it, however that
ends.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Lock
from time import monotonic
from typing import Any, NoReturn

LONGEST = 600
"""Seconds after which a copy ends itself, whatever it does: nothing is left over if its maker dies."""
PR_SET_PDEATHSIG = 1

_prctl = getattr(ctypes.CDLL(None), "prctl", None)
"""Loaded before there is a copy: a copy may wait for no loader's lock. None = no Linux; `LONGEST` still holds."""


class CopyError(Exception):
    """The work failed, or the copy was ended before it was done.

    `fault`: what failed in it; "" = it was ended, or took too long.
    """

    def __init__(self, sentence: str, fault: str = "") -> None:
        super().__init__(sentence)
        self.fault = fault


class Copy:
    """A copy of this process that does one piece of work. What that returns is read back by `result`.

    Args:
        longest: seconds after which it ends itself.
        apart: it keeps no descriptor of this process open (no database, no socket, no lock). One that is not apart
            keeps those of its maker, so that whoever waits for its maker's pipe to be closed waits for both.
        told: called once when nothing of it is left.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        longest: int = LONGEST,
        *,
        apart: bool = False,
        told: Callable[[Copy], object] = lambda _: None,
    ) -> None:
        maker = os.getpid()
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _work(work, reader, writer, longest, apart, maker)
        os.close(writer)
        self._pipe = reader
        self._told = told
        self._ending = Lock()

    def result(self, patience: float | None = None) -> Any:
        """Wait for it, at most so many seconds.

        Raises:
            CopyError: it failed, was ended, or took too long: then it is ended.
        """
        data = self._read(None if patience is None else monotonic() + patience)
        self.end()
        try:
            done, value = pickle.loads(data)
        except (EOFError, pickle.UnpicklingError, ValueError):
            raise CopyError("a copy of the process ended before its work was done") from None
        if not done:
            raise CopyError(f"a copy of the process failed: {value}", value)
        return value

    def _read(self, until: float | None) -> bytes:
        """All that it says, until nobody is left who could say more; nothing if that takes too long."""
        parts: list[bytes] = []
        heard = select.poll()  # select() knows no descriptor from 1,024 on, and a busy service has more
        heard.register(self._pipe, select.POLLIN)
        while True:
            left = None if until is None else max(0.0, until - monotonic()) * 1000
            if not heard.poll(left):
                return b""
            part = os.read(self._pipe, 1 << 16)
            if not part:
                return b"".join(parts)
            parts.append(part)

    def kill(self) -> None:
        """Begin its end, from any thread: whoever waits for its result hears that there is none."""
        with self._ending:
            if self.pid:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """End it now, if it has not ended, and leave nothing of it. Only one thread asks for it."""
        self.kill()
        with self._ending:
            if self.pid:
                with suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)
                os.close(self._pipe)
            gone, self.pid = bool(self.pid), 0
        if gone:
            self._told(self)


class Copies:
    """All copies of one service. When it ends they end with it, and no further one begins."""

    def __init__(self) -> None:
        self._changing = Condition()
        self._alive: list[Copy] = []
        self._closed = False

    def begin(self, work: Callable[[], Any], longest: int = LONGEST) -> Copy:
        """A copy that keeps nothing of this process open.

        Raises:
            CopyError: the service ends.
        """
        with self._changing:
            if self._closed:
                raise CopyError("the service is stopping")
            copy = Copy(work, longest, apart=True, told=self._gone)
            self._alive.append(copy)
        return copy

    def _gone(self, copy: Copy) -> None:
        with self._changing:
            self._alive.remove(copy)
            self._changing.notify_all()

    def end(self, patience: float) -> bool:
        """End all, and wait until nothing of them is left; whether that is so. Who waits for a result gets an error."""
        with self._changing:
            self._closed = True
            ending = list(self._alive)
        for copy in ending:
            copy.kill()
        with self._changing:
            return self._changing.wait_for(lambda: not self._alive, patience)


def _work(work: Callable[[], Any], reader: int, writer: int, longest: int, apart: bool, maker: int) -> NoReturn:
    """In the copy. Whatever happens, it ends here."""
    try:
        end_with(maker)
        os.close(reader)
        if apart:
            most = os.sysconf("SC_OPEN_MAX")
            os.closerange(3, writer)
            os.closerange(writer + 1, most if most > 0 else 1 << 20)
        gc.disable()
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(longest)
        try:
            answer: tuple[bool, Any] = True, work()
        except BaseException as error:
            answer = False, f"{type(error).__name__}: {error}"
        with open(writer, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
    finally:
        os._exit(0)


def end_with(maker: int) -> None:
    """Let the kernel end this process when the thread that made it ends; end at once if `maker` is gone already."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != maker:
        os._exit(0)
