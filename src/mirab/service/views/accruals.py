"""What each leaf was owed and got, kept live: the measures of a replay on the facts and plans of the journal.

The books are those of `mirab.study`: who waits and runs makes the demand, min(share x capacity, demand) is owed. Here
they have no end: totals are marked once an hour, counted from the first day, and forgotten when no window sees them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mirab.model import events as facts_of
from mirab.model.accounts import Budgets
from mirab.model.events import Event, Outcome, goes_back
from mirab.model.plans import Plan, Reject, Start
from mirab.model.policy import Policy
from mirab.model.reasons import InOrder
from mirab.model.resources import Allocation, Cluster, nodes_of
from mirab.model.trace import Trace
from mirab.model.units import FOREVER, HOUR, WHOLE, AccountPath, Charge, Duration, Instant, NodeName
from mirab.study.deeds import Deeds
from mirab.study.growth import grown
from mirab.study.owed import Leaf, ScaledCharge
from mirab.study.whereabouts import Whereabouts

STEP: Duration = HOUR
"""Between two marks: the begin of a window is exact to this."""


class Totals(NamedTuple):
    """Since the ledger's first day."""

    owed: ScaledCharge = 0
    charged: Charge = 0


class Got(NamedTuple):
    """Of one leaf over the window: what was owed and what of it was delivered, both times `WHOLE`."""

    owed: ScaledCharge
    delivered: ScaledCharge


class Accruals:
    """Takes in the journal record by record, in order.

    Attributes:
        seq: number of the last record taken in.
        began_at: the ledger's first instant.
        deeds: which plans were advice.
    """

    def __init__(self, cluster: Cluster, budgets: Budgets, policy: Policy, began_at: Instant) -> None:
        self.seq = 0
        self.began_at = began_at
        self.window = policy.window
        self.cluster = cluster
        self.deeds = Deeds(policy)
        self.where = Whereabouts(Trace((), cluster, budgets, starts_at=began_at))
        self.sick: dict[str, None] = {}
        self._marks: deque[tuple[Instant, dict[AccountPath, Totals]]] = deque([(began_at, {})])
        self._hearers = self._wire()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_hearers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._hearers = self._wire()

    def append(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """One record; one that was taken in before is passed over."""
        if seq <= self.seq:
            return
        self.seq = seq
        for fact in facts:
            hear = self._hearers.get(type(fact))
            if hear is not None:
                self._advance(fact.at)
                hear(fact)
        self._advance(plan.at)
        plan = self.deeds.of(facts, plan)
        for action in plan.actions:
            if isinstance(action, Start):
                self._start(action)
            elif isinstance(action, Reject):
                self._reject(action)
        if plan.holds:
            self.where.change_holds(plan.holds)

    # --- time -------------------------------------------------------------------------------------------------------
    def _advance(self, now: Instant) -> None:
        where = self.where
        while True:
            turn = where.ledger.next_turn
            mark = self._marks[-1][0] + STEP
            stop = min(mark, FOREVER if turn is None else turn)
            if stop > now:
                break
            where.clock = max(where.clock, stop)
            if stop == mark:
                self._mark(mark)
            if turn is not None and turn <= stop:
                where.turn(stop)
        where.clock = max(where.clock, now)

    def _mark(self, now: Instant) -> None:
        """Note the totals; those of a leaf that had none of anything since are the same object, not another one."""
        before = self._marks[-1][1]
        noted = {}
        for path, leaf in self.where.ledger.leaves.items():
            totals = totals_at(leaf, now)
            noted[path] = before[path] if before.get(path) == totals else totals
        self._marks.append((now, noted))
        while len(self._marks) > 1 and self._marks[1][0] <= now - self.window:
            self._marks.popleft()

    # --- read -------------------------------------------------------------------------------------------------------
    @property
    def marks(self) -> Sequence[tuple[Instant, dict[AccountPath, Totals]]]:
        """The totals of every leaf at each step that the window sees, the oldest first."""
        return tuple(self._marks)

    def since(self, now: Instant) -> Instant:
        """Where the window that ends now begins: at the last full step before, or with the ledger."""
        return self.began_at + max(0, now - self.window - self.began_at) // STEP * STEP

    def _noted(self, at: Instant) -> dict[AccountPath, Totals]:
        """The totals at a mark, or at a step that nothing has happened since the last record."""
        if at > self._marks[-1][0]:
            return {path: totals_at(leaf, at) for path, leaf in self.where.ledger.leaves.items()}
        return next((noted for mark, noted in reversed(self._marks) if mark <= at), self._marks[0][1])

    def got(self, now: Instant) -> dict[AccountPath, Got]:
        """Every leaf over the window that ends now (not before the last record)."""
        now = max(now, self.where.clock)
        begin = self._noted(self.since(now))
        found = {}
        for path, leaf in self.where.ledger.leaves.items():
            early, late = begin.get(path, _NOTHING), totals_at(leaf, now)
            owed = late.owed - early.owed
            found[path] = Got(owed, max(0, min((late.charged - early.charged) * WHOLE, owed)))
        return found

    # --- facts ------------------------------------------------------------------------------------------------------
    def _wire(self) -> dict[type, Callable[[Any], None]]:
        return {
            facts_of.WorkloadSubmitted: self._submitted,
            facts_of.WorkloadCancelled: self._cancelled,
            facts_of.WorkloadHeld: self._held,
            facts_of.WorkloadReleased: self._released,
            facts_of.RunStarted: self._started,
            facts_of.RunAdopted: self._adopted,
            facts_of.RunCheckpointed: self._checkpointed,
            facts_of.RunEnded: self._ended,
            facts_of.ActionRefused: self._refused,
            facts_of.NodeDegraded: lambda fact: self._health(fact.node, False),
            facts_of.NodeDown: lambda fact: self._health(fact.node, False),
            facts_of.NodeUp: lambda fact: self._health(fact.node, True),
            facts_of.BudgetsChanged: lambda fact: self.where.set_budgets(fact.budgets),
            facts_of.PolicyChanged: self._policy,
            facts_of.ClusterChanged: self._grown,
            facts_of.ReservationApproved: self._reserved,
            facts_of.ReservationCancelled: lambda fact: self.where.cancel_reservation(fact.reservation_id),
            facts_of.ExemptionGranted: lambda fact: self.where.grant(fact.exemption),
            facts_of.ExemptionRevoked: lambda fact: self.where.revoke(fact.exemption_id),
        }

    def _submitted(self, fact: facts_of.WorkloadSubmitted) -> None:
        if fact.workload.id not in self.where.jobs:
            job = self.where.add(fact.workload)
            self.where.join(job)

    def _held(self, fact: facts_of.WorkloadHeld) -> None:
        job = self.where.jobs.get(fact.workload_id)
        if job is not None and job.held_since is None and job.run is None:
            job.held_since = fact.at
            self.where.leave(job)

    def _released(self, fact: facts_of.WorkloadReleased) -> None:
        job = self.where.jobs.get(fact.workload_id)
        if job is not None and job.held_since is not None:
            job.held_since = None
            if job.run is None:
                self.where.join(job)

    def _cancelled(self, fact: facts_of.WorkloadCancelled) -> None:
        job = self.where.jobs.get(fact.workload_id)
        if job is not None:
            job.cancelled = True
            if job.run is None:
                self.where.leave(job, gave_up=True)
                del self.where.jobs[fact.workload_id]

    def _start(self, action: Start) -> None:
        job = self.where.jobs.get(action.workload_id)
        if job is not None and job.run is None:
            self.where.start(job, action)

    def _adopted(self, fact: facts_of.RunAdopted) -> None:
        """The engine runs it although no plan said so: as if it had been started and were running."""
        job = self.where.jobs.get(fact.workload_id)
        if job is not None and job.run is None:
            because = InOrder(job.workload.account, 0.0, False)
            self._start(Start(fact.run_id, fact.workload_id, self._free(fact.allocation), fact.min_runtime, because))
            self._started(facts_of.RunStarted(fact.at, fact.run_id))

    def _free(self, given: Allocation) -> Allocation:
        """The nodes of the allocation that have the slots: what the engine has given away twice counts once."""
        pool, width = self.where.usage.pools[given.pool], given.slots_per_node
        free = [node for node in nodes_of(given.mask) if pool.used(1 << node) + width <= pool.slots]
        return given._replace(mask=sum(1 << node for node in free))

    def _started(self, fact: facts_of.RunStarted) -> None:
        run = self.where.runs.get(fact.run_id)
        if run is not None and run.started_at is None:
            run.started_at = fact.at
            self.where.charge(run, 1)

    def _checkpointed(self, fact: facts_of.RunCheckpointed) -> None:
        run = self.where.runs.get(fact.run_id)
        if run is not None:
            run.saved_at = fact.at

    def _ended(self, fact: facts_of.RunEnded) -> None:
        run = self.where.runs.get(fact.run_id)
        if run is None:
            return
        job = run.job
        if fact.outcome is Outcome.NODE_FAIL and job.ask.charged:
            job.leaf.charged -= run.rate * self._destroyed(fact, run.started_at, run.saved_at)
        self.where.free(run)
        if goes_back(fact.outcome, job.workload.resume) and not job.cancelled:
            self.where.join(job)
        else:
            del self.where.jobs[job.workload.id]

    @staticmethod
    def _destroyed(fact: facts_of.RunEnded, started_at: Instant | None, saved_at: Instant | None) -> Duration:
        """Time that hardware took and the account gets back, so that it was not delivered either."""
        ran = 0 if started_at is None else fact.at - started_at
        lost = ran if saved_at is None else fact.at - saved_at
        return min(lost if fact.lost is None else fact.lost, ran)

    def _refused(self, fact: facts_of.ActionRefused) -> None:
        run = self.where.runs.get(fact.run_id)
        if run is None or fact.action != "start":
            return
        self.where.free(run)
        if run.job.cancelled:
            del self.where.jobs[run.job.workload.id]
        else:
            self.where.join(run.job)

    def _reject(self, action: Reject) -> None:
        job = self.where.jobs.pop(action.workload_id, None)
        if job is not None:
            self.where.leave(job)

    def _health(self, node: str, up: bool) -> None:
        if up:
            self.sick.pop(node, None)
        else:
            self.sick[node] = None
        self.where.set_health(NodeName(node), up=up)

    def _policy(self, fact: facts_of.PolicyChanged) -> None:
        self.window = fact.policy.window

    def _grown(self, fact: facts_of.ClusterChanged) -> None:
        self.cluster = fact.cluster
        self.where = grown(self.where, fact.cluster, self.sick)

    def _reserved(self, fact: facts_of.ReservationApproved) -> None:
        self.where.reservations[fact.reservation.id] = fact.reservation


_NOTHING = Totals()


def totals_at(leaf: Leaf, now: Instant) -> Totals:
    """The leaf's totals as they will be at an instant if nothing changes until then; the leaf stays as it is."""
    span = now - leaf.at
    return Totals(leaf.owed + leaf.owed_rate * span, leaf.charged + leaf.charged_rate * span)
