"""From jobs to a `Trace`: unit, cluster, budgets, the part that was asked for, contracts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirab.core.charge import pools_for
from mirab.logs.alibaba import is_nodes_file, read_nodes
from mirab.logs.clusterfile import ClusterFile, read_cluster_file
from mirab.logs.contracts import Agreed, ContractRules
from mirab.logs.errors import LogError
from mirab.logs.fields import Memo
from mirab.logs.infer import (
    UNIT_NAMES,
    Period,
    infer_budgets,
    infer_cluster,
    layout,
    period_of,
    slots_of,
    unit_of,
)
from mirab.logs.intake import Intake, Job
from mirab.logs.moments import Calendar
from mirab.logs.nodeevents import read_node_events
from mirab.logs.options import LoadOptions
from mirab.logs.reshape import multiply, window
from mirab.model.accounts import Budgets
from mirab.model.events import BudgetsChanged
from mirab.model.resources import Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import DAY, AccountPath, Duration, UserName, WorkloadId, plural
from mirab.model.workloads import Arrival, NodeTrouble, Workload

NO_SLOTS = {
    "gpu": "asks for no GPU (replay cores with --unit cpu)",
    "cpu": "asks for no cores",
    "node": "number of nodes unknown",
}
SHARES_SHOWN = 12


def read_given(options: LoadOptions, calendar: Calendar) -> tuple[ClusterFile | None, list[str]]:
    """The cluster file, read before the log so that its mistakes show at once, and notes about it."""
    if options.cluster is None:
        return None, []
    if is_nodes_file(options.cluster):
        cluster, notes = read_nodes(options.cluster, options.unit or "gpu")
        return ClusterFile(options.cluster, cluster), notes
    return read_cluster_file(options.cluster, calendar), []


def assemble(intake: Intake, options: LoadOptions, given: ClusterFile | None, calendar: Calendar, name: str) -> Trace:
    """The trace of the jobs that an importer found.

    Raises:
        LogError: no job can be used, or the options do not fit the log.
    """
    unit = _choose_unit(intake, options, given)
    cluster = _choose_cluster(intake, given, unit)
    _keep_with_slots(intake, unit, cluster)
    budgets = _choose_budgets(intake, given, unit)
    if given is not None:
        given.check_pools(cluster)
    whole = period_of(intake.jobs)
    zero = _instant_zero(intake, whole, calendar)
    period = window(intake, options, whole, zero, calendar)
    start = zero if options.from_ is None else period.begin
    multiply(intake, options, period)
    plan = _placed(intake, zero, start, period)
    budgets, changes = _changes(given, budgets, plan)
    troubles = _troubles(intake, options, cluster, plan)
    made = _Maker(options.contract, cluster, unit, start, given is not None and given.cluster is not None)
    arrivals = made.arrivals(intake.jobs)
    intake.notes += made.notes(options.contract, unit)
    intake.notes += _unknown_accounts(arrivals, budgets, given)
    return Trace(
        arrivals=arrivals,
        cluster=cluster,
        budgets=budgets,
        troubles=troubles,
        budget_changes=changes,
        reservations=given.reservations(plan.origin, plan.shift) if given else (),
        exemptions=given.exemptions(plan.origin, plan.shift) if given else (),
        name=name,
        origin=start if intake.unix_times else None,
        starts_at=plan.period.begin,
        ends_at=plan.period.end,
        shift=plan.shift,
        notes=tuple(intake.notes),
        rows=intake.rows,
        dropped=dict(sorted(intake.dropped.items())),
    )


class _Placement(NamedTuple):
    """Where the replay lies on the clock of the files beside the log.

    Attributes:
        origin: Unix milliseconds from which their durations count; None = the log has no calendar, and they count on
            its own clock.
        shift: the replay's instant 0 on that clock.
        period: on the replay's clock.
    """

    origin: int | None
    shift: Duration
    period: Period


def _placed(intake: Intake, zero: int, start: int, period: Period) -> _Placement:
    moved = Period(period.begin - start, period.end - start)
    return _Placement(zero, start - zero, moved) if intake.unix_times else _Placement(None, start, moved)


def no_jobs(intake: Intake, cut_short: str) -> LogError:
    """The sentence for a log of which nothing can be used; `cut_short`: how it was damaged, empty = not."""
    if not intake.rows and cut_short:
        return LogError(f"has no rows, and {cut_short}", remedy="fetch it again")
    if not intake.rows:
        return LogError("has no rows", remedy="give a log with at least one job")
    reasons = "; ".join(
        f"{number:,} x {reason} (line {lines[0]})" for reason, (number, lines) in sorted(intake.dropped.items())
    )
    what = f"none of its {intake.rows:,} rows can" if intake.rows > 1 else "its only row cannot"
    unrun = all("run time" in reason for reason in intake.dropped)
    remedy = (
        "give a log of jobs that have run, with how long" if unrun else "mend these lines, or choose another --form"
    )
    return LogError(f"{what} be used as {intake.form}: {reasons}", remedy=remedy)


def _choose_unit(intake: Intake, options: LoadOptions, given: ClusterFile | None) -> str:
    if options.unit is not None:
        return options.unit
    cluster = given.cluster if given else None
    if cluster is not None:
        if cluster.unit == "cpu":
            intake.notes.append("unit: cores, as the cluster file has no GPUs")
        return cluster.unit
    unit = unit_of(intake.jobs)
    if unit != "gpu":
        with_gpus = sum(1 for job in intake.jobs if job.gpus)
        few = (
            f"only {with_gpus:,} of {plural(len(intake.jobs), 'job')} ask for GPUs"
            if with_gpus
            else "the log has no GPUs"
        )
        intake.notes.append(f"unit: {UNIT_NAMES[unit]}s, as {few} (--unit gpu, cpu or node to choose)")
    return unit


def _choose_cluster(intake: Intake, given: ClusterFile | None, unit: str) -> Cluster:
    if given is not None and given.cluster is not None:
        return _in_unit(given.cluster, unit, given)
    usable = [job for job in intake.jobs if slots_of(unit)(job)]
    if not usable:
        raise LogError(f"no job asks for {UNIT_NAMES[unit]}s", remedy="choose another --unit")
    cluster, notes = infer_cluster(replace(intake, jobs=usable), unit)
    intake.notes += notes
    if given is not None:
        given.check_nodes(cluster)
    return cluster


def _in_unit(cluster: Cluster, unit: str, given: ClusterFile) -> Cluster:
    """The cluster with slots of that unit: cores or whole nodes become what GPUs are otherwise."""
    if unit == "gpu":
        if not any(pool.gpus_per_node for pool in cluster.pools):
            raise LogError("has no pool with GPUs", given.path, remedy="choose --unit cpu or node")
        return cluster
    pools = []
    for pool in cluster.pools:
        slots = 1 if unit == "node" else pool.cpus_per_node
        if not slots:
            raise LogError(f"pool {pool.name} has no cpus_per_node", given.path, remedy="add it, or choose --unit node")
        pools.append(replace(pool, gpus_per_node=slots, cpus_per_node=0))
    return Cluster(cluster.name, tuple(pools), unit)


def _keep_with_slots(intake: Intake, unit: str, cluster: Cluster) -> None:
    """Drop the jobs that ask for none of what is shared out; work on cores stays where a CPU pool can take it."""
    slots = slots_of(unit)
    cores_welcome = unit == "gpu" and any(not pool.gpus_per_node for pool in cluster.pools)
    kept = []
    for job in intake.jobs:
        if slots(job) or (cores_welcome and job.cpus):
            kept.append(job)
        else:
            intake.drop(job.line, NO_SLOTS[unit])
    if not kept:
        raise LogError(f"no job asks for {UNIT_NAMES[unit]}s", remedy="choose another --unit")
    intake.jobs = kept


def _choose_budgets(intake: Intake, given: ClusterFile | None, unit: str) -> Budgets:
    if given is not None and given.budgets is not None:
        return given.budgets
    budgets = infer_budgets(intake.jobs, unit)
    if given is not None:
        given.check_accounts(budgets)
    whole = [(path, share) for path, budget, share in budgets.walk() if not budget.children]
    whole.sort(key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{path} {share / 10**7:.1f}%" for path, share in whole[:SHARES_SHOWN])
    more = f" and {len(whole) - SHARES_SHOWN} more" if len(whole) > SHARES_SHOWN else ""
    intake.notes.append(f"budgets inferred from the {UNIT_NAMES[unit]}-time that each account used: {shown}{more}")
    users = {job.user for job in intake.jobs}
    if len(whole) == 1 and len(users) > 1:
        intake.notes.append(f"one account has everything, and so nothing is shared: its {len(users):,} users could be "
                            "the accounts (--account-by user)")  # fmt: skip
    return budgets


def _instant_zero(intake: Intake, whole: Period, calendar: Calendar) -> int:
    """Instant 0 on the clock of the jobs: midnight before the first submission, or the log's own start."""
    if intake.unix_times:
        zero = calendar.midnight(whole.begin)
        intake.notes.append(
            f"submissions from {calendar.text(whole.begin)} to {calendar.text(whole.end)} {calendar.name}"
        )
        return zero
    return whole.begin // DAY * DAY


def _changes(
    given: ClusterFile | None, budgets: Budgets, plan: _Placement
) -> tuple[Budgets, tuple[BudgetsChanged, ...]]:
    """The budgets in force at instant 0, and the later changes."""
    changes = given.budget_changes(plan.origin, plan.shift) if given else ()
    for change in changes:
        if change.at <= 0:
            budgets = change.budgets
    return budgets, tuple(change for change in changes if change.at > 0)


def _troubles(intake: Intake, options: LoadOptions, cluster: Cluster, plan: _Placement) -> tuple[NodeTrouble, ...]:
    if options.node_events is None:
        return ()
    names = [node for pool in cluster.pools for node in pool.nodes]
    troubles, notes = read_node_events(options.node_events, names, plan.origin)
    intake.notes += notes
    moved = [replace(trouble, at=trouble.at - plan.shift) for trouble in troubles] if plan.shift else troubles
    early = sum(1 for trouble in moved if trouble.at < 0)
    if early:
        intake.notes.append(f"node events before the replay's start, not used: {early:,}")
    return tuple(trouble for trouble in moved if trouble.at >= 0)


def _unknown_accounts(arrivals: list[Arrival], budgets: Budgets, given: ClusterFile | None) -> list[str]:
    """A note about accounts without a budget; LogError if no account of the log has one."""
    if given is None or given.budgets is None:
        return []
    known = {str(path) for path, _, _ in budgets.walk()}
    unknown: dict[str, int] = {}
    for arrival in arrivals:
        account = arrival.workload.account
        if account not in known:
            unknown[account] = unknown.get(account, 0) + 1
    names = sorted(unknown, key=lambda name: (-unknown[name], name))
    shown = ", ".join(names[:SHARES_SHOWN]) + (", ..." if len(names) > SHARES_SHOWN else "")
    total = sum(unknown.values())
    if total == len(arrivals):
        raise LogError(
            f"has no budget for any account of the log ({shown})",
            given.path,
            remedy="choose another --account-by, or leave out budgets: to have them inferred",
        )
    what = f"accounts without a budget: {shown} ({plural(total, 'arrival')})"
    return [f"{what}; the policy's unknown_accounts says what becomes of them"] if total else []


@dataclass(slots=True)
class _Made:
    shape: Shape
    agreed: Agreed


class _Maker:
    """Makes arrivals of jobs; equal requests share one `Shape`."""

    def __init__(self, rules: ContractRules, cluster: Cluster, unit: str, start: int, bounded: bool) -> None:
        self.rules, self.cluster, self.unit, self.start = rules, cluster, unit, start
        self.slots = slots_of(unit)
        self.bounded = bounded
        self.layouts: Memo[tuple[int, int, tuple[str, ...]], tuple[int, int]] = Memo(lambda key: self._layout(*key))
        self.shapes: Memo[Shape, Shape] = Memo(lambda shape: shape)
        self.made: dict[tuple[object, ...], _Made] = {}
        self.rounded = self.ruled = 0

    def arrivals(self, jobs: list[Job]) -> list[Arrival]:
        """All arrivals in order of submission and id. Empties `jobs`, so that nothing is held twice."""
        jobs.sort(reverse=True)
        arrivals: list[Arrival] = []
        made, start, patterns = self.made, self.start, bool(self.rules.rules)
        while jobs:
            job = jobs.pop()
            key: tuple[object, ...] = (
                job.nodes,
                job.gpus,
                job.cpus,
                job.memory_mib,
                job.gpu_types,
                job.limit,
                job.terms,
            )
            if patterns:
                key += (job.account, job.user, job.label, job.name)
            known = made.get(key)
            if known is None:
                known = made[key] = self._make(job)
            shape, agreed = known.shape, known.agreed
            if job.terms.min_runtime is None:
                self.ruled += 1
            workload = Workload(
                WorkloadId(job.id), job.submitted - start, AccountPath(job.account), UserName(job.user), shape,
                agreed.label if patterns else job.label, agreed.checkpoint, agreed.restart, agreed.resume,
                job.priority, job.preemptible, None if job.deadline is None else job.deadline - start,
            )  # fmt: skip
            arrivals.append(Arrival(workload, job.run, job.cancel_after))
        return arrivals

    def _make(self, job: Job) -> _Made:
        total = self.slots(job)
        if total:
            nodes, per_node = self.layouts[job.nodes, total, job.gpu_types]
        else:
            nodes, per_node = job.nodes or 1, 0
        agreed = self.rules.agree(job.account, job.user, job.label, total or job.cpus, job.terms, job.limit, job.name)
        bounded = self.bounded and self.unit == "gpu"
        shape = Shape(
            nodes, per_node, -(-job.cpus // nodes) if bounded else 0, -(-job.memory_mib // nodes) if bounded else 0,
            job.gpu_types if self.unit == "gpu" else (), agreed.min_runtime, job.limit, agreed.grace,
        )  # fmt: skip
        return _Made(self.shapes[shape], agreed)

    def _layout(self, nodes: int, total: int, types: tuple[str, ...]) -> tuple[int, int]:
        sizes = [pool.gpus_per_node for pool in self._accepting(types) if pool.gpus_per_node]
        placed = layout(nodes, total, max(sizes, default=total))
        if placed[0] * placed[1] != total:
            self.rounded += 1
        return placed

    def _accepting(self, types: tuple[str, ...]) -> Iterable[Pool]:
        return (pool for pool in self.cluster.pools if not types or pool.gpu_type in types)

    def notes(self, rules: ContractRules, unit: str) -> list[str]:
        """What was assumed about contracts and sizes."""
        notes = (
            [f"arrivals without a contract of their own: {self.ruled:,}; {rules.sentence(unit)}"] if self.ruled else []
        )
        if self.rounded:
            notes.append(f"sizes rounded up, as they do not divide equally over nodes: {self.rounded:,}")
        misfits = [made.shape for made in self.made.values() if not pools_for(made.shape, self.cluster)]
        if misfits:
            largest = max(misfits, key=lambda shape: (shape.gpus, shape.nodes))
            notes.append(
                f"kinds of request that fit no pool of the cluster and will be refused: {len(misfits):,}, "
                f"the largest {largest.nodes} x {largest.gpus_per_node} {UNIT_NAMES[unit]}s"
            )
        return notes
