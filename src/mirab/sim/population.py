"""Who uses the synthetic cluster and what they run: the numbers behind `synthetic`, noted from the reference log.

The reference log is 30 days of 128 nodes of 8 GPUs, 39,062 workloads of 15 teams. Its shape, measured: six classes with
run times close to log-normal; teams differ in size but not in mix, except that only teams with enough GPUs of their own
run large gangs; within a team, users are active as 1/rank; three levels of hours in a day; and teams whose activity
jumps from day to day, between a fifth and twice the usual.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirab.model.accounts import Budget, Budgets
from mirab.model.resources import Cluster, Pool
from mirab.model.units import WHOLE, NodeName


@dataclass(frozen=True, slots=True)
class WorkClass:
    """One kind of work.

    Attributes:
        part: rows of this class in 10,000 rows of a team that runs all classes.
        shapes: (nodes, GPUs per node, weight) of the sizes that occur.
        median_s, sigma: of the log-normal run time; `shortest_s` and `longest_s` bound it.
        minimums_s: minimum runtimes with their weights.
        needs_gpus: a team runs this class only if its share of the cluster is at least so many GPUs.
        gives_up_s: the user gives up when it has not started by then.
    """

    label: str
    part: int
    shapes: tuple[tuple[int, int, int], ...]
    median_s: int
    sigma: float
    shortest_s: int
    longest_s: int
    minimums_s: tuple[tuple[int, int], ...]
    checkpoint_s: int = 1800
    needs_gpus: int = 0
    gives_up_s: int = 172_800


CLASSES = (
    WorkClass("debug", 6050, ((1, 1, 3), (1, 2, 2)), 355, 1.0, 30, 7200, ((300, 1), (600, 1), (900, 1))),
    WorkClass("small", 2670, ((1, 8, 2), (1, 1, 1), (1, 2, 1), (1, 4, 1)), 2520, 1.29, 30, 172_800,
              ((0, 2), (1800, 1), (3600, 1), (7200, 1))),
    WorkClass("medium", 830, ((1, 8, 1), (2, 8, 2), (4, 8, 1)), 8950, 1.085, 300, 345_600,
              ((0, 1), (3600, 1), (7200, 1), (14_400, 1), (28_800, 1))),
    WorkClass("session", 300, ((1, 1, 3), (1, 2, 1)), 7200, 0.9, 300, 86_400,
              ((3600, 1), (7200, 1), (14_400, 1)), checkpoint_s=0, gives_up_s=14_400),
    WorkClass("large", 130, ((8, 8, 2), (16, 8, 1)), 17_600, 0.95, 600, 345_600,
              ((3600, 1), (7200, 1), (14_400, 1), (28_800, 1)), needs_gpus=30),
    WorkClass("huge", 31, ((32, 8, 5), (64, 8, 3)), 25_800, 0.88, 1800, 345_600,
              ((7200, 1), (14_400, 1), (28_800, 1)), needs_gpus=70),
)  # fmt: skip

HOURS = (2, 2, 2, 2, 2, 2, 2, 2, 2, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 3, 2, 2)
"""Weights of the hours of a day: nights a third of the working hours."""
WEEKDAYS = (11, 11, 10, 10, 10, 9, 9)
"""Weights of the days of a week."""
DAY_LEVELS = (2, 2, 5, 5, 10, 10, 10, 14, 19, 19)
"""A team's activity on a day, in tenths of its usual; each level equally often."""
WEEK_LEVELS = (5, 9, 10, 10, 11, 12, 15)
"""A team's activity in a week, in tenths: idle weeks, usual ones, bursts."""
DEMAND_LEVELS = (85, 100, 105, 110, 125, 150)
"""What a team wants over the whole log, in per cent of its share, before all is scaled to the load asked for."""

TROUBLES_PER_NODE_DAY = 84 / (128 * 30)
"""Hardware events in the reference log."""

_TREE: tuple[tuple[str, int, tuple[tuple[str, int], ...]], ...] = (
    ("language", 40, (("pretrain", 50), ("posttrain", 30), ("data", 20))),
    ("vision", 22, (("multimodal", 55), ("video", 27), ("eval", 18))),
    ("robotics", 18, (("sim-rl", 56), ("policy", 28), ("bench", 16))),
    ("science", 15, (("agents", 47), ("literature", 33), ("climate", 20))),
    ("platform", 5, (("infra", 40), ("serving", 40), ("security", 20))),
)
_PERCENT = WHOLE // 100
_TEAMS_PER_PROGRAM = 8


def stock_budgets() -> Budgets:
    """The reference's tree: 15 teams in 5 programs."""
    return Budgets(
        tuple(
            Budget(program, part * _PERCENT, tuple(Budget(team, share * _PERCENT) for team, share in teams))
            for program, part, teams in _TREE
        )
    )


def many_budgets(accounts: int) -> Budgets:
    """A tree of that many teams, eight to a program; the i-th program, and the i-th team of one, weighs 1/(i + 2)."""
    programs = -(-accounts // _TEAMS_PER_PROGRAM)
    roots = []
    for number, part in enumerate(_falling(programs)):
        teams = min(_TEAMS_PER_PROGRAM, accounts - number * _TEAMS_PER_PROGRAM)
        children = tuple(Budget(f"team{index:02d}", share) for index, share in enumerate(_falling(teams)))
        roots.append(Budget(f"program{number:03d}", part, children))
    return Budgets(tuple(roots))


def _falling(count: int) -> list[int]:
    """`WHOLE` divided by the weights 1/2, 1/3, 1/4, ...; what rounding leaves goes to the first."""
    weights = [WHOLE // (index + 2) for index in range(count)]
    total = sum(weights)
    parts = [WHOLE * weight // total for weight in weights]
    parts[0] += WHOLE - sum(parts)
    return parts


def make_cluster(nodes: int, gpus_per_node: int, rack: int = 16) -> Cluster:
    """One pool of H100 nodes in racks of 16."""
    width = max(3, len(str(nodes - 1)))
    names = tuple(NodeName(f"n{number:0{width}d}") for number in range(nodes))
    domains = tuple(((1 << min(rack, nodes - first)) - 1) << first for first in range(0, nodes, rack))
    pool = Pool("h100", names, gpus_per_node, "h100", 24 * gpus_per_node, 256 * 1024 * gpus_per_node, domains=domains)
    return Cluster("synthetic", (pool,))
