"""The journal in sentences: what came in, what the scheduler did about it, and by which rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from mirab.model import events as fact
from mirab.model import plans as plan_of
from mirab.model.accounts import is_meant
from mirab.model.codec import decode
from mirab.model.resources import Cluster, nodes_of
from mirab.model.units import FOREVER, SECOND, Instant, workload_of
from mirab.service.desk.holding import read
from mirab.service.views.moments import iso
from mirab.study import words
from mirab.study.formats import Names, plural, span
from mirab.study.storytext import exit_words

Part: TypeAlias = dict[str, Any]
LINES_MOST = 60
"""So many lines of one record; the rest is counted."""
SCANNED_MOST = 2_000
"""So many records are looked through for one page of a search."""
AT_ONCE = 200
SUBJECTS: Mapping[str, str] = MappingProxyType(
    {
        "starts": "runs that were started, and that began",
        "stops": "runs that were stopped, and for whom",
        "ends": "runs that ended",
        "people": "what people asked for: submitted, cancelled, held, released",
        "waits": "who waits, and why",
        "holds": "nodes kept for somebody",
        "nodes": "nodes that fell sick, drained, came back",
        "budgets": "budgets, policies, exceptions and reservations",
    }
)
"""What a search can be limited to."""
SIGNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "starts": ("Start", "RunAdopted", "RunCheckpointed", "RunContinued", "ActionRefused"),
        "stops": ("Preempt", "Cancel", "RunSuspended", "ActionRefused"),
        "ends": ("RunEnded", "Reject"),
        "people": ("WorkloadSubmitted", "WorkloadCancelled", "WorkloadHeld", "WorkloadReleased", "RequeueRequested"),
        "waits": ('"Waiting"',),
        "holds": ('"Hold"', "HoldReleased"),
        "nodes": ("NodeDegraded", "NodeDown", "NodeUp", "ClusterChanged", "Drain", "Repair", "Resume", "CallHuman"),
        "budgets": ("BudgetsChanged", "PolicyChanged", "Reservation", "Exemption"),
    }
)
"""Words without which a record's text holds nothing of the topic: most need not be taken apart."""


ADVISED = "advice alone: "
"""Before what was decided while the service only observed."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing of a record. `topic`: one of `SUBJECTS`; `what`: a short word; `text`: the sentence."""

    topic: str
    what: str
    text: str
    job: str = ""
    node: str = ""
    account: str = ""

    def told(self) -> Part:
        return {"topic": self.topic, "what": self.what, "text": self.text, "job": self.job, "node": self.node,
                "account": self.account}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Teller:
    """Makes lines of facts and plans, for a cluster and with a reader's names.

    `advice`: whether what was decided at an instant was only advised.
    """

    cluster: Cluster
    names: Names
    advice: Callable[[Instant], bool] = lambda _: False

    def lines(self, facts: Iterable[fact.Event], plan: plan_of.Plan) -> Iterator[Line]:
        for each in facts:
            if line := self._fact(each):
                yield line
        lead = ADVISED if self.advice(plan.at) else ""
        for decided in (*map(self._action, plan.actions), *map(self._hold, plan.holds)):
            yield replace(decided, text=f"{lead}{decided.text}")
        for waiting in plan.waiting:
            text = words.sentence(waiting.reason, self.names.asking(waiting.shape.gpus_per_node))
            yield Line("waits", "waits", text, waiting.workload_id, account=waiting.account)

    # --- facts --------------------------------------------------------------------------------------------------------
    def _fact(self, each: fact.Event) -> Line | None:
        told = _FACTS.get(type(each))
        return None if told is None else told(each, self)

    # --- plans --------------------------------------------------------------------------------------------------------
    def _action(self, action: plan_of.Action) -> Line:
        match action:
            case plan_of.Start():
                where = _listed(self.nodes(action.allocation.pool, action.allocation.mask))
                again = "resumes" if action.resumed else "starts"
                reason = words.sentence(action.reason, self.names)
                return Line("starts", "start", f"{again} on {where}: {reason}", action.workload_id)
            case plan_of.Preempt():
                return Line("stops", "stop", words.sentence(action.reason, self.names), workload_of(action.run_id))
            case plan_of.Cancel():
                text = "is stopped and goes back to the queue" if action.requeue else "is stopped, as was asked for"
                return Line("stops", "stop", text, workload_of(action.run_id))
            case plan_of.Drain():
                until = "when its runs have ended" if action.stop_at is None else self.until(action.stop_at)
                text = f"drains{_because(action.cause)}: it is free {until}"
                return Line("nodes", "drain", text, node=action.node)
            case plan_of.Repair():
                return Line("nodes", "repair", "is empty and goes to repair", node=action.node)
            case plan_of.Resume():
                return Line("nodes", "resume", "takes work again: its drain is undone", node=action.node)
            case plan_of.CallHuman():
                return Line("nodes", "person needed", action.why, workload_of(action.run_id), action.node)
            case plan_of.Reject():
                return Line("ends", "rejected", words.sentence(action.reason, self.names), action.workload_id)

    def _hold(self, change: plan_of.HoldChange) -> Line:
        job = "" if change.reservation_id is not None else change.workload_id
        whom = f"reservation {change.reservation_id}" if change.reservation_id is not None else "it"
        if isinstance(change, plan_of.HoldReleased):
            return Line("holds", "hold ends", f"nodes are no longer kept for {whom}: {change.why}", job)
        where = _listed(self.nodes(change.pool, change.mask))
        if change.claim:
            return Line("holds", "claim", f"the time has come: what still runs on {where} makes room for {whom}", job)
        return Line("holds", "hold", f"{where} kept for {whom}, theirs {self.until(change.until)}", job)

    def nodes(self, pool: int, mask: int) -> list[str]:
        members = self.cluster.pools[pool].nodes
        return [str(members[index]) for index in nodes_of(mask)]

    def until(self, at: Instant) -> str:
        return "at a time that nobody knows" if at >= FOREVER else f"by {self.names.at(at)}"


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more nodes"


def _because(cause: str) -> str:
    return f" ({cause})" if cause else ""


def _submitted(each: Any, _: Teller) -> Line:
    workload = each.workload
    shape = workload.shape
    each_node = plural(shape.gpus_per_node, "GPU") if shape.gpus_per_node else plural(shape.cpus_per_node, "core")
    size = f"{plural(shape.nodes, 'node')} with {each_node}"
    minimum = f"minimum {span(shape.min_runtime / SECOND)}" if shape.min_runtime else "no minimum, so it is not charged"
    text = f"submitted by {workload.user} for {workload.account}: {size}, {minimum}"
    return Line("people", "submitted", text, workload.id, account=workload.account)


def _held(each: Any, teller: Teller) -> Line:
    reason = read(each.why)
    text = words.sentence(reason, teller.names) if reason is not None else each.why
    return Line("people", "held", text or "kept out of the queue", each.workload_id)


def _by(each: Any, teller: Teller) -> str:
    reason = read(each.by)
    return words.sentence(reason, teller.names) if reason is not None else f"by {each.by}"


def _ended(each: Any, _: Teller) -> Line:
    word = {
        fact.Outcome.COMPLETED: "ended as it should", fact.Outcome.FAILED: "failed",
        fact.Outcome.PREEMPTED: "has stopped, and goes back to the queue if it wants to",
        fact.Outcome.NODE_FAIL: "was lost with its node", fact.Outcome.CANCELLED: "was cancelled",
        fact.Outcome.TIMEOUT: "reached its time limit", fact.Outcome.LAUNCH_FAILED: "could not be started",
        fact.Outcome.REQUEUED: "has stopped, and is in the queue again",
    }[each.outcome]  # fmt: skip
    code = exit_words(each.exit_code) if each.outcome in (fact.Outcome.FAILED, fact.Outcome.LAUNCH_FAILED) else ""
    again = "has to be done again" if each.outcome in fact.REQUEUED else "was not saved"
    lost = f"; {span(each.lost / SECOND)} of work {again}" if each.lost and each.lost >= SECOND else ""
    return Line("ends", each.outcome.value.lower().replace("_", " "), f"{word}{code}{lost}", workload_of(each.run_id))


def _exempted(each: Any, teller: Teller) -> Line:
    held = each.exemption
    text = f"exception {held.id} ({held.kind}) for {held.account}, {teller.until(held.end)}: {held.reason}"
    return Line("budgets", "exception", text, account=held.account)


def _reserved(each: Any, teller: Teller) -> Line:
    held = each.reservation
    begin = teller.names.at(held.begin)
    text = f"reservation {held.id} of {plural(held.nodes, 'node')} for {held.account}, from {begin}: {held.reason}"
    return Line("budgets", "reservation", text, account=held.account)


_FACTS: Mapping[type, Callable[[Any, Teller], Line]] = MappingProxyType(
    {
        fact.WorkloadSubmitted: _submitted,
        fact.WorkloadCancelled: lambda each, teller: Line("people", "cancelled", _by(each, teller), each.workload_id),
        fact.WorkloadHeld: _held,
        fact.WorkloadReleased: lambda each, _: Line("people", "released", "is in the queue again", each.workload_id),
        fact.RequeueRequested: lambda each, teller: Line("people", "requeue", _by(each, teller), each.workload_id),
        fact.RunStarted: lambda each, _: Line("starts", "runs", "is running", workload_of(each.run_id)),
        fact.RunAdopted: lambda each, _: Line("starts", "found", "was found running", each.workload_id),
        fact.RunCheckpointed: lambda each, _: Line(
            "starts", "checkpoint", "its work is safe", workload_of(each.run_id)
        ),
        fact.RunSuspended: lambda each, _: Line(
            "stops", "suspended", "the engine suspended it", workload_of(each.run_id)
        ),
        fact.RunContinued: lambda each, _: Line("starts", "continued", "it goes on", workload_of(each.run_id)),
        fact.RunEnded: _ended,
        fact.NodeDegraded: lambda each, _: Line("nodes", "degraded", f"is sick{_because(each.cause)}", node=each.node),
        fact.NodeDown: lambda each, _: Line("nodes", "down", f"is down{_because(each.cause)}", node=each.node),
        fact.NodeUp: lambda each, _: Line("nodes", "up", "is healthy", node=each.node),
        fact.ActionRefused: lambda each, _: Line(
            "stops" if each.action == "preempt" else "starts", "refused",
            f"the engine refused to {each.action} it{_because(each.why)}", workload_of(each.run_id),
        ),
        fact.BudgetsChanged: lambda each, _: Line(
            "budgets", "budgets", f"changed by {each.author or 'nobody named'}{_because(each.reason)}"
        ),
        fact.PolicyChanged: lambda each, _: Line(
            "budgets", "policy", f"changed by {each.author or 'nobody named'}{_because(each.reason)}"
        ),
        fact.ClusterChanged: lambda each, _: Line(
            "nodes", "cluster", f"now {each.cluster.slots:,} GPUs or cores in {plural(len(each.cluster.pools), 'pool')}"
        ),
        fact.ReservationApproved: _reserved,
        fact.ReservationCancelled: lambda each, _: Line(
            "budgets", "reservation", f"reservation {each.reservation_id} is cancelled"
        ),
        fact.ExemptionGranted: _exempted,
        fact.ExemptionRevoked: lambda each, _: Line("budgets", "exception", f"exception {each.exemption_id} is over"),
    }
)  # fmt: skip


# --- pages of the journal -------------------------------------------------------------------------------------------
def entry(
    seq: int, facts: str, plan: str, teller: Teller, topics: Sequence[str], mentioning: str | None
) -> Part | None:
    """A record as it is told; None = nothing of it is wanted."""
    if topics and not any(sign in facts or sign in plan for topic in topics for sign in SIGNS[topic]):
        return None
    came, told = json.loads(facts), decode(json.loads(plan))
    seen = came if topics or mentioning else came[:LINES_MOST]
    lines = list(teller.lines((decode(each) for each in seen), told))
    if mentioning:
        lines = _about(lines, mentioning)
    if topics:
        lines = [line for line in lines if line.topic in topics]
    if not lines:
        return None
    more = max(0, len(lines) + len(came) - len(seen) - LINES_MOST)
    return {"seq": seq, "at": iso(told.at), "lines": [line.told() for line in lines[:LINES_MOST]], "more": more}


def _about(lines: Sequence[Line], subject: str) -> list[Line]:
    """Those about a job, a node, or an account and all below it, and those that name it."""
    named = re.compile(_naming(subject))
    return [
        line
        for line in lines
        if subject in (line.job, line.node) or is_meant(subject, line.account) or named.search(line.text)
    ]


def _naming(subject: str) -> str:
    """A pattern for a sentence that names it; a number may be the name of a job, or how many nodes there are."""
    if re.fullmatch(r"\d+(_\d+)?", subject):
        return (
            rf"\b(?:for|job|workload|behind|of) {subject}(?![\w/.-]|\s(?:nodes?|GPUs?|cores?|workloads?|h|min|s|d|%))"
        )
    return rf"(?<![\w/.-]){re.escape(subject)}(?![\w-])"


def _written(subject: str) -> tuple[str, ...]:
    """How a record writes a name: where it stands nowhere, no sentence of the record is about it."""
    return tuple(dict.fromkeys((subject, json.dumps(subject)[1:-1])))


Fetch: TypeAlias = Callable[[int | None, int], list[tuple[int, str, str]]]
"""Records before a number, so many of them, the newest first."""


def page(fetch: Fetch, teller: Teller, before: int | None, limit: int, topics: Sequence[str],
         mentioning: str | None) -> Part:  # fmt: skip
    """The newest entries before a record, and where to go on; a search looks through `SCANNED_MOST` records at most."""
    found: list[Part] = []
    scanned = 0
    written = _written(mentioning) if mentioning else ()
    while len(found) < limit and scanned < SCANNED_MOST:
        size = min(AT_ONCE, max(limit - len(found), 20))
        records = fetch(before, size)
        for seq, facts, plan in records:
            before, scanned = seq, scanned + 1
            if written and not any(form in facts or form in plan for form in written):
                continue
            told = entry(seq, facts, plan, teller, topics, mentioning)
            if told is not None:
                found.append(told)
            if len(found) == limit:
                break
        if len(records) < size and len(found) < limit:
            return {"entries": found, "before": None}
    return {"entries": found, "before": before if before is not None and before > 1 else None}
