"""The real store, loop and desk with a clock and an engine of our own, one cycle at a time, that can crash anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mirab.core.state import State
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, Outcome, RunEnded, RunStarted
from mirab.model.plans import Action, Cancel, Plan, Preempt, Start
from mirab.model.policy import Policy
from mirab.model.records import AuditEntry, Beginning, Grant, JobRow, Write
from mirab.model.resources import Cluster, Pool
from mirab.model.units import WHOLE, Duration, Instant, NodeName, RunId
from mirab.service.auth.principal import Principal
from mirab.service.clock import LiveClock
from mirab.service.desk.desk import Desk
from mirab.service.desk.forms import SubmitForm
from mirab.service.inbox import Build, Request
from mirab.service.live import Live
from mirab.service.loop import Decider
from mirab.service.recover import Wanted, recover
from mirab.service.views import Views
from mirab.store import Store, open_store

EPOCH: Instant = 1_700_000_000_000

ADA = Principal("ada", (Grant("researcher", "vision/video"),), "unix uid=1001")
BOB = Principal("bob", (Grant("researcher", "vision"), Grant("researcher", "llm")), "10.0.0.2")
EVE = Principal("eve", (Grant("researcher", "llm"),), "10.0.0.3")
MIA = Principal("mia", (Grant("manager", "vision"),), "10.0.0.4")
OPS = Principal("ops", (Grant("operator", ""),), "10.0.0.5")
ROOT = Principal("root", (Grant("admin", ""),), "unix uid=0")

BUDGETS = Budgets(
    (
        Budget("vision", WHOLE // 2, (Budget("video", WHOLE // 2), Budget("image", WHOLE // 4))),
        Budget("llm", WHOLE // 2),
    )
)


class CrashError(Exception):
    """The process dies here."""


class Engine:
    """Starts what it is told; the test says how it goes on. It outlives the service, as real runs do."""

    def __init__(self) -> None:
        self.at: Instant = EPOCH
        self.facts: list[Event] = []
        self.running: dict[RunId, Start] = {}
        self.stopping: dict[RunId, bool] = {}
        self.unlaunchable: set[str] = set()
        self.known: set[RunId] = set()

    def observe(self) -> list[Event]:
        return list(self.facts)

    def forget(self) -> None:
        """What was told has been recorded."""
        self.facts.clear()

    def submit(self, action: Action) -> None:
        if isinstance(action, Start) and action.run_id not in self.known:
            self.known.add(action.run_id)
            if action.workload_id in self.unlaunchable:
                self.facts.append(RunEnded(self.at, action.run_id, Outcome.LAUNCH_FAILED))
            else:
                self.running[action.run_id] = action
                self.facts.append(RunStarted(self.at, action.run_id))
        elif isinstance(action, Preempt | Cancel) and action.run_id in self.running:
            outcome = Outcome.PREEMPTED
            if isinstance(action, Cancel):
                outcome = Outcome.REQUEUED if action.requeue else Outcome.CANCELLED
            del self.running[action.run_id]
            self.facts.append(RunEnded(self.at, action.run_id, outcome))

    def end(self, workload: str, outcome: Outcome = Outcome.COMPLETED, code: int = 0) -> None:
        run = next(run for run, start in self.running.items() if start.workload_id == workload)
        del self.running[run]
        self.facts.append(RunEnded(self.at, run, outcome, exit_code=code))

    def next_due(self) -> Instant | None:
        return self.at if self.facts else None


class House(Live):
    """A live service whose commands run a cycle on the spot."""

    decider: Decider

    def send(self, build: Build, timeout: float = 30) -> int:
        request = Request(build)
        self.inbox._waiting.append(request)
        self.decider.cycle()
        return request.answer.result(0)


class Journal:
    """The store, with a fuse: so many appends from now the process dies, before or after one is written."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store, self._engine = store, engine
        self.fuse: int | None = None
        self.after = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, facts: Sequence[Event], plan: Plan, writes: Sequence[Write] = ()) -> int:
        burns = self.fuse == 0
        if self.fuse is not None:
            self.fuse -= 1
        if burns and not self.after:
            raise CrashError
        seq = self._store.append(facts, plan, writes)
        self._engine.forget()
        if burns:
            raise CrashError
        return seq


class Bench:
    """Everything, and what a test wants to do with it."""

    def __init__(self, folder: Path, *, cluster: Cluster | None = None, policy: Policy | None = None,
                 budgets: Budgets = BUDGETS, url: str = "") -> None:  # fmt: skip
        self.url = url or f"sqlite:///{folder}/mirab.db"
        self.engine = Engine()
        self.beginning = Beginning(cluster or nodes(2), budgets, policy or Policy(), EPOCH)
        self.store: Journal
        self.boot()

    def boot(self) -> None:
        """Start the service on what the store has."""
        store = open_store(self.url)
        store.lead(wait=30)
        self.store = Journal(store, self.engine)
        found = recover(self.store, Wanted(), self.beginning)
        clock = LiveClock(wall=lambda: self.engine.at, elapsed=lambda: self.engine.at)
        self.live = House(self.store, found.state, clock, found.intents)  # type: ignore[arg-type]
        self.live.decider = self.decider = Decider(self.live, self.engine, coalesce=0)
        self.desk = Desk(self.live, run_as=lambda who: (None, None))
        for action in found.intents.outstanding():
            self.engine.submit(action)

    def crash(self) -> None:
        """The process is gone; the engine and the store remain."""
        self.store._store.dispose()
        self.boot()

    def close(self) -> None:
        self.live.state.check()
        self.store._store.dispose()

    @property
    def state(self) -> State:
        return self.live.state

    def cycle(self) -> Plan:
        return self.decider.cycle()

    def settle(self) -> None:
        """Decide until nothing is due at this instant."""
        for _ in range(100):
            self.cycle()
            due = self.decider._due()
            if due is None or due > self.engine.at:
                return
        raise AssertionError("it never comes to rest")

    def wait(self, span: Duration) -> None:
        self.engine.at += span
        self.settle()

    def submit(self, who: Principal = ADA, key: str | None = None, **fields: Any) -> list[str]:
        reply = self.desk.submit(who, form(**fields), key)
        self.settle()
        return list(reply.ids)

    def end(self, *workloads: str, outcome: Outcome = Outcome.COMPLETED) -> None:
        for workload in workloads:
            self.engine.end(workload, outcome)
        self.settle()

    def row(self, workload: str) -> JobRow:
        found: JobRow | None = self.store.job(workload)
        assert found is not None
        return found

    def audit(self, **which: Any) -> list[AuditEntry]:
        entries: list[AuditEntry] = self.store.audit(**which)[0]
        return entries

    def states(self) -> dict[str, str]:
        rows, _ = self.store.jobs(limit=10_000)
        return {row.id: row.state.value for row in rows}


def nodes(count: int, gpus: int = 4) -> Cluster:
    names = tuple(NodeName(f"n{index}") for index in range(count))
    cores = Pool("cpu", (NodeName("c0"),), 0, cpus_per_node=16, weight=10)
    return Cluster("bench", (Pool("gpu", names, gpus, "H100", cpus_per_node=32), cores))


def form(**fields: Any) -> SubmitForm:
    given: dict[str, Any] = {"account": "vision/video", "argv": ("true",), "gpus_per_node": 1}
    return SubmitForm(**(given | fields))


@contextmanager
def viewed(bench: Bench) -> Iterator[Views]:
    """Its views, up to date; what works for them in the background ends with them."""
    made = Views(bench.live, bench.desk)
    made.ledger.catch_up()
    yield made
    bench.live.stopping.set()
