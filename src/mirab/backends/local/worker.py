"""One thread that does everything in its turn: what it is handed, what a descriptor announces, what a timer says."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[], object]

log = logging.getLogger("mirab.local")


class Worker:
    """State that only this thread touches needs no lock. `do` may be called from any thread, the rest from here."""

    def __init__(self, name: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.todo: deque[Work] = deque()
        self.timers: list[tuple[float, int, Work]] = []
        self.order = itertools.count()
        self.closing = False
        self.ear, self.mouth = socket.socketpair()
        for end in (self.ear, self.mouth):
            end.setblocking(False)
        self.listen(self.ear, lambda: self.ear.recv(4096))
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)

    def do(self, work: Work) -> None:
        """In its turn, after what was handed in before."""
        self.todo.append(work)
        with contextlib.suppress(OSError):
            self.mouth.send(b".")

    def after(self, seconds: float, work: Work) -> None:
        """Once, after a time."""
        heapq.heappush(self.timers, (time.monotonic() + seconds, next(self.order), work))

    def listen(self, file: Any, work: Work) -> None:
        """Whenever a descriptor can be read."""
        self.selector.register(file, selectors.EVENT_READ, work)

    def when_ended(self, process: subprocess.Popen[bytes], work: Callable[[int], object]) -> None:
        """Once a process of ours has ended, with its exit code."""
        pidfd = os.pidfd_open(process.pid)

        def ended() -> None:
            self.unlisten(pidfd)
            work(process.wait())

        self.listen(pidfd, ended)

    def unlisten(self, pidfd: int) -> None:
        """Forget a descriptor, and close it."""
        self.selector.unregister(pidfd)
        os.close(pidfd)

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self.closing = True
        with contextlib.suppress(OSError):
            self.mouth.send(b".")
        if self.thread.is_alive():
            self.thread.join(timeout=10)
        self.selector.close()
        self.ear.close()
        self.mouth.close()

    def _work(self) -> None:
        while not self.closing:
            ready = self.selector.select(self._patience())
            for work in [key.data for key, _ in ready] + self._handed_in() + self._due():
                self._safely(work)

    def _patience(self) -> float | None:
        return max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None

    def _handed_in(self) -> list[Work]:
        return [self.todo.popleft() for _ in range(len(self.todo))]

    def _due(self) -> list[Work]:
        found: list[Work] = []
        while self.timers and self.timers[0][0] <= time.monotonic():
            found.append(heapq.heappop(self.timers)[2])
        return found

    def _safely(self, work: Work) -> None:
        """One run's trouble is not the others'."""
        try:
            work()
        except Exception:
            log.exception("the local backend met something that it did not expect, and goes on")
