"""Work that never saves does end, however long it needs, while only colleagues of its account want the same nodes."""

from __future__ import annotations

from random import Random

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.policy import POLICIES
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, AccountPath, NodeName, UserName, WorkloadId
from mirab.model.workloads import Arrival, Workload
from mirab.sim.engine import Ending, replay

BUDGETS = Budgets((Budget("red", WHOLE // 2), Budget("blue", WHOLE // 2)))


def cluster(nodes: int) -> Cluster:
    return Cluster("small", (Pool("p", tuple(NodeName(f"n{number}") for number in range(nodes)), 8),))


def arrival(name: str, user: str, shape: Shape, run_h: int, at_h: int = 0, checkpoint: int = 0) -> Arrival:
    made = Workload(
        WorkloadId(name), at_h * HOUR, AccountPath("red"), UserName(user), shape, checkpoint=checkpoint,
        restart=3 * MINUTE,
    )  # fmt: skip
    return Arrival(made, run_h * HOUR)


def ending_of(nodes: int, arrivals: list[Arrival]) -> Ending:
    ordered = sorted(arrivals, key=lambda each: (each.workload.submitted_at, each.workload.id))
    return replay(Trace(ordered, cluster(nodes), BUDGETS, ends_at=DAY), POLICIES["budget"]).ending


def test_three_that_never_save_on_two_nodes() -> None:
    """Each needs the 200 hours at a stretch, and its colleague stands below it long before."""
    shape = Shape(1, 8, min_runtime=HOUR)
    users = ("ann", "bob", "cem")
    assert ending_of(2, [arrival(user, user, shape, 200) for user in users]) is Ending.FINISHED


@pytest.mark.parametrize("seed", range(20))
def test_small_logs_of_one_busy_account_end(seed: int) -> None:
    draw = Random(seed)
    nodes = draw.randint(1, 4)
    arrivals = []
    for number in range(draw.randint(3, 10)):
        minimum = draw.choice([0, 15, 60, 60, 240, 480]) * MINUTE
        shape = Shape(draw.choice([1, 1, 1, min(2, nodes)]), draw.choice([2, 4, 8, 8]), min_runtime=minimum)
        saves = 0 if draw.random() < 0.8 else 30 * MINUTE
        run_h, at_h = draw.choice([2, 6, 12, 24, 72, 200]), draw.randint(0, 24)
        arrivals.append(arrival(f"w{number}", f"u{draw.randrange(3)}", shape, run_h, at_h, saves))
    assert ending_of(nodes, arrivals) is Ending.FINISHED
