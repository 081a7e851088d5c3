"""What of a journal was done: a plan that was decided while the policy only observed is advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirab.model.events import Event, PolicyChanged
from mirab.model.plans import Plan
from mirab.model.policy import Policy


class Deeds:
    """Told every record of a journal from the one on before which `policy` was in force."""

    def __init__(self, policy: Policy) -> None:
        self._observing = policy.observing

    def of(self, facts: Sequence[Event], plan: Plan) -> Plan:
        """The record's plan, without the actions and holds that nobody acted on."""
        for fact in facts:
            if isinstance(fact, PolicyChanged):
                self._observing = fact.policy.observing
        return replace(plan, actions=(), holds=()) if self._observing else plan
