"""The decider: the one thread that changes the state, by the same `cycle` as a replay."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from threading import Thread
from time import monotonic, perf_counter
from typing import Protocol

import structlog

from mirab.control.cycle import cycle
from mirab.control.ports import Backend
from mirab.model.events import ActionRefused, Event
from mirab.model.plans import Action, Cancel, Plan, Preempt, Start
from mirab.model.units import SECOND, Instant
from mirab.service.inbox import Request, UnavailableError
from mirab.service.live import Live
from mirab.store import StoreError

COALESCE = 0.02
"""Seconds between two decisions at least: what arrives meanwhile is decided, and written to disk, together."""
LONGEST_PAUSE = 0.2
"""Seconds for readers after a decision that took long; else they get as much time as it took."""
ROUNDS = 20
"""So often in one cycle facts may follow from facts."""
LONGEST_SLEEP = 3600.0
ENGINE_RETRY = 5 * SECOND
"""When an engine that failed to tell its news is asked again."""

log = structlog.get_logger("mirab.loop")


class Engine(Backend, Protocol):
    """What the loop asks of a live engine: a backend that can say when it wants to be asked again."""

    def next_due(self) -> Instant | None:
        """When to look again although nobody rang the bell."""


@dataclass(slots=True)
class Timing:
    """How long the parts of the last cycle took, in seconds."""

    decide: float = 0
    append: float = 0
    total: float = 0


@dataclass(eq=False)
class Feed:
    """All that a cycle is told, in order: the engine's news, commands, and what follows from both."""

    live: Live
    engine: Engine
    at: Instant = 0
    taken: list[Request] = field(default_factory=list)
    told_at: float = 0
    last: Event | None = None
    retry_at: Instant | None = None
    _refused: list[ActionRefused] = field(default_factory=list)
    _heard: list[Event] = field(default_factory=list)

    def now(self) -> Instant:
        """The cycle's one instant: no fact of it is later. The engine is asked before the clock, so that what has just
        happened keeps its own instant, however long this thread is kept from the processor in between.
        """
        heard = self._ask_engine()
        self.at = self.live.clock.now()
        self.retry_at = self.at + ENGINE_RETRY if heard is None else None
        self._heard += heard or []
        return self.at

    def observe(self) -> Iterator[Event]:
        """`last` is the fact that is being folded; None once all are."""
        self.taken.clear()
        self.live.writes.clear()
        self.live.news.clear()
        for fact in self._everything():
            self.last = fact
            self.live.news.append(fact)
            yield fact
        self.last = None
        self.told_at = perf_counter()

    def _everything(self) -> Iterator[Event]:
        yield from self._engine_news()
        for request in self.live.inbox.take():
            yield from self._command(request)
        yield from self._consequences()

    def _engine_news(self) -> list[Event]:
        facts: list[Event] = [*self._refused, *self._heard]
        self._refused.clear()
        self._heard.clear()
        return [fact if fact.at <= self.at else replace(fact, at=self.at) for fact in facts]

    def _ask_engine(self) -> list[Event] | None:
        """Its news; None = it failed."""
        try:
            facts = list(self.engine.observe())
        except Exception as error:
            self._engine_failed("observe", error)
            return None
        self.live.pulse.engine_trouble = ""
        return facts

    def _command(self, request: Request) -> Iterator[Event]:
        try:
            entry = request.build(self.live.state, self.at)
        except Exception as error:
            request.refuse(error)
            return
        self.taken.append(request)
        self.live.writes += entry.writes
        yield from entry.facts

    def _consequences(self) -> Iterator[Event]:
        for _ in range(ROUNDS):
            found = False
            for source in self.live.sources:
                for fact in list(source(self.live.state, self.at)):
                    found = True
                    yield fact
            if not found:
                return
        log.warning("sources.restless", rounds=ROUNDS, hint="facts keep following from facts: a fault in a source")
        self.live.bell.ring()

    def submit(self, action: Action) -> None:
        """Begin an action. An engine that breaks its promise and raises has refused it."""
        try:
            self.engine.submit(action)
        except Exception as error:
            self._engine_failed("submit", error)
            refusal = refusal_of(action, self.at, f"{type(error).__name__}: {error}")
            if refusal is not None:
                self._refused.append(refusal)
                self.live.bell.ring()

    def _engine_failed(self, what: str, error: Exception) -> None:
        self.live.pulse.engine_trouble = f"{what} failed: {type(error).__name__}: {error}"
        log.error("engine.failed", what=what, error=str(error), traceback=traceback.format_exc())


def refusal_of(action: Action, at: Instant, why: str) -> ActionRefused | None:
    if isinstance(action, Start):
        return ActionRefused(at, action.run_id, "start", why)
    if isinstance(action, Preempt | Cancel):
        return ActionRefused(at, action.run_id, "preempt", why)
    return None


@dataclass(eq=False)
class Ledger:
    """The journal port: facts, plan and what is written with them in one transaction; then commands are answered."""

    live: Live
    feed: Feed
    seq: int = 0
    facts: tuple[Event, ...] = ()
    timing: Timing = field(default_factory=Timing)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        begun = perf_counter()
        self.timing.decide = begun - self.feed.told_at
        self.facts = tuple(facts)
        with self.live.recording():
            self.seq = self.live.store.append(self.facts, plan, tuple(self.live.writes))
        self.timing.append = perf_counter() - begun
        self.live.pulse.seq, self.live.pulse.decided_at = self.seq, plan.at
        for request in self.feed.taken:
            request.recorded(self.seq)


class Decider:
    """Cycles when something has happened or is due, and sleeps in between.

    `on_end` is called once, when it stops by itself (a failure: `live.pulse.failed` says which) or is told to.
    `after` is called between two cycles with the timing of the last one (snapshots, meters).
    """

    def __init__(
        self,
        live: Live,
        engine: Engine,
        *,
        coalesce: float = COALESCE,
        on_end: Callable[[BaseException | None], None] = lambda _: None,
        after: Callable[[int, Sequence[Event], Plan, Timing], None] = lambda *_: None,
    ) -> None:
        self.live, self.engine = live, engine
        self.coalesce = coalesce
        self.feed = Feed(live, engine)
        self.ledger = Ledger(live, self.feed)
        self._on_end, self._after = on_end, after
        self._leave = Flag()
        self._not_before = 0.0
        self._plan: Plan | None = None
        self._thread = Thread(target=self._run, name="decider", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float = 10.0) -> bool:
        """Let it finish its cycle, answer what waits, and end; whether it has.

        It has not if the store does not take its record: then the process may end all the same, for what is not
        recorded has not happened.
        """
        self._leave.set()
        self.live.bell.ring()
        if self._thread.ident is not None:
            self._thread.join(patience)
        self.live.inbox.close("the service is stopping; nothing was done")
        return not self._thread.is_alive()

    def _run(self) -> None:
        ended_by: BaseException | None = None
        try:
            self.live.pulse.running = True
            while not self._leave.is_set():
                self.cycle()
                self._rest()
            if self.live.inbox.depth:
                self.cycle()
        except BaseException as error:
            ended_by = error
            self.live.pulse.failed = self._failure(error)
        finally:
            self.live.pulse.running = False
            self._give_up()
            self._on_end(ended_by)

    def cycle(self) -> Plan:
        """One cycle, and what is to be done after it."""
        begun = monotonic()
        self.live.bell.clear()
        with self.live.lock:
            plan = cycle(self.live.state, self.feed, self.feed, self.ledger)
            self.live.intents.take_in(self.ledger.facts, plan, self.live.state.policy.observing)
        self._plan = plan
        took = monotonic() - begun
        self._not_before = begun + max(self.coalesce, took + min(took, LONGEST_PAUSE))
        self.ledger.timing.total = took
        self.live.tell(self.ledger.seq, self.ledger.facts, plan)
        self._after(self.ledger.seq, self.ledger.facts, plan, self.ledger.timing)
        return plan

    def _rest(self) -> None:
        """Sleep until the bell rings or something is due; then let a burst come together."""
        due = self._due()
        seconds = LONGEST_SLEEP if due is None else (due - self.live.clock.now()) / SECOND
        rang = self.live.bell.wait(min(seconds, LONGEST_SLEEP))
        if rang or due is not None:
            self._leave.wait(max(0.0, self._not_before - monotonic()))

    def _due(self) -> Instant | None:
        """The next instant at which there is something to decide although nobody rings."""
        wanted = [self.engine.next_due(), self.feed.retry_at, *(timer() for timer in self.live.timers)]
        if self._plan is not None and self._plan.wake_at is not None:
            wanted.append(max(self._plan.wake_at, self._plan.at + self.live.policy.cadence))
        known = [at for at in wanted if at is not None]
        return min(known) if known else None

    def _give_up(self) -> None:
        """Nobody waits for an answer that will not come."""
        why = self.live.pulse.failed or "the service is stopping; nothing was done"
        for request in self.feed.taken:
            request.refuse(UnavailableError(why))
        self.live.inbox.close(why)

    def _failure(self, error: BaseException) -> str:
        """What is told to everybody who asks from now on. The state is half changed: nobody may see it."""
        pulse = self.live.pulse
        if isinstance(error, StoreError):
            log.critical("decider.stopped", error=str(error), after_record=pulse.seq)
            return str(error)
        pulse.folding = repr(self.feed.last) if self.feed.last is not None else ""
        what = f"{type(error).__name__}: {error}"
        log.critical(
            "decider.failed",
            error=what,
            after_record=pulse.seq,
            while_folding=pulse.folding,
            traceback="".join(traceback.format_exception(error)),
        )
        return f"the scheduler stopped after record {pulse.seq} of its journal: {what}"
