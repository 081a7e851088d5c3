"""Small steps shared by the folding functions: nodes taken, charges begun, commitments settled, protection ended."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush

from mypy_extensions import mypyc_attr

from mirab.core.nodes import inside
from mirab.core.queues import User
from mirab.core.runs import Run
from mirab.core.shares import Account
from mirab.core.waitlist import Waitlist
from mirab.model.units import Charge, Instant


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Bookkeeping(Waitlist):
    """What runs, whom it is charged to, what it has been promised, and what protects it."""

    def occupy(self, run: Run) -> None:
        """Its nodes are taken, and it is among the runs."""
        all_usable = self.book(run, +1)
        self.runs[run.id] = self.running[run.workload.id] = run
        self.count_running(run, +1)
        if not all_usable:
            for place, sick in self.troubled.items():
                if run.is_on(place):
                    sick.runs[run.id] = run

    def book(self, run: Run, sign: int) -> bool:
        """Take its slots (+1) or give them back (-1); returns whether all its nodes are usable."""
        bank, all_usable = self.banks[run.pool], inside(run.mask, self.usable[run.pool])
        if sign > 0:
            bank.take(run.allocation, all_usable)
        else:
            bank.give(run.allocation, all_usable)
        return all_usable

    def count_running(self, run: Run, sign: int) -> None:
        """Its slots count as running (+1), or no more (-1), in its account and all above."""
        self._count_running(run, run.account.lineage, sign)

    def _count_running(self, run: Run, accounts: Sequence[Account], sign: int) -> None:
        rate, gpus = sign * self.uncharged_rate(run), sign * run.workload.shape.gpus
        for account in accounts:
            account.running += rate
            account.home.gpus += gpus

    def will_expose(self, run: Run) -> None:
        """Let it be known when its minimum ends, if the policy lets anybody stop it then."""
        if self.policy.preemption == "budget" or (self.policy.preemption == "priority" and run.workload.preemptible):
            heappush(self.exposures, (run.unprotected_at, run.id))

    def expose(self, run: Run) -> None:
        """Its minimum is over: the contract protects it no longer."""
        run.loose = True
        if run.charged:
            run.account.exposed[run.id] = run
            self.exposed_leaves[run.account] = None
            self.newly_exposed.append(run)
        else:
            self.uncharged_runs[run.id] = run

    def cover(self, run: Run) -> None:
        """It is nobody's victim any more: it is stopping, gone, or protected again."""
        if not run.loose:
            return
        run.loose = False
        self.uncharged_runs.pop(run.id, None)
        if run.account.exposed.pop(run.id, None) is not None and not run.account.exposed:
            del self.exposed_leaves[run.account]

    def commit_charge(self, run: Run, until: Instant) -> None:
        """Count the run as committed until then."""
        run.committed_until = until
        self._commit(run, run.account.lineage, run.user, +1)
        heappush(self.settlements, (until, run.id))

    def settle(self, run: Run) -> None:
        """Its commitment is over, exactly once."""
        if run.committed_until:
            self._commit(run, run.account.lineage, run.user, -1)
            run.committed_until = 0

    def _commit(self, run: Run, accounts: Sequence[Account], user: User, sign: int) -> None:
        rate = sign * run.rate
        for account in accounts:
            account.commitment.add(rate, run.committed_until)
        user.commitment.add(rate, run.committed_until)

    def meter(self, run: Run, sign: int) -> None:
        """Start (+1) or stop (-1) charging it."""
        self._meter(run, run.account.lineage, run.user, sign)

    def _meter(self, run: Run, accounts: Sequence[Account], user: User, sign: int) -> None:
        if run.charged:
            rate = sign * run.rate
            for account in accounts:
                account.usage.change_rate(self.now, rate)
            user.usage.change_rate(self.now, rate)
        else:
            rate = sign * self.uncharged_rate(run)
            for account in accounts:
                account.uncharged.change_rate(self.now, rate)
            user.uncharged.change_rate(self.now, rate)

    def charge(self, run: Run, amount: Charge) -> None:
        """Charge it so much at once, or give so much back (negative)."""
        for account in run.account.lineage:
            account.usage.add(self.now, amount)
        run.user.usage.add(self.now, amount)

    def move(self, run: Run, account: Account) -> None:
        """From now on the run belongs to another account. What it used stays where it was charged."""
        loose = run.loose
        self.cover(run)
        old, new, user = run.account.lineage, account.lineage, self.user_of(account, run.workload.user)
        self._count(run, [above for above in old if above not in new], run.user, -1)
        self._count(run, [above for above in new if above not in old], user, +1)
        run.account, run.user = account, user
        if loose:
            self.expose(run)

    def _count(self, run: Run, accounts: Sequence[Account], user: User, sign: int) -> None:
        """All that the run is counts in these accounts and for this user (+1), or no more (-1)."""
        self._count_running(run, accounts, sign)
        if run.started_at is not None:
            self._meter(run, accounts, user, sign)
        if run.committed_until:
            self._commit(run, accounts, user, sign)

    def capacity_changed(self, grown: bool) -> None:
        """There are more schedulable nodes, which may complete somebody's claim, or fewer, which opens none."""
        for ledger in self.ledgers.values():
            ledger.window.set_capacity(self.now, self.schedulable(ledger.pools))
        self.version += 1
        self.claims += grown
