"""A world that goes wrong: an engine whose answers and nodes cannot be trusted, driven by one seed.

Every choice is drawn from one `random.Random(seed)` in the order of the calls, so a seed replays the same storm.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random

from mirab.control.ports import Clock
from mirab.model.events import ActionRefused, Event, Outcome, RunEnded, RunStarted
from mirab.model.plans import Action, Cancel, Preempt, Start
from mirab.model.resources import Cluster
from mirab.model.units import HOUR, MINUTE, SECOND, Duration, Instant, NodeName, RunId
from mirab.model.workloads import NodeTrouble
from mirab.sim.backend import SimBackend


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Chances in parts per thousand, and how long faults last.

    Attributes:
        start_lost: the order to start never arrives.
        start_refused: the engine refuses it, by `ActionRefused` or by a failed launch.
        ghost_start: the engine says that it refused, and the run runs all the same for up to `longest_ghost`.
        stop_lost: the order to stop never arrives.
        stop_refused: the engine refuses it.
        stop_ignored: the run goes on for up to `longest_deafness` before it heeds.
        action_late: any other action arrives up to `longest_delay` late.
        ack_lost: that a run has started is never told. (That it has ended always is, at last.)
        ack_late, ack_twice: that it has started or ended is told up to `longest_delay` late, or told again then.
        flap: at each look a node degrades (and may recover by itself), or dies, for up to `longest_flap`.
    """

    start_lost: int = 20
    start_refused: int = 30
    ghost_start: int = 10
    stop_lost: int = 20
    stop_refused: int = 20
    stop_ignored: int = 50
    action_late: int = 50
    ack_lost: int = 20
    ack_late: int = 80
    ack_twice: int = 50
    flap: int = 2
    longest_delay: Duration = 5 * MINUTE
    longest_ghost: Duration = 2 * HOUR
    longest_deafness: Duration = 30 * MINUTE
    longest_flap: Duration = 2 * HOUR


CALM = FaultRates(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Nothing goes wrong."""


class FaultyBackend:
    """A `SimBackend` behind a bad line. `heal` mends the line; what was lost stays lost, what is late comes at once.

    Facts that are late keep the instant at which they happened. What the scheduler must survive: a run that it
    believes in does not exist, one that it does not believe in does, and the same thing is told twice.
    """

    def __init__(
        self,
        inner: SimBackend,
        clock: Clock,
        cluster: Cluster,
        seed: int,
        rates: FaultRates = FaultRates(),
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._nodes = [node for pool in cluster.pools for node in pool.nodes]
        self._random = Random(seed)
        self._rates = rates
        self._actions: list[tuple[Instant, int, Action]] = []
        self._facts: list[tuple[Instant, int, Event]] = []
        self._recoveries: list[tuple[Instant, NodeName]] = []
        self._ghosts: dict[RunId, Instant] = {}
        self._number = 0

    # --- the port, and what the engine asks -------------------------------------------------------------------------
    def observe(self) -> list[Event]:
        """What comes over the bad line by now: first what was late, then what the engine tells."""
        now = self._clock.now()
        if self._nodes and self._chance(self._rates.flap):
            self._flap(now)
        self._let_happen(now)
        told = []
        while self._facts and self._facts[0][0] <= now:
            told.append(heappop(self._facts)[2])
        return told + [fact for fact in self._inner.observe() if self._arrives(fact, now)]

    def submit(self, action: Action) -> None:
        now = self._clock.now()
        if isinstance(action, Start):
            self._start(action, now)
        elif isinstance(action, Preempt | Cancel):
            self._stop(action, now)
        else:
            self._pass_on(action, now)

    def next_due(self) -> Instant | None:
        due = [*self._ghosts.values()]
        due += [at for at, _, _ in self._actions[:1]]
        due += [at for at, _, _ in self._facts[:1]]
        due += [at for at, _ in self._recoveries[:1]]
        inner = self._inner.next_due()
        return min(due if inner is None else [*due, inner], default=None)

    def exhausted(self) -> bool:
        return self._inner.exhausted()

    def heal(self) -> None:
        """No more faults. Late actions and facts arrive at the next look, ghosts die, flapping nodes recover."""
        now = self._clock.now()
        self._rates = CALM
        self._actions = [(min(at, now), number, action) for at, number, action in self._actions]
        self._facts = [(min(at, now), number, fact) for at, number, fact in self._facts]
        self._recoveries = [(min(at, now), node) for at, node in self._recoveries]
        self._ghosts = {run_id: min(at, now) for run_id, at in self._ghosts.items()}
        heapify(self._actions)
        heapify(self._facts)
        heapify(self._recoveries)

    # --- actions ----------------------------------------------------------------------------------------------------
    def _start(self, action: Start, now: Instant) -> None:
        rates = self._rates
        if self._chance(rates.start_lost):
            return
        if self._chance(rates.start_refused):
            self._refuse_start(action, now)
        elif self._chance(rates.ghost_start):
            self._ghosts[action.run_id] = now + self._span(rates.longest_ghost)
            self._inner.accept(action, now)
            self._tell(ActionRefused(now, action.run_id, "start", "no answer in time"), now)
        else:
            self._pass_on(action, now)

    def _refuse_start(self, action: Start, now: Instant) -> None:
        if self._random.random() < 0.5:
            self._tell(ActionRefused(now, action.run_id, "start", "the engine is busy"), now)
        else:
            at = now + self._span(self._rates.longest_delay)
            self._tell(RunEnded(at, action.run_id, Outcome.LAUNCH_FAILED, 0), at)

    def _stop(self, action: Preempt | Cancel, now: Instant) -> None:
        rates = self._rates
        if self._chance(rates.stop_lost):
            return
        if self._chance(rates.stop_refused):
            self._tell(ActionRefused(now, action.run_id, "preempt", "the engine is busy"), now)
        elif self._chance(rates.stop_ignored):
            self._postpone(action, now + self._span(rates.longest_deafness))
        else:
            self._pass_on(action, now)

    def _pass_on(self, action: Action, now: Instant) -> None:
        if self._chance(self._rates.action_late):
            self._postpone(action, now + self._span(self._rates.longest_delay))
        else:
            self._inner.accept(action, now)

    def _postpone(self, action: Action, at: Instant) -> None:
        self._number += 1
        heappush(self._actions, (at, self._number, action))

    # --- facts ------------------------------------------------------------------------------------------------------
    def _arrives(self, fact: Event, now: Instant) -> bool:
        """Whether a fact of the engine is told now; acknowledgements may be lost, come late, or come twice."""
        if not isinstance(fact, (RunStarted, RunEnded)):
            return True
        ghost = fact.run_id in self._ghosts
        if isinstance(fact, RunEnded):
            self._ghosts.pop(fact.run_id, None)
        elif self._chance(self._rates.ack_lost):
            return False
        later = now + self._span(self._rates.longest_delay)
        if ghost or self._chance(self._rates.ack_late):
            self._tell(fact, later)
            return False
        if self._chance(self._rates.ack_twice):
            self._tell(fact, later)
        return True

    def _tell(self, fact: Event, at: Instant) -> None:
        self._number += 1
        heappush(self._facts, (at, self._number, fact))

    # --- nodes ------------------------------------------------------------------------------------------------------
    def _flap(self, now: Instant) -> None:
        node = NodeName(self._random.choice(self._nodes))
        kind = "degraded" if self._random.random() < 0.7 else "down"
        span = self._span(self._rates.longest_flap)
        self._inner.strike(NodeTrouble(now, node, kind, span, stuck=self._random.random() < 0.2))
        if self._random.random() < 0.5:
            heappush(self._recoveries, (now + self._span(span), node))

    def _let_happen(self, now: Instant) -> None:
        """What is due on the far side of the line."""
        while self._actions and self._actions[0][0] <= now:
            at, _, action = heappop(self._actions)
            self._inner.accept(action, at)
        while self._recoveries and self._recoveries[0][0] <= now:
            at, node = heappop(self._recoveries)
            self._inner.recover(node, at)
        for run_id in [run_id for run_id, until in self._ghosts.items() if until <= now]:
            self._inner.kill(run_id, self._ghosts.pop(run_id))

    # --- chance -----------------------------------------------------------------------------------------------------
    def _chance(self, per_thousand: int) -> bool:
        return per_thousand > 0 and self._random.randrange(1000) < per_thousand

    def _span(self, longest: Duration) -> Duration:
        return self._random.randrange(SECOND, longest) if longest > SECOND else max(1, longest)
