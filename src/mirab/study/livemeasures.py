"""The measures of a replay, taken of a live service's journal: what only such a journal has is taken in too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mirab.model.events import (
    ClusterChanged,
    Event,
    NodeDegraded,
    NodeDown,
    NodeUp,
    PolicyChanged,
    RunAdopted,
    RunStarted,
)
from mirab.model.plans import Plan, Start
from mirab.model.policy import Policy
from mirab.model.reasons import InOrder
from mirab.model.trace import Trace
from mirab.study.deeds import Deeds
from mirab.study.growth import grown
from mirab.study.measures import Measures

COUNTED = ("capacity_time", "busy_time", "held_time", "served_time", "demand_time", "idle_time")
"""What the usage of the nodes has counted, and goes on from when there are more of them."""


class LiveMeasures(Measures):
    """Hears a journal from its beginning: runs that the engine brought, another policy, more nodes, and advice."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        super().__init__(trace, policy)
        self._deeds = Deeds(policy)
        self._sick: dict[str, None] = {}

    def _wire(self) -> dict[type, list[Callable[[Any], None]]]:
        hearers = super()._wire()
        more: dict[type, Callable[[Any], None]] = {
            RunAdopted: self._adopted,
            PolicyChanged: self._policy_changed,
            ClusterChanged: self._grown,
            NodeDegraded: self._fell_sick,
            NodeDown: self._fell_sick,
            NodeUp: self._is_well,
        }
        for kind, hear in more.items():
            hearers.setdefault(kind, []).append(hear)
        return hearers

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        super().append(facts, self._deeds.of(facts, plan))

    def _adopted(self, fact: RunAdopted) -> None:
        """The engine runs it although no plan said so: as if it had been started and were running."""
        job = self.jobs.get(fact.workload_id)
        if job is not None and job.run is None:
            because = InOrder(job.workload.account, 0.0, False)
            self._see(Start(fact.run_id, fact.workload_id, fact.allocation, fact.min_runtime, because), fact.at)
            self._started(RunStarted(fact.at, fact.run_id))

    def _policy_changed(self, fact: PolicyChanged) -> None:
        self.policy = fact.policy

    def _fell_sick(self, fact: NodeDegraded | NodeDown) -> None:
        self._sick[fact.node] = None

    def _is_well(self, fact: NodeUp) -> None:
        self._sick.pop(fact.node, None)

    def _grown(self, fact: ClusterChanged) -> None:
        """The books go on; what has been counted so far stays counted."""
        before = self.usage
        self.where = grown(self.where, fact.cluster, self._sick)
        self.usage, self.ledger = self.where.usage, self.where.ledger
        self.jobs, self.runs = self.where.jobs, self.where.runs
        for name in COUNTED:
            setattr(self.usage, name, getattr(before, name))
        self.trace = replace(self.trace, cluster=fact.cluster)
