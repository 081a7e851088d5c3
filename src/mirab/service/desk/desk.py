"""The desk as a whole: every command that people and programs can give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mirab.core.state import State
from mirab.model.records import JobRow
from mirab.model.units import Instant
from mirab.service.auth.principal import Principal
from mirab.service.desk.book import Book
from mirab.service.desk.budgets import BudgetCommands, BudgetsNow
from mirab.service.desk.changesets import Changesets
from mirab.service.desk.errors import DeskError
from mirab.service.desk.followers import Followers
from mirab.service.desk.forms import Limits
from mirab.service.desk.identity import RunAs, run_as
from mirab.service.desk.jobs import JobCommands
from mirab.service.desk.nodes import NodeCommands, Reported
from mirab.service.desk.office import Office
from mirab.service.desk.portfolio import Portfolio
from mirab.service.desk.rehearsal import DryRun, refused, rehearsed, told
from mirab.service.desk.sandbox import Sandbox
from mirab.service.desk.submit import Accepted, Submissions, SubmitReply
from mirab.service.views.homes import home_of
from mirab.service.views.waiting import names_of

if TYPE_CHECKING:
    from mirab.service.live import Live


class Desk:
    """Made once, before the first decision: it joins the loop as listener, source of facts and timer.

    Every command raises `DeskError` if it is refused, and what `Live.send` raises if it cannot be recorded.
    `submit_there`: where jobs are submitted instead, if not here.
    """

    def __init__(
        self,
        live: Live,
        *,
        limits: Limits = Limits(),  # noqa: B008
        run_as: RunAs = run_as,
        submit_there: str = "",
    ) -> None:
        book = Book(live.store)
        followers = Followers(book, live.store, live.news, limits.launches)
        office = Office(live, book, followers, limits, run_as)
        self._live = live
        self._submit_there = submit_there
        self._submissions = Submissions(office)
        self._jobs = JobCommands(office)
        self._nodes = NodeCommands(office)
        changesets = Changesets(live)
        self._budgets = BudgetCommands(office, changesets)
        self.portfolio = Portfolio(office, changesets)
        with live.reading() as state:
            book.load(state)
            self.portfolio.load(state)
        live.subscribe(lambda seq, facts, plan: book.hear(facts, plan))
        live.add_source(followers)
        live.add_timer(followers.timer)
        self.portfolio.join(live)

    # --- jobs -------------------------------------------------------------------------------------------------------
    def submit(self, who: Principal, request: Any, key: str | None = None) -> SubmitReply:
        """Take in a job or an array; see `Submissions.submit`."""
        self._check_takes_jobs()
        return self._submissions.submit(who, request, key)

    def dry_run(self, who: Principal, request: Any) -> DryRun:
        """The decision that it would get now. Nothing is kept of it.

        Raises:
            DeskError: the form cannot be read, or they have no right to the account.
        """
        self._check_takes_jobs()
        with Sandbox(self._live.copies) as sandbox:
            with self._live.reading() as state:
                now = max(state.now, self._live.now())
                names = names_of(state)
                try:
                    made = self._submissions.rehearse(who, request, state, now)
                except DeskError as error:
                    if "reason" not in error.extra:
                        raise
                    return refused(error)
                workload = made.jobs[0][0]
                account, why = home_of(state, workload.account, workload.shape)
                sandbox.begin(lambda: rehearsed(state, now, made.ids[0], made.facts))
            notes = [*made.notes, *([why] if why else [])]
            return told(sandbox.result(), names.asking(workload.shape.gpus_per_node), notes, account)

    def _check_takes_jobs(self) -> None:
        if self._submit_there:
            raise DeskError("conflict", self._submit_there)

    def rehearse(self, who: Principal, request: Any, state: State, now: Instant) -> Accepted:
        """The facts by which it would come in, without a number and without a trace; see `dry_run`."""
        return self._submissions.rehearse(who, request, state, now)

    def cancel(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        return self._jobs.cancel(who, ids, why)

    def hold(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        return self._jobs.hold(who, ids, why)

    def release(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        return self._jobs.release(who, ids, why)

    def requeue(self, who: Principal, ids: Sequence[str], why: str = "") -> list[JobRow]:
        return self._jobs.requeue(who, ids, why)

    def checkpoint(self, who: Principal, name: str) -> list[JobRow]:
        """``12`` or, so that a late word of an earlier attempt counts for nothing, the run ``12.2``."""
        return self._jobs.checkpoint(who, name)

    # --- nodes ------------------------------------------------------------------------------------------------------
    def node_drain(self, who: Principal, node: str, why: str) -> None:
        self._nodes.drain(who, node, why)

    def node_resume(self, who: Principal, node: str, why: str = "") -> None:
        self._nodes.resume(who, node, why)

    def node_report(self, who: Principal, node: str, xid: int | None = None, text: str = "") -> Reported:
        return self._nodes.report(who, node, xid, text)

    # --- budgets ----------------------------------------------------------------------------------------------------
    def budgets(self) -> BudgetsNow:
        return self._budgets.now()

    def set_budgets(self, who: Principal, budgets: Any, base_version: str, why: str) -> BudgetsNow:
        return self._budgets.set(who, budgets, base_version, why)
