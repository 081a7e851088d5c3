"""A store and an engine small enough to be seen through, for tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any, cast

from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Action, Plan, Start
from mirab.model.policy import Policy
from mirab.model.records import Write
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.units import MINUTE, WHOLE, AccountPath, Duration, Instant, NodeName, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.service.clock import LiveClock
from mirab.service.live import Entry, Live

EPOCH: Instant = 1_700_000_000_000
PATIENCE = 180.0
"""Seconds until a test gives up on what another thread does in milliseconds: a safety net, not a measure."""


@dataclass
class MemoryStore:
    """The part of the store that the loop uses, in a list."""

    entries: list[tuple[tuple[Event, ...], Plan, tuple[Write, ...]]] = field(default_factory=list)
    metas: dict[str, str] = field(default_factory=dict)
    snapshots: list[tuple[int, str, bytes]] = field(default_factory=list)
    before: Callable[[], object] = lambda: None
    """Called before each append: to block it, or to fail it."""
    database: Any = field(default_factory=lambda: SimpleNamespace(out_of_place=lambda: ""))

    def append(self, facts: Sequence[Event], plan: Plan, writes: Sequence[Write] = ()) -> int:
        self.before()
        self.entries.append((tuple(facts), plan, tuple(writes)))
        return len(self.entries)

    def records(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...], Plan]]:
        for seq, (facts, plan, _) in enumerate(self.entries, 1):
            if seq > after:
                yield seq, facts, plan

    def last(self) -> tuple[int, Instant]:
        return (len(self.entries), self.entries[-1][1].at) if self.entries else (0, 0)

    def meta(self, key: str) -> str | None:
        return self.metas.get(key)

    def put_meta(self, key: str, value: str) -> None:
        self.metas[key] = value

    def put_snapshot(self, seq: int, fingerprint: str, data: bytes) -> None:
        self.snapshots.append((seq, fingerprint, data))

    def snapshot(self, fingerprint: str) -> tuple[int, bytes] | None:
        fitting = [(seq, data) for seq, mark, data in self.snapshots if mark == fingerprint]
        return fitting[-1] if fitting else None


class PretendEngine:
    """Starts runs at once, ends them when told; remembers what it was asked."""

    def __init__(self, clock: Callable[[], Instant], wake: Callable[[], None] = lambda: None) -> None:
        self.clock, self.wake = clock, wake
        self.submitted: list[Action] = []
        self.facts: list[Event] = []
        self.due: Instant | None = None
        self.failing: Exception | None = None

    def observe(self) -> list[Event]:
        if self.failing is not None:
            raise self.failing
        return [self.facts.pop(0) for _ in range(len(self.facts))]

    def submit(self, action: Action) -> None:
        if self.failing is not None:
            raise self.failing
        self.submitted.append(action)
        if isinstance(action, Start):
            self.tell(RunStarted(self.clock(), action.run_id))

    def tell(self, fact: Event) -> None:
        self.facts.append(fact)
        self.wake()

    def end(self, run_id: Any, outcome: Any) -> None:
        self.tell(RunEnded(self.clock(), run_id, outcome))

    def next_due(self) -> Instant | None:
        return self.due

    @property
    def starts(self) -> list[Start]:
        return [action for action in self.submitted if isinstance(action, Start)]


def small_cluster(nodes: int = 2, gpus: int = 4) -> Cluster:
    names = tuple(NodeName(f"n{index}") for index in range(nodes))
    return Cluster("small", (Pool("gpu", names, gpus, "H100"),))


def two_teams() -> Budgets:
    return Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))


def job(number: int, account: str = "red", *, gpus: int = 1, nodes: int = 1, minimum: Duration = MINUTE,
        at: Instant = EPOCH) -> Workload:  # fmt: skip
    shape = Shape(nodes, gpus, min_runtime=minimum)
    return Workload(WorkloadId(str(number)), at, AccountPath(account), UserName(f"u-{account}"), shape)


def submitting(workload: Workload) -> Callable[[State, Instant], Entry]:
    return lambda _, now: Entry((WorkloadSubmitted(now, workload),))


def make_live(store: MemoryStore | None = None, policy: Policy | None = None, cluster: Cluster | None = None) -> Live:
    clock = LiveClock()
    state = State(cluster or small_cluster(), two_teams(), policy or Policy(), now=clock.now())
    return Live(cast(Any, store or MemoryStore()), state, clock)


def until(happened: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait for something that another thread does."""
    pause = Flag()
    for _ in range(int(patience / 0.005)):
        if happened():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")
