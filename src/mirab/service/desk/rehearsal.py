"""Dry runs: the decision that a job would get, by the very loop that decides, on a copy of the state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mirab.control.cycle import cycle
from mirab.core.state import State
from mirab.model.codec import decode, encode
from mirab.model.events import Event
from mirab.model.plans import Action, Plan, Reject, Start
from mirab.model.reasons import Reason
from mirab.model.units import Instant, NodeName, WorkloadId
from mirab.service.desk.errors import DeskError
from mirab.service.desk.holding import read
from mirab.service.views.waiting import reason_of_pending
from mirab.study import words
from mirab.study.formats import Names


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would be decided now. `decision`: ``start``, ``wait`` or ``reject``; `reason`: as JSON, with numbers.

    `account`: who would be charged, with the pool before it where that has shares of its own.
    """

    decision: str
    sentence: str
    reason: dict[str, Any]
    nodes: tuple[NodeName, ...] = ()
    protected_until: Instant | None = None
    notes: tuple[str, ...] = ()
    account: str = ""


class _Once:
    """A clock that stands, an engine that does nothing, a record that keeps nothing."""

    def __init__(self, facts: Sequence[Event], now: Instant) -> None:
        self._facts = facts
        self._now = now

    def now(self) -> Instant:
        return self._now

    def observe(self) -> Iterable[Event]:
        return self._facts

    def submit(self, action: Action) -> None:
        """Nothing is started in a rehearsal."""

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """Nothing is recorded either."""


def rehearsed(state: State, now: Instant, workload: WorkloadId, facts: Sequence[Event]) -> dict[str, Any]:
    """One cycle on a state that is thrown away afterwards, and what it made of the workload, as JSON values."""
    stage = _Once(facts, now)
    plan = cycle(state, stage, stage, stage)
    for action in plan.actions:
        if isinstance(action, Start) and action.workload_id == workload:
            return _started(state, action, now)
        if isinstance(action, Reject) and action.workload_id == workload:
            return {"decision": "reject", "reason": encode(action.reason)}
    reason = _reason(state, workload)
    return {"decision": "wait", "reason": {} if reason is None else encode(reason)}


def _started(state: State, action: Start, now: Instant) -> dict[str, Any]:
    return {
        "decision": "start",
        "reason": encode(action.reason),
        "nodes": tuple(map(str, state.nodes_named(action.allocation.pool, action.allocation.mask))),
        "protected_until": now + action.min_runtime if action.min_runtime else None,
    }


def _reason(state: State, workload: WorkloadId) -> Reason | None:
    if workload in state.held:
        return read(state.held[workload][1])
    pending = state.pending.get(workload)
    return None if pending is None else reason_of_pending(pending)


def told(found: dict[str, Any], names: Names, notes: Sequence[str], account: str) -> DryRun:
    """The outcome with its sentence."""
    reason = found["reason"]
    sentence = words.sentence(decode(reason), names) if reason else "it waits for the next decision"
    return DryRun(sentence=sentence, notes=tuple(notes), account=account, **found)


def refused(error: DeskError) -> DryRun:
    """A refusal by the rules, rather than of the form, is an answer as well."""
    return DryRun("reject", error.detail, error.extra.get("reason") or {})
