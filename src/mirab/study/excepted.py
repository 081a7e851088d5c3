"""The exceptions and reservations of a journal, each until its end or until somebody ended it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mirab.model.events import ExemptionGranted, ExemptionRevoked, ReservationApproved, ReservationCancelled
from mirab.model.policy import Exemption, Reservation
from mirab.model.units import Instant


class Excepted:
    """Told the facts that `hearers` names. One that was ended before it began has never been."""

    def __init__(self) -> None:
        self._kept: dict[str, Exemption | Reservation] = {}

    def hearers(self) -> dict[type, Callable[[Any], None]]:
        """Fact -> who wants to hear of it."""
        return {
            ExemptionGranted: lambda fact: self._keep(fact.exemption),
            ReservationApproved: lambda fact: self._keep(fact.reservation),
            ExemptionRevoked: lambda fact: self._cut(fact.exemption_id, fact.at),
            ReservationCancelled: lambda fact: self._cut(fact.reservation_id, fact.at),
        }

    def after(self, begin: Instant) -> list[Exemption | Reservation]:
        """Those that end after an instant."""
        return [each for each in self._kept.values() if each.end > begin]

    def _keep(self, held: Exemption | Reservation) -> None:
        self._kept[held.id] = held

    def _cut(self, name: str, now: Instant) -> None:
        held = self._kept.pop(name, None)
        if held is not None and held.begin < now:
            self._kept[name] = replace(held, end=min(held.end, now))
