"""Small histories written by hand: facts and plans as a replay would hand them to a journal. Times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirab.model.accounts import Budget, Budgets
from mirab.model.events import (
    Event,
    NodeDegraded,
    NodeDown,
    NodeUp,
    Outcome,
    RunEnded,
    RunStarted,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from mirab.model.plans import Action, Hold, HoldChange, Plan, Preempt, Start
from mirab.model.policy import POLICIES, Policy
from mirab.model.reasons import InOrder, PreemptedFor, StartReason, StopReason
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import WHOLE, AccountPath, NodeName, RunId, UserName, WorkloadId, parse_duration
from mirab.model.workloads import Workload
from mirab.study.measures import Measures

HOUR_S = 3_600
DAY_S = 24 * HOUR_S

BUDGET = POLICIES["budget"]
HALVES = Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))
BECAUSE = InOrder(AccountPath("red"), 0.0, True)
RECLAIM = PreemptedFor(WorkloadId("x"), AccountPath("blue"), 0.5, 1.5, 0)


def pool(nodes: int, gpus: int, **more: Any) -> Pool:
    return Pool(more.pop("name", "p"), tuple(NodeName(f"n{number}") for number in range(nodes)), gpus, **more)


def cluster(nodes: int, gpus: int) -> Cluster:
    return Cluster("small", (pool(nodes, gpus),))


def ms(at: float) -> int:
    return round(at * 1000)


def workload(name: str, account: str = "red", *, at: float = 0, nodes: int = 1, gpus: int = 1, minimum: str = "1h",
             shape: Shape | None = None, **more: Any) -> Workload:  # fmt: skip
    asked = shape or Shape(nodes, gpus, min_runtime=parse_duration(minimum))
    return Workload(WorkloadId(name), ms(at), AccountPath(account), UserName("ann"), asked, **more)


class Scene:
    """A history under way. Each method adds one cycle at `at` seconds, of one fact or one action."""

    def __init__(self, installed: Cluster, budgets: Budgets = HALVES, *, hours: float = 24, starts_h: float = 0,
                 policy: Policy = BUDGET) -> None:  # fmt: skip
        self.trace = Trace((), installed, budgets, starts_at=ms(starts_h * HOUR_S), ends_at=ms(hours * HOUR_S))
        self.measures = Measures(self.trace, policy)
        self.workloads: dict[str, Workload] = {}

    def cycle(self, at: float, *facts: Event, actions: Sequence[Action] = (), holds: Sequence[HoldChange] = ()) -> None:
        self.measures.append(facts, Plan(ms(at), 0, tuple(actions), tuple(holds)))

    def submit(self, name: str, account: str = "red", *, at: float = 0, **more: Any) -> Workload:
        made = self.workloads[name] = workload(name, account, at=at, **more)
        self.cycle(at, WorkloadSubmitted(ms(at), made))
        return made

    def start(self, name: str, at: float, nodes: Sequence[int] = (0,), *, attempt: int = 1, launch_s: float = 0,
              pool: int = 0, vouched: bool = True, slots: int | None = None,
              reason: StartReason = BECAUSE) -> None:  # fmt: skip
        shape = self.workloads[name].shape
        mask = sum(1 << node for node in nodes)
        run = RunId(f"{name}.{attempt}")
        given = Allocation(pool, mask, shape.gpus_per_node if slots is None else slots)
        action = Start(run, WorkloadId(name), given, shape.min_runtime, reason, resumed=attempt > 1)
        self.cycle(at, actions=[action])
        self.cycle(at + launch_s, RunStarted(ms(at + launch_s), run, vouched))

    def stop(self, run: str, at: float, reason: StopReason = RECLAIM) -> None:
        self.cycle(at, actions=[Preempt(RunId(run), 10_000, reason)])

    def end(self, run: str, at: float, outcome: Outcome = Outcome.COMPLETED, lost_s: float | None = 0) -> None:
        lost = None if lost_s is None else ms(lost_s)
        self.cycle(at, RunEnded(ms(at), RunId(run), outcome, lost))

    def preempt(self, run: str, at: float, *, lost_s: float | None = 0, reason: StopReason = RECLAIM) -> None:
        """Told to stop, and gone at once."""
        self.stop(run, at, reason)
        self.end(run, at, Outcome.PREEMPTED, lost_s)

    def cancel(self, name: str, at: float) -> None:
        self.cycle(at, WorkloadCancelled(ms(at), WorkloadId(name)))

    def degrade(self, node: int, at: float) -> None:
        self.cycle(at, NodeDegraded(ms(at), NodeName(f"n{node}")))

    def kill(self, node: int, at: float) -> None:
        self.cycle(at, NodeDown(ms(at), NodeName(f"n{node}")))

    def mend(self, node: int, at: float) -> None:
        self.cycle(at, NodeUp(ms(at), NodeName(f"n{node}")))

    def hold(self, name: str, at: float, nodes: Sequence[int], gpus: int, until: float = 0) -> None:
        mask = sum(1 << node for node in nodes)
        self.cycle(at, holds=[Hold(WorkloadId(name), 0, mask, gpus, ms(until), ms(at))])

    def report(self, at: float | None = None) -> dict[str, Any]:
        """The report at the end of the period, or later."""
        self.cycle(self.trace.ends_at / 1000 if at is None else at)
        return self.measures.report()

    def metrics(self, at: float | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self.report(at)["metrics"]
        return found
