"""The portfolio plane of a live service in one value: changesets, exceptions and reservations, the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirab.core.state import State
from mirab.model.units import HOUR, Duration
from mirab.service.desk.cases import Cases
from mirab.service.desk.changesets import Changesets
from mirab.service.desk.changing import ChangesetCommands
from mirab.service.desk.exceptions import ExceptionCommands
from mirab.service.desk.office import Office
from mirab.service.desk.rollout import RolloutCommands
from mirab.service.views.windowed import Reports

if TYPE_CHECKING:
    from mirab.service.live import Live


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

    def report(self, window: Duration | None = None) -> dict[str, Any]:
        """The measures of the last window (None = the policy's), as of a replay; in full hours, within the ledger.

        Raises:
            ReportError: the journal could not be read in time, or at all.
        """
        now = self._live.now()
        whole = now - int(self._live.store.meta("began_at") or now)
        wanted = min(window or self._live.policy.window, max(HOUR, whole))
        return self._reports.last_window(now, -(-wanted // HOUR) * HOUR)

    def load(self, state: State) -> None:
        """What was decided before this start."""
        self._changesets.load(state)
        self._cases.load()
        self.rollout.load()

    def join(self, live: Live) -> None:
        """Be part of the loop."""
        live.subscribe(self._changesets.hear)
        live.add_source(self._changesets)
        live.add_timer(self._changesets.timer)
        live.subscribe(self.exceptions.hear)
        live.add_timer(self.exceptions.timer)
        live.subscribe(self.rollout.hear)
        live.add_source(self.rollout)
        live.add_timer(self.rollout.timer)
