"""Work under a minimum and work without one, apart: how long each waited, and how much of it never started.

Without a minimum work is not charged, and takes what no charged work can use. Counted together, a class of which a
tenth never starts looks as if anybody of it had to fear that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from mirab.model.resources import Cluster
from mirab.model.units import HOUR, Duration, WorkloadId
from mirab.model.workloads import Arrival
from mirab.study.demand import CLASSES, Asks, class_of
from mirab.study.subjects import Job
from mirab.study.waits import Waits

CONTRACTS = ("charged", "uncharged")

Work: TypeAlias = dict[tuple[str, str], tuple[int, int]]
"""By contract and class: slot-milliseconds of work that came in, and that of workloads that never started."""


class ByContract:
    """Waits by contract and class, and who never started."""

    def __init__(self) -> None:
        self._waits = {name: Waits() for name in CONTRACTS}
        self._unstarted: dict[WorkloadId, None] = {}

    def add(self, job: Job, span: Duration, *, reached: bool) -> None:
        """One workload's wait, until its first start if it `reached` that."""
        self._waits[_contract(job.ask.charged)].add(job.kind, span, reached=reached)
        if not reached:
            self._unstarted[job.workload.id] = None

    def copy(self) -> ByContract:
        twin = ByContract()
        twin._waits = {name: waits.copy() for name, waits in self._waits.items()}
        twin._unstarted = dict(self._unstarted)
        return twin

    def summary(self, arrivals: Iterable[Arrival], cluster: Cluster) -> dict[str, Any]:
        """The `by_contract` part of the report. What work came in only a log knows: without `arrivals` it is absent."""
        work = self._work(arrivals, cluster)
        return {
            contract: {
                name: row | _in_hours(work.get((contract, name), (0, 0)) if work else None)
                for name, row in waits.summary(waits.sorted_spans()).items()
            }
            for contract, waits in self._waits.items()
        }

    def _work(self, arrivals: Iterable[Arrival], cluster: Cluster) -> Work:
        asks, found = Asks(cluster), Work()
        for arrival in arrivals:
            workload = arrival.workload
            ask = asks.of(workload.shape)
            amount = ask.waiting_slots * arrival.run
            lost = amount if workload.id in self._unstarted else 0
            for name in (CLASSES[0], class_of(workload, ask)):
                key = (_contract(ask.charged), name)
                asked, unstarted = found.get(key, (0, 0))
                found[key] = asked + amount, unstarted + lost
        return found


def _contract(charged: bool) -> str:
    return CONTRACTS[0 if charged else 1]


def _in_hours(work: tuple[int, int] | None) -> dict[str, float | None]:
    asked, unstarted = work or (None, None)
    return {"work": _hours(asked), "work_unstarted": _hours(unstarted)}


def _hours(amount: int | None) -> float | None:
    return None if amount is None else round(amount / HOUR, 3)
