"""A random world driven by the real loop, and what was decided in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from mirab.core.state import State
from mirab.model.accounts import Budgets
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.resources import Cluster
from mirab.model.trace import Trace
from mirab.model.units import HOUR, Instant
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.engine import World, drive
from tests.worlds import PERIOD

Look = Callable[[State, Sequence[Event], Plan], None]
"""Called at every decision, before it is committed: the state has seen the facts."""


@dataclass(slots=True)
class Record:
    """A journal that remembers everything, and lets a test look at each decision."""

    state: State
    look: Look | None = None
    entries: list[tuple[tuple[Event, ...], Plan]] = field(default_factory=list)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.entries.append((tuple(facts), plan))
        if self.look is not None:
            self.look(self.state, facts, plan)

    @property
    def plans(self) -> list[Plan]:
        return [plan for _, plan in self.entries]


class Shuffled:
    """Tells the facts of one instant in another order. What one run or one node tells of itself keeps its order."""

    def __init__(self, inner: SimBackend, chance: Random) -> None:
        self._inner, self._chance = inner, chance
        self.submit, self.next_due, self.exhausted = inner.submit, inner.next_due, inner.exhausted

    def observe(self) -> list[Event]:
        facts = self._inner.observe()
        ranked = sorted(range(len(facts)), key=lambda place: (facts[place].at, self._chance.random()))
        by_subject: dict[object, list[Event]] = {}
        for fact in facts:
            by_subject.setdefault(subject(fact), []).append(fact)
        return [by_subject[subject(facts[place])].pop(0) for place in ranked]


def subject(fact: Event) -> object:
    """What a fact is about."""
    for name in ("run_id", "node", "workload_id"):
        found = getattr(fact, name, None)
        if found is not None:
            return str(found).split(".")[0]
    workload = getattr(fact, "workload", None)
    return str(workload.id) if workload is not None else type(fact)


def driven(
    trace: Trace,
    policy: Policy,
    *,
    look: Look | None = None,
    shuffle: Random | None = None,
    until: Instant | None = None,
) -> Record:
    """The world from its beginning until all is done, or two periods have passed."""
    clock = SimClock()
    backend = SimBackend(trace, clock)
    world: World = backend if shuffle is None else Shuffled(backend, shuffle)
    state = State(trace.cluster, trace.budgets, policy)
    record = Record(state, look)
    drive(state, clock, world, record, cadence=policy.cadence, until=2 * PERIOD + 8 * HOUR if until is None else until)
    return record


def rebuilt(
    cluster: Cluster, budgets: Budgets, policy: Policy, entries: Sequence[tuple[Sequence[Event], Plan]]
) -> State:
    """A fresh state from the journal: what a restarted service would know."""
    state = State(cluster, budgets, policy)
    for facts, plan in entries:
        for fact in facts:
            state.fold(fact)
        state.advance(plan.at)
        state.commit(plan)
    return state
