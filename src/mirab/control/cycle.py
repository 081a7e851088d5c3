"""The one loop body, shared by replay and live service."""

from __future__ import annotations

from mirab.control.ports import Backend, Clock, Journal
from mirab.core.decide import decide
from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.plans import Plan


def cycle(state: State, clock: Clock, backend: Backend, journal: Journal) -> Plan:
    """Observe, decide, record the intent, apply. Outcomes come back as facts of a later cycle.

    Each fact is folded before the next is asked for: who tells facts may look at the state to tell the next.
    """
    now = clock.now()
    facts: list[Event] = []
    for fact in backend.observe():
        state.fold(fact)
        facts.append(fact)
    state.advance(now)
    plan = decide(state, now)
    journal.append(facts, plan)
    state.commit(plan)
    if not state.policy.observing:
        for action in plan.actions:
            backend.submit(action)
    return plan
