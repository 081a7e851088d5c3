"""Why a workload waited or was stopped in a finished replay, from its record.

`story` is for programs, `explain` for people.

Nothing is recomputed: every reason and number is one that the scheduler recorded when it decided. The record is read
line by line; what stays in memory is the workload's own story and the names of those in the queue or running.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import tzinfo
from heapq import nlargest
from pathlib import Path

from mirab.core.charge import pools_for
from mirab.model.accounts import ledger_of, ledger_path, plain
from mirab.model.codec import decode
from mirab.model.events import Outcome, goes_back
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import SECOND, Instant, workload_of
from mirab.model.workloads import Workload
from mirab.study import words
from mirab.study.formats import Names
from mirab.study.journalfile import Header, cycles, facts_mentioning, is_cut_short, read_header
from mirab.study.storybooks import Json, Others, Wait, ledgers_by_pool, node_ranges, seconds
from mirab.study.storytext import tell

_ADOPTED: Json = {"reason": {"type": "RunAdopted"}, "fact": words.ADOPTED, "advice": ""}


def explain(journal: Path | str, workload_id: str) -> str:
    """The story as text.

    Raises:
        LookupError: no such workload in the record; the message names the nearest.
        ValueError: the file is no record.
    """
    return tell(story(journal, workload_id))


def story(journal: Path | str, workload_id: str) -> Json:
    """The story as a JSON value: ``workload``, ``state``, ``waits`` with their blockers, ``runs``, ``totals``.

    Times are in seconds from the start of the log, amounts in slot-hours.

    Raises:
        LookupError: no such workload in the record; the message names the nearest.
        ValueError: the file is no record.
    """
    header = read_header(journal)
    workload = _submission(journal, workload_id)
    if workload is None:
        raise LookupError(_unknown(journal, workload_id))
    reader = _Reader(header, workload)
    return _read(reader, cycles(journal, reader.concerns))


def story_of(header: Header, workload: Workload, recorded: Iterable[tuple[Json, Json]], now: Instant,
             zone: tzinfo | None = None) -> Json:  # fmt: skip
    """The same from a live journal: facts and plan of each record, as JSON values, in order, told at an instant."""
    reader = _Reader(header, workload, zone)
    return _read(reader, (_cycle(facts, plan, reader) for facts, plan in recorded), now) | {"live": True}


def _cycle(facts: Json, plan: Json, reader: _Reader) -> Json:
    """A record of a live journal in the form of a replay's."""
    waiting = [each for each in plan.get("waiting", ()) if reader.concerns(each)]
    return {"facts": facts, "plan": plan, "waiting": waiting}


def _read(reader: _Reader, found: Iterable[Json], now: Instant = 0) -> Json:
    for cycle in found:
        reader.take(cycle)
        if reader.over:
            break
    return reader.result(now)


def _submission(journal: Path | str, workload_id: str) -> Workload | None:
    for fact in facts_mentioning(journal, workload_id):
        if fact["type"] == "WorkloadSubmitted" and fact["workload"]["id"] == workload_id:
            found: Workload = decode(fact["workload"])
            return found
    return None


def _unknown(journal: Path | str, workload_id: str) -> str:
    facts = facts_mentioning(journal, "WorkloadSubmitted")
    submitted = (fact["workload"]["id"] for fact in facts if fact["type"] == "WorkloadSubmitted")
    nearest = nlargest(3, submitted, key=lambda name: (_likeness(name, workload_id), name))
    near = f"The nearest are {', '.join(nearest)}." if nearest else "No workload was submitted in it."
    cut = " The record is cut short: replay the log again for the rest." if is_cut_short(journal) else ""
    return f"there is no workload {workload_id!r} in {journal}. {near}{cut}"


def _likeness(name: str, wanted: str) -> float:
    """How alike two ids are: letters in common from both ends, against the longer of the two."""
    short = min(len(name), len(wanted))
    head = next((place for place in range(short) if name[place] != wanted[place]), short)
    tail = next((place for place in range(short - head) if name[-1 - place] != wanted[-1 - place]), short - head)
    return (head + tail) / max(len(name), len(wanted), 1)


class _Reader:
    """Takes the cycles in turn and keeps what concerns one workload."""

    def __init__(self, header: Header, workload: Workload, zone: tzinfo | None = None) -> None:
        self._header = header
        policy = header.policy
        names = Names(header.origin, header.cluster.unit, zone, policy.order, policy.preemption)
        self._names = names.asking(workload.shape.gpus_per_node)
        self._workload = workload
        self._others = Others(workload)
        self._waits: list[Wait] = []
        self._runs: list[Json] = []
        self._room: list[Json] = []
        self._beneficiaries: dict[str, Json] = {}
        self._now: Instant = 0
        self._waiting = False
        self._cancelled = False
        self._queue_reason: Json | None = None
        self._observing = policy.observing
        self._by_pool = ledgers_by_pool(header.budgets, header.cluster)
        self._ledgers = {self._by_pool[number]: None for number in pools_for(workload.shape, header.cluster)}
        self.state = "waiting"
        self.over = False

    def take(self, cycle: Json) -> None:
        for fact in cycle["facts"]:
            self._now = fact["at"]
            fold = _FACTS.get(fact["type"])
            if fold:
                fold(self, fact)
        plan = cycle["plan"]
        self._now = plan["at"]
        for action in () if self._observing else plan.get("actions", ()):
            act = _ACTIONS.get(action["type"])
            if act:
                act(self, action)
        for record in cycle["waiting"]:
            self._on_waiting(record)

    def concerns(self, queue: Json) -> bool:
        """Whether reasons of this queue are reasons of our workload."""
        return self._others.same_queue(queue)

    # --- facts ---------------------------------------------------------------------------------------------------
    def _on_submitted(self, fact: Json) -> None:
        self._others.submitted(fact["workload"])
        if fact["workload"]["id"] == self._workload.id:
            self._begin_wait("submitted")

    def _on_cancelled(self, fact: Json) -> None:
        if fact["workload_id"] != self._workload.id:
            self._others.gone(fact["workload_id"])
            return
        self._cancelled = True
        if self._waiting:
            self._finish("gave up" if fact.get("by", "user") == "user" else f"cancelled by {fact['by']}")

    def _on_held(self, fact: Json) -> None:
        """Its user, an operator or something that it waits for keeps it out of the queue; live only."""
        if fact["workload_id"] != self._workload.id or not self._waiting:
            return
        why = fact["why"]
        told = {"reason": {"type": "Held"}, "fact": f"it was held: {why}", "advice": ""}
        if why.startswith("{"):
            told = self._told(json.loads(why))
        self._waits[-1].blocked(self._now, told, self._workload.id, 0)

    def _on_policy_changed(self, fact: Json) -> None:
        self._observing = decode(fact["policy"]).observing

    def _on_run_adopted(self, fact: Json) -> None:
        """The engine started it although no plan said so; a start that mirab advised before was none."""
        self._others.left_queue(fact["workload_id"])
        if fact["workload_id"] == self._workload.id:
            self._runs = [run for run in self._runs if run["started_s"] is not None or run["ended_s"] is not None]
            self._end_wait("started")
            self._runs.append(self._new_run(fact) | _ADOPTED)
            self._on_run_started({"run_id": fact["run_id"], "at": fact["started_at"]})

    def _on_run_started(self, fact: Json) -> None:
        run = self._own_run(fact["run_id"])
        if run is not None:
            run["started_s"] = seconds(fact["at"])
            run["protected_until_s"] = seconds(fact["at"] + round(run["min_runtime_s"] * SECOND))

    def _on_run_ended(self, fact: Json) -> None:
        run = self._own_run(fact["run_id"])
        if run is None:
            self._others.ended(fact["run_id"], Outcome(fact["outcome"]))
            return
        begun = run["decided_s"] if run["started_s"] is None else run["started_s"]
        lost = fact.get("lost")
        run |= {"ended_s": seconds(fact["at"]), "ran_s": fact["at"] / SECOND - begun, "outcome": fact["outcome"]}
        run["exit_code"] = fact.get("exit_code")
        run |= {"lost_s": seconds(lost), "lost_slot_h": None if lost is None else lost / SECOND / 3600 * run["slots"]}
        if goes_back(Outcome(fact["outcome"]), self._workload.resume) and not self._cancelled:
            self._begin_wait(fact["outcome"])
        else:
            self._finish(fact["outcome"])

    def _on_refused(self, fact: Json) -> None:
        run, start = self._own_run(fact["run_id"]), fact["action"] == "start"
        if run is not None:
            run["refusals"].append({"at_s": seconds(fact["at"]), "action": fact["action"], "why": fact.get("why", "")})
            if start:
                run |= {"ended_s": seconds(fact["at"]), "outcome": "REFUSED"}
                self._begin_wait("REFUSED")
        elif start:
            self._others.ended(fact["run_id"], Outcome.LAUNCH_FAILED)

    # --- actions -------------------------------------------------------------------------------------------------
    def _on_start(self, action: Json) -> None:
        self._others.left_queue(action["workload_id"])
        if action["workload_id"] == self._workload.id:
            self._end_wait("started")
            self._runs.append(self._new_run(action) | self._told(action["reason"]))
            return
        if action["workload_id"] in self._beneficiaries:
            self._beneficiaries.pop(action["workload_id"])["beneficiary_started_s"] = seconds(self._now)
        if self._waiting:
            given = decode(action["allocation"], Allocation)
            ledger = self._by_pool[given.pool] if given.pool < len(self._by_pool) else ""
            if ledger in self._ledgers:
                account = self._others.account_of(action["workload_id"]) or action["reason"].get("account", "")
                self._waits[-1].overtaken(ledger_path(ledger, plain(account)), given.slots, action["reason"])

    def _on_preempt(self, action: Json) -> None:
        reason = action["reason"]
        stop = {"at_s": seconds(self._now), "grace_s": seconds(action["grace"])} | self._told(reason)
        run = self._own_run(action["run_id"])
        if run is not None:
            run["stop"] = stop
            if "beneficiary" in reason:
                stop["beneficiary_started_s"] = None
                self._beneficiaries[reason["beneficiary"]] = stop
        elif reason.get("beneficiary") == self._workload.id:
            account = self._others.account_of(workload_of(action["run_id"]))
            self._room.append({"run_id": action["run_id"], "account": account} | stop)

    def _on_reject(self, action: Json) -> None:
        if action["workload_id"] == self._workload.id:
            self._waits[-1].blocked(self._now, self._told(action["reason"]), self._workload.id, 0)
            self._finish("rejected")
        else:
            self._others.gone(action["workload_id"])

    def _on_waiting(self, record: Json) -> None:
        self._queue_reason = record
        self._ledgers = {ledger_of(record["account"]): None}
        if self._waiting:
            self._blocked(record)

    # --- the workload's own turns --------------------------------------------------------------------------------
    def _begin_wait(self, after: str) -> None:
        self._waiting = True
        self.state = "waiting"
        self._waits.append(Wait(self._now, after))
        self._others.next_attempt(len(self._runs) + 1)
        if self._queue_reason is not None and self._others.ahead:
            self._blocked(self._queue_reason)

    def _blocked(self, record: Json) -> None:
        told = self._told(record["reason"])
        self._waits[-1].blocked(self._now, told, record["workload_id"], self._others.ahead)

    def _end_wait(self, end: str) -> None:
        self._waiting = False
        if self._waits:
            self._waits[-1].end(self._now, end)
        self.state = "running"

    def _finish(self, state: str) -> None:
        if self._waiting:
            self._end_wait(state)
        self.state = state
        self.over = True

    def _own_run(self, run_id: str) -> Json | None:
        return next((run for run in reversed(self._runs) if run["run_id"] == run_id), None)

    def _told(self, reason: Json) -> Json:
        """The typed reason, in words, and what would remove it."""
        typed = decode(reason)
        return {"reason": reason, "fact": words.fact(typed, self._names), "advice": words.advice(typed)}

    def _new_run(self, action: Json) -> Json:
        """A run as its start, or its adoption, begins it."""
        allocation: Allocation = decode(action["allocation"], Allocation)
        pool = self._header.cluster.pools[allocation.pool]
        room, self._room = self._room, []
        return {
            "run_id": action["run_id"],
            "decided_s": seconds(self._now),
            "started_s": None,
            "ended_s": None,
            "pool": pool.name,
            "nodes": node_ranges(self._header.cluster, allocation),
            "slots": allocation.slots,
            "unit": _unit(self._header.cluster, pool),
            "min_runtime_s": seconds(action["min_runtime"]),
            "resumed": action.get("resumed", False),
            "made_room": room,
            "stop": None,
            "outcome": None,
            "exit_code": None,
            "refusals": [],
        }

    # --- the result ----------------------------------------------------------------------------------------------
    def result(self, now: Instant) -> Json:
        """The story; where it is not over, as long as it has lasted by then."""
        if not self.over:
            self._now = max(now, self._now)
        if self._waiting:
            self._waits[-1].end(self._now, "now" if now else "the record ends")
        waits = [wait.json() for wait in self._waits]
        ran = [self._ran(run) for run in self._runs]
        lost = [run["lost_slot_h"] for run in self._runs if run.get("lost_slot_h") is not None]
        return {
            "trace": self._header.trace,
            "policy": self._header.policy.name,
            "origin_unix_s": seconds(self._header.origin),
            "unit": self._header.cluster.unit,
            "workload": _described(self._workload),
            "state": self.state,
            "record_ends_s": seconds(self._now),
            "waits": waits,
            "runs": self._runs,
            "totals": {
                "wait_s": sum(wait["wait_s"] for wait in waits),
                "first_wait_s": waits[0]["wait_s"] if waits else None,
                "ran_s": sum(ran),
                "attempts": len(self._runs),
                "preemptions": sum(run["outcome"] == Outcome.PREEMPTED.value for run in self._runs),
                "lost_slot_h": sum(lost),
            },
        }

    def _ran(self, run: Json) -> float:
        """Seconds, of one that still runs those up to the end of the story."""
        if "ran_s" in run or run["started_s"] is None or run["ended_s"] is not None:
            return float(run.get("ran_s", 0.0))
        return max(0.0, self._now / SECOND - float(run["started_s"]))


_FACTS = {
    "WorkloadSubmitted": _Reader._on_submitted,
    "WorkloadCancelled": _Reader._on_cancelled,
    "WorkloadHeld": _Reader._on_held,
    "RunStarted": _Reader._on_run_started,
    "RunAdopted": _Reader._on_run_adopted,
    "RunEnded": _Reader._on_run_ended,
    "ActionRefused": _Reader._on_refused,
    "PolicyChanged": _Reader._on_policy_changed,
}
_ACTIONS = {"Start": _Reader._on_start, "Preempt": _Reader._on_preempt, "Reject": _Reader._on_reject}


def _described(workload: Workload) -> Json:
    shape: Shape = workload.shape
    return {
        "id": workload.id,
        "account": workload.account,
        "user": workload.user,
        "label": workload.label,
        "nodes": shape.nodes,
        "gpus_per_node": shape.gpus_per_node,
        "cpus_per_node": shape.cpus_per_node,
        "gpu_types": list(shape.gpu_types),
        "min_runtime_s": seconds(shape.min_runtime),
        "time_limit_s": seconds(shape.time_limit),
        "checkpoint_s": seconds(workload.checkpoint),
        "restart_s": seconds(workload.restart),
        "resume": workload.resume,
        "priority": workload.priority,
        "submitted_s": seconds(workload.submitted_at),
    }


def _unit(cluster: Cluster, pool: Pool) -> str:
    """What a slot of this pool is: beside GPUs there may be nodes without any."""
    return "cpu" if cluster.unit == "gpu" and not pool.gpus_per_node else cluster.unit
