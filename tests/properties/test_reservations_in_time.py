"""A reservation that is approved in time is met, whatever else goes on: what docs/howto/exceptions.md promises.

Approved at any instant, the longest minimum ahead or more, and accepted: its nodes are clear at its begin, or later by
as much as its approval came after the lead (`mirab.core.reservations.lead`). Random states: work of every kind, holds,
drains, sick nodes, other reservations, guaranteed runs, longer minimums that are granted before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirab.core.reservations import lead
from mirab.core.runs import Run
from mirab.core.state import State
from mirab.model.events import Event, ExemptionGranted, ReservationApproved
from mirab.model.plans import Hold, Plan, Preempt
from mirab.model.policy import Exemption, Reservation
from mirab.model.reasons import ReservationBegins
from mirab.model.resources import Shape, nodes_of
from mirab.model.trace import Trace
from mirab.model.units import HOUR, MINUTE, Duration, Instant, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.engine import drive
from tests.compiled import replaces_a_function
from tests.driven import Record
from tests.examples import examples
from tests.worlds import PERIOD, World, draw_world

END: Instant = 2 * PERIOD + 8 * HOUR
SETTLED = 30 * MINUTE
"""Claims of gangs that were there before must be over by then."""
CAPS = (30 * MINUTE, 2 * HOUR, 8 * HOUR)


class Told:
    """A world in which people decide at instants of their own."""

    def __init__(self, inner: SimBackend, clock: SimClock, facts: Sequence[Event]) -> None:
        self._inner, self._clock = inner, clock
        self._left = sorted(facts, key=lambda fact: fact.at)
        self.submit = inner.submit

    def observe(self) -> list[Event]:
        due = [fact for fact in self._left if fact.at <= self._clock.now()]
        self._left = self._left[len(due) :]
        return sorted([*self._inner.observe(), *due], key=lambda fact: fact.at)

    def next_due(self) -> Instant | None:
        due = [at for at in (self._inner.next_due(), self._left[0].at if self._left else None) if at is not None]
        return min(due, default=None)

    def exhausted(self) -> bool:
        return not self._left and self._inner.exhausted()


@dataclass
class Watched:
    """What became of each reservation.

    Attributes:
        approved, wanted: by id, when, and what.
        since: the nodes that each has, and since when; due: since when it should have them.
        leads: of each, as it was when it was approved.
        lost: those of which nodes fell sick after they had been chosen.
        late: what was promised and not kept, in words.
        met: reservations that were looked at while they held; stopped: runs that had to go for one.
    """

    approved: dict[str, Instant]
    wanted: dict[str, Reservation]
    since: dict[str, dict[int, Instant]] = field(default_factory=dict)
    due: dict[str, Instant] = field(default_factory=dict)
    leads: dict[str, Duration] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    late: list[str] = field(default_factory=list)
    met: dict[str, None] = field(default_factory=dict)
    stopped: int = 0

    def look(self, state: State, facts: Sequence[Event], plan: Plan) -> None:
        self.stopped += sum(isinstance(each, Preempt) and isinstance(each.reason, ReservationBegins)
                            for each in plan.actions)  # fmt: skip
        for name in self.wanted:
            if name in state.reservations:
                self.leads.setdefault(name, lead(state, self.wanted[name].begin))
            if name in state.reservations and name in state.accepted:
                self._see(state, self.wanted[name], plan.at)

    def _see(self, state: State, reservation: Reservation, now: Instant) -> None:
        name, hold = reservation.id, state.reserved.get(reservation.id)
        if self._short(state, reservation, now):
            self.lost.add(name)
        if now >= reservation.begin - lead(state, reservation.begin):
            self.due.setdefault(name, now)
        if hold is None:
            if name not in self.lost and now > self.due.get(name, now) + SETTLED:
                self.late.append(f"{name} has no nodes at {now}")
            return
        known = self.since.get(name, {})
        self.since[name] = {node: known.get(node, now) for node in nodes_of(hold.mask)}
        after = max(0, self.leads[name] - (reservation.begin - self.approved[name]))
        if reservation.begin + after + state.policy.cadence < now < reservation.end:
            self._judge(state, reservation, hold, now)

    def _short(self, state: State, reservation: Reservation, now: Instant) -> bool:
        """Nodes of its pool are sick: one of its own, or so many that there are too few for all that are promised."""
        if now < reservation.begin - lead(state, reservation.begin):
            return False
        hold = state.reserved.get(reservation.id)
        number = next(place for place, pool in enumerate(state.cluster.pools) if pool.name == reservation.pool)
        promised = sum(state.reservations[name].nodes for name in state.accepted
                       if name in state.reservations and state.reservations[name].pool == reservation.pool)  # fmt: skip
        return state.usable[number].bit_count() < promised or bool(hold and hold.mask & ~state.usable[hold.pool])

    def _judge(self, state: State, reservation: Reservation, hold: Hold, now: Instant) -> None:
        """All of its nodes are clear; where some were lost, those that it has had since they were chosen."""
        name, since = reservation.id, self.since[reservation.id]
        self.met[name] = None
        chosen_by = self.due[name] + SETTLED
        if name not in self.lost and len(since) < reservation.nodes:
            self.late.append(f"{name} has {len(since)} of {reservation.nodes} nodes at {now}")
        for node, at in since.items():
            if not state.usable[hold.pool] >> node & 1:
                continue
            guests = [run.id for run in _on(state, hold.pool, node) if run.reservation != name]
            if guests and (name not in self.lost or at <= chosen_by):
                self.late.append(f"{name}: node {node} (its own since {at}) has {guests} at {now}")


def _on(state: State, pool: int, node: int) -> list[Run]:
    """Charged runs on a node; what ignores its stop is a matter for a human."""
    here = [run for run in state.runs.values() if run.charged and run.is_on((pool, node))]
    return [run for run in here if run.stop_by is None or run.stop_by > state.now]


def lives(chance: Random) -> Watched:
    """A random world with reservations that are approved in time."""
    world = draw_world(chance, most=120)
    policy = replace(world.policy, min_runtime_cap=chance.choice(CAPS))
    world = World(replace(world.trace, reservations=[], exemptions=_exempted(world.trace)), policy)
    wanted = [_wanted(chance, world, number) for number in range(chance.choice((1, 1, 2, 3)))]
    watched = Watched({each.id: at for at, each in wanted}, {each.id: each for _, each in wanted})
    facts: list[Event] = [ReservationApproved(at, each) for at, each in wanted]
    facts += [ExemptionGranted(at, each) for at, each in _granted(chance, world.trace)]
    clock = SimClock()
    backend = SimBackend(_going_on(world.trace), clock)
    state = State(world.trace.cluster, world.trace.budgets, policy)
    record = Record(state, watched.look)
    drive(state, clock, Told(backend, clock, facts), record, cadence=policy.cadence, until=END)
    return watched


def _exempted(trace: Trace) -> list[Exemption]:
    return [each for each in trace.exemptions if each.kind in ("extra-share", "drain-pause")]


def _granted(chance: Random, trace: Trace) -> list[tuple[Instant, Exemption]]:
    """Longer minimums and guarantees, granted before and after."""
    found = []
    for number in range(chance.choice((0, 1, 2))):
        at = chance.randrange(0, PERIOD, MINUTE)
        begin = at + chance.choice((0, 0, HOUR))
        kind = chance.choice(("longer-minimum", "longer-minimum", "guaranteed"))
        found.append((at, Exemption(f"e{number}", kind, chance.choice(trace.budgets.leaves()), begin,
                                    begin + chance.choice((1, 6)) * HOUR, "owner", "approver", "a deadline",
                                    cap=chance.choice((3, 10, 24)) * HOUR)))  # fmt: skip
    return found


def _wanted(chance: Random, world: World, number: int) -> tuple[Instant, Reservation]:
    """Approved at an instant, and to begin the longest minimum after it or later."""
    pool = chance.choice(world.trace.cluster.pools)
    at = chance.randrange(0, PERIOD, MINUTE)
    slack = 2 * world.policy.grace_max + world.policy.start_timeout
    begin = at + world.policy.min_runtime_cap + chance.choice((0, MINUTE, slack, slack, HOUR, 3 * HOUR))
    account, nodes = chance.choice(world.trace.budgets.leaves()), chance.randint(1, len(pool.nodes))
    end = begin + chance.choice((1, 4)) * HOUR
    return at, Reservation(f"r{number}", account, nodes, pool.gpus_per_node, begin, end,
                           "owner", "approver", "a demo", pool.name)  # fmt: skip


def _going_on(trace: Trace) -> Trace:
    """With work that comes last, so that the replay does not end before."""
    late = Workload(WorkloadId("late"), END, trace.budgets.leaves()[0], UserName("eve"), Shape(1, 1))
    return replace(trace, arrivals=[*trace.arrivals, Arrival(late, HOUR)], ends_at=END)


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(60))
def test_what_is_approved_in_time_is_met(chance: Random) -> None:
    assert lives(chance).late == []


def test_the_promise_is_not_empty() -> None:
    """Over some worlds most are accepted and looked at, some lose a node on the way, and runs are stopped for them."""
    worlds = [lives(Random(seed)) for seed in range(60)]
    assert [late for world in worlds for late in world.late] == []
    assert sum(len(world.met) for world in worlds) > 40
    assert sum(len(world.lost) for world in worlds) > 5
    assert sum(world.stopped for world in worlds) > 40


@replaces_a_function
def test_it_sees_a_promise_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that finds nothing anywhere would be none: here nobody is sent away from what is reserved."""
    monkeypatch.setattr("mirab.core.reservations._clear", lambda trial, reservation, hold: trial.wake(reservation.end))
    assert any(lives(Random(seed)).late for seed in range(30))
