"""One seed draws a cluster, a load, a policy and what goes wrong; the real loop has to live through it.

Safety is judged after every decision, by the state's own invariants and by the independent audit. Then the world heals,
and every workload that fits has to come to its end: without that, a scheduler that kills for ever would pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.model.events import Event, RequeueRequested, WorkloadCancelled
from mirab.model.plans import Action, Plan
from mirab.model.units import DAY, HOUR, Instant, WorkloadId
from mirab.model.workloads import Arrival
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.faults import FaultRates, FaultyBackend
from tests.audit import Audit
from tests.driven import rebuilt
from tests.naive import caps, homes
from tests.worlds import PERIOD, draw_world

HEALS_AT: Instant = PERIOD + 2 * HOUR
PATIENCE: Instant = 120 * DAY
"""Long after everything that was drawn could have been done one after the other."""


class KilledError(Exception):
    """The service is killed here."""


@dataclass(slots=True)
class Line:
    """What stands between the loop and the engine: facts are told until they are recorded, and crashes happen.

    `crash_at`: ``observed`` = facts are read and not recorded; ``decided`` = the plan is not recorded; ``recorded`` =
    nothing of it is applied; a number = that many actions have been applied.
    """

    engine: FaultyBackend
    journal: list[tuple[tuple[Event, ...], Plan]]
    audit: Audit
    crash_at: str | int | None = None
    applied: int = 0
    unrecorded: list[Event] | None = None
    wishes: list[Event] = field(default_factory=list)

    def observe(self) -> list[Event]:
        self.unrecorded = [*(self.unrecorded or ()), *self.engine.observe(), *self.wishes]
        self.wishes.clear()
        if self.crash_at == "observed":
            raise KilledError
        return list(self.unrecorded)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        if self.crash_at == "decided":
            raise KilledError
        self.journal.append((tuple(facts), plan))
        self.unrecorded = []
        self.audit.see(facts, plan)
        if self.crash_at == "recorded":
            raise KilledError

    def submit(self, action: Action) -> None:
        if self.applied == self.crash_at:
            raise KilledError
        self.applied += 1
        self.engine.submit(action)


@dataclass(slots=True)
class Outcome:
    """What a storm went through."""

    decisions: int
    crashes: int
    preemptions: int
    unfinished: list[str]


class Storm:
    """One seed, from the first arrival until everything is over."""

    def __init__(self, seed: int, base: str = "budget") -> None:
        self.chance = Random(seed)
        world = draw_world(self.chance, base=base, most=60, troubles=6)
        self.trace = replace(world.trace, arrivals=[able_to_progress(arrival) for arrival in world.trace.arrivals])
        self.policy = replace(world.policy, headroom=0)
        self.clock = SimClock()
        engine = FaultyBackend(
            SimBackend(self.trace, self.clock), self.clock, self.trace.cluster, seed, draw_rates(self.chance)
        )
        self.audit = Audit(self.trace.cluster, self.policy, self.trace.budgets)
        self.line = Line(engine, [], self.audit)
        self.state = self._reborn()
        self.crashes = 0
        self.crashing = self.chance.choice((0.0, 0.05, 0.3))
        self.wishing = self.chance.choice((0.0, 0.02, 0.1))

    def run(self) -> Outcome:
        healed = False
        instant = self.line.engine.next_due()
        while instant is not None and instant <= PATIENCE:
            if not healed and instant >= HEALS_AT:
                healed, self.crashing, self.wishing = True, 0.0, 0.0
                self.clock.jump(instant)
                self.line.engine.heal()
            self.clock.jump(instant)
            wake_at = self._decide()
            if self._over():
                break
            instant = self._next(instant, wake_at)
        left = [
            *filter(self._could_run, sorted(self.state.pending)),
            *sorted(str(run_id) for run_id in self.state.runs),
        ]
        return Outcome(len(self.line.journal), self.crashes, self.audit.preemptions, left)

    def _decide(self) -> Instant | None:
        """One cycle, with the service killed somewhere in it perhaps, and started again."""
        self.line.applied, self.line.crash_at = 0, None
        if self.state.running and self.chance.random() < self.wishing:
            self._wish()
        if self.chance.random() < self.crashing:
            self.line.crash_at = self.chance.choice(("observed", "decided", "recorded", 0, 1, 2))
        try:
            plan = cycle(self.state, self.clock, self.line, self.line)
        except KilledError:
            self.crashes += 1
            self._recover()
            return self.clock.now() + 1
        self.state.check()
        return plan.wake_at

    def _wish(self) -> None:
        """Somebody wants an own run gone, for good or back in the queue."""
        workload_id = self.chance.choice(sorted(self.state.running))
        kind = self.chance.choice((WorkloadCancelled, RequeueRequested))
        self.line.wishes.append(kind(self.clock.now(), workload_id))

    def _recover(self) -> None:
        """The state comes from the journal, and the intents of the last plan are submitted again."""
        self.line.crash_at = None
        self.state = self._reborn()
        if self.line.journal:
            for action in self.line.journal[-1][1].actions:
                self.line.engine.submit(action)
        self.state.check()

    def _reborn(self) -> State:
        return rebuilt(self.trace.cluster, self.trace.budgets, self.policy, self.line.journal)

    def _could_run(self, workload_id: WorkloadId) -> bool:
        """Under ``quota`` what is larger than its account's part never starts, and is told so; nor what is larger
        than a cap that came after it."""
        workload = self.state.pending[workload_id].workload
        if workload.shape.gpus > caps.largest(self.state.budgets, workload.account):
            return False
        if self.policy.order != "quota":
            return True
        changes, cluster = self.trace.budget_changes, self.trace.cluster
        budgets = changes[-1].budgets if changes else self.trace.budgets
        home = homes.home(budgets, cluster, workload)
        pools = [pool for pool in cluster.pools if homes.ledger_at(budgets, pool) == home]
        cheapest = min(pool.weight for pool in pools if homes.could_hold(workload, pool))
        shares = homes.shares_in(budgets, home)
        share = shares.get(f"{workload.account}/*", shares.get(str(workload.account), 0))
        return workload.shape.gpus * cheapest <= sum(pool.charge_units for pool in pools) * share

    def _over(self) -> bool:
        waiting = any(map(self._could_run, self.state.pending))
        return self.line.engine.exhausted() and not waiting and not self.state.runs

    def _next(self, now: Instant, wake_at: Instant | None) -> Instant | None:
        due = [at for at in (self.line.engine.next_due(), wake_at) if at is not None]
        return max(min(due), now + self.policy.cadence) if due else None


def able_to_progress(arrival: Arrival) -> Arrival:
    """Charged work that saves something within each minimum. Only then is its end a fair demand.

    Two equal users whose work needs longer than its minimum and never saves take turns for ever: that is what they
    asked for, and no scheduler's fault.
    """
    workload = arrival.workload
    minimum = workload.shape.min_runtime
    if not minimum:
        return arrival
    every = workload.checkpoint if 0 < workload.checkpoint < minimum else minimum
    return replace(arrival, workload=replace(workload, checkpoint=min(every, HOUR), restart=0))


def draw_rates(chance: Random) -> FaultRates:
    """A swarm: each kind of fault is absent, rare or frequent, so that storms differ in kind and not only in force."""
    usual = FaultRates()
    rates = {
        name: getattr(usual, name) * chance.choice((0, 1, 5))
        for name in FaultRates.__dataclass_fields__
        if not name.startswith("longest")
    }
    return replace(usual, **rates)
