"""Four stock scenarios, each a week of the synthetic cluster with one thing that happens on its third day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mirab.model.resources import Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, AccountPath, UserName, WorkloadId, plural
from mirab.model.workloads import Arrival, NodeTrouble, Workload
from mirab.sim.synthetic import SynthOptions, synthesize

BEGINS = 2 * DAY + 9 * HOUR
"""Nine in the morning of the third day."""


def scenario(name: str, options: SynthOptions | None = None) -> Trace:
    """The stock scenario on the cluster and seed of the options; seven days unless they say otherwise.

    Raises:
        ValueError: there is none of that name, or its log is shorter than three days.
    """
    change = SCENARIOS.get(name)
    if change is None:
        raise ValueError(f"no scenario {name!r}: the stock ones are {', '.join(SCENARIOS)}")
    trace = synthesize(options or SynthOptions(days=7))
    if trace.ends_at < 3 * DAY:
        raise ValueError(f"scenario {name} happens on the third day: ask for at least 3 days")
    return replace(change(trace), name=f"{trace.name}-{name}")


def _same(trace: Trace) -> Trace:
    return trace


def _with_arrivals(trace: Trace, more: Sequence[Arrival], note: str) -> Trace:
    arrivals = sorted([*trace.arrivals, *more], key=lambda each: (each.workload.submitted_at, each.workload.id))
    return replace(trace, arrivals=arrivals, notes=(*trace.notes, note), rows=len(arrivals))


def _teams_by_share(trace: Trace) -> list[AccountPath]:
    leaves = set(trace.budgets.leaves())
    shares = [(share, path) for path, _, share in trace.budgets.walk() if path in leaves]
    return [path for _, path in sorted(shares)]


def _burst(trace: Trace) -> Trace:
    """Two jobs of one GPU for each GPU of the cluster, within two hours, from three users of the middle team."""
    team = _teams_by_share(trace)[len(trace.budgets.leaves()) // 2]
    count = 2 * trace.cluster.slots
    more = []
    for number in range(count):
        workload = Workload(
            id=WorkloadId(f"burst-{number:06d}"),
            submitted_at=BEGINS + 2 * HOUR * number // count,
            account=team,
            user=UserName(f"burst-{number % 3}"),
            shape=Shape(1, 1, min_runtime=15 * MINUTE, time_limit=2 * HOUR),
            label="small",
            checkpoint=30 * MINUTE,
            restart=MINUTE,
            priority=2,
        )
        more.append(Arrival(workload, (10 + number * 7 % 50) * MINUTE, 2 * DAY))
    return _with_arrivals(
        trace, more, f"{plural(count, 'job')} of one GPU within two hours of the third day, all of {team}"
    )


def _training(trace: Trace) -> Trace:
    """One training of two days on half of the nodes, from the team with the largest share."""
    pool = trace.cluster.pools[0]
    team = _teams_by_share(trace)[-1]
    nodes = max(1, len(pool.nodes) // 2)
    workload = Workload(
        id=WorkloadId("training"),
        submitted_at=BEGINS,
        account=team,
        user=UserName("training"),
        shape=Shape(nodes, pool.gpus_per_node, min_runtime=8 * HOUR, time_limit=4 * DAY, grace=MINUTE),
        label="huge",
        checkpoint=30 * MINUTE,
        restart=3 * MINUTE,
        priority=2,
    )
    note = f"a training of two days on {plural(nodes, 'node')}, submitted on the third day by {team}"
    return _with_arrivals(trace, [Arrival(workload, 2 * DAY, None)], note)


def _maintenance(trace: Trace) -> Trace:
    """A quarter of the nodes is drained, one every ten minutes, and each repaired for two hours."""
    names = trace.cluster.pools[0].nodes
    drained = names[: max(1, len(names) // 4)]
    more = [
        NodeTrouble(BEGINS + number * 10 * MINUTE, name, "degraded", 2 * HOUR) for number, name in enumerate(drained)
    ]
    troubles = sorted([*trace.troubles, *more], key=lambda each: (each.at, each.node))
    note = f"maintenance of {plural(len(drained), 'node')} from the third day on, one every ten minutes"
    return replace(trace, troubles=troubles, notes=(*trace.notes, note))


SCENARIOS: dict[str, Callable[[Trace], Trace]] = {
    "normal-week": _same,
    "small-burst": _burst,
    "large-training": _training,
    "maintenance": _maintenance,
}
"""Name: how a week of usual work is changed."""
