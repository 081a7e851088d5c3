"""Replay: the same loop body as in production, with a heap for time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from mirab.control.cycle import cycle
from mirab.control.ports import Backend, Journal
from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import DAY, Duration, Instant
from mirab.sim.backend import SimBackend, SimClock, SimOptions

IDLE_PASSES = 10_000
"""So many wake-ups in a row at which nothing happened, in a world where nothing will: the replay ends."""
PATIENCE = 366 * DAY
"""All has arrived, and for so long no workload has left: they stop each other for ever, and the replay ends."""

COLLECT_AFTER = 50_000
"""New objects between two looks for garbage: a replay makes millions of objects, and next to no cycles."""

Progress = Callable[[Instant], None]


class World(Backend, Protocol):
    """A pretend engine that knows when it will next have something to tell."""

    def next_due(self) -> Instant | None: ...

    def exhausted(self) -> bool: ...


class Ending(Enum):
    """Why a replay ended."""

    FINISHED = "all work has ended"
    UNTIL = "the given instant was reached"
    STUCK = "nothing will ever happen any more, and work is left that never starts"
    CIRCLING = "runs stop each other before they get anywhere: no work has ended for a year"


@dataclass(frozen=True, slots=True)
class Driven:
    passes: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Replayed:
    """The state at the end, how many decisions it took, and the instant of the last one.

    `unfinished`: workloads that were waiting or running then; 0 if the replay ended FINISHED.
    """

    state: State
    passes: int
    ended_at: Instant
    ending: Ending = Ending.FINISHED
    unfinished: int = 0


def replay(
    trace: Trace,
    policy: Policy,
    *,
    journals: Sequence[Journal] = (),
    progress: Progress | None = None,
    options: SimOptions = SimOptions(),  # noqa: B008
    until: Instant | None = None,
    attach: Callable[[State], None] | None = None,
) -> Replayed:
    """Put a trace through the scheduler under one policy.

    Args:
        journals: each is told the facts and the plan of every decision.
        progress: called with the instant reached, about once each hundredth of the trace's period.
        until: decide nothing after this instant.
        attach: told the state before the first decision, for journals that sample it.

    Raises:
        ValueError: node events name a node that the cluster does not have, or two workloads have one id.
    """
    clock = SimClock()
    world = SimBackend(trace, clock, options)
    state = State(trace.cluster, trace.budgets, policy, now=0)
    if attach is not None:
        attach(state)
    young, middle, old = gc.get_threshold()
    gc.set_threshold(max(young, COLLECT_AFTER), middle, old)
    try:
        driven = drive(
            state,
            clock,
            world,
            _joined(journals),
            cadence=policy.cadence,
            until=until,
            progress=progress,
            progress_step=_hundredth(trace),
        )
    finally:
        gc.set_threshold(young, middle, old)
    return Replayed(state, driven.passes, clock.now(), driven.ending, len(state.pending) + len(state.runs))


def drive(
    state: State,
    clock: SimClock,
    world: World,
    journal: Journal,
    *,
    cadence: Duration,
    first: Instant | None = None,
    until: Instant | None = None,
    progress: Progress | None = None,
    progress_step: Duration = 0,
) -> Driven:
    """Jump from one instant to the next at which there is something to decide, until all is done.

    Args:
        cadence: least time between two decisions; facts in between keep their own instant and wait for the next.
        first: instant of the first decision, for a drive that goes on; None = when the first fact is due.
    """
    passes = 0
    watch = _Watch(state, world)
    report_at = clock.now()
    instant = world.next_due() if first is None else first
    while instant is not None:
        if until is not None and instant > until:
            return Driven(passes, Ending.UNTIL)
        clock.jump(instant)
        plan = cycle(state, clock, world, journal)
        passes += 1
        if progress is not None and instant >= report_at:
            progress(instant)
            report_at = instant + progress_step
        due = world.next_due()
        ending = watch.ending(instant, due, plan)
        if ending is not None:
            return Driven(passes, ending)
        instant = _next_instant(instant, due, plan, cadence)
    return Driven(passes, Ending.STUCK if state.pending or state.runs else Ending.FINISHED)


def _next_instant(now: Instant, due: Instant | None, plan: Plan, cadence: Duration) -> Instant | None:
    wake = plan.wake_at
    if due is None or (wake is not None and wake < due):
        due = wake
    return None if due is None else max(due, now + cadence)


class _Watch:
    """Notices that all work has ended, that nothing moves any more, or that it moves in circles."""

    def __init__(self, state: State, world: World) -> None:
        self._state = state
        self._world = world
        self._idle = 0
        self._based_on = 0
        self._fewest: int | None = None
        self._fewest_at: Instant = 0

    def ending(self, now: Instant, due: Instant | None, plan: Plan) -> Ending | None:
        """`due`: when the world will next tell something by itself."""
        if not self._world.exhausted():
            return None
        left = len(self._state.pending) + len(self._state.runs)
        if not left:
            return Ending.FINISHED
        if self._fewest is None or left < self._fewest:
            self._fewest, self._fewest_at = left, now
        moved = due is not None or plan.actions or plan.based_on != self._based_on
        self._idle = 0 if moved else self._idle + 1
        self._based_on = plan.based_on
        if self._idle > IDLE_PASSES:
            return Ending.STUCK
        return Ending.CIRCLING if now - self._fewest_at > PATIENCE else None


def _hundredth(trace: Trace) -> Duration:
    last = trace.arrivals[-1].workload.submitted_at if trace.arrivals else 0
    return max(1, (max(trace.ends_at, last) - trace.starts_at) // 100)


class _Joined:
    """Several journals as one."""

    __slots__ = ("_journals",)

    def __init__(self, journals: Sequence[Journal]) -> None:
        self._journals = tuple(journals)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        for journal in self._journals:
            journal.append(facts, plan)


def _joined(journals: Sequence[Journal]) -> Journal:
    return journals[0] if len(journals) == 1 else _Joined(journals)
