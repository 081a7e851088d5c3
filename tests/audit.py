"""The rules judged from outside: only facts and plans are read, and nothing of the core is used.

An independent second opinion for properties and storms: it keeps its own books of who runs where since when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mirab.model.accounts import Budgets
from mirab.model.events import (
    ActionRefused,
    BudgetsChanged,
    Event,
    ExemptionGranted,
    ExemptionRevoked,
    NodeDegraded,
    NodeDown,
    NodeUp,
    RequeueRequested,
    RunContinued,
    RunEnded,
    RunStarted,
    RunSuspended,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from mirab.model.plans import Cancel, Hold, HoldReleased, Plan, Preempt, Reject, Repair, Resume, Start
from mirab.model.policy import Exemption, Policy
from mirab.model.reasons import (
    AccountClosed,
    DrainedFrom,
    GangTooLarge,
    PreemptedFor,
    ReservationBegins,
    StartTimedOut,
    UnknownAccount,
)
from mirab.model.resources import Allocation, Cluster, Pool, Shape, nodes_of
from mirab.model.units import AccountPath, Duration, Instant, NodeName, RunId, WorkloadId
from mirab.model.workloads import Workload
from tests.naive import caps, homes
from tests.naive.heirs import heir, heir_now


def _of(workload: Workload, account: str) -> Workload:
    return workload if workload.account == account else replace(workload, account=AccountPath(account))


@dataclass(slots=True)
class Seen:
    """A run as the audit knows it."""

    workload: Workload
    allocation: Allocation
    min_runtime: Duration
    requested_at: Instant
    started_at: Instant | None = None
    suspended_at: Instant | None = None
    suspended: Duration = 0
    told_to_stop: bool = False
    gone_by: Instant = 0
    stopped_for: WorkloadId | None = None

    def orphaned(self, now: Instant) -> bool:
        """Stopping, in time so far, and for nobody's sake: what it frees is free for all."""
        return self.told_to_stop and now <= self.gone_by and self.stopped_for is None

    def protected_at(self, now: Instant, start_timeout: Duration) -> bool:
        """Inside its minimum. A run that is not known to run is protected until it has failed to start."""
        if self.started_at is None:
            return now < self.requested_at + start_timeout
        if self.suspended_at is not None:
            return True
        return now < self.started_at + self.suspended + self.min_runtime


class Audit:
    """Fed with every decision; raises AssertionError at the first broken rule, with what was broken."""

    def __init__(self, cluster: Cluster, policy: Policy, budgets: Budgets) -> None:
        self.cluster, self.policy = cluster, policy
        self.saving = {path for path, budget, _ in budgets.walk() if budget.save_for_gangs}
        self.open = {path for path, _, _ in budgets.walk() if not budgets.is_closed(path)}
        self.budgets = budgets
        self.exemptions: dict[str, Exemption] = {}
        self.runs: dict[RunId, Seen] = {}
        self.workloads: dict[WorkloadId, Workload] = {}
        self.waiting: set[WorkloadId] = set()
        self.cancelled: set[WorkloadId] = set()
        self.recalled: set[WorkloadId] = set()
        self.judged: set[WorkloadId] = set()
        self.holds: dict[WorkloadId, Hold] = {}
        self.sick: set[NodeName] = set()
        self.preemptions = 0
        self._stopped_for: dict[RunId, WorkloadId] = {}

    def see(self, facts: Sequence[Event], plan: Plan) -> None:
        for fact in facts:
            self._fact(fact)
        self._stopped_for = {
            action.run_id: action.reason.beneficiary
            for action in plan.actions
            if isinstance(action, Preempt) and isinstance(action.reason, PreemptedFor) and not action.reason.hold
        }
        assert plan.wake_at is None or plan.wake_at > plan.at, f"wakes at {plan.wake_at}, decided at {plan.at}"
        for change in plan.holds:
            if isinstance(change, Hold):
                self._hold(change, plan)
            elif isinstance(change, HoldReleased):
                self.holds.pop(change.workload_id, None)
        self._actions(plan)
        self._all_judged(plan)
        self._none_kept_in_vain(plan)
        if self.policy.contract:
            self._nothing_idles(plan)

    def _actions(self, plan: Plan) -> None:
        """Stops first: what they free is given away by the same plan only as a claim."""
        for action in plan.actions:
            if isinstance(action, Resume):
                self.sick.discard(action.node)
            elif isinstance(action, Preempt):
                self._preempt(action, plan)
            elif isinstance(action, Cancel):
                self._cancel(action, plan)
        for action in plan.actions:
            if isinstance(action, Start):
                self._start(action, plan)
            elif isinstance(action, Reject):
                self._reject(action)
            elif isinstance(action, Repair):
                assert not self._on(action.node), f"{action.node} goes to repair with {self._on(action.node)} on it"

    # --- facts
    def _fact(self, fact: Event) -> None:
        if isinstance(fact, WorkloadSubmitted):
            account = heir_now(fact.workload.account, self.budgets)
            self.workloads[fact.workload.id] = _of(fact.workload, account)
            self.waiting.add(fact.workload.id)
        elif isinstance(fact, WorkloadCancelled):
            self.waiting.discard(fact.workload_id)
            self.cancelled.add(fact.workload_id)
            self.holds.pop(fact.workload_id, None)
        elif isinstance(fact, RequeueRequested):
            if any(run.workload.id == fact.workload_id for run in self.runs.values()):
                self.recalled.add(fact.workload_id)
        elif isinstance(fact, BudgetsChanged):
            self._budgets(fact.budgets)
        elif isinstance(fact, ExemptionGranted):
            self.exemptions[fact.exemption.id] = fact.exemption
        elif isinstance(fact, ExemptionRevoked):
            self.exemptions.pop(fact.exemption_id, None)
        elif isinstance(fact, NodeDegraded | NodeDown):
            self.sick.add(fact.node)
        elif isinstance(fact, NodeUp):
            self.sick.discard(fact.node)
        elif isinstance(fact, RunStarted | RunEnded | RunSuspended | RunContinued | ActionRefused):
            self._run_fact(fact)

    def _budgets(self, after: Budgets) -> None:
        """Accounts are renamed with all that is known of them."""
        before, self.budgets = self.budgets, after
        self.open = {path for path, _, _ in after.walk() if not after.is_closed(path)}
        self.saving |= {path for path, budget, _ in after.walk() if budget.save_for_gangs}
        self.saving |= {AccountPath(heir(path, before, after)) for path in self.saving}
        for name, workload in self.workloads.items():
            self.workloads[name] = _of(workload, heir(workload.account, before, after))
        for run in self.runs.values():
            run.workload = self.workloads[run.workload.id]
        for key, exemption in self.exemptions.items():
            self.exemptions[key] = replace(exemption, account=heir(exemption.account, before, after))

    def _home(self, workload: Workload, now: Instant) -> str:
        """The ledger in which the workload may run."""
        extra = [
            each for each in self.exemptions.values() if each.kind == "extra-share" and each.begin <= now < each.end
        ]
        return homes.home(self.budgets, self.cluster, workload, extra)

    def _run_fact(self, fact: RunStarted | RunEnded | RunSuspended | RunContinued | ActionRefused) -> None:
        run = self.runs.get(fact.run_id)
        if run is None:
            return
        if isinstance(fact, RunStarted):
            run.started_at = fact.at if run.started_at is None else run.started_at
        elif isinstance(fact, RunSuspended):
            run.suspended_at = fact.at
        elif isinstance(fact, RunContinued) and run.suspended_at is not None:
            run.suspended += fact.at - run.suspended_at
            run.suspended_at = None
        elif isinstance(fact, RunEnded):
            self._gone(fact.run_id, fact.outcome.value)
        elif isinstance(fact, ActionRefused) and fact.action == "start":
            if run.started_at is None:
                self._gone(fact.run_id, "LAUNCH_FAILED")
        elif isinstance(fact, ActionRefused):
            run.told_to_stop = False
            self._claim_fails(run)

    def _claim_fails(self, run: Seen) -> None:
        """Nodes claimed for somebody are his no more once one of the runs on them will not go."""
        hold = self.holds.get(run.stopped_for) if run.stopped_for is not None else None
        if hold is not None and hold.claim:
            del self.holds[hold.workload_id]

    def _gone(self, run_id: RunId, outcome: str) -> None:
        run = self.runs.pop(run_id)
        wants = run.workload.resume or run.workload.id in self.recalled
        self.recalled.discard(run.workload.id)
        again = outcome in ("LAUNCH_FAILED", "REQUEUED") or (outcome in ("PREEMPTED", "NODE_FAIL") and wants)
        if again and run.workload.id not in self.cancelled:
            self.waiting.add(run.workload.id)

    # --- decisions
    def _start(self, action: Start, plan: Plan) -> None:
        workload = self.workloads[action.workload_id]
        assert action.workload_id in self.waiting, f"{action.workload_id} was not waiting and is started"
        assert action.run_id not in self.runs, f"{action.run_id} is started twice"
        pool = self.cluster.pools[action.allocation.pool]
        _whole(workload.shape, action.allocation, pool)
        home = self._home(workload, plan.at)
        assert homes.ledger_at(self.budgets, pool) == home, f"{action.run_id} starts in {pool.name}, not in {home}"
        for number in nodes_of(action.allocation.mask):
            node = pool.nodes[number]
            assert node not in self.sick, f"{action.run_id} is started on {node}, which is sick"
            used = sum(self.runs[run_id].allocation.slots_per_node for run_id in self._on(node))
            assert used + action.allocation.slots_per_node <= pool.slots_per_node, f"{node} is over-full"
        if workload.shape.gpus:
            over = caps.broken(self.budgets, workload, (run.workload for run in self.runs.values()))
            assert not over, f"{action.run_id} is started and {over} is at its cap"
            assert workload.shape.gpus <= caps.largest(self.budgets, workload.account), f"{action.run_id} is too large"
        self.waiting.discard(workload.id)
        self.holds.pop(workload.id, None)
        self.runs[action.run_id] = Seen(workload, action.allocation, action.min_runtime, plan.at)
        declared = workload.shape.min_runtime
        assert action.min_runtime <= declared, f"{action.run_id} gets a longer minimum than it declared"

    def _told_to_stop(self, action: Preempt | Cancel, plan: Plan) -> Seen:
        run = self.runs.get(action.run_id)
        assert run is not None, f"{action.run_id} is told to stop and is not running"
        assert not run.told_to_stop, f"{action.run_id} is told to stop twice"
        run.told_to_stop = True
        run.gone_by = plan.at + action.grace
        assert action.grace <= self.policy.grace_max, f"{action.run_id} gets a notice of {action.grace} ms"
        return run

    def _cancel(self, action: Cancel, plan: Plan) -> None:
        """Whatever its minimum, but only because its own user asked."""
        run = self._told_to_stop(action, plan)
        asked = self.recalled if action.requeue else self.cancelled
        assert run.workload.id in asked, f"{action.run_id} is cancelled and nobody asked"

    def _preempt(self, action: Preempt, plan: Plan) -> None:
        self.preemptions += 1
        run = self._told_to_stop(action, plan)
        if isinstance(action.reason, StartTimedOut):
            assert run.started_at is None, f"{action.run_id} runs and is stopped because it does not"
        elif self.policy.contract:
            assert not run.protected_at(plan.at, self.policy.start_timeout), (
                f"{action.run_id} is stopped inside its minimum at {plan.at}"
            )
        if isinstance(action.reason, PreemptedFor):
            run.stopped_for = action.reason.beneficiary
            self._for_somebody(action.run_id, run, action.reason)
        elif isinstance(action.reason, ReservationBegins):
            hold = self.holds.get(WorkloadId(f"reservation:{action.reason.reservation_id}"))
            touches = hold is not None and hold.pool == run.allocation.pool and hold.mask & run.allocation.mask
            assert touches, f"{action.run_id} is stopped for a reservation that has none of its nodes"
        elif isinstance(action.reason, DrainedFrom):
            assert action.reason.node in self.sick, f"{action.run_id} is drained from {action.reason.node}: healthy"

    def _for_somebody(self, run_id: RunId, run: Seen, reason: PreemptedFor) -> None:
        beneficiary = self.workloads[reason.beneficiary]
        assert beneficiary.id in self.waiting, f"{run_id} is stopped for {beneficiary.id}, which does not wait"
        hold = self.holds.get(beneficiary.id)
        assert hold is not None, f"{run_id} is stopped for {beneficiary.id}, which has no nodes of its own"
        touches = hold.pool == run.allocation.pool and hold.mask & run.allocation.mask
        assert touches, f"{run_id} is stopped for {beneficiary.id} and is on none of its nodes"
        if not self.policy.contract:
            return
        assert beneficiary.shape.charged, f"{run_id} is stopped for {beneficiary.id}, which is not charged"
        same_user = (beneficiary.account, beneficiary.user) == (run.workload.account, run.workload.user)
        charged = run.min_runtime > 0
        assert not (charged and same_user and not reason.hold), f"{run_id} is stopped for its own user"
        if charged and not reason.hold and beneficiary.account != run.workload.account:
            margin = 1 + self.policy.margin / 1000
            assert reason.ratio_for * margin <= reason.ratio_against * (1 + 1e-9), (
                f"{run_id}: {reason} is in the margin"
            )

    def _hold(self, hold: Hold, plan: Plan) -> None:
        self.holds[hold.workload_id] = hold
        if hold.reservation_id is not None:
            return
        shape = self.workloads[hold.workload_id].shape
        assert hold.mask.bit_count() == shape.nodes, f"{hold.workload_id} needs {shape.nodes} nodes, holds {hold}"
        assert hold.until >= plan.at, f"{hold.workload_id} holds nodes until {hold.until}, in the past of {plan.at}"
        if hold.claim:
            self._complete(hold, plan)
        elif self.policy.contract:
            longest = self.policy.min_runtime_cap + self.policy.grace_max
            assert hold.until - plan.at <= longest, (
                f"{hold.workload_id} would hold nodes longer than the cap and a grace"
            )

    def _complete(self, hold: Hold, plan: Plan) -> None:
        """Once all that are stopping are gone, the nodes have room: nobody is stopped for a plan that is not whole."""
        pool = self.cluster.pools[hold.pool]
        going = {action.run_id for action in plan.actions if isinstance(action, Preempt)}
        going |= {run_id for run_id, run in self.runs.items() if run.told_to_stop}
        for node in nodes_of(hold.mask):
            room = pool.slots_per_node - self._staying(hold.pool, node, plan, going)
            assert room >= hold.slots_per_node, f"{pool.nodes[node]} will never have room for {hold.workload_id}"
        mine = {run_id for run_id, beneficiary in self._stopped_for.items() if beneficiary == hold.workload_id}
        orphans = {run_id for run_id, run in self.runs.items() if run.orphaned(plan.at) and run_id in going - mine}
        for run_id in sorted(mine):
            going = (mine - {run_id}) | orphans
            short = [
                node
                for node in nodes_of(hold.mask & self.runs[run_id].allocation.mask)
                if pool.slots_per_node - self._staying(hold.pool, node, plan, going) < hold.slots_per_node
            ]
            assert short or self._cap_without(run_id, mine, hold.workload_id, plan), (
                f"{run_id} is stopped for {hold.workload_id}, which has the room without it"
            )

    def _cap_without(self, run_id: RunId, mine: set[RunId], workload_id: WorkloadId, plan: Plan) -> bool:
        """Whether a cap would be broken if this run stayed, beside all that are not stopped for the workload, and what
        nodes are kept for."""
        staying = [run.workload for each, run in self.runs.items() if each == run_id or each not in mine]
        staying += [self.workloads[each] for each in self.holds if each != workload_id and each in self.workloads]
        staying += [self.workloads[action.workload_id] for action in plan.actions if isinstance(action, Start)]
        return bool(caps.broken(self.budgets, self.workloads[workload_id], staying))

    def _staying(self, number: int, node: int, plan: Plan, going: set[RunId]) -> int:
        """Slots of a node used by runs that are not going, and by what this plan starts there."""
        used = [run.allocation for run_id, run in self.runs.items() if run_id not in going]
        used += [action.allocation for action in plan.actions if isinstance(action, Start)]
        return sum(given.slots_per_node for given in used if given.pool == number and given.mask >> node & 1)

    def _nothing_idles(self, plan: Plan) -> None:
        """No charged workload waits that the GPUs left free, and those given to uncharged work now, could take.

        Nodes that anybody holds are left out, and so are teams that save up for a gang.
        """
        free = self._free_for_charged(plan)
        for workload_id in sorted(self.waiting):
            shape = self.workloads[workload_id].shape
            if not shape.charged or workload_id in self.holds or self.workloads[workload_id].account in self.saving:
                continue
            if self._is_capped(self.workloads[workload_id]):
                continue
            home = self._home(self.workloads[workload_id], plan.at)
            for pool, slots in zip(self.cluster.pools, free, strict=True):
                if shape.gpu_types and pool.gpu_type not in shape.gpu_types:
                    continue
                if homes.ledger_at(self.budgets, pool) != home:
                    continue
                room = sum(each >= shape.gpus_per_node for each in slots)
                assert room < shape.nodes, f"{workload_id} waits at {plan.at} and {room} nodes of {pool.name} have room"

    def _is_capped(self, workload: Workload) -> bool:
        """Whether a cap keeps it waiting, beside what runs and what nodes are kept for."""
        taken = [run.workload for run in self.runs.values()]
        taken += [self.workloads[each] for each in self.holds if each in self.workloads]
        too_large = workload.shape.gpus > caps.largest(self.budgets, workload.account)
        return too_large or bool(caps.broken(self.budgets, workload, taken))

    def _free_for_charged(self, plan: Plan) -> list[list[int]]:
        """By pool: free slots of each healthy node that nobody holds, counting what uncharged work has got just now."""
        given = {action.run_id for action in plan.actions if isinstance(action, Start) and not action.min_runtime}
        free = []
        for number, pool in enumerate(self.cluster.pools):
            held = 0
            for hold in self.holds.values():
                held |= hold.mask if hold.pool == number else 0
            used = [0] * len(pool.nodes)
            for run_id, run in self.runs.items():
                if run.allocation.pool == number and run_id not in given:
                    for node in nodes_of(run.allocation.mask):
                        used[node] += run.allocation.slots_per_node
            free.append(
                [
                    pool.slots_per_node - used[node]
                    for node, name in enumerate(pool.nodes)
                    if name not in self.sick and not held >> node & 1
                ]
            )
        return free

    def _reject(self, action: Reject) -> None:
        workload = self.workloads[action.workload_id]
        if isinstance(action.reason, UnknownAccount | AccountClosed):
            assert workload.account not in self.open, f"{workload.id} is refused, {workload.account} is open"
        elif isinstance(action.reason, GangTooLarge):
            assert workload.shape.gpus > caps.largest(self.budgets, workload.account), f"{workload.id} is not too large"
        else:
            assert not self.fits(workload.shape), f"{workload.id} is refused and would fit"
        self.waiting.discard(workload.id)

    def _all_judged(self, plan: Plan) -> None:
        """What can never fit is refused in the decision that sees it first."""
        for workload_id in sorted(self.waiting - self.judged):
            self.judged.add(workload_id)
            assert self.fits(self.workloads[workload_id].shape), f"{workload_id} can never fit and is not refused"

    def _none_kept_in_vain(self, plan: Plan) -> None:
        """No nodes are kept for what a cap forbids, though it came after they were."""
        for workload in (self.workloads[each] for each in self.holds if each in self.workloads):
            largest = caps.largest(self.budgets, workload.account)
            assert workload.shape.gpus <= largest, f"at {plan.at} nodes are kept for {workload.id}, which is too large"

    def fits(self, shape: Shape) -> bool:
        """Whether some pool could ever hold it (work for GPUs only: what the random worlds are made of)."""
        return any(
            shape.nodes <= len(pool.nodes)
            and shape.gpus_per_node <= pool.gpus_per_node
            and (not shape.gpu_types or pool.gpu_type in shape.gpu_types)
            for pool in self.cluster.pools
        )

    def _on(self, node: NodeName) -> list[RunId]:
        found = []
        for run_id, run in self.runs.items():
            names = self.cluster.pools[run.allocation.pool].nodes
            if any(names[number] == node for number in nodes_of(run.allocation.mask)):
                found.append(run_id)
        return found


def _whole(shape: Shape, allocation: Allocation, pool: Pool) -> None:
    """A gang starts whole, with what it asked for, on a type that it accepts."""
    assert allocation.mask.bit_count() == shape.nodes, f"{shape.nodes} nodes were asked for: {allocation}"
    assert allocation.slots_per_node == shape.gpus_per_node, f"{shape.gpus_per_node} GPUs were asked for: {allocation}"
    assert not shape.gpu_types or pool.gpu_type in shape.gpu_types, f"{pool.gpu_type} was not accepted: {shape}"
