"""What people read, as the API asks for it. The state is read briefly; sentences are made when it is free again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirab.core.state import State
from mirab.model.records import JobRow
from mirab.model.units import AccountPath, Instant
from mirab.service.api.ports import JobFilter
from mirab.service.forms.jobs import Job, JobDetail, Jobs
from mirab.service.forms.machines import Node, Nodes, Squatters
from mirab.service.forms.sharing import Shares
from mirab.service.views import chronicle, jobs, nodes, present, shares, squatters
from mirab.service.views.answers import Answers
from mirab.service.views.jobs import Why
from mirab.service.views.ledger import LiveLedger
from mirab.service.views.squatters import Activity, Silence, Watch
from mirab.service.views.waiting import names_of
from mirab.study.formats import Names

if TYPE_CHECKING:
    from mirab.service.desk.desk import Desk
    from mirab.service.live import Live


def unmeasured(run_id: str) -> float | None:
    """Where nothing measures activity, it is absent."""
    return None


class Views:
    """Made once, before the first decision.

    Args:
        activity: mean GPU activity of a run, where something measures it.
        cache: a file of the service's own by which the ledger of owed and delivered is quick to start; None = no file.
    """

    def __init__(self, live: Live, desk: Desk | None = None, *, activity: Activity = unmeasured,
                 cache: Path | None = None) -> None:  # fmt: skip
        self._live = live
        self._activity = activity
        self.watch = Watch(live)
        self.ledger = LiveLedger(live, cache)
        self.ledger.start()
        self.answers = Answers(live, desk)
        self.answers.start()

    # --- jobs -------------------------------------------------------------------------------------------------------
    def jobs(self, wanted: JobFilter) -> Jobs:
        """A page of jobs in the order of their submission.

        Raises:
            ValueError: a cursor of another list.
        """
        rows, following = self._live.store.jobs(
            states=wanted.states, user=wanted.user, account=wanted.account, formerly=self._formerly(wanted.account),
            node=wanted.node, ids=wanted.ids, array_job=wanted.array_job, label=wanted.label, after=wanted.after,
            limit=wanted.limit, newest_first=wanted.newest_first,
        )  # fmt: skip
        return Jobs(jobs=self._told(rows), next=following)

    def _formerly(self, account: str | None) -> list[str]:
        """Accounts that were, for which this one or one below it goes on."""
        below = f"{account}/"
        heirs = self._live.state.heirs.items() if account else ()
        return [old for old, heir in heirs if heir == account or heir.startswith(below)]

    def _present(self, row: JobRow) -> JobRow:
        """The job under the account that goes on for the one on record."""
        return replace(row, account=self._live.state.heirs.get(AccountPath(row.account), row.account))

    def job(self, job_id: str) -> Job | None:
        """A job; None = there never was one of that id."""
        row = self._live.store.job(job_id)
        return None if row is None else self._told([row])[0]

    def _told(self, rows: Sequence[JobRow]) -> list[Job]:
        rows = [self._present(row) for row in rows]
        whys, flags, names = self._looked_up(rows)
        return [jobs.told(row, whys.get(row.id), names, flags.get(row.id, "")) for row in rows]

    def _looked_up(self, rows: Sequence[JobRow]) -> tuple[dict[str, Why], dict[str, str], Names]:
        if not any(not row.state.ended for row in rows):
            return {}, {}, Names(0)
        with self._live.reading() as state:
            now = self._now(state)
            whys = jobs.whys(state, rows)
            silent = self.watch.silences(state, now, [row.id for row in rows])
            names = names_of(state)
        return whys, {each.workload: each.flag(now) for each in silent}, names

    def detail(self, job_id: str) -> JobDetail | None:
        """A job in full; None = there never was one of that id."""
        store = self._live.store
        row = store.job(job_id)
        if row is None:
            return None
        row = self._present(row)
        whys, flags, names = self._looked_up([row])
        gpus_of = {str(name): pool.gpus_per_node for pool in self._live.cluster.pools for name in pool.nodes}
        return jobs.detailed(
            row, whys.get(row.id), names, flags.get(row.id, ""), store.runs(job_id), store.spec(job_id), gpus_of,
            jobs.last_word(store, row, names),
        )  # fmt: skip

    # --- shares -----------------------------------------------------------------------------------------------------
    def shares(self, path: str | None) -> Shares | None:
        """The tree, or an account and all below it; None = there is no such account."""
        with self._live.reading() as state:
            if path is not None and path not in state.accounts:
                return None
            now = self._now(state)
            found = shares.lines(state, now, path)
            nexts = shares.next_starts(state, self.answers.forecaster.latest, now)
            budgets, ledgers = state.budgets, shares.ledgers(state)
        seen = shares.Evidence(self.ledger.got(now), self.ledger.debts(now), nexts, budgets)
        return Shares(accounts=shares.told(found, seen), ledgers=ledgers)

    def trend(self, path: str | None) -> dict[str, Any] | None:
        """Owed and delivered hour by hour, and when debts age out of the window; None = there is no such account."""
        with self._live.reading() as state:
            if path is not None and path not in state.accounts:
                return None
            now = self._now(state)
        return self.ledger.trend(path, now)

    # --- the present ------------------------------------------------------------------------------------------------
    def present(self) -> dict[str, Any]:
        """The four measures, the nodes, and who runs and waits, at this moment."""
        with self._live.reading() as state:
            now = self._now(state)
            seen = present.seen(state, now)
            silent = len(self.watch.silences(state, now))
        return present.present(seen, self.ledger.got(now), self._activity, silent)

    # --- nodes ------------------------------------------------------------------------------------------------------
    def nodes(self) -> Nodes:
        with self._live.reading() as state:
            return Nodes(nodes=nodes.nodes(state))

    def node(self, name: str) -> Node | None:
        with self._live.reading() as state:
            return next(iter(nodes.nodes(state, name)), None)

    def fragmentation(self) -> list[dict[str, Any]]:
        """How broken up the free GPUs of each pool are; see `nodes.fragmentation`."""
        with self._live.reading() as state:
            return nodes.fragmentation(state)

    def holds(self) -> list[dict[str, Any]]:
        """The nodes that are kept for somebody."""
        with self._live.reading() as state:
            return nodes.holds(state)

    # --- progress and decisions -------------------------------------------------------------------------------------
    def squatters(self) -> Squatters:
        """Runs without a sign of progress for longer than they declared, the worst first."""
        found, now = self.silences()
        return Squatters(runs=[squatters.told(each, now, self._activity) for each in found])

    def silences(self) -> tuple[list[Silence], Instant]:
        with self._live.reading() as state:
            now = self._now(state)
            return self.watch.silences(state, now), now

    def observed_at(self, at: Instant) -> bool:
        """Whether what was decided at that instant is advice."""
        return self.ledger.observed_at(at)

    def chronicle(self, before: int | None, limit: int, topics: Sequence[str], about: str | None) -> dict[str, Any]:
        """The journal in sentences, newest first; `about`: a job, a node, or an account and all below it."""
        with self._live.reading() as state:
            names, cluster = names_of(state), state.cluster
            is_account = about in state.accounts
        mentioning = None if is_account else about
        return chronicle.page(
            lambda last, size: self._live.store.decisions(before=last, limit=size, mentioning=mentioning),
            chronicle.Teller(cluster, names, self.observed_at), before, limit, topics, about,
        )  # fmt: skip

    def _now(self, state: State) -> Instant:
        """Taken while the state is held, so that no decision is later."""
        return max(state.now, self._live.now())
