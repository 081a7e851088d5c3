"""What would be decided about a changed request, by the loop itself, on copies of the state: what-ifs for `why`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mirab.core.queues import Pending, Queue
from mirab.core.state import State
from mirab.model.events import WorkloadCancelled, WorkloadSubmitted
from mirab.model.resources import Shape
from mirab.model.units import HOUR, MINUTE, Duration, Instant, WorkloadId
from mirab.model.workloads import Workload
from mirab.service.desk.rehearsal import rehearsed
from mirab.service.views.contenders import level_at
from mirab.study import whywords
from mirab.study.copies import Copy
from mirab.study.formats import Names

SHORTER: tuple[Duration, ...] = (HOUR, 15 * MINUTE, 0)
"""Minimums that are tried, where they are shorter than what was asked."""
STEP: Duration = HOUR
LONGEST_COPY = 10


def variants(shape: Shape, names: Names) -> Iterator[tuple[str, Shape]]:
    """Changed requests that might start sooner, each with its words."""
    for minimum in SHORTER:
        if minimum < shape.min_runtime:
            yield whywords.changed_minimum(minimum, shape.min_runtime), shape._replace(min_runtime=minimum)
    if not shape.min_runtime:
        yield whywords.changed_minimum(15 * MINUTE, 0), shape._replace(min_runtime=15 * MINUTE)
    if shape.nodes > 1:
        fewer = shape.nodes // 2
        yield whywords.changed_nodes(fewer, shape.nodes), shape._replace(nodes=fewer)
    elif shape.gpus_per_node > 1:
        fewer = shape.gpus_per_node // 2
        yield whywords.changed_slots(fewer, shape.gpus_per_node, names), shape._replace(gpus_per_node=fewer)


def ask_anew(state: State, queue: Queue) -> None:
    """On a copy: let the next decision say why the head of the queue waits, whenever that was last worked out.

    A recorded reason is as old as the last decision that asked; with many thousands waiting that is up to the policy's
    `review` ago.
    """
    queue.head.waiting = None
    state.unexplained[queue] = None


def _now(state: State, now: Instant, pending: Pending) -> Copy:
    """In a copy: what the head of its queue would get from a decision at this moment."""
    queue = pending.queue
    assert queue is not None
    head = queue.head.workload.id

    def work() -> dict[str, Any]:
        ask_anew(state, queue)
        return rehearsed(state, now, head, ())

    return Copy(work, LONGEST_COPY)


def looked(state: State, now: Instant, workload: WorkloadId, first: str | None, names: Names) -> dict[str, Any]:
    """In a copy of the process: what it and its variants would get, and when the account is level with the first.

    All are worked out at the same time, each in a copy of that copy.
    """
    pending = state.pending.get(workload)
    if pending is None or pending.queue is None:
        return {"level_at": None, "whatif": [], "now": None}
    present = _now(state, now, pending)
    tried = [
        (words, _tried(state, now, pending.workload, shape)) for words, shape in variants(pending.workload.shape, names)
    ]
    level = None
    if first is not None:
        steps = range(now + STEP, now + state.policy.window + 1, STEP)
        accounts = pending.queue.user.account, state.accounts[first]  # type: ignore[index]
        level = level_at(state, *accounts, now, steps)
    return {
        "level_at": level,
        "whatif": [{"change": words, **_decided(copy)} for words, copy in tried],
        "now": _decided(present),
    }


def _tried(state: State, now: Instant, workload: Workload, shape: Shape) -> Copy:
    """In a copy: the same workload, as old as it is, with another shape."""
    other = replace(workload, id=WorkloadId(f"{workload.id}~"), shape=shape)
    facts = (WorkloadCancelled(now, workload.id), WorkloadSubmitted(now, other))
    return Copy(lambda: rehearsed(state, now, other.id, facts), LONGEST_COPY)


def _decided(copy: Copy) -> dict[str, Any]:
    found: dict[str, Any] = copy.result()
    return {"decision": found["decision"], "reason": found["reason"]}
