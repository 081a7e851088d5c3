"""Whether the store answers, known without asking it at each request, and without waiting for one that is silent."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic

FRESH = 1.0
"""Seconds for which what was found counts."""
PATIENCE = 2.0
"""Seconds within which a store has to answer."""
LOOKS = 10
"""In so many parts it is waited for: a process that was kept from the processor loses one of them, not its patience."""


class StoreWatch:
    """Asks a store in a thread of its own, at most one at a time, and only when somebody wants to know.

    Args:
        ask: "" = the store answers, else a sentence; may take as long as it likes.
        name: of the store, for the sentence about one that says nothing.
    """

    def __init__(self, ask: Callable[[], str], name: str, patience: float = PATIENCE, fresh: float = FRESH) -> None:
        self._ask, self._name = ask, name
        self._patience, self._fresh = patience, fresh
        self._changed = Condition()
        self._asked_at: float | None = None
        self._silent = False
        self._found, self._found_at = "", -1e9

    def trouble(self) -> str:
        """What is wrong with the store, at most `FRESH` old; "" = nothing. Waits for it at most `PATIENCE`, and not
        again while it is silent."""
        with self._changed:
            if self._is_stale():
                self._begin()
                self._wait()
            return self._told(self._silent)

    def last_trouble(self) -> str:
        """The same as it was known last, at once; if that is old, it is asked for the next one who wants to know."""
        with self._changed:
            if self._is_stale():
                self._begin()
            late = self._asked_at is not None and monotonic() - self._asked_at >= self._patience
            return self._told(self._silent or late)

    def _told(self, silent: bool) -> str:
        return f"{self._name} does not answer" if silent else self._found

    def _is_stale(self) -> bool:
        return monotonic() - self._found_at >= self._fresh

    def _wait(self) -> None:
        """Until it answers or is called silent."""
        for _ in range(LOOKS):
            if self._changed.wait_for(lambda: self._asked_at is None or self._silent, self._patience / LOOKS):
                return
        self._silent = True

    def _begin(self) -> None:
        if self._asked_at is None:
            self._asked_at = monotonic()
            Thread(target=self._look, name="store watch", daemon=True).start()

    def _look(self) -> None:
        try:
            found = self._ask()
        except Exception as error:
            found = f"{self._name} cannot be asked: {type(error).__name__}: {error}"
        with self._changed:
            self._asked_at, self._silent, self._found, self._found_at = None, False, found, monotonic()
            self._changed.notify_all()
