"""What happened in a week beside the numbers: drains and repairs, squatters, decisions of people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from mirab.model import events as fact_of
from mirab.model import plans as plan_of
from mirab.model.accounts import Budgets
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.policy import Exemption, Reservation
from mirab.model.reasons import DrainedFrom
from mirab.model.resources import Cluster
from mirab.model.units import HOUR, SECOND, Duration, Instant, RunId, WorkloadId
from mirab.model.workloads import Workload

Json: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Silent:
    """A run that declared an interval: since when there was no sign, and what has been held beyond it."""

    workload: Workload
    gpus: int
    interval: Duration
    since: Instant
    beyond: Duration = 0
    longest: Duration = 0

    def sign(self, at: Instant, begin: Instant) -> None:
        """A sign of progress, or the end: the silence until now counts as far as it lies in the week."""
        silence = at - self.since
        if silence > self.interval:
            self.beyond += max(0, at - max(begin, self.since + self.interval))
            self.longest = max(self.longest, silence)
        self.since = at


class Diary:
    """Takes in the journal in order; what lies before `begin` is only remembered.

    Attributes:
        budgets: those in force after the last record.
        drains: nodes that fell sick in the week, and what became of each: when it was empty and back, how many runs
            were stopped for it, what these lost since they began or last told of a checkpoint, and whom it needed.
        changes: of the budgets, in the week.
    """

    def __init__(self, begin: Instant, end: Instant, cluster: Cluster, budgets: Budgets,
                 progress_of: Callable[[WorkloadId], Duration]) -> None:  # fmt: skip
        self._begin, self._end, self._cluster = begin, end, cluster
        self._progress_of = progress_of
        self.budgets = budgets
        self.drains: list[Json] = []
        self.changes: list[Json] = []
        self._open: dict[str, Json] = {}
        self._exceptions: dict[str, Exemption] = {}
        self._reservations: dict[str, Reservation] = {}
        self._workloads: dict[WorkloadId, Workload] = {}
        self._starts: dict[RunId, plan_of.Start] = {}
        self._safe: dict[RunId, tuple[int, Instant]] = {}
        self._stopped_for: dict[RunId, Json] = {}
        self._silent: dict[RunId, Silent] = {}
        self._squatted: list[tuple[RunId, Silent]] = []

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        for fact in facts:
            hear = _HEARERS.get(type(fact))
            if hear is not None:
                hear(self, fact)
        for action in plan.actions:
            self._see(action, plan.at)

    # --- nodes -------------------------------------------------------------------------------------------------------
    def _sick(self, fact: fact_of.NodeDegraded | fact_of.NodeDown) -> None:
        if fact.node in self._open:
            return
        found = {
            "node": fact.node, "cause": fact.cause, "at_s": fact.at / SECOND,
            "kind": "down" if isinstance(fact, fact_of.NodeDown) else "degraded",
            "empty_s": None, "back_s": None, "person": "", "stopped": 0, "lost_gpu_hours": 0.0,
        }  # fmt: skip
        self._open[fact.node] = found
        if self._begin <= fact.at <= self._end:
            self.drains.append(found)

    def _well(self, fact: fact_of.NodeUp) -> None:
        found = self._open.pop(fact.node, None)
        if found is not None:
            found["back_s"] = fact.at / SECOND

    def _see(self, action: plan_of.Action, at: Instant) -> None:
        if isinstance(action, plan_of.Start):
            self._starts[action.run_id] = action
        elif isinstance(action, plan_of.Repair) and action.node in self._open:
            self._open[action.node]["empty_s"] = at / SECOND
        elif isinstance(action, plan_of.CallHuman) and action.node in self._open:
            self._open[action.node]["person"] = action.why
        elif isinstance(action, plan_of.Preempt) and isinstance(action.reason, DrainedFrom):
            drain = self._open.get(action.reason.node)
            if drain is not None and action.run_id not in self._stopped_for:
                drain["stopped"] += 1
                self._stopped_for[action.run_id] = drain

    # --- squatters ---------------------------------------------------------------------------------------------------
    def _submitted(self, fact: fact_of.WorkloadSubmitted) -> None:
        self._workloads[fact.workload.id] = fact.workload

    def _started(self, fact: fact_of.RunStarted) -> None:
        start = self._starts.get(fact.run_id)
        if start is not None:
            self._safe[fact.run_id] = start.allocation.slots, fact.at
        workload = None if start is None else self._workloads.get(start.workload_id)
        if start is None or workload is None or not self._cluster.pools[start.allocation.pool].gpus_per_node:
            return
        interval = self._progress_of(workload.id)
        if interval:
            self._silent[fact.run_id] = Silent(workload, start.allocation.slots, interval, fact.at)

    def _adopted(self, fact: fact_of.RunAdopted) -> None:
        self._safe[fact.run_id] = fact.allocation.slots, fact.started_at

    def _checkpointed(self, fact: fact_of.RunCheckpointed) -> None:
        if fact.run_id in self._safe:
            self._safe[fact.run_id] = self._safe[fact.run_id][0], fact.at
        silent = self._silent.get(fact.run_id)
        if silent is not None:
            silent.sign(fact.at, self._begin)

    def _ended(self, fact: fact_of.RunEnded) -> None:
        start = self._starts.pop(fact.run_id, None)
        silent = self._silent.pop(fact.run_id, None)
        drain, (gpus, since) = self._stopped_for.pop(fact.run_id, None), self._safe.pop(fact.run_id, (0, fact.at))
        if drain is not None and fact_of.goes_back(fact.outcome, True):
            lost = fact.at - since if fact.lost is None else fact.lost
            drain["lost_gpu_hours"] = round(drain["lost_gpu_hours"] + gpus * max(0, lost) / HOUR, 3)
        if silent is not None and start is not None:
            silent.sign(fact.at, self._begin)
            if silent.beyond:
                self._squatted.append((fact.run_id, silent))
        if start is not None and not fact_of.goes_back(fact.outcome, True):
            self._workloads.pop(start.workload_id, None)

    def _grown(self, fact: fact_of.ClusterChanged) -> None:
        self._cluster = fact.cluster

    def squatters(self, now: Instant) -> list[Json]:
        """Runs that held GPUs in the week for longer than they said without a sign of progress, the most held first."""
        for run_id, silent in self._silent.items():
            silent.sign(now, self._begin)
            if silent.beyond:
                self._squatted.append((run_id, silent))
        found = [
            {
                "run": run_id, "user": each.workload.user, "account": each.workload.account, "gpus": each.gpus,
                "declared_s": each.interval / SECOND, "longest_s": each.longest / SECOND,
                "gpu_hours": round(each.gpus * each.beyond / HOUR, 3),
            }
            for run_id, each in self._squatted
        ]  # fmt: skip
        return sorted(found, key=lambda each: (-each["gpu_hours"], each["run"]))

    # --- decisions of people -----------------------------------------------------------------------------------------
    def _budgets_changed(self, fact: fact_of.BudgetsChanged) -> None:
        self.budgets = fact.budgets
        if self._begin <= fact.at <= self._end:
            self.changes.append({"at_s": fact.at / SECOND, "author": fact.author, "reason": fact.reason})

    def _granted(self, fact: fact_of.ExemptionGranted) -> None:
        self._exceptions[fact.exemption.id] = fact.exemption

    def _revoked(self, fact: fact_of.ExemptionRevoked) -> None:
        self._exceptions.pop(fact.exemption_id, None)

    def _approved(self, fact: fact_of.ReservationApproved) -> None:
        self._reservations[fact.reservation.id] = fact.reservation

    def _cancelled(self, fact: fact_of.ReservationCancelled) -> None:
        self._reservations.pop(fact.reservation_id, None)

    def exceptions(self, now: Instant, soon: Instant) -> list[Json]:
        """Exceptions and reservations that were in force in the week, or will be soon, the first to end first."""
        every = [("reservation", each) for each in self._reservations.values()]
        held: list[tuple[str, Exemption | Reservation]] = [
            *every,
            *((each.kind, each) for each in self._exceptions.values()),
        ]
        found = [
            {
                "id": each.id, "kind": kind, "account": each.account, "owner": each.owner, "approver": each.approver,
                "reason": each.reason, "begin_s": each.begin / SECOND, "end_s": each.end / SECOND,
                "standing": _standing(each, now, soon),
            }
            for kind, each in held
            if each.end > self._begin and each.begin < soon
        ]  # fmt: skip
        return sorted(found, key=lambda each: (each["end_s"], each["id"]))

    def reviews(self, until: Instant) -> list[Json]:
        """Budgets whose review is due by then, the longest due first."""
        day = datetime.fromtimestamp(until / SECOND, UTC).date().isoformat()
        due = [
            {"account": path, "review": each.review, "owner": each.owner, "hypothesis": each.hypothesis}
            for path, each, _ in self.budgets.walk()
            if each.review[:4].isdigit() and each.review[:10] <= day and not each.closed
        ]
        return sorted(due, key=lambda each: (each["review"], each["account"]))


def _standing(held: Exemption | Reservation, now: Instant, soon: Instant) -> str:
    if held.end <= now:
        return "ended"
    if held.begin > now:
        return "to come"
    return "ends soon" if held.end <= soon else "in force"


_HEARERS: dict[type, Callable[[Diary, Any], None]] = {
    fact_of.NodeDegraded: Diary._sick,
    fact_of.NodeDown: Diary._sick,
    fact_of.NodeUp: Diary._well,
    fact_of.WorkloadSubmitted: Diary._submitted,
    fact_of.RunStarted: Diary._started,
    fact_of.RunAdopted: Diary._adopted,
    fact_of.RunCheckpointed: Diary._checkpointed,
    fact_of.RunEnded: Diary._ended,
    fact_of.ClusterChanged: Diary._grown,
    fact_of.BudgetsChanged: Diary._budgets_changed,
    fact_of.ExemptionGranted: Diary._granted,
    fact_of.ExemptionRevoked: Diary._revoked,
    fact_of.ReservationApproved: Diary._approved,
    fact_of.ReservationCancelled: Diary._cancelled,
}
