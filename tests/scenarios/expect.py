"""What a plan says, as comparable facts: what a scenario file expects, and what was decided."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirab.model import reasons
from mirab.model.plans import (
    Action,
    CallHuman,
    Cancel,
    Drain,
    Hold,
    HoldReleased,
    Plan,
    Preempt,
    Reject,
    Repair,
    Resume,
    Start,
)
from mirab.model.resources import Cluster, nodes_of
from mirab.model.units import NodeMask, WorkloadId, format_duration
from tests.scenarios.build import node_names, value_of
from tests.scenarios.fileform import ScenarioError, Statement, duration_of, names_of

DECISIONS = ("start", "preempt", "cancel", "requeue", "hold", "release", "drain", "repair", "resume", "human", "reject")


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: its kind, its subject, and everything that a file may say about it."""

    verb: str
    subject: str
    details: tuple[tuple[str, object], ...]
    reason: object = None

    def __str__(self) -> str:
        said = [f"{key}={shown(value)}" for key, value in self.details if value is not None]
        why = f" why {reason_text(self.reason)}" if self.reason is not None else ""
        return " ".join([self.verb, self.subject, *said]) + why


def decisions_of(plan: Plan, cluster: Cluster, workload_of: Mapping[str, WorkloadId]) -> list[Decided]:
    """The decisions of a plan in the words of scenario files. Claims on nodes already told to empty are left out:
    they go with their preemptions."""
    found = [_decided(action, cluster, workload_of) for action in plan.actions]
    for change in plan.holds:
        if isinstance(change, HoldReleased):
            found.append(Decided("release", change.workload_id, ()))
        elif isinstance(change, Hold) and not change.claim:
            nodes = _names(cluster, change.pool, change.mask)
            found.append(Decided("hold", change.workload_id, (("on", nodes), ("until", change.until))))
    return found


def _decided(action: Action, cluster: Cluster, workload_of: Mapping[str, WorkloadId]) -> Decided:
    match action:
        case Start():
            nodes = _names(cluster, action.allocation.pool, action.allocation.mask)
            details = (("on", nodes), ("min", action.min_runtime), ("resumed", action.resumed))
            return Decided("start", action.workload_id, details, action.reason)
        case Preempt():
            return Decided("preempt", workload_of[action.run_id], (("grace", action.grace),), action.reason)
        case Cancel():
            verb = "requeue" if action.requeue else "cancel"
            return Decided(verb, workload_of[action.run_id], (("grace", action.grace),))
        case Drain():
            return Decided("drain", action.node, (("stop", action.stop_at),))
        case Repair():
            return Decided("repair", action.node, ())
        case Resume():
            return Decided("resume", action.node, ())
        case CallHuman():
            return Decided("human", action.node, (("workload", workload_of[action.run_id]),))
        case Reject():
            return Decided("reject", action.workload_id, (), action.reason)


def expected(line: Statement) -> list[Decided]:
    """The decisions that one line of a ``# plan`` asks for; only what the line says is compared."""
    if line.verb in ("drain", "repair", "resume"):
        stop = line.settings.get("stop")
        details = (("stop", value_of(stop, "Instant | None", line.where)),) if stop else ()
        return [Decided(line.verb, name, details) for name in node_names(line.words[0], line.where)]
    if line.verb == "human":
        return [Decided("human", line.words[0], (("workload", line.words[1]),))]
    found = []
    subjects = names_of(line.words[0], line.where)
    for place, subject in enumerate(subjects):
        said: list[tuple[str, object]] = []
        if "on" in line.settings:
            said.append(("on", _nodes_for(line, place, len(subjects))))
        said += [
            (key, duration_of(line.settings[key], line.where))
            for key in ("min", "until", "grace")
            if key in line.settings
        ]
        if "resumed" in line.settings:
            said.append(("resumed", line.flag("resumed", False)))
        found.append(Decided(line.verb, subject, tuple(said), _reason_of(line)))
    return found


def _nodes_for(line: Statement, place: int, subjects: int) -> tuple[str, ...]:
    """``on n0..n3`` gives one node to each of the named workloads; ``on n0-3`` gives all to each."""
    text = line.settings["on"]
    if ".." not in text:
        return tuple(node_names(text, line.where))
    each = names_of(text, line.where)
    if len(each) != subjects:
        raise ScenarioError(f"{line.where}: {len(each)} nodes for {subjects} workloads")
    return (each[place],)


@dataclass(frozen=True, slots=True)
class ReasonWanted:
    """A type of reason and the numbers that are to be checked."""

    kind: str
    numbers: tuple[tuple[str, object], ...]

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{key}={shown(value)}" for key, value in self.numbers)])


def _reason_of(line: Statement) -> ReasonWanted | None:
    if line.verb == "preempt" and "for" in line.settings:
        numbers = line.reason[1] if line.reason else {}
        return wanted("PreemptedFor", {"beneficiary": line.settings["for"], **numbers}, line.where)
    return wanted(*line.reason, line.where) if line.reason else None


def wanted(kind: str, numbers: Mapping[str, str], where: str) -> ReasonWanted:
    cls = getattr(reasons, kind, None)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ScenarioError(f"{where}: there is no reason {kind!r}")
    kinds = {item.name: str(item.type) for item in dataclasses.fields(cls)}
    for key in numbers:
        if key not in kinds:
            raise ScenarioError(f"{where}: {kind} has no number {key!r}: it has {', '.join(kinds)}")
    return ReasonWanted(kind, tuple((key, value_of(text, kinds[key], where)) for key, text in numbers.items()))


def reason_agrees(want: ReasonWanted, got: object) -> bool:
    return type(got).__name__ == want.kind and all(_same(value, getattr(got, key)) for key, value in want.numbers)


def _same(want: object, got: object) -> bool:
    """Ratios agree when they differ by less than half a thousandth."""
    if isinstance(want, float) and isinstance(got, (int, float)):
        return abs(want - got) < 0.0005 or want == got
    return want == got


def agrees(want: Decided, got: Decided) -> bool:
    if (want.verb, want.subject) != (got.verb, got.subject):
        return False
    said = dict(got.details)
    if any(said.get(key) != value for key, value in want.details):
        return False
    return not isinstance(want.reason, ReasonWanted) or reason_agrees(want.reason, got.reason)


def differences(want: Iterable[Decided], got: Iterable[Decided]) -> list[str]:
    """Lines for people: what was expected and not decided, and what was decided and not expected."""
    left = list(got)
    missing = []
    for item in want:
        match = next((found for found in left if agrees(item, found)), None)
        if match is None:
            missing.append(f"  expected, not decided: {item}")
        else:
            left.remove(match)
    return missing + [f"  decided, not expected: {item}" for item in left]


def _names(cluster: Cluster, pool: int, mask: NodeMask) -> tuple[str, ...]:
    return tuple(cluster.pools[pool].nodes[number] for number in nodes_of(mask))


def shown(value: object) -> str:
    """Whole seconds and more as durations, the rest as it stands."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value >= 1000:
        return f"{format_duration(value)}({value})"
    return ",".join(value) if isinstance(value, tuple) else f"{value:.4f}" if isinstance(value, float) else str(value)


def reason_text(reason: object) -> str:
    if isinstance(reason, ReasonWanted) or not dataclasses.is_dataclass(reason):
        return str(reason)
    numbers = (f"{item.name}={shown(getattr(reason, item.name))}" for item in dataclasses.fields(reason))
    return " ".join([type(reason).__name__, *numbers])
