"""The running scheduler as the rest of the service sees it: read it, send it commands, hear what it decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Lock, RLock
from typing import TYPE_CHECKING, TypeAlias

import structlog

from mirab.control.recover import Intents
from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.records import Write
from mirab.model.resources import Cluster
from mirab.model.units import AccountPath, Instant
from mirab.service.clock import LiveClock
from mirab.service.inbox import Bell, Build, Entry, Inbox, UnavailableError, UnknownOutcomeError
from mirab.study.copies import Copies

if TYPE_CHECKING:
    from mirab.store import Store

__all__ = ["Entry", "Live", "Pulse", "UnavailableError", "UnknownOutcomeError"]

Listener: TypeAlias = Callable[[int, Sequence[Event], Plan], None]
Timer: TypeAlias = Callable[[], Instant | None]
Source: TypeAlias = Callable[[State, Instant], Iterable[Event]]

READ_PATIENCE = 10.0
"""Seconds that a reader waits while a decision is being made or recorded."""

log = structlog.get_logger("mirab.live")


@dataclass(slots=True)
class Pulse:
    """How the decider is, readable at any time without a lock.

    Attributes:
        running: it decides. False before the first decision and after the last.
        decided_at: instant of the last recorded decision; seq: its number in the journal.
        store_trouble, engine_trouble: what is wrong now; "" = nothing.
        failed: why it stopped for good; "" = it did not.
        folding: the fact that it could not take in, if that is why.
    """

    running: bool = False
    decided_at: Instant = 0
    seq: int = 0
    store_trouble: str = ""
    engine_trouble: str = ""
    failed: str = ""
    folding: str = ""

    @property
    def ready(self) -> bool:
        return self.running and not self.failed and not self.store_trouble

    @property
    def why_not_ready(self) -> str:
        """A sentence; "" = it is ready."""
        if self.ready:
            return ""
        return self.failed or self.store_trouble or "the scheduler is not running yet, or is stopping"


@dataclass(eq=False)
class Live:
    """State, lock, inbox and listeners. Only the decider changes the state; everybody else reads it or sends commands.

    `news`: the facts of the cycle under way, for sources; they are folded and not recorded yet. `writes`: what is
    recorded with them; a source may add to it.
    `stopping` is set when the service is to end: whoever streams or polls for long leaves then. `copies`: of this
    process, for dry runs and forecasts; they end with the service.
    """

    store: Store
    state: State
    clock: LiveClock
    intents: Intents = field(default_factory=Intents)
    pulse: Pulse = field(default_factory=Pulse)
    stopping: Flag = field(default_factory=Flag)
    bell: Bell = field(default_factory=Bell)
    copies: Copies = field(default_factory=Copies)

    def __post_init__(self) -> None:
        self.lock = RLock()
        self._may_admit = self._admitted = False
        self.inbox = Inbox(self.bell)
        self.timers: list[Timer] = []
        self.sources: list[Source] = []
        self.news: list[Event] = []
        self.writes: list[Write] = []
        self._listeners: tuple[Listener, ...] = ()
        self._listening = Lock()

    @property
    def policy(self) -> Policy:
        return self.state.policy

    @property
    def cluster(self) -> Cluster:
        return self.state.cluster

    def now(self) -> Instant:
        return self.clock.now()

    def heirs(self) -> Mapping[AccountPath, AccountPath]:
        """Account that is no more -> the one that goes on for it, as the budgets in force say."""
        return self.state.heirs

    def store_trouble(self) -> str:
        """Why nothing can be recorded: what the last write said, or files that are not where they were; "" = it can.

        From any thread, without asking the store itself.
        """
        return self.pulse.store_trouble or self.store.database.out_of_place()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """For the decider, which holds the lock: where its record has to wait, `admit` lets readers in meanwhile."""
        self._may_admit = True
        try:
            yield
        finally:
            self._may_admit = False
            self.exclude()

    def admit(self) -> None:
        """The store does not take the record: let readers see the state. In the decider's thread."""
        if self._may_admit and not self._admitted:
            self._admitted = True
            self.lock.release()

    def exclude(self) -> None:
        """The end of that."""
        if self._admitted:
            self.lock.acquire()
            self._admitted = False

    @contextmanager
    def reading(self) -> Iterator[State]:
        """The state between two decisions. Keep it short: nothing is decided meanwhile. Never change anything.

        While a decision cannot be recorded, the state is as before it, with the facts that led to it.

        Raises:
            UnavailableError: a decision takes very long, or the decider has failed.
        """
        if not self.lock.acquire(timeout=READ_PATIENCE):
            raise UnavailableError(self.pulse.why_not_ready or "the scheduler is busy with a decision: try again")
        try:
            if self.pulse.failed:
                raise UnavailableError(self.pulse.failed)
            yield self.state
        finally:
            self.lock.release()

    def send(self, build: Build, timeout: float = 30) -> int:
        """Let the decider do something, and wait until it is recorded.

        `build` is called in the decider's thread at the beginning of the next cycle, when the facts of all before it
        have been folded: what it finds in the state is true when its own facts follow. It changes nothing itself and
        refuses by raising. What it returns is recorded in one transaction with the plan that follows. Writes of
        commands of the same cycle are not in the store yet: two requests with one Idempotency-Key have to be told
        apart before they are sent.

        Returns:
            the number of the journal's record.

        Raises:
            UnavailableError: nothing was done.
            UnknownOutcomeError: it may still be done (a `TimeoutError`).
            Exception: what `build` raised.
        """
        return self.inbox.put(build, timeout)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Be told the record number, facts and plan of each cycle, in the decider's thread, after it was recorded.

        Returns:
            a function that ends the subscription.
        """
        with self._listening:
            self._listeners = (*self._listeners, listener)

        def leave() -> None:
            with self._listening:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return leave

    def tell(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """Tell the listeners. One that fails is logged and harms nobody."""
        for listener in self._listeners:
            try:
                listener(seq, facts, plan)
            except Exception:
                log.exception("listener.failed", listener=repr(listener), seq=seq)

    def add_timer(self, timer: Timer) -> None:
        """Let a cycle happen at the instant that it names, asked after each cycle (None = none)."""
        self.timers.append(timer)

    def add_source(self, source: Source) -> None:
        """Add facts that follow from others (a released dependency, a job held after failed launches).

        Asked in each cycle after all other facts, again while any source finds something. It reads the state, changes
        nothing, and has nothing more to say once its facts are folded.
        """
        self.sources.append(source)
