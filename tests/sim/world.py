"""Small worlds for tests of the pretend engine, in seconds."""

from __future__ import annotations

from collections.abc import Sequence

from mirab.control.ports import Backend
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, Outcome, RunEnded
from mirab.model.plans import Preempt, Start
from mirab.model.reasons import DrainedFrom, InOrder
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import SECOND, WHOLE, AccountPath, Duration, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.sim.attempts import exit_delay
from mirab.sim.backend import SimBackend, SimClock, SimOptions

TEAM = AccountPath("team")


def cluster(nodes: int = 2, gpus: int = 8) -> Cluster:
    return Cluster("small", (Pool("p", tuple(NodeName(f"n{number}") for number in range(nodes)), gpus, "h100"),))


def arrival(
    name: str,
    at: float = 0,
    run: float = 100,
    *,
    nodes: int = 1,
    gpus: int = 1,
    minimum: float = 0,
    limit: float | None = None,
    checkpoint: float = 0,
    really: float | None = None,
    restart: float = 0,
    cancel_after: float | None = None,
    resume: bool = True,
    account: str = TEAM,
) -> Arrival:
    """All times in seconds; `really`: the true checkpoint interval, where it differs from the declared one."""
    shape = Shape(nodes, gpus, min_runtime=ms(minimum), time_limit=None if limit is None else ms(limit))
    workload = Workload(
        WorkloadId(name),
        ms(at),
        AccountPath(account),
        UserName("u"),
        shape,
        checkpoint=ms(checkpoint),
        restart=ms(restart),
        resume=resume,
    )
    patience = None if cancel_after is None else ms(cancel_after)
    return Arrival(workload, ms(run), patience, None if really is None else ms(really))


def trace(
    arrivals: Sequence[Arrival],
    *troubles: NodeTrouble,
    nodes: int = 2,
    gpus: int = 8,
    budgets: Budgets = Budgets((Budget("team", WHOLE),)),  # noqa: B008
    **more: object,
) -> Trace:
    return Trace(arrivals, cluster(nodes, gpus), budgets, troubles, **more)  # type: ignore[arg-type]


def trouble(at: float, node: str, kind: str = "degraded", repair: float = 1000, stuck: bool = False) -> NodeTrouble:
    return NodeTrouble(ms(at), node, kind, ms(repair), stuck)


def ms(seconds: float) -> int:
    return round(seconds * SECOND)


class Hand:
    """A backend with a hand on its clock; instants in seconds."""

    def __init__(self, world: Trace, options: SimOptions | None = None) -> None:
        self.world = world
        self.clock = SimClock()
        self.backend = SimBackend(world, self.clock, options or SimOptions())

    def look(self, at: float) -> list[Event]:
        self.clock.jump(ms(at))
        return self.backend.observe()

    def start(self, name: str, attempt: int = 1, *, mask: int = 1, minimum: float = 0) -> RunId:
        """Start it now."""
        return self.order(self.backend, name, attempt, mask, minimum)

    def stop(self, run_id: str, grace: float = 0) -> None:
        self.halt(self.backend, run_id, grace)

    @staticmethod
    def order(backend: Backend, name: str, attempt: int = 1, mask: int = 1, minimum: float = 0) -> RunId:
        run_id = RunId(f"{name}.{attempt}")
        reason = InOrder(TEAM, 0.0, True)
        backend.submit(Start(run_id, WorkloadId(name), Allocation(0, mask, 1), ms(minimum), reason, attempt > 1))
        return run_id

    @staticmethod
    def halt(backend: Backend, run_id: str, grace: float = 0) -> None:
        backend.submit(Preempt(RunId(run_id), ms(grace), DrainedFrom("n0")))

    def due(self) -> float | None:
        at = self.backend.next_due()
        return None if at is None else at / SECOND


def ends(facts: Sequence[Event]) -> list[tuple[str, float, Outcome, float | None]]:
    """Run, instant, outcome and lost time of the ends among facts, in seconds."""
    return [
        (fact.run_id, fact.at / SECOND, fact.outcome, None if fact.lost is None else fact.lost / SECOND)
        for fact in facts
        if isinstance(fact, RunEnded)
    ]


def leaves_early(prefix: str, grace: Duration) -> str:
    """A workload whose first run leaves before its whole grace is over."""
    return next(f"{prefix}{n}" for n in range(99) if exit_delay(RunId(f"{prefix}{n}.1"), grace) < grace)


def leaves_late(prefix: str, grace: Duration) -> str:
    """A workload whose first run uses its whole grace."""
    return next(f"{prefix}{n}" for n in range(99) if exit_delay(RunId(f"{prefix}{n}.1"), grace) == grace)
