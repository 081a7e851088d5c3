"""The portfolio plane of a live service in one value: changesets, exceptions and reservations, the rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirab.core.state import State
from mirab.service.desk.cases import Cases
from mirab.service.desk.changesets import Changesets
from mirab.service.desk.changing import ChangesetCommands
from mirab.service.desk.exceptions import ExceptionCommands
from mirab.service.desk.office import Office

if TYPE_CHECKING:
    from mirab.service.live import Live


class Portfolio:
    """Human decisions: who holds which share until when, who is excepted from what until when."""

    def __init__(self, office: Office, changesets: Changesets) -> None:
        self._changesets = changesets
        self._cases = Cases(office.live)
        self.budgets = ChangesetCommands(office, changesets)
        self.exceptions = ExceptionCommands(office, self._cases)

    def load(self, state: State) -> None:
        """What was decided before this start."""
        self._changesets.load(state)
        self._cases.load()

    def join(self, live: Live) -> None:
        """Be part of the loop."""
        live.subscribe(self._changesets.hear)
        live.add_source(self._changesets)
        live.add_timer(self._changesets.timer)
        live.subscribe(self.exceptions.hear)
        live.add_timer(self.exceptions.timer)
