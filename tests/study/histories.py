"""Random histories: a thoughtless scheduler that never breaks physics, on a cluster where everything happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from mirab.model.accounts import Budget, Budgets
from mirab.model.events import (
    ActionRefused,
    BudgetsChanged,
    Event,
    NodeDegraded,
    NodeDown,
    NodeUp,
    Outcome,
    RunEnded,
    RunStarted,
    WorkloadCancelled,
    WorkloadHeld,
    WorkloadReleased,
    WorkloadSubmitted,
)
from mirab.model.plans import Action, Hold, HoldChange, HoldReleased, Plan, Preempt, Start
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, AccountPath, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from tests.study.scene import BECAUSE, RECLAIM

OLD = Pool("old", (NodeName("o0"), NodeName("o1"), NodeName("o2")), 4, gpu_type="a100", cpus_per_node=16)
NEW = Pool("new", (NodeName("x0"), NodeName("x1")), 8, gpu_type="b300", weight=2000)
ONE_POOL = Cluster("one", (OLD,))
TWO_POOLS = Cluster("two", (OLD, NEW))

TREES = (
    Budgets((Budget("red", WHOLE // 2), Budget("lab", WHOLE // 2, (Budget("a", WHOLE // 4), Budget("b", WHOLE // 2))))),
    Budgets((Budget("red", WHOLE // 5), Budget("lab", WHOLE // 2, (Budget("a", WHOLE // 2), Budget("b", WHOLE // 4))))),
    Budgets(
        (
            Budget("red", WHOLE // 2, pool_shares=(("new", WHOLE // 5),)),
            Budget(
                "lab", WHOLE // 4, (Budget("a", WHOLE // 2), Budget("b", WHOLE // 4, pool_shares=(("new", WHOLE),)))
            ),
        )
    ),
    Budgets(
        (
            Budget("red", WHOLE // 4, pool_shares=(("old", 0),)),
            Budget("lab", WHOLE // 2, (Budget("a", WHOLE // 2), Budget("b", 0)), pool_shares=(("old", WHOLE // 2),)),
        )
    ),
)
ACCOUNTS = ("red", "lab/a", "lab/b", "lab", "stranger")
OPERATIONS = (
    "submit", "submit", "submit", "start", "start", "start", "launch", "end", "end", "cancel", "set aside", "release",
    "sicken", "mend", "budgets", "hold", "unhold", "preempt",
)  # fmt: skip


@dataclass
class Chance:
    """A history being made up."""

    random: Random
    cluster: Cluster
    at: int = 0
    cycles: list[tuple[list[Event], Plan]] = field(default_factory=list)
    known: dict[str, Workload] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    launching: list[Start] = field(default_factory=list)
    running: list[Start] = field(default_factory=list)
    started_at: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    sick: list[tuple[int, int]] = field(default_factory=list)
    holding: list[str] = field(default_factory=list)

    def tell(self, *facts: Event, actions: tuple[Action, ...] = (), holds: tuple[HoldChange, ...] = ()) -> None:
        self.cycles.append((list(facts), Plan(self.at, 0, actions, holds)))

    def free(self, pool: int, node: int) -> int:
        runs = [*self.launching, *self.running]
        used = sum(
            run.allocation.slots_per_node
            for run in runs
            if run.allocation.pool == pool and run.allocation.mask >> node & 1
        )
        return self.cluster.pools[pool].gpus_per_node - used

    # --- what may happen ----------------------------------------------------------------------------------------------
    def submit(self) -> None:
        roll, name = self.random, f"w{len(self.known)}"
        types = roll.choice([(), (), ("a100",), ("b300",), ("a100", "b300")])
        shape = Shape(roll.randint(1, 3), roll.choice([1, 2, 4, 8]), cpus_per_node=roll.choice([0, 0, 8]),
                      gpu_types=types, min_runtime=roll.choice([0, 10 * MINUTE, 2 * HOUR]))  # fmt: skip
        made = Workload(WorkloadId(name), self.at, AccountPath(roll.choice(ACCOUNTS)), UserName("u"), shape,
                        restart=roll.choice([0, 5 * MINUTE]), resume=roll.random() < 0.8,
                        held=roll.random() < 0.1)  # fmt: skip
        self.known[name] = made
        (self.aside if made.held else self.pending).append(name)
        self.tell(WorkloadSubmitted(self.at, made))

    def start(self) -> None:
        for name in self.random.sample(self.pending, len(self.pending)):
            given = self._room(self.known[name])
            if given is not None:
                self._begin(name, given)
                return

    def _begin(self, name: str, given: Allocation) -> None:
        attempt = self.attempts[name] = self.attempts.get(name, 0) + 1
        self.pending.remove(name)
        action = Start(RunId(f"{name}.{attempt}"), WorkloadId(name), given, self.known[name].shape.min_runtime,
                       BECAUSE, resumed=attempt > 1)  # fmt: skip
        self.launching.append(action)
        self.holding = [holder for holder in self.holding if holder != name]
        self.tell(actions=(action,))
        if self.random.random() < 0.7:
            self.launch()

    def _room(self, workload: Workload) -> Allocation | None:
        shape = workload.shape
        for number, pool in enumerate(self.cluster.pools):
            if shape.gpu_types and pool.gpu_type not in shape.gpu_types:
                continue
            nodes = [
                node
                for node in range(len(pool.nodes))
                if (number, node) not in self.sick and self.free(number, node) >= shape.gpus_per_node
            ]
            if len(nodes) >= shape.nodes:
                chosen = self.random.sample(nodes, shape.nodes)
                return Allocation(number, sum(1 << node for node in chosen), shape.gpus_per_node)
        return None

    def launch(self) -> None:
        if self.launching:
            action = self.launching.pop()
            if self.random.random() < 0.1:
                self._again(action.workload_id)
                self.tell(ActionRefused(self.at, action.run_id, "start"))
                return
            self.running.append(action)
            self.started_at[action.run_id] = self.at
            self.tell(RunStarted(self.at, action.run_id, True))

    def end(self) -> None:
        if self.running:
            outcome = self.random.choice([Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMEOUT])
            self._finish(self.running.pop(self.random.randrange(len(self.running))), outcome)

    def preempt(self) -> None:
        if self.running:
            victim = self.running.pop(self.random.randrange(len(self.running)))
            self.tell(actions=(Preempt(victim.run_id, 10_000, RECLAIM),))
            self._finish(victim, Outcome.PREEMPTED)

    def _finish(self, action: Start, outcome: Outcome) -> None:
        ran = self.at - self.started_at.get(action.run_id, self.at)
        lost = self.random.randint(0, ran) if outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL) else 0
        if outcome in (Outcome.PREEMPTED, Outcome.NODE_FAIL) and self.known[action.workload_id].resume:
            self._again(action.workload_id)
        self.tell(RunEnded(self.at, action.run_id, outcome, lost))

    def _again(self, name: str) -> None:
        self.pending.append(name)

    def cancel(self) -> None:
        if self.pending:
            name = self.pending.pop(self.random.randrange(len(self.pending)))
            self.holding = [holder for holder in self.holding if holder != name]
            self.tell(WorkloadCancelled(self.at, WorkloadId(name)))

    def set_aside(self) -> None:
        if self.pending:
            name = self.pending.pop()
            self.aside.append(name)
            self.holding = [holder for holder in self.holding if holder != name]
            self.tell(WorkloadHeld(self.at, WorkloadId(name), "later"))

    def release(self) -> None:
        if self.aside:
            name = self.aside.pop()
            self.pending.append(name)
            self.tell(WorkloadReleased(self.at, WorkloadId(name)))

    def sicken(self) -> None:
        pool = self.random.randrange(len(self.cluster.pools))
        node = self.random.randrange(len(self.cluster.pools[pool].nodes))
        if (pool, node) in self.sick:
            return
        self.sick.append((pool, node))
        name = self.cluster.pools[pool].nodes[node]
        if self.random.random() < 0.6:
            self.tell(NodeDegraded(self.at, name))
            return
        self.tell(NodeDown(self.at, name))
        for group in (self.running, self.launching):
            hit = [run for run in group if run.allocation.pool == pool and run.allocation.mask >> node & 1]
            for run in hit:
                group.remove(run)
                self._finish(run, Outcome.NODE_FAIL)

    def mend(self) -> None:
        if self.sick:
            pool, node = self.sick.pop(0)
            self.tell(NodeUp(self.at, self.cluster.pools[pool].nodes[node]))

    def budgets(self) -> None:
        self.tell(BudgetsChanged(self.at, self.random.choice(TREES)))

    def hold(self) -> None:
        if self.pending:
            name = self.random.choice(self.pending)
            pool = self.random.randrange(len(self.cluster.pools))
            mask = self.random.randint(1, (1 << len(self.cluster.pools[pool].nodes)) - 1)
            width = self.random.choice([2, self.cluster.pools[pool].gpus_per_node])
            self.holding.append(name)
            self.tell(holds=(Hold(WorkloadId(name), pool, mask, width, self.at + HOUR, self.at),))

    def unhold(self) -> None:
        if self.holding:
            self.tell(holds=(HoldReleased(WorkloadId(self.holding.pop()), "moved"),))


def random_history(random: Random, steps: int) -> tuple[Trace, list[tuple[list[Event], Plan]]]:
    """A trace and the cycles of a replay of it, about four days long, of which days 0.5 to 4 are measured."""
    cluster = random.choice([ONE_POOL, TWO_POOLS])
    made = Chance(random, cluster)
    for _ in range(steps):
        made.at += random.choice([0, 0, 1, 7 * MINUTE, 3 * HOUR, 11 * HOUR])
        getattr(made, random.choice(OPERATIONS).replace(" ", "_"))()
    starts = random.choice([0, DAY // 2])
    trace = Trace(
        (), cluster, TREES[0], starts_at=starts, ends_at=max(starts, random.choice([made.at, 4 * DAY, 2 * DAY]))
    )
    made.at = max(made.at, trace.ends_at)
    made.tell()
    return trace, made.cycles
