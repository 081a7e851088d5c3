"""Small things to record: a cluster, workloads, plans, and a journal of a whole random world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from mirab.model.codec import encode
from mirab.model.events import Event, Outcome, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Action, Plan, Start
from mirab.model.policy import Policy
from mirab.model.reasons import InOrder
from mirab.model.records import JobSpec, Write
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import AccountPath, Duration, Instant, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.store import Store

NODES = tuple(NodeName(f"n{number}") for number in range(8))
CLUSTER = Cluster("c", (Pool("gpu", NODES, 8, cpus_per_node=64),))
WHY = InOrder(AccountPath("a"), 0.5, True)


def put_beginning(store: Store, cluster: Cluster = CLUSTER, policy: Policy = Policy()) -> Store:  # noqa: B008
    store.put_meta("cluster", json.dumps(encode(cluster)))
    store.put_meta("policy", json.dumps(encode(policy)))
    return store


def workload(name: str, /, at: Instant = 0, **named: Any) -> Workload:
    values: dict[str, Any] = {"account": AccountPath("a/b"), "user": UserName("eve"), "shape": shape()} | named
    return Workload(WorkloadId(name), at, **values)


def shape(nodes: int = 1, minimum: Duration = 1_000) -> Shape:
    return Shape(nodes, 8, min_runtime=minimum)


def submitted(name: str, /, at: Instant = 0, **named: Any) -> WorkloadSubmitted:
    return WorkloadSubmitted(at, workload(name, at, **named))


def spec(name: str, /, **named: Any) -> JobSpec:
    return JobSpec(WorkloadId(name), **{"name": f"job {name}", "argv": ("true",)} | named)


def start(run: str, *nodes: int, minimum: Duration = 1_000) -> Start:
    mask = sum(1 << node for node in nodes or (0,))
    return Start(RunId(run), WorkloadId(run.rpartition(".")[0]), Allocation(0, mask, 8), minimum, WHY)


def started(run: str, at: Instant) -> RunStarted:
    return RunStarted(at, RunId(run))


def ended(run: str, at: Instant, outcome: Outcome = Outcome.COMPLETED, **named: Any) -> RunEnded:
    return RunEnded(at, RunId(run), outcome, **named)


def plan(at: Instant, *actions: Action) -> Plan:
    return Plan(at, 0, actions)


@dataclass(frozen=True, slots=True)
class Recording:
    """A journal for `replay` that keeps what it is told."""

    records: list[tuple[tuple[Event, ...], Plan]]

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.records.append((tuple(facts), plan))


def recorded_world(seed: int, **named: Any) -> tuple[Cluster, Policy, list[tuple[tuple[Event, ...], Plan]]]:
    """A random world, and what was decided in it."""
    from mirab.sim.engine import replay
    from tests.worlds import draw_world

    world = draw_world(Random(seed), **named)
    recording = Recording([])
    replay(world.trace, world.policy, journals=[recording])
    return world.trace.cluster, world.policy, recording.records


def specs_for(facts: Sequence[Event]) -> list[Write]:
    return [spec(fact.workload.id) for fact in facts if isinstance(fact, WorkloadSubmitted)]


def fill(store: Store, seed: int = 1) -> int:
    """A random world in an empty store; returns how many records."""
    cluster, policy, records = recorded_world(seed)
    put_beginning(store, cluster, policy)
    store.lead()
    for facts, decided in records:
        store.append(facts, decided, specs_for(facts))
    return len(records)
