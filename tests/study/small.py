"""A trace of a dozen workloads, two accounts and one sick node, for whole replays in a moment."""

from __future__ import annotations

from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE
from mirab.model.workloads import Arrival, NodeTrouble
from tests.study.scene import HALVES, cluster, workload


def small_trace(*, trouble: str = "n1") -> Trace:
    """Each hour one workload of 16 GPUs on two nodes for red and one of 8 for blue, of 3 hours each, on 4 nodes."""
    arrivals = []
    for hour in range(6):
        red = workload(f"r{hour}", at=3600 * hour, nodes=2, gpus=8, minimum="1h", checkpoint=30 * MINUTE)
        blue = workload(f"b{hour}", "blue", at=3600 * hour, nodes=1, gpus=8, minimum="0")
        arrivals += [Arrival(blue, 3 * HOUR), Arrival(red, 3 * HOUR, cancel_after=12 * HOUR)]
    sick = NodeTrouble(2 * HOUR, trouble, "degraded", HOUR)
    return Trace(tuple(arrivals), cluster(4, 8), HALVES, troubles=(sick,), name="small", ends_at=DAY,
                 rows=13, dropped={"no account": (1, (7,))}, notes=("made by hand",))  # fmt: skip
