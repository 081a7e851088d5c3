"""Logs out of a seed, of the reference log's shape: who asks for what, when, for how long, and which nodes fail.

The same options give the same log on every machine: the only source of chance is `random.Random(seed).random()`, whose
sequence Python promises to keep, and every result is rounded to whole seconds. Rare classes carry most of the GPU-time,
so run times are drawn stratified (one from each equal slice of the distribution): two seeds then differ in order and
owner of the work, and little in its sum, which is last scaled to the offered load asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp
from random import Random
from statistics import NormalDist
from typing import TypeVar

from mirab.model.accounts import Budgets
from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, SECOND, WHOLE, AccountPath, UserName, WorkloadId, plural
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.sim.population import (
    CLASSES,
    DAY_LEVELS,
    DEMAND_LEVELS,
    HOURS,
    TROUBLES_PER_NODE_DAY,
    WEEK_LEVELS,
    WEEKDAYS,
    WorkClass,
    make_cluster,
    many_budgets,
    stock_budgets,
)

T = TypeVar("T")
DAY_S = DAY // SECOND
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class SynthOptions:
    """What log to make.

    Attributes:
        days: length of the log; not used when `workloads` is given.
        load: offered GPU-time in units of the capacity.
        workloads: exactly so many rows, over the period in which they make the load.
        accounts: so many teams instead of the reference's 15; `budgets` gives any tree instead.
        users: users in all, divided by share; each team has at least three, each user one team.
        size_scale: every workload on so many times more nodes, so that a count fits a larger cluster.
        troubles: hardware events on or off.
    """

    nodes: int = 128
    gpus_per_node: int = 8
    days: int = 30
    load: float = 1.16
    seed: int = 1
    workloads: int | None = None
    accounts: int | None = None
    budgets: Budgets | None = None
    users: int = 150
    size_scale: int = 1
    troubles: bool = True

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus_per_node", "days", "users", "size_scale"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1")
        if not self.load > 0:
            raise ValueError(f"load is {self.load}: more than 0, in units of the capacity (1.16 = 116 %)")
        if self.workloads is not None and self.workloads < 1:
            raise ValueError(f"workloads is {self.workloads}: at least 1, or leave it out")
        if self.accounts is not None and self.accounts < 1:
            raise ValueError(f"accounts is {self.accounts}: at least 1, or leave it out for the stock 15")
        if self.accounts is not None and self.budgets is not None:
            raise ValueError(
                "accounts and budgets both given: a tree of budgets says already how many accounts there are"
            )


@dataclass(slots=True)
class _Team:
    path: AccountPath
    wanted: float
    """GPU-time it wants, in GPUs: demand factor x share x cluster, before scaling to the load."""
    classes: list[tuple[WorkClass, float]]
    """Classes it runs with the part of its rows."""
    users: list[UserName]
    rows: int = 0

    @property
    def mean_gpu_s(self) -> float:
        """GPU-seconds of an average row."""
        return sum(part * _mean_gpu_s(kind) for kind, part in self.classes)


@dataclass(frozen=True, slots=True)
class _Row:
    submit_s: int
    team: _Team
    user: UserName
    kind: WorkClass
    nodes: int
    gpus_per_node: int
    run_s: int
    min_runtime_s: int
    time_limit_s: int
    preemptible: bool


def synthesize(options: SynthOptions | None = None) -> Trace:
    """A trace with its cluster, budgets, arrivals and node troubles.

    Raises:
        ValueError: the cluster is too small for any work of the reference's classes.
    """
    options = options or SynthOptions()
    rng = Random(options.seed)
    budgets = options.budgets or (many_budgets(options.accounts) if options.accounts else stock_budgets())
    teams = _make_teams(options, budgets, rng)
    period_s = _divide_rows(options, teams)
    rows = _make_rows(options, teams, period_s, rng)
    return Trace(
        arrivals=_arrivals(rows, options.size_scale),
        cluster=make_cluster(options.nodes, options.gpus_per_node),
        budgets=budgets,
        troubles=_make_troubles(options, period_s, rng) if options.troubles else (),
        name=f"synthetic-{options.seed}",
        ends_at=period_s * SECOND,
        notes=("synthetic: made by a seeded generator of the reference log's shape",),
        rows=len(rows),
    )


# ---- chance, from one platform-stable source ----


def _pick(rng: Random, items: Sequence[T]) -> T:
    return items[int(rng.random() * len(items))]


def _shuffle(rng: Random, items: list[T]) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        items[last], items[other] = items[other], items[last]


def _spread(weights: Sequence[float], total: int) -> list[int]:
    """`total` divided by the weights in whole parts: the largest remainders are rounded up, ties to the first."""
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    parts = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: (parts[index] - exact[index], index))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts


# ---- teams ----


def _make_teams(options: SynthOptions, budgets: Budgets, rng: Random) -> list[_Team]:
    gpus = options.nodes * options.gpus_per_node
    classes = _fitting_classes(options)
    if not classes:
        size = f"{plural(options.nodes, 'node')} with {plural(options.gpus_per_node, 'GPU')}"
        raise ValueError(f"{size} hold no work: ask for a larger cluster")
    teams: list[_Team] = []
    first_user = 0
    leaves = set(budgets.leaves())
    for path, _, share in budgets.walk():
        if path not in leaves or not share:
            continue
        entitled = gpus * share / WHOLE
        mine = [kind for kind in classes if kind.needs_gpus * options.size_scale <= entitled] or classes[:1]
        parts = sum(kind.part for kind in mine)
        count = max(3, (options.users * share + WHOLE // 2) // WHOLE)
        users = [UserName(f"u{first_user + index:03d}") for index in range(count)]
        first_user += count
        wanted = entitled * _pick(rng, DEMAND_LEVELS)
        teams.append(_Team(path, wanted, [(kind, kind.part / parts) for kind in mine], users))
    return teams


def _fitting_classes(options: SynthOptions) -> list[WorkClass]:
    """The classes with the sizes that fit half of the cluster, as the reference's largest do; at least one node."""
    most_nodes = max(1, options.nodes // 2 // options.size_scale)
    fitting = []
    for kind in CLASSES:
        shapes = tuple(shape for shape in kind.shapes if shape[0] <= most_nodes and shape[1] <= options.gpus_per_node)
        if shapes and options.size_scale <= options.nodes:
            fitting.append(replace(kind, shapes=shapes))
    return fitting


def _mean_gpu_s(kind: WorkClass) -> float:
    """Expected GPU-seconds of one workload (of the log-normal without its bounds), on the unscaled size."""
    weights = sum(weight for _, _, weight in kind.shapes)
    gpus = sum(nodes * per_node * weight for nodes, per_node, weight in kind.shapes) / weights
    return gpus * kind.median_s * exp(kind.sigma**2 / 2)


def _divide_rows(options: SynthOptions, teams: list[_Team]) -> int:
    """Give each team its count of rows; the period in seconds in which all of them offer the load."""
    capacity = options.nodes * options.gpus_per_node
    weights = [team.wanted / team.mean_gpu_s for team in teams]
    mean = sum(weight * team.mean_gpu_s for weight, team in zip(weights, teams, strict=True)) / sum(weights)
    mean *= options.size_scale
    if options.workloads is None:
        period_s = options.days * DAY_S
        total = max(1, round(options.load * capacity * period_s / mean))
    else:
        total = options.workloads
        period_s = max(HOUR_S, round(total * mean / (options.load * capacity)))
    for team, rows in zip(teams, _spread(weights, total), strict=True):
        team.rows = rows
    return period_s


# ---- rows ----


def _make_rows(options: SynthOptions, teams: list[_Team], period_s: int, rng: Random) -> list[_Row]:
    owners: dict[str, list[_Team]] = {}
    kinds: dict[str, WorkClass] = {}
    for team in teams:
        for (kind, _), count in zip(team.classes, _spread([part for _, part in team.classes], team.rows), strict=True):
            kinds[kind.label] = kind
            owners.setdefault(kind.label, []).extend([team] * count)
    clocks = {team.path: _Clock(period_s, rng) for team in teams}
    ranks = {team.path: list(accumulate(1 / (rank + 1) for rank in range(len(team.users)))) for team in teams}
    drafts: list[tuple[WorkClass, _Team, tuple[int, int], int]] = []
    for label in kinds:
        sizes, runs = _sizes_and_runs(kinds[label], len(owners[label]), rng)
        drafts.extend(zip([kinds[label]] * len(runs), owners[label], sizes, runs, strict=True))
    offered = sum(nodes * per_node * run for _, _, (nodes, per_node), run in drafts) * options.size_scale
    stretch = options.load * options.nodes * options.gpus_per_node * period_s / max(1, offered)
    rows = [
        _row(kind, team, size, max(kind.shortest_s, round(run * stretch)), clocks[team.path], ranks[team.path], rng)
        for kind, team, size, run in drafts
    ]
    rows.sort(key=lambda row: row.submit_s)
    return rows


class _Clock:
    """When a team submits: hours of the day, days of the week, its own busy and idle days and weeks."""

    def __init__(self, period_s: int, rng: Random) -> None:
        hours = -(-period_s // HOUR_S)
        weeks = [_pick(rng, WEEK_LEVELS) for _ in range(hours // 168 + 1)]
        days = [_pick(rng, DAY_LEVELS) * WEEKDAYS[day % 7] * weeks[day // 7] for day in range(hours // 24 + 1)]
        self._spans = [min(HOUR_S, period_s - hour * HOUR_S) for hour in range(hours)]
        self._sums = list(
            accumulate(days[hour // 24] * HOURS[hour % 24] * span for hour, span in enumerate(self._spans))
        )

    def draw(self, rng: Random) -> int:
        hour = bisect_right(self._sums, int(rng.random() * self._sums[-1]))
        return hour * HOUR_S + int(rng.random() * self._spans[hour])


def _sizes_and_runs(kind: WorkClass, count: int, rng: Random) -> tuple[list[tuple[int, int]], list[int]]:
    """Sizes in their exact proportions and, for each size, run times from equal slices of the distribution."""
    normal = NormalDist().inv_cdf
    pairs: list[tuple[tuple[int, int], int]] = []
    for (nodes, per_node, _), rows in zip(kind.shapes, _spread([w for _, _, w in kind.shapes], count), strict=True):
        for slice_number in range(rows):
            level = (slice_number + max(1e-9, rng.random())) / rows
            run = round(kind.median_s * exp(kind.sigma * normal(min(level, 1 - 1e-12))))
            pairs.append(((nodes, per_node), min(kind.longest_s, max(kind.shortest_s, run))))
    _shuffle(rng, pairs)
    return [size for size, _ in pairs], [run for _, run in pairs]


def _row(
    kind: WorkClass, team: _Team, size: tuple[int, int], run_s: int, clock: _Clock, ranks: list[float], rng: Random
) -> _Row:
    minimums = [seconds for seconds, weight in kind.minimums_s for _ in range(weight)]
    user = team.users[min(bisect_right(ranks, rng.random() * ranks[-1]), len(ranks) - 1)]
    limit_s = -(-round(run_s * (1.1 + 2.9 * rng.random())) // HOUR_S) * HOUR_S
    return _Row(
        clock.draw(rng), team, user, kind, size[0], size[1], run_s, _pick(rng, minimums), limit_s, rng.random() < 0.2
    )


def _arrivals(rows: list[_Row], scale: int) -> list[Arrival]:
    shapes: dict[tuple[int, int, int, int], Shape] = {}
    made = []
    width = len(str(len(rows)))
    for number, row in enumerate(rows, start=1):
        key = (row.nodes, row.gpus_per_node, row.min_runtime_s, row.time_limit_s)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = _shape(*key, scale)
        big = row.nodes * row.gpus_per_node > 2
        workload = Workload(
            id=WorkloadId(f"{number:0{width}d}"),
            submitted_at=row.submit_s * SECOND,
            account=row.team.path,
            user=row.user,
            shape=shape,
            label=row.kind.label,
            checkpoint=row.kind.checkpoint_s * SECOND,
            restart=(180 if big else 60) * SECOND,
            priority=2,
            preemptible=row.preemptible,
        )
        made.append(Arrival(workload, row.run_s * SECOND, row.kind.gives_up_s * SECOND))
    return made


def _shape(nodes: int, per_node: int, minimum_s: int, limit_s: int, scale: int) -> Shape:
    grace_s = 60 if nodes * per_node > 2 else 10
    return Shape(
        nodes * scale, per_node, min_runtime=minimum_s * SECOND, time_limit=limit_s * SECOND, grace=grace_s * SECOND
    )


# ---- hardware ----


def _make_troubles(options: SynthOptions, period_s: int, rng: Random) -> list[NodeTrouble]:
    """Hardware events at the reference's rate: five of eight only degrade the node; one in ten has stuck runs."""
    count = round(TROUBLES_PER_NODE_DAY * options.nodes * period_s / DAY_S)
    names = make_cluster(options.nodes, options.gpus_per_node).pools[0].nodes
    made = []
    for number in range(count):
        at = int(rng.random() * period_s) * SECOND
        kind = "degraded" if rng.random() < 5 / 8 else "down"
        repair = (3600 + int(rng.random() * 17_400)) * SECOND
        made.append(NodeTrouble(at, _pick(rng, names), kind, repair, stuck=number % 10 == 8))
    return sorted(made, key=lambda trouble: (trouble.at, trouble.node))
