"""Everything the scheduler knows. It changes only by folding a fact, by `advance`, and by committing a plan."""

from __future__ import annotations

from heapq import heappop

from mypy_extensions import mypyc_attr

from mirab.core import facts, intentions, invariants, portfolio
from mirab.core.bookkeeping import Bookkeeping
from mirab.model.accounts import Budgets
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.resources import Cluster
from mirab.model.units import AccountPath, Charge, Instant, UserName, WorkloadId


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class State(Bookkeeping):
    """The whole: facts are folded into it, time passes in it, and plans are committed to it."""

    def __init__(self, cluster: Cluster, budgets: Budgets, policy: Policy, now: Instant = 0) -> None:
        super().__init__(cluster, budgets, policy, now)
        self.install(budgets)

    def fold(self, event: Event) -> None:
        """Take in one fact. Facts come in order of time; one that is late counts from now."""
        self.folded += 1
        if event.at > self.now:
            self.now = event.at
        facts.FACTS[type(event)](self, event)

    def advance(self, now: Instant) -> None:
        """Let time pass: commitments settle, minimums end."""
        if now > self.now:
            self.now = now
        self._settle_until(now)
        self._expose_until(now)
        self._miss_until(now)
        if self.exemptions or self.exemptions_in_force:
            self._enforce_exemptions(now)
        for reservation in list(self.reservations.values()) if self.reservations else ():
            if reservation.begin <= now < reservation.end:
                portfolio.charge_for(self, reservation)

    def _settle_until(self, now: Instant) -> None:
        while self.settlements and self.settlements[0][0] <= now:
            until, run_id = heappop(self.settlements)
            run = self.runs.get(run_id)
            if run is not None and run.committed_until == until:
                self.settle(run)

    def _expose_until(self, now: Instant) -> None:
        while self.exposures:
            until, run_id = self.exposures[0]
            run = self.runs.get(run_id)
            current = run is not None and run.unprotected_at == until and not run.stopping
            if current and until > now:
                return
            heappop(self.exposures)
            if current and run is not None:
                self.expose(run)

    def _miss_until(self, now: Instant) -> None:
        while self.overdue:
            at, run_id = self.overdue[0]
            run = self.runs.get(run_id)
            current = run is not None and self.overdue_at(run) == at
            if current and at > now:
                return
            heappop(self.overdue)
            if current and run is not None:
                self.late[run_id] = run

    def _enforce_exemptions(self, now: Instant) -> None:
        """Exceptions begin and, above all, end by themselves."""
        in_force = {key: value for key, value in self.exemptions.items() if value.begin <= now < value.end}
        if in_force != self.exemptions_in_force:
            self.exemptions_in_force = in_force
            self.install(self.budgets)
            portfolio.requeue_all(self)

    def commit(self, plan: Plan) -> None:
        """Take in what was decided. The engine's answers come later, as facts."""
        self.folded += 1
        if plan.surveyed:
            self.seen_at, self.seen_claims = plan.at, self.claims
        self.seen_version = self.version
        self.newly_exposed.clear()
        self.given_back.clear()
        self.accepted.update(dict.fromkeys(self.reservations))
        if not self.policy.observing:
            self._intend(plan)
        for waiting in plan.waiting:
            intentions.explained(self, waiting)

    def _intend(self, plan: Plan) -> None:
        for change in plan.holds:
            intentions.INTENTIONS[type(change)](self, change, plan.at)
        for action in plan.actions:
            intentions.INTENTIONS[type(action)](self, action, plan.at)

    def check(self) -> None:
        """Assert every invariant, with the subject's story in the message."""
        invariants.check(self)

    def first_waiting(self, path: AccountPath, now: Instant) -> WorkloadId | None:
        """The charged workload of a leaf whose turn is first, were there room for any."""
        account = self.accounts[path]
        best: tuple[Charge, UserName, tuple[object, ...]] | None = None
        first = None
        for user in account.users.values():
            heads = [queue.head for queue in user.queues.values() if queue.info.charged]
            if heads:
                head = min(heads, key=lambda pending: pending.rank)
                key = (self.user_usage(user, now), user.name, head.rank)
                if best is None or key < best:
                    best, first = key, head.id
        return first
