"""What the loop asks of the world: a clock, an engine, a record. Each has one to three methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from mirab.model.events import Event
from mirab.model.plans import Action, Plan
from mirab.model.units import Instant


class Clock(Protocol):
    def now(self) -> Instant: ...


class Backend(Protocol):
    def observe(self) -> Iterable[Event]:
        """The facts that have come in since the last call, in order of time."""

    def submit(self, action: Action) -> None:
        """Begin an action. Idempotent on its run or node; a refusal comes back as a fact, never as an exception."""


class Journal(Protocol):
    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """Record both, in one transaction, before anything is applied."""
