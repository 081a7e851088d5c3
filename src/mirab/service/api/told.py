"""What a record of the journal says to those who listen, about jobs, nodes and budgets. Pure: it can be told again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirab.model import events as fact
from mirab.model import plans as plan_of
from mirab.model.codec import encode
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.units import workload_of
from mirab.service.views.moments import iso


@dataclass(frozen=True, slots=True)
class Told:
    """One event: its kind (``job``, ``node``, ``budget`` or ``decision``), its data, and the job that it is about."""

    kind: str
    data: dict[str, Any]
    job: str | None = None


_JOB_FACTS: dict[type, str] = {
    fact.WorkloadCancelled: "cancelled",
    fact.WorkloadHeld: "held",
    fact.WorkloadReleased: "released",
    fact.RequeueRequested: "requeue-asked",
    fact.RunStarted: "started",
    fact.RunAdopted: "started",
    fact.RunCheckpointed: "checkpointed",
    fact.RunSuspended: "suspended",
    fact.RunContinued: "continued",
    fact.RunEnded: "ended",
    fact.ActionRefused: "refused",
}
_NODE_FACTS: dict[type, str] = {fact.NodeDegraded: "degraded", fact.NodeDown: "down", fact.NodeUp: "up"}
_JOB_ACTIONS: dict[type, str] = {
    plan_of.Start: "starting",
    plan_of.Preempt: "preempting",
    plan_of.Cancel: "stopping",
    plan_of.Reject: "rejected",
}
_NODE_ACTIONS: dict[type, str] = {
    plan_of.Drain: "draining",
    plan_of.Repair: "empty",
    plan_of.Resume: "resumed",
    plan_of.CallHuman: "needs-a-person",
}


def told(seq: int, facts: Sequence[Event], plan: Plan, advice: bool = False) -> list[Told]:
    """The events of one record, in order: what came in, what was decided, and a sum of it at the end.

    `advice`: the service only observed, so that nothing of what was decided is done.
    """
    plan = replace(plan, actions=()) if advice else plan
    found = [*_facts(facts), *_actions(plan)]
    if found:
        started = sum(isinstance(action, plan_of.Start) for action in plan.actions)
        stopped = sum(isinstance(action, plan_of.Preempt | plan_of.Cancel) for action in plan.actions)
        summary = {"seq": seq, "at": iso(plan.at), "facts": len(facts), "starts": started, "stops": stopped}
        found.append(Told("decision", summary))
    return found


def touched(facts: Sequence[Event], plan: Plan) -> Iterator[str]:
    """The jobs that a record is about."""
    yield from (each.job for each in (*_facts(facts), *_actions(plan)) if each.job is not None)


def _facts(facts: Sequence[Event]) -> Iterator[Told]:
    for each in facts:
        if isinstance(each, fact.WorkloadSubmitted):
            workload = each.workload
            data = {"at": iso(each.at), "job": workload.id, "what": "submitted", "account": workload.account,
                    "user": workload.user}  # fmt: skip
            yield Told("job", data, workload.id)
        elif what := _JOB_FACTS.get(type(each)):
            yield _about_job(what, iso(each.at), each)
        elif isinstance(each, fact.NodeDegraded | fact.NodeDown | fact.NodeUp):
            data = {"at": iso(each.at), "node": each.node, "what": _NODE_FACTS[type(each)]}
            yield Told("node", {**data, "cause": getattr(each, "cause", "")})
        elif isinstance(each, fact.BudgetsChanged):
            yield Told("budget", {"at": iso(each.at), "what": "changed", "author": each.author, "why": each.reason})


def _actions(plan: Plan) -> Iterator[Told]:
    for action in plan.actions:
        if what := _JOB_ACTIONS.get(type(action)):
            yield _about_job(what, iso(plan.at), action)
        else:
            data = {
                "at": iso(plan.at),
                "node": getattr(action, "node", ""),
                "what": _NODE_ACTIONS.get(type(action), "other"),
            }
            yield Told("node", data)


def _about_job(what: str, at: str, subject: object) -> Told:
    """What a fact or an action says about its job: only fields that people may see, which is all of them."""
    run_id = getattr(subject, "run_id", None)
    job = workload_of(run_id) if run_id is not None else str(getattr(subject, "workload_id", ""))
    data: dict[str, Any] = {"at": at, "job": job, "what": what}
    if run_id is not None:
        data["run"] = run_id
    for name in ("outcome", "exit_code", "why", "reason", "min_runtime"):
        held = getattr(subject, name, None)
        if held is not None and held != "":
            data[name] = encode(held)
    return Told("job", data, job)
