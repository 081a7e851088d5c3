"""What people and programs ask for, on its way to the one thread that decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from threading import Condition
from time import monotonic
from typing import TypeAlias

from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.records import Write
from mirab.model.units import Instant


class UnavailableError(Exception):
    """The service cannot answer now, and nothing was done; the sentence says why."""


class UnknownOutcomeError(TimeoutError):
    """No answer in time, and it may still be done: ask again, with the same Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a command comes to: facts that change the state, and what is written with them in one transaction."""

    facts: tuple[Event, ...] = ()
    writes: tuple[Write, ...] = ()


Build: TypeAlias = Callable[[State, Instant], Entry]
"""Makes the entry of a command from the state as it is when its turn comes; an exception refuses the command."""


@dataclass(slots=True, eq=False)
class Request:
    """A command that waits for its turn, or for its record."""

    build: Build
    answer: Future[int] = field(default_factory=Future)

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def recorded(self, seq: int) -> None:
        if not self.answer.done():
            self.answer.set_result(seq)


class Bell:
    """Wakes the decider. Rung while nobody listens, it is heard at the next wait."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._rung = False

    def ring(self) -> None:
        with self._condition:
            self._rung = True
            self._condition.notify_all()

    def clear(self) -> None:
        """Forget that it rang: what it rang for is about to be looked at."""
        with self._condition:
            self._rung = False

    def wait(self, seconds: float | None) -> bool:
        """Sleep until it rings or the time is over; whether it rang."""
        until = None if seconds is None else monotonic() + max(0.0, seconds)
        with self._condition:
            while not self._rung:
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0:
                    return False
                self._condition.wait(left)
            self._rung = False
            return True


class Inbox:
    """Commands in the order in which they came. Closed, it refuses them all."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._waiting: deque[Request] = deque()
        self._lock = Condition()
        self._closed = ""

    @property
    def depth(self) -> int:
        return len(self._waiting)

    def put(self, build: Build, timeout: float) -> int:
        """Wait for a command's turn and record.

        Returns:
            the number of the journal's record in which it stands.

        Raises:
            UnavailableError: it was not done, and will not be.
            UnknownOutcomeError: it is under way, and was not recorded in time.
            Exception: what `build` raised.
        """
        request = self.post(build)
        try:
            return request.answer.result(timeout)
        except FutureTimeoutError as error:
            if request.answer.done():
                return request.answer.result()
            if self._withdraw(request):
                raise UnavailableError(
                    f"the scheduler did not come to it within {timeout:g} s; nothing was done: try again later"
                ) from error
            raise UnknownOutcomeError(
                f"not recorded within {timeout:g} s, and it may still be: look before you repeat it"
            ) from error

    def post(self, build: Build) -> Request:
        """Put it in and do not wait: its answer comes later.

        Raises:
            UnavailableError: nothing is taken in any more.
        """
        request = Request(build)
        with self._lock:
            if self._closed:
                raise UnavailableError(self._closed)
            self._waiting.append(request)
        self._bell.ring()
        return request

    def _withdraw(self, request: Request) -> bool:
        with self._lock:
            if request not in self._waiting:
                return False
            self._waiting.remove(request)
            return True

    def take(self) -> list[Request]:
        """All that waits, for one cycle."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def close(self, why: str) -> None:
        """Refuse what waits and all that comes."""
        with self._lock:
            self._closed = self._closed or why
        for request in self.take():
            request.refuse(UnavailableError(why))
