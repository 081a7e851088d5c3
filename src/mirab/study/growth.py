"""A cluster that grows under the books: more nodes, more pools, other weights. What is owed from now on changes."""

from __future__ import annotations

from collections.abc import Iterable

from mirab.model.accounts import Budgets
from mirab.model.resources import Cluster
from mirab.model.trace import Trace
from mirab.model.units import NodeName
from mirab.study.subjects import Job
from mirab.study.whereabouts import Whereabouts

NOBODY = Budgets(())


def grown(old: Whereabouts, cluster: Cluster, sick: Iterable[str]) -> Whereabouts:
    """The same workloads, runs and leaves on the larger cluster."""
    new = Whereabouts(Trace((), cluster, NOBODY, starts_at=old.clock))
    new.ledger, new.jobs, new.runs, new.reservations = old.ledger, old.jobs, old.runs, old.reservations
    for node in sick:
        new.usage.set_health(NodeName(node), up=False)
    for run in new.runs.values():
        new.usage.pools[run.pool].take(run.start.allocation)
    new.ledger.set_cluster(cluster, new.usage.charge_capacity(), new.clock)
    for job in new.jobs.values():
        _ask_again(new, job)
    new.ledger.set_capacity(new.usage.charge_capacity(), new.clock)
    return new


def _ask_again(where: Whereabouts, job: Job) -> None:
    """Its demand, by the pools that would do now; what runs keeps the rate that it was started with."""
    before = job.ask
    leaf, after = where.place(job, job.run)
    wanted = job.waiting or job.run is not None
    if wanted:
        _want(where, job, -1)
    if leaf is not job.leaf:
        where.transfer(job, leaf)
    job.ask = after
    if job.waiting:
        if before.charged:
            job.leaf.pending_rate += after.rate - job.rate
            where.usage.wait(after.pools, after.size)
        job.rate, job.slots = after.rate, after.waiting_slots
    if wanted:
        _want(where, job, +1)
    elif after.pools and not before.pools:
        where.join(job)


def _want(where: Whereabouts, job: Job, sign: int) -> None:
    job.leaf.settle(where.clock)
    if job.ask.charged:
        job.leaf.wanted.add(job.ask.accepted, sign * job.rate)
    if job.slots and sign > 0:
        where.usage.wanted.add(job.ask.counted, job.slots)
