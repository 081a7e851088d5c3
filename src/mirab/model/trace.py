"""Everything a replay needs, in one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirab.model.accounts import Budgets
from mirab.model.events import BudgetsChanged
from mirab.model.policy import Exemption, Reservation
from mirab.model.resources import Cluster
from mirab.model.units import Duration, Instant
from mirab.model.workloads import Arrival, NodeTrouble


@dataclass(frozen=True, slots=True)
class Trace:
    """A replayable input: arrivals sorted by (submitted_at, id), instants counted from `origin`.

    Attributes:
        origin: Unix milliseconds of instant 0, for people; None = the log has no calendar.
        starts_at, ends_at: the period that measures are about (first midnight rules count from `starts_at`).
        shift: instant 0 on the clock of the files beside the log, whose durations count from the log's own start.
    """

    arrivals: Sequence[Arrival]
    cluster: Cluster
    budgets: Budgets
    troubles: Sequence[NodeTrouble] = ()
    budget_changes: Sequence[BudgetsChanged] = ()
    reservations: Sequence[Reservation] = ()
    exemptions: Sequence[Exemption] = ()
    name: str = "log"
    origin: int | None = None
    starts_at: Instant = 0
    ends_at: Instant = 0
    shift: Duration = 0
    notes: Sequence[str] = field(default=())
    """What was inferred or assumed, to be shown to the person."""
    rows: int = 0
    dropped: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    """Rows not used: reason -> (count, first line numbers)."""
