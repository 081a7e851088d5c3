"""A person at a terminal: a program in a pty, keys typed, the screen read."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PATIENCE_S = 180


class Terminal:
    """`expect` reads on until a text has come; `type` sends keys."""

    def __init__(self, pid: int, master: int) -> None:
        self.pid, self.master = pid, master
        self.screen = ""
        self.seen = 0
        self.code: int | None = None

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, text: str) -> str:
        """What came up to the text and with it."""
        deadline = time.monotonic() + PATIENCE_S
        while (at := self.screen.find(text, self.seen)) < 0:
            if time.monotonic() > deadline or not self.read(0.5):
                raise AssertionError(f"{text!r} never came; the screen shows:\n{self.screen}")
        begin, self.seen = self.seen, at + len(text)
        return self.screen[begin : self.seen]

    def read(self, seconds: float) -> bool:
        """Whether the program may still write."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65_536)
        except OSError:
            return False
        self.screen += data.decode("utf-8", "replace")
        return bool(data)

    def wait(self) -> int:
        """The program's exit code when it has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read(0.2) and time.monotonic() < deadline:
            pass
        _, status = os.waitpid(self.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        return self.code


@contextmanager
def terminal(words: Sequence[str]) -> Iterator[Terminal]:
    """The program in a pty of its own; killed at the end if it still runs."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp(words[0], list(words))
    found = Terminal(pid, master)
    try:
        yield found
    finally:
        if found.code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(master)
