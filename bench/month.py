"""A month of a live service, made in minutes: a synthetic log goes through the very scheduler into the service's store.

    python -m bench.month FOLDER [--nodes 1024] [--days 30] [--seed 1]

The last record is of now, so that `mirab serve --state-dir FOLDER --backend null` goes on from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, time

from mirab.model.events import Event, WorkloadSubmitted
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.records import Beginning, JobSpec
from mirab.model.trace import Trace
from mirab.model.units import MINUTE, SECOND, Duration, Instant, WorkloadId
from mirab.model.workloads import Arrival
from mirab.service.recover import Wanted, recover
from mirab.sim.backend import SimBackend, SimClock, SimOptions
from mirab.sim.engine import drive
from mirab.sim.synthetic import SynthOptions, synthesize
from mirab.store import Store, open_store

REFERENCE_NODES = 128


class Written:
    """A journal that goes into the store, with a specification for each job that comes in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.records = 0

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        came = [each.workload for each in facts if isinstance(each, WorkloadSubmitted)]
        specs = [
            JobSpec(each.id, each.label or "train", ("sleep", "3600"), account=each.account, user=each.user)
            for each in came
        ]
        self._store.append(facts, plan, specs)
        self.records += 1


def moved(trace: Trace, base: Instant) -> Trace:
    """The same, begun at an instant of the calendar; jobs are numbered as the service numbers them."""
    arrivals = [_moved(arrival, number, base) for number, arrival in enumerate(trace.arrivals, 1)]
    troubles = [replace(each, at=each.at + base) for each in trace.troubles]
    return replace(
        trace, arrivals=arrivals, troubles=troubles, starts_at=trace.starts_at + base, ends_at=trace.ends_at + base
    )


def _moved(arrival: Arrival, number: int, base: Instant) -> Arrival:
    old = arrival.workload
    workload = replace(old, id=WorkloadId(str(number)), submitted_at=old.submitted_at + base)
    return replace(arrival, workload=workload)


def month(folder: Path, nodes: int, days: int, seed: int = 1, cadence: Duration = 10 * SECOND) -> int:
    """Fill the store of a state folder; returns the number of its records."""
    size = max(1, nodes // REFERENCE_NODES)
    return lived(folder, synthesize(SynthOptions(nodes=nodes, days=days, seed=seed, size_scale=size)), cadence)


def lived(folder: Path, log: Trace, cadence: Duration = 10 * SECOND) -> int:
    """The same with any log that begins at 0: it ends now."""
    now = round(time() * SECOND)
    base = now - log.ends_at
    trace = moved(log, base)
    store = open_store(f"sqlite:///{folder}/mirab.db")
    try:
        store.lead()
        state = recover(store, Wanted(), Beginning(trace.cluster, trace.budgets, Policy(), base)).state
        clock, journal = SimClock(base), Written(store)
        world = SimBackend(trace, clock, SimOptions())
        drive(state, clock, world, journal, cadence=cadence, until=now - MINUTE)
        store._reserve(len(trace.arrivals) + 1)  # those that come in later have numbers of their own
        return journal.records
    finally:
        store.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1_024)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    begun = perf_counter()
    records = month(given.folder, given.nodes, given.days, given.seed)
    print(f"{records:,} records of {given.days} days, {given.nodes:,} nodes, in {perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
