"""What of a journal was done: a plan that was decided while the policy only observed is advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirab.model.events import Event, PolicyChanged
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.units import FOREVER, Instant


class Deeds:
    """Told every record of a journal from the one on before which `policy` was in force."""

    def __init__(self, policy: Policy) -> None:
        self._modes: list[tuple[Instant, bool]] = [(-FOREVER, policy.observing)]

    def of(self, facts: Sequence[Event], plan: Plan) -> Plan:
        """The record's plan, without the actions and holds that nobody acted on."""
        for fact in facts:
            if isinstance(fact, PolicyChanged) and fact.policy.observing != self._modes[-1][1]:
                self._modes.append((fact.at, fact.policy.observing))
        return replace(plan, actions=(), holds=()) if self._modes[-1][1] else plan

    def observed_at(self, at: Instant) -> bool:
        """Whether a plan of that instant was advice."""
        return next(observing for since, observing in reversed(self._modes) if since <= at)
