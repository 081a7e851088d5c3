"""Who waits and who runs, and what that makes of demand, of charge and of the GPUs in use."""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from mirab.model.accounts import Budgets, ledger_of, ledger_path
from mirab.model.plans import HoldChange, HoldReleased, Start
from mirab.model.policy import Exemption, Reservation
from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import Instant, NodeName, RunId, WorkloadId
from mirab.model.workloads import Workload
from mirab.study.demand import Ask, Asks
from mirab.study.ledger import Ledger
from mirab.study.owed import Leaf
from mirab.study.pyramid import Usage
from mirab.study.subjects import Attempt, Job


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Whereabouts:
    """The workloads in the system, and the rates that follow from where they are.

    Every method is called with the integrals moved on to `clock`, the measured instant.
    """

    def __init__(self, trace: Trace) -> None:
        self.usage = Usage(trace.cluster)
        self.ledger = Ledger(trace.budgets, trace.cluster, self.usage.charge_capacity(), trace.starts_at)
        self.jobs: dict[WorkloadId, Job] = {}
        self.runs: dict[RunId, Attempt] = {}
        self.reservations: dict[str, Reservation] = {}
        self.clock: Instant = trace.starts_at
        self._asks = Asks(trace.cluster)

    def add(self, workload: Workload) -> Job:
        """A workload comes in."""
        name = self._realm(workload, None)
        job = self.jobs[workload.id] = Job(workload, self._ask(workload.shape, name), self._leaf(workload, name))
        return job

    # --- whose ledger ------------------------------------------------------------------------------------------------
    def _realm(self, workload: Workload, run: Attempt | None) -> str:
        """The ledger that it belongs to: that of the pool it runs in, or the one it is to wait in."""
        ledger = self.ledger
        if not ledger.divided:
            return ""
        if run is not None:
            return ledger.of_pool(run.pool)
        return ledger.home(workload.account, workload.shape)

    def _leaf(self, workload: Workload, name: str) -> Leaf:
        return self.ledger.leaf(ledger_path(name, workload.account), self.clock)

    def _ask(self, shape: Shape, name: str) -> Ask:
        """What it asks of the pools of a ledger."""
        if not self.ledger.divided:
            return self._asks.of(shape)
        return self._asks.among(shape, self.ledger.accepted(name))

    def place(self, job: Job, run: Attempt | None) -> tuple[Leaf, Ask]:
        """The leaf that pays for it now and what it asks for; inside a ledger it keeps its leaf."""
        name = self._realm(job.workload, run)
        same = name == ledger_of(job.leaf.path)
        return job.leaf if same else self._leaf(job.workload, name), self._ask(job.workload.shape, name)

    def _follow(self) -> None:
        """Everybody is in the ledger that is theirs now."""
        for job in self.jobs.values():
            self._settle_in(job, job.run)

    def _settle_in(self, job: Job, run: Attempt | None) -> None:
        leaf, ask = self.place(job, run)
        if leaf is job.leaf and ask is job.ask:
            return
        before, wanted, waits = job.leaf, job.waiting or job.run is not None, job.waiting and job.ask.charged
        if wanted:
            self._want(job, -1)
        if waits:
            self.usage.unwait(job.ask.pools, job.ask.size)
        self.transfer(job, leaf)
        job.ask = ask
        if job.waiting:
            if waits:
                leaf.pending_rate += ask.rate - job.rate
                self.usage.wait(ask.pools, ask.size)
            job.rate, job.slots = ask.rate, ask.waiting_slots
        if wanted:
            self._want(job, +1)
        self.ledger.reckon(before)
        self.ledger.reckon(leaf)

    def transfer(self, job: Job, leaf: Leaf) -> None:
        """From now on what it waits for and what is charged for it is another leaf's; its demand is not moved here."""
        before = job.leaf
        before.settle(self.clock)
        leaf.settle(self.clock)
        if job.waiting and job.ask.charged:
            before.pending_rate -= job.rate
            leaf.pending_rate += job.rate
        job.unmet_before += leaf.unmet - before.unmet
        run = job.run if job.run is not None and job.run.started_at is not None else None
        if run is not None:
            self.charge(run, -1)
        job.leaf = leaf
        if run is not None:
            self.charge(run, +1)

    def set_budgets(self, budgets: Budgets) -> None:
        before = self.ledger.divided
        self.ledger.set_budgets(budgets, self.clock)
        if before or self.ledger.divided:
            self._follow()

    def grant(self, exemption: Exemption) -> None:
        self.ledger.grant(exemption, self.clock)
        if self.ledger.divided:
            self._follow()

    def revoke(self, exemption_id: str) -> None:
        self.ledger.revoke(exemption_id, self.clock)
        if self.ledger.divided:
            self._follow()

    def turn(self, instant: Instant) -> None:
        """A share or a reservation begins or ends by itself; the clock may stand still before that (see `clock`)."""
        self.ledger.turn(instant, self.clock)
        if self.ledger.divided:
            self._follow()

    # --- where they are ----------------------------------------------------------------------------------------------

    def join(self, job: Job) -> None:
        """It waits in the queue, unless its user holds it back or it can never run."""
        if self.ledger.divided:
            self._settle_in(job, None)
        if job.held_since is not None or not job.ask.pools:
            return
        leaf = job.leaf
        leaf.settle(self.clock)
        job.rate, job.slots = job.ask.rate, job.ask.waiting_slots
        job.waiting = True
        job.unmet_before = leaf.unmet
        self._want(job, 1)
        if job.ask.charged:
            leaf.pending_rate += job.rate
            self.ledger.reckon(leaf)
            self.usage.wait(job.ask.pools, job.ask.size)

    def leave(self, job: Job, *, gave_up: bool = False) -> None:
        """It no longer waits, and does not run either."""
        self.usage.end_hold(job.workload.id)
        if not job.waiting:
            return
        leaf = job.leaf
        leaf.settle(self.clock)
        if gave_up and job.ask.charged:
            leaf.given_up += job.rate * (leaf.unmet - job.unmet_before)
        self._unqueue(job)
        self._want(job, -1)
        if job.ask.charged:
            self.ledger.reckon(leaf)

    def start(self, job: Job, action: Start) -> Attempt:
        """It is given its nodes."""
        if self.ledger.divided and self.ledger.of_pool(action.allocation.pool) != ledger_of(job.leaf.path):
            self._settle_in(job, Attempt(job, action))
        run = job.run = self.runs[action.run_id] = Attempt(job, action)
        job.leaf.settle(self.clock)
        wanted = job.waiting
        if wanted:
            self._unqueue(job)
        if not wanted or run.rate != job.rate or run.slots != job.slots:
            if wanted:
                self._want(job, -1)
            job.rate, job.slots = run.rate, run.slots
            self._want(job, 1)
        self._occupy(run, 1)
        self.usage.end_hold(job.workload.id)
        return run

    def charge(self, run: Attempt, sign: int) -> None:
        """It runs, and is charged from now on (1); or no more (-1)."""
        leaf = run.job.leaf
        leaf.settle(self.clock)
        if run.job.ask.charged:
            leaf.charged_rate += sign * run.rate
        else:
            leaf.uncharged_rate += sign * run.rate

    def free(self, run: Attempt) -> None:
        """It is gone, and its nodes are free."""
        job = run.job
        job.leaf.settle(self.clock)
        if run.started_at is not None:
            self.charge(run, -1)
        del self.runs[run.id]
        job.run = None
        self._want(job, -1)
        self._occupy(run, -1)

    def set_health(self, node: NodeName, *, up: bool) -> None:
        self.usage.set_health(node, up=up)
        self.ledger.set_capacity(self.usage.charge_capacity(), self.clock)

    def on_node(self, node: NodeName) -> list[Attempt]:
        """The runs that have a part on a node."""
        pool, bit = self.usage.pool_and_bit(node)
        return [run for run in self.runs.values() if run.pool == pool and run.start.allocation.mask & bit]

    def change_holds(self, changes: Sequence[HoldChange]) -> None:
        """Holds are granted, moved and released; those of reservations are charged to their accounts."""
        self.usage.change_holds(changes)
        for change in changes:
            if isinstance(change, HoldReleased):
                if change.reservation_id is not None:
                    self._unreserve(change.reservation_id)
            elif change.reservation_id in self.reservations:
                reservation = self.reservations[change.reservation_id]
                rate = change.mask.bit_count() * change.slots_per_node * self.usage.pools[change.pool].weight
                self.ledger.reserve(reservation, change.pool, rate, self.clock)

    def cancel_reservation(self, reservation_id: str) -> None:
        self.usage.end_reservation(reservation_id)
        self._unreserve(reservation_id)

    def _unreserve(self, reservation_id: str) -> None:
        if self.reservations.pop(reservation_id, None) is not None:
            self.ledger.unreserve(reservation_id, self.clock)

    def _unqueue(self, job: Job) -> None:
        job.waiting = False
        if job.ask.charged:
            job.leaf.pending_rate -= job.rate
            self.usage.unwait(job.ask.pools, job.ask.size)

    def _want(self, job: Job, sign: int) -> None:
        """Demand grows or shrinks by the workload."""
        if job.ask.charged:
            job.leaf.wanted.add(job.ask.accepted, sign * job.rate)
        if job.slots:
            self.usage.wanted.add(job.ask.counted, sign * job.slots)
            self.usage.stale = True

    def _occupy(self, run: Attempt, sign: int) -> None:
        """Take the slots of the run (1) or give them back (-1), and see what that makes of C and of what is owed."""
        usage = self.usage
        pool = usage.pools[run.pool]
        before = pool.capacity
        if sign > 0:
            pool.take(run.start.allocation)
        else:
            pool.give(run.start.allocation)
        usage.stale = True
        if pool.capacity != before:
            self.ledger.set_capacity(usage.charge_capacity(), self.clock)
        elif run.job.ask.charged:
            self.ledger.reckon(run.job.leaf)
