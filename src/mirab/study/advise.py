"""What a log says about the parameters: suggestions with their evidence, from one replay. Nothing is applied.

Each suggestion names the numbers that it rests on, so that whoever knows better can say why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from statistics import median
from typing import Any, TypeAlias

from mirab.model.accounts import ledger_path
from mirab.model.events import Event, Outcome, RunEnded, RunStarted
from mirab.model.plans import Plan
from mirab.model.policy import Policy
from mirab.model.settings import format_setting
from mirab.model.trace import Trace
from mirab.model.units import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    UNIT,
    WHOLE,
    Duration,
    Instant,
    RunId,
    format_duration,
    workload_of,
)
from mirab.model.workloads import Arrival
from mirab.study.days import days_of
from mirab.study.demand import CLASSES, Asks, class_of
from mirab.study.formats import plural
from mirab.study.measures import Measures

Json: TypeAlias = dict[str, Any]

CHECKPOINT_COST: Duration = MINUTE
"""What one checkpoint costs in running time, where nobody says."""
CAPS: tuple[Duration, ...] = tuple(hours * HOUR for hours in (1, 2, 4, 8, 12, 24))
WINDOWS: tuple[Duration, ...] = tuple(days * DAY for days in (1, 3, 7, 14, 28))
AWAY = 0.5
"""A day on which an account uses less than this part of its share is one on which it is away."""
COVERED = 0.9
"""A suggested cap lets so many runs reach a safe place inside it: their end or their first checkpoint."""
FEWEST_SPELLS = 3
OFTEN = 0.10
"""Runs that are stopped again within a day, of those stopped: more is churn."""
LARGEST = 5


@dataclass(slots=True)
class Stops:
    """Of one class: running time in all, and how often it was cut short."""

    ran: Duration = 0
    preempted: int = 0
    failed: int = 0

    @property
    def between(self) -> Duration | None:
        """Mean running time between two stops; None = there was none."""
        count = self.preempted + self.failed
        return self.ran // count if count else None


class Evidence:
    """A journal that counts what measures do not: stops by class, and stops of what was stopped lately."""

    def __init__(self, trace: Trace) -> None:
        asks = Asks(trace.cluster)
        self._kinds = {each.workload.id: kind_of(each, asks) for each in trace.arrivals}
        self._since: dict[RunId, Instant] = {}
        self._stopped: dict[str, Instant] = {}
        self.stops = {name: Stops() for name in CLASSES}
        self.again = 0

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        """One cycle."""
        for fact in facts:
            if isinstance(fact, RunStarted):
                self._since[fact.run_id] = fact.at
            elif isinstance(fact, RunEnded):
                self._ended(fact)

    def _ended(self, fact: RunEnded) -> None:
        since = self._since.pop(fact.run_id, None)
        workload_id = workload_of(fact.run_id)
        kind = self._kinds.get(workload_id)
        if since is None or kind is None:
            return
        preempted, failed = fact.outcome is Outcome.PREEMPTED, fact.outcome is Outcome.NODE_FAIL
        for stops in (self.stops[kind], self.stops["all"]):
            stops.ran += fact.at - since
            stops.preempted += preempted
            stops.failed += failed
        if preempted:
            before = self._stopped.get(workload_id)
            self.again += before is not None and fact.at - before <= DAY
            self._stopped[workload_id] = fact.at


def kind_of(arrival: Arrival, asks: Asks) -> str:
    """Its class, as in the report."""
    return class_of(arrival.workload, asks.of(arrival.workload.shape))


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing that the log suggests.

    Attributes:
        setting: of the policy; "" where it is about people's work. present, suggested: as they are written.
        because: a sentence; evidence: its numbers.
    """

    about: str
    setting: str
    present: str
    suggested: str
    because: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


def advise(
    trace: Trace, policy: Policy, seen: Measures, noted: Evidence, *, price: float | None = None,
    checkpoint_cost: Duration = CHECKPOINT_COST,
) -> Json:  # fmt: skip
    """Everything that the log says, as JSON with stable keys; see docs/howto/advise.md.

    Args:
        seen, noted: of one replay of the trace under the policy.
        price: of a GPU-hour; None = nobody said.
    """
    report = seen.report()
    asks = Asks(trace.cluster)
    checkpoints = list(_checkpoints(trace, noted, asks, checkpoint_cost))
    recovery = _recovery(trace)
    suggestions = [
        _window(trace, policy, seen), _cap(trace, policy), _margin(policy, noted, report),
        *_of_checkpoints(checkpoints),
    ]  # fmt: skip
    return {
        "log": trace.name,
        "policy": policy.name,
        "unit": report["input"]["unit"],
        "days": round((trace.ends_at - trace.starts_at) / DAY, 2),
        "suggestions": [asdict(each) for each in suggestions],
        "holders": list(_holders(trace, asks)),
        "idle": _idle(report, trace, asks),
        "teams": list(_teams(report, price)),
        "recovery": recovery,
        "checkpoints": checkpoints,
        "price": price,
        "checkpoint_cost_s": checkpoint_cost / SECOND,
    }


# --- the policy -------------------------------------------------------------------------------------------------------
def _window(trace: Trace, policy: Policy, seen: Measures) -> Suggestion:
    """Long enough that who was away comes back to the time that it left, and no longer."""
    away = sorted(length for spells in _spells(trace, seen).values() for length in spells)
    if len(away) < FEWEST_SPELLS:
        told = f"accounts left their shares unused for a day or more {plural(len(away), 'time')}: too seldom to tell"
        return _same(policy, "window", told, {"spells": len(away)})
    usual = away[-(-9 * len(away) // 10) - 1]
    wanted = next((each for each in WINDOWS if each >= 2 * usual * DAY), WINDOWS[-1])
    because = (
        f"accounts are away for up to {plural(usual, 'day')} at a time (nine of ten of {len(away)} spells): in a "
        "window of twice that, who returns still has before it most of what it left to others"
    )
    evidence = {"spells": len(away), "p90_days": usual, "longest_days": away[-1]}
    return Suggestion("window", "window", format_duration(policy.window), format_duration(wanted), because, evidence)


def _spells(trace: Trace, seen: Measures) -> dict[str, list[int]]:
    """Of each account with a share: how many days in a row it used little of it, between days on which it used it."""
    shares = dict(_promised(trace))
    found: dict[str, list[int]] = {}
    for path, days in days_of(seen).accounts.items():
        promised = shares.get(path, 0)
        if promised:
            found[path] = list(_runs_of([used < AWAY * promised for used in days.used]))
    return found


def _promised(trace: Trace) -> Iterator[tuple[str, float]]:
    """(account, GPU-hours of weight 1 that its share promises it a day), in each ledger."""
    pools = trace.cluster.pools
    for ledger in trace.budgets.ledgers([pool.name for pool in pools]):
        capacity = sum(pools[number].charge_units for number in ledger.pools) / UNIT * 24
        for path, _, share in ledger.budgets.walk():
            yield ledger_path(ledger.name, path), share / WHOLE * capacity


def _runs_of(away: Sequence[bool]) -> Iterator[int]:
    """Lengths of stretches of True that have False on both sides."""
    length, begun = 0, False
    for each in away:
        if each:
            length += 1
            continue
        if begun and length:
            yield length
        length, begun = 0, True


def _cap(trace: Trace, policy: Policy) -> Suggestion:
    """The shortest within which nine of ten GPU-hours reach a safe place: the end, or the first checkpoint."""
    safe = sorted((_first_safe(each), each.workload.shape.gpus or 1) for each in trace.arrivals)
    whole = sum(gpus for _, gpus in safe)
    covered = {cap: sum(gpus for span, gpus in safe if span <= cap) / whole if whole else 1.0 for cap in CAPS}
    wanted = next((cap for cap in CAPS if covered[cap] >= COVERED), CAPS[-1])
    told = ", ".join(f"{covered[cap]:.0%} in {format_duration(cap)}" for cap in CAPS)
    because = f"work that is safe, at its end or its first checkpoint, within a cap (by GPUs): {told}"
    evidence = {"covered": {format_duration(cap): round(part, 4) for cap, part in covered.items()}}
    return Suggestion("cap", "min_runtime_cap", format_duration(policy.min_runtime_cap), format_duration(wanted),
                      because, evidence)  # fmt: skip


def _first_safe(arrival: Arrival) -> Duration:
    """Running time after which something of it is safe."""
    return min(arrival.run, arrival.saves_every) if arrival.saves_every else arrival.run


def _margin(policy: Policy, noted: Evidence, report: Json) -> Suggestion:
    """Wider where runs are stopped again and again, narrower where hardly anything is and people starve."""
    stops = noted.stops["all"].preempted
    again = noted.again / stops if stops else 0.0
    starved = report["metrics"]["starvation_s"] or 0.0
    evidence = {"preemptions": stops, "again_within_a_day": noted.again, "lost_ratio": report["metrics"]["lost_ratio"],
                "starvation_s": starved}  # fmt: skip
    told = f"{noted.again:,} of {stops:,} preemptions hit a workload that had been stopped within a day ({again:.0%})"
    wanted = policy.margin
    if again > OFTEN:
        wanted = min(300, policy.margin + 50)
    elif policy.margin > 50 and starved > policy.min_runtime_cap / SECOND:
        wanted = policy.margin - 50
        told += f"; an account below its share waited {starved / 3600:.1f} h for its turn, longer than the cap"
    return Suggestion("margin", "margin", f"{policy.margin / 10:g}%", f"{wanted / 10:g}%", told, evidence)


def _same(policy: Policy, name: str, because: str, evidence: Json) -> Suggestion:
    value = format_setting(policy, name)
    return Suggestion(name, name, value, value, because, evidence)


# --- checkpoints ------------------------------------------------------------------------------------------------------
def young(cost: float, between: float) -> float:
    """Young's interval between checkpoints (1974): the square root of 2 x cost x mean time between stops."""
    return sqrt(2 * cost * between)


def daly(cost: float, between: float) -> float:
    """Daly's interval (2006), of higher order: better where a checkpoint costs much of the time between stops."""
    if cost >= 2 * between:
        return between
    part = cost / (2 * between)
    return young(cost, between) * (1 + sqrt(part) / 3 + part / 9) - cost


def _checkpoints(trace: Trace, noted: Evidence, asks: Asks, cost: Duration) -> Iterator[Json]:
    """Of each class that was stopped: how often, and the intervals that this asks for."""
    present: dict[str, list[Duration]] = {}
    for arrival in trace.arrivals:
        if arrival.saves_every:
            present.setdefault(kind_of(arrival, asks), []).append(arrival.saves_every)
    for kind, stops in noted.stops.items():
        between = stops.between
        if between is None or kind == "all":
            continue
        own = present.get(kind, [])
        yield {
            "class": kind,
            "preemptions": stops.preempted,
            "node_failures": stops.failed,
            "ran_h": round(stops.ran / HOUR, 3),
            "between_stops_s": between / SECOND,
            "present_s": median(own) / SECOND if own else None,
            "young_s": round(young(cost / SECOND, between / SECOND), 1),
            "daly_s": round(daly(cost / SECOND, between / SECOND), 1),
        }


def _of_checkpoints(found: Iterable[Json]) -> Iterator[Suggestion]:
    """Where the present interval is more than twice the best, or less than half of it."""
    for each in found:
        wanted, present = each["daly_s"], each["present_s"]
        if wanted <= 0 or (present is not None and wanted / 2 <= present <= 2 * wanted):
            continue
        stops = each["preemptions"] + each["node_failures"]
        hours = each["between_stops_s"] / 3600
        because = (f"{each['class']} ran {hours:,.1f} h for each of {plural(stops, 'stop')}; "
                   f"Young says {_spelt(each['young_s'])}, Daly {_spelt(wanted)}")  # fmt: skip
        yield Suggestion(f"checkpoints of {each['class']}", "", "never" if present is None else _spelt(present),
                         _spelt(wanted), because, each)  # fmt: skip


def _spelt(seconds: float) -> str:
    return format_duration(max(MINUTE, round(seconds / 60) * MINUTE))


# --- people's work ----------------------------------------------------------------------------------------------------
def _recovery(trace: Trace) -> list[Json]:
    """By account: GPU-hours of work that goes on from a checkpoint, that begins anew, and that is lost when stopped."""
    found: dict[str, Json] = {}
    for arrival in trace.arrivals:
        workload = arrival.workload
        row = found.setdefault(str(workload.account), {
            "account": str(workload.account), "recovers_h": 0.0, "begins_anew_h": 0.0, "is_lost_h": 0.0,
            "workloads_without": 0, "largest": [],
        })  # fmt: skip
        amount = workload.shape.gpus * arrival.run / HOUR
        key = "is_lost_h" if not workload.resume else "recovers_h" if arrival.saves_every else "begins_anew_h"
        row[key] += amount
        if key != "recovers_h":
            row["workloads_without"] += 1
            row["largest"].append((-amount, str(workload.id)))
    for row in found.values():
        row["largest"] = [{"id": name, "gpu_h": round(-amount, 3)} for amount, name in sorted(row["largest"])[:LARGEST]]
        for key in ("recovers_h", "begins_anew_h", "is_lost_h"):
            row[key] = round(row[key], 3)
    return sorted(found.values(), key=lambda row: (-(row["begins_anew_h"] + row["is_lost_h"]), row["account"]))


def _holders(trace: Trace, asks: Asks) -> Iterator[Json]:
    """By class: GPU-hours of work that ran into its time limit, which is not known to have finished."""
    sums: dict[str, list[float]] = {}
    for arrival in trace.arrivals:
        limit = arrival.workload.shape.time_limit
        amount = arrival.workload.shape.gpus * arrival.run / HOUR
        row = sums.setdefault(kind_of(arrival, asks), [0, 0, 0.0, 0.0])
        row[0] += 1
        row[2] += amount
        if limit is not None and arrival.run >= limit:
            row[1] += 1
            row[3] += amount
    for kind in CLASSES:
        if kind in sums:
            count, unfinished, hours, unfinished_h = sums[kind]
            yield {"class": kind, "workloads": count, "unfinished": unfinished, "gpu_h": round(hours, 3),
                   "unfinished_gpu_h": round(unfinished_h, 3)}  # fmt: skip


def _idle(report: Json, trace: Trace, asks: Asks) -> Json:
    """GPUs that nobody had, that a hold kept empty, and that sessions sat on."""
    series, step_h = report["series"], report["series"]["step_s"] / 3600
    free = sum(max(0.0, up - busy) for up, busy in zip(series["schedulable"], series["busy"], strict=True)) * step_h
    wanted = sum(
        max(0.0, min(up, demand) - busy)
        for up, busy, demand in zip(series["schedulable"], series["busy"], series["demand"], strict=True)
    )
    sessions = sum(
        each.workload.shape.gpus * each.run / HOUR for each in trace.arrivals if kind_of(each, asks) == "session"
    )
    hours = max(step_h, len(series["busy"]) * step_h)
    return {
        "idle_gpu_h": round(free, 3),
        "idle_gpus": round(free / hours, 3),
        "idle_while_wanted_gpu_h": round(wanted * step_h, 3),
        "held_idle_gpu_h": round(sum(series["held_idle"]) * step_h, 3),
        "session_gpu_h": round(sessions, 3),
        "session_gpus": round(sessions / hours, 3),
    }


def _teams(report: Json, price: float | None) -> Iterator[Json]:
    """By account: its share, what it used of all that ran, and what that costs."""
    whole = sum(each["charged"] + each["uncharged"] for each in report["by_account"].values())
    for path, each in report["by_account"].items():
        used = each["charged"] + each["uncharged"]
        yield {
            "account": path,
            "share": each["share"],
            "used_h": round(used, 3),
            "part": round(used / whole, 6) if whole else 0.0,
            "lost_h": each["lost"],
            "cost": None if price is None else round(used * price, 2),
            "lost_cost": None if price is None else round(each["lost"] * price, 2),
        }


def advised(
    trace: Trace, policy: Policy, *, price: float | None = None, checkpoint_cost: Duration = CHECKPOINT_COST,
    progress: Callable[[Instant], None] | None = None,
) -> Json:  # fmt: skip
    """Replay the log once, and say what it says."""
    from mirab.study.replays import measure

    noted = Evidence(trace)
    seen, _ = measure(trace, policy, journals=(noted,), progress=progress)
    return advise(trace, policy, seen, noted, price=price, checkpoint_cost=checkpoint_cost)
