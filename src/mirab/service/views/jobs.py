"""Jobs as people see them: the recorded row, and why it waits, from what the scheduler has recorded about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mirab.core.state import State
from mirab.model.codec import decode
from mirab.model.reasons import BehindOwn, HoldReason, Reason
from mirab.model.records import JobRow, JobState, RunRow
from mirab.model.records import JobSpec as Spec
from mirab.model.units import SECOND, Duration, workload_of
from mirab.service.desk.dependencies import Dependency, format_dependencies
from mirab.service.desk.holding import hold_of, read
from mirab.service.forms.jobs import Job, JobDetail, JobSpec, Run
from mirab.service.views.moments import iso, iso_or_none
from mirab.service.views.waiting import ADVISED, ADVISED_SENTENCE, CODES, NEW, NEW_SENTENCE, reason_of_pending
from mirab.study import words
from mirab.study.formats import Names
from mirab.study.storytext import exit_words

if TYPE_CHECKING:
    from mirab.store import Store

LOOK_BACK = 20
"""Records that are searched for the last word about a job that does not wait."""
STOPS = ("Preempt", "WorkloadCancelled", "RequeueRequested")
SPEAK: Mapping[JobState, tuple[str, ...]] = MappingProxyType(
    {
        JobState.RUNNING: ("Start", "RunAdopted"),
        JobState.COMPLETING: STOPS,
        JobState.CANCELLED: STOPS,
        JobState.PREEMPTED: STOPS,
        JobState.REJECTED: ("Reject",),
    }
)
"""The facts and actions that say why a job is in a state."""
STARTING, STOPPING = "Starting", "Stopping"


@dataclass(frozen=True, slots=True)
class Why:
    """The typed reason of a job that waits, and of the one at the head of its queue where that is another.

    `observing`: mirab starts nothing by itself.
    """

    reason: Reason | None
    head: Reason | None = None
    observing: bool = False


def whys(state: State, rows: Iterable[JobRow]) -> dict[str, Why]:
    """Why those that wait do, read from the state. Short: sentences are made afterwards."""
    found: dict[str, Why] = {}
    for row in rows:
        pending = state.pending.get(row.id)
        if pending is None:
            continue
        reason = reason_of_pending(pending)
        head = None
        if isinstance(reason, BehindOwn) and pending.queue is not None and pending.queue.head.waiting is not None:
            head = pending.queue.head.waiting.reason
        found[row.id] = Why(reason, head, state.policy.observing)
    return found


def told(row: JobRow, why: Why | None, names: Names, flag: str = "") -> Job:
    """A row with its reason as a short word and as a sentence."""
    return Job(**_fields(row, why, names, flag))


def _fields(row: JobRow, why: Why | None, names: Names, flag: str) -> dict[str, Any]:
    code, sentence = _reason(row, why, names)
    return {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "account": row.account,
        "state": row.state.value,
        "reason": code,
        "why": sentence,
        "nodes": row.nodes,
        "gpus_per_node": row.gpus_per_node,
        "gpus": row.nodes * row.gpus_per_node,
        "cpus_per_node": row.cpus_per_node,
        "min_runtime_s": row.min_runtime / SECOND,
        "time_limit_s": _seconds(row.time_limit),
        "submitted_at": iso(row.submitted_at),
        "started_at": iso_or_none(row.started_at),
        "ended_at": iso_or_none(row.ended_at),
        "protected_until": iso_or_none(row.protected_until),
        "attempt": row.attempt,
        "node_names": list(row.node_names),
        "exit_code": row.exit_code,
        "preemptions": row.preemptions,
        "lost_s": row.lost / SECOND,
        "label": row.label,
        "array_job": row.array_job,
        "array_task": row.array_task,
        "held": sentence if row.held else "",
        "checkpoint_at": iso_or_none(row.checkpoint_at),
        "progress_flag": flag,
        "interactive": row.interactive,
    }


def _reason(row: JobRow, why: Why | None, names: Names) -> tuple[str, str]:
    """Short word and sentence; both empty for a job that runs or has ended as it should."""
    if row.held:
        return _held(hold_of(row.held), row.held, names)
    if row.state is JobState.PENDING:
        return _waits(why, names.asking(row.gpus_per_node))
    if row.state is JobState.RUNNING and row.started_at is None:
        return STARTING, "it has been given its nodes and is being started"
    if row.state is JobState.COMPLETING:
        return STOPPING, "it was told to stop and has not gone yet"
    return "", ended(row)


def ended(row: JobRow) -> str:
    """How it ended where that was not as it should and nobody meant it; "" = otherwise."""
    match row.state:
        case JobState.FAILED:
            return f"it failed{exit_words(row.exit_code)}"
        case JobState.TIMEOUT:
            return "it reached its time limit"
        case JobState.NODE_FAIL:
            return "its node failed, and it was not to be started again"
    return ""


def _held(reason: HoldReason | None, text: str, names: Names) -> tuple[str, str]:
    return ("Held", text) if reason is None else (CODES[type(reason)], words.sentence(reason, names))


def _waits(why: Why | None, names: Names) -> tuple[str, str]:
    if why is None or why.reason is None:
        return (ADVISED, ADVISED_SENTENCE) if why is not None and why.observing else (NEW, NEW_SENTENCE)
    sentence = words.sentence(why.reason, names)
    if why.head is not None:
        sentence += f"; of that one: {words.sentence(why.head, names)}"
    return CODES[type(why.reason)], sentence


# --- one job in full ------------------------------------------------------------------------------------------------
def detailed(row: JobRow, why: Why | None, names: Names, flag: str, runs: Sequence[RunRow], spec: Spec | None,
             gpus_of: Mapping[str, int], last: str) -> JobDetail:  # fmt: skip
    """A job with its attempts and what it executes.

    Args:
        gpus_of: GPUs of a node by name, so that slots of a CPU pool are not called GPUs.
        last: the last word that was recorded about a job that does not wait.
    """
    fields = _fields(row, why, names, flag)
    if last and row.state is not JobState.PENDING:
        fields["why"] = last
    return JobDetail(
        **fields,
        runs=[_run(run, gpus_of) for run in runs],
        spec=None if spec is None else _spec(spec),
    )


def _run(run: RunRow, gpus_of: Mapping[str, int]) -> Run:
    return Run(
        id=run.id,
        attempt=run.attempt,
        node_names=list(run.node_names),
        gpus=run.slots if any(gpus_of.get(node) for node in run.node_names) else 0,
        decided_at=iso(run.decided_at),
        started_at=iso_or_none(run.started_at),
        ended_at=iso_or_none(run.ended_at),
        outcome=run.outcome,
        exit_code=run.exit_code,
        lost_s=_seconds(run.lost),
    )


def _spec(spec: Spec) -> JobSpec:
    return JobSpec(
        argv=list(spec.argv),
        script=spec.script,
        cwd=spec.cwd,
        environment=dict(spec.environment),
        output=spec.output,
        error=spec.error,
        append=spec.append,
        signal=spec.signal,
        grace_s=spec.grace / SECOND,
        checkpoint_file=spec.checkpoint_file,
        verify_resume=spec.verify_resume,
        idle_timeout_s=spec.idle_timeout / SECOND,
        progress_s=spec.progress_interval / SECOND,
        dependency=format_dependencies(Dependency(kind, job) for kind, job in spec.after),
        array_limit=spec.array_limit,
    )


def last_word(store: Store, row: JobRow, names: Names) -> str:
    """Why a job was started, stopped, refused or cancelled last, from the records that speak of it; "" = none does."""
    wanted = SPEAK.get(row.state)
    if wanted is None:
        return ""
    for _, facts, plan in store.decisions(limit=LOOK_BACK, mentioning=row.id):
        for said in (*reversed(json.loads(plan).get("actions", ())), *reversed(json.loads(facts))):
            about = said.get("workload_id") or workload_of(said.get("run_id", ""))
            if about == row.id and said["type"] in wanted:
                return _said(said, names)
    return ""


def _said(said: dict[str, Any], names: Names) -> str:
    if "reason" in said:
        return words.sentence(decode(said["reason"]), names)
    if said["type"] == "RunAdopted":
        return words.ADOPTED
    by = said.get("by", "user")
    reason = read(by)
    if reason is not None:
        return words.sentence(reason, names)
    return f"requeued by {by}" if said["type"] == "RequeueRequested" else f"cancelled by {by}"


def _seconds(span: Duration | None) -> float | None:
    return None if span is None else span / SECOND
