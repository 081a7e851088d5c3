"""The portfolio plane of a live service in one value: changesets, exceptions and reservations, the rollout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mirab.core.state import State
from mirab.model.accounts import Budgets, ledger_of, plain
from mirab.model.units import DAY, HOUR, Duration, Instant
from mirab.service.desk.budgets import check_pools, read_budgets, successor
from mirab.service.desk.cases import RESERVATION, ROLLOUT, Cases
from mirab.service.desk.changesets import Changesets, day
from mirab.service.desk.changing import ChangesetCommands
from mirab.service.desk.errors import DeskError, invalid, not_found
from mirab.service.desk.exceptions import ExceptionCommands
from mirab.service.desk.office import Office
from mirab.service.desk.rollout import RolloutCommands
from mirab.service.trials import Asked, TooManyError, Trials, Tried
from mirab.service.views.windowed import Reports
from mirab.study.budgettext import tree_json
from mirab.study.closing import left_out, left_out_told

if TYPE_CHECKING:
    from mirab.service.live import Live


def _tree(wanted: Any, present: Budgets) -> Budgets:
    """The whole tree that is wanted."""
    if not isinstance(wanted, Shares):
        return read_budgets(wanted)
    tree = tree_json(present)
    for account, share in wanted.items():
        path, pool = plain(account), ledger_of(account)
        if present.find(path) is None:
            raise not_found(f"there is no account {path[:80]}: `mirab share` shows those there are")
        node: dict[str, Any] = {"children": tree}
        for name in path.split("/"):
            node = node["children"][name]
        if not pool:
            node["share"] = share
        elif share == "none":
            node.get("pool_shares", {}).pop(pool, None)
        else:
            node.setdefault("pool_shares", {})[pool] = share
    return read_budgets(tree)


class Shares(dict[str, str]):
    """Account -> its share of its parent, as text; of one pool for ``h100:vision``, where ``none`` takes it away."""


class Portfolio:
    """Human decisions: who holds which share until when, who is excepted from what until when."""

    def __init__(self, office: Office, changesets: Changesets) -> None:
        self._changesets = changesets
        self._cases = Cases(office.live)
        self.budgets = ChangesetCommands(office, changesets)
        self.exceptions = ExceptionCommands(office, self._cases)
        self.rollout = RolloutCommands(office, self._cases)
        self._reports = Reports(office.live.store.url)
        self._live = office.live
        self.trials = Trials(office.live.store.url)

    def report(self, window: Duration | None = None) -> dict[str, Any]:
        """The measures of the last window (None = the policy's), as of a replay; in full hours, within the ledger.

        Raises:
            ReportError: the journal could not be read in time, or at all.
        """
        now = self._live.now()
        whole = now - int(self._live.store.meta("began_at") or now)
        wanted = min(window or self._live.policy.window, max(HOUR, whole))
        return self._reports.last_window(now, -(-wanted // HOUR) * HOUR)

    def tried(self, wanted: Any, days: int) -> Tried:
        """Begin to try a tree on the last days, or find what was begun; see `Trials`.

        Args:
            wanted: account -> share, of accounts that there are; or a whole tree, as in the cluster file or its text.

        Raises:
            DeskError: it is no tree, leaves accounts out, changes nothing, or others wait already.
        """
        now = self._live.now()
        with self._live.reading() as state:
            present, policy, cluster = state.budgets, state.policy, state.cluster
        tree = _tree(wanted, present)
        after = successor(present, tree, now)
        if lost := left_out(present, tree, after):
            raise invalid(left_out_told(lost, day(now)))
        check_pools(present, after, cluster)
        if after == present:
            raise invalid("it changes nothing: the budgets are as you want them")
        return self._begun(Asked(present, after, policy, cluster, days * DAY, self._since(now)), now)

    def tried_exception(self, case_id: str, days: int) -> Tried:
        """Begin to try an exception or a reservation on the last days, before it is approved, or find what was begun.

        Raises:
            DeskError: there is none of that name, it changes no decision of the scheduler, or others wait already.
        """
        now = self._live.now()
        with self._live.reading() as state:
            case = self._cases.find(case_id, state)
            present, policy, cluster = state.budgets, state.policy, state.cluster
        if case is None:
            raise not_found(f"there is no exception {case_id[:80]}: `mirab except list` shows those there are")
        if case.kind == ROLLOUT:
            raise invalid("an exception for the rollout moves no job by itself: there is nothing to try")
        held = case.reservation() if case.kind == RESERVATION else case.exemption()
        held = replace(held, approver=held.approver or "somebody")
        return self._begun(Asked(present, present, policy, cluster, days * DAY, self._since(now), held), now)

    def _since(self, now: Instant) -> Instant:
        return int(self._live.store.meta("began_at") or now)

    def _begun(self, asked: Asked, now: Instant) -> Tried:
        try:
            return self.trials.begin(asked, now)
        except TooManyError:
            raise DeskError("unavailable", "several what-ifs wait already: try again in a few minutes") from None

    def load(self, state: State) -> None:
        """What was decided before this start."""
        self._changesets.load(state)
        self._cases.load()
        self.rollout.load()

    def join(self, live: Live) -> None:
        """Be part of the loop."""
        live.add_source(self._changesets)
        live.add_timer(self._changesets.timer)
        live.subscribe(self.exceptions.hear)
        live.add_timer(self.exceptions.timer)
        live.subscribe(self.rollout.hear)
        live.add_source(self.rollout)
        live.add_timer(self.rollout.timer)
