"""A small made-up replay, written as a record: one gang that waits behind its own work, is stopped, and finishes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Event, Outcome, RunEnded, RunStarted, WorkloadCancelled, WorkloadSubmitted
from mirab.model.plans import Plan, Preempt, Reject, Start, Waiting
from mirab.model.policy import Policy
from mirab.model.reasons import (
    HoldDue,
    HoldsNodes,
    InOrder,
    NeverFits,
    NoFreeGpus,
    PreemptedFor,
    ShareSpent,
    VictimsGone,
)
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.trace import Trace
from mirab.model.units import HOUR, MINUTE, WHOLE, AccountPath, Instant, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.study.journalfile import JournalFile

NODES = tuple(NodeName(f"n{number:03}") for number in range(8))
CLUSTER = Cluster("small", (Pool("h100", NODES, 8, "h100"),))
BUDGETS = Budgets((Budget("language", WHOLE // 2), Budget("vision", WHOLE // 2)))
TRACE = Trace((), CLUSTER, BUDGETS, name="a small log", ends_at=72 * HOUR)
GANG = Shape(4, 8, min_runtime=2 * HOUR, time_limit=12 * HOUR)
SMALL = Shape(1, 2, min_runtime=15 * MINUTE)


def workload(name: str, account: str, shape: Shape, at: Instant, user: str = "ana", **more: Any) -> Workload:
    return Workload(WorkloadId(name), at, AccountPath(account), UserName(user), shape, **more)


def submitted(*workloads: Workload) -> list[Event]:
    return [WorkloadSubmitted(each.submitted_at, each) for each in workloads]


def started(name: str, attempt: int, mask: int, reason: Any, slots: int = 8, minimum: int = 2 * HOUR) -> Start:
    run = RunId(f"{name}.{attempt}")
    return Start(run, WorkloadId(name), Allocation(0, mask, slots), minimum, reason, resumed=attempt > 1)


def waits(first: Workload, reason: Any, again_at: Instant = 0) -> Waiting:
    return Waiting(first.account, first.user, first.shape, first.id, reason, again_at)


def ended(at: Instant, name: str, attempt: int, outcome: Outcome, lost: int = 0) -> RunEnded:
    return RunEnded(at, RunId(f"{name}.{attempt}"), outcome, lost)


def preempted(name: str, attempt: int, beneficiary: str, account: str, lost: int) -> Preempt:
    reason = PreemptedFor(WorkloadId(beneficiary), AccountPath(account), 0.71, 1.24, lost)
    return Preempt(RunId(f"{name}.{attempt}"), 10_000, reason)


def small_record(path: Path) -> list[tuple[list[Event], Plan]]:
    """Writes the record and returns what was recorded.

    `big` waits behind `older`, starts on held nodes, is stopped for `rival`, resumes and finishes.
    """
    older = workload("older", "language", GANG, 0)
    big = workload("big", "language", GANG, 1 * HOUR, label="train", checkpoint=HOUR)
    rival = workload("rival", "vision", GANG, 9 * HOUR, user="bo")
    passer = workload("passer", "vision", SMALL, 2 * HOUR, user="bo")
    dreamer = workload("dreamer", "vision", Shape(99, 8), 2 * HOUR, user="bo")
    quitter = workload("quitter", "vision", SMALL, 2 * HOUR, user="cy")
    no_room = NoFreeGpus(4, 8, 3, 30, 0, 3 * HOUR)
    vision = AccountPath("vision")
    in_order = InOrder(vision, 0.66, True)
    journal = JournalFile(path, TRACE, Policy())
    step = _Steps(journal)
    step(0, submitted(older), waiting=[waits(older, no_room)])
    step(1 * HOUR, submitted(big))
    step(
        2 * HOUR,
        submitted(passer, dreamer, quitter),
        [started("passer", 1, 1, in_order, 2, 15 * MINUTE), Reject(WorkloadId("dreamer"), NeverFits(99, 8, (), 8, 8))],
        [waits(older, ShareSpent(1.31, vision, 0.66, 3)), waits(quitter, no_room)],
    )
    step(
        3 * HOUR,
        [RunStarted(2 * HOUR, RunId("passer.1")), WorkloadCancelled(3 * HOUR, WorkloadId("quitter"))],
        [started("older", 1, 0b1111, HoldDue(HOUR))],
        [waits(big, ShareSpent(1.44, vision, 0.7, 4))],
    )
    step(4 * HOUR, [RunStarted(3 * HOUR, RunId("older.1"))], [], [waits(big, HoldsNodes(5 * HOUR, 4))])
    step(5 * HOUR, [], [started("big", 1, 0b10110011, HoldDue(4 * HOUR))])
    step(
        9 * HOUR,
        [RunStarted(5 * HOUR, RunId("big.1")), *submitted(rival)],
        [preempted("big", 1, "rival", "vision", 24 * HOUR)],
    )
    step(
        9 * HOUR + 10_000,
        [ended(9 * HOUR + 10_000, "big", 1, Outcome.PREEMPTED, lost=45 * MINUTE)],
        [started("rival", 1, 0b10110011, VictimsGone(1))],
        [waits(big, no_room)],
    )
    step(
        10 * HOUR,
        [ended(10 * HOUR, "older", 1, Outcome.COMPLETED)],
        [started("big", 2, 0b1111, InOrder(AccountPath("language"), 0.98, True))],
    )
    step(12 * HOUR, [RunStarted(10 * HOUR, RunId("big.2")), ended(12 * HOUR, "big", 2, Outcome.COMPLETED)])
    journal.close()
    return step.cycles


class _Steps:
    """Appends one cycle a call, with the serial number that plans carry."""

    def __init__(self, journal: JournalFile) -> None:
        self._journal = journal
        self._folded = 0
        self.cycles: list[tuple[list[Event], Plan]] = []

    def __call__(self, at: Instant, facts: list[Event], actions: Any = (), waiting: Any = ()) -> None:
        self._folded += len(facts)
        plan = Plan(at, self._folded, tuple(actions), (), tuple(waiting), at + MINUTE)
        self._journal.append(facts, plan)
        self.cycles.append((facts, plan))
