"""The JSON report, put together from what was counted. Keys are stable; see docs/reference/measures.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mirab import __version__
from mirab.model.accounts import ledger_of
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import UNIT, WHOLE, Duration, format_duration
from mirab.study.bycontract import ByContract
from mirab.study.demand import counted_pools
from mirab.study.exceptions import exceptions_part
from mirab.study.owed import (
    AT_95,
    Leaf,
    Verdict,
    delivered,
    ratio,
    scaled_unit_hours,
    seconds,
    slot_hours,
    unit_hours,
    verdict,
)
from mirab.study.pyramid import shape_name
from mirab.study.sustained import sustained, sustained_metrics
from mirab.study.waits import Waits, percentile_s, quantiles_s

if TYPE_CHECKING:
    from mirab.study.measures import Measures

Report = dict[str, Any]


def report(seen: Measures, performance: Report | None) -> Report:
    """Everything, by the schema. The same facts give the same bytes; only `performance` may differ."""
    _settle(seen)
    waits, progress, by_contract = _still_waiting(seen)
    spans = waits.sorted_spans()
    leaves = list(seen.ledger.leaves.values())
    return {
        "mirab": __version__,
        "policy": policy_fields(seen.policy),
        "input": input_part(seen.trace) | _ledgers_part(seen),
        "metrics": {
            **_budget_metrics(seen, leaves),
            **_pyramid_metrics(seen),
            **_trouble_metrics(seen),
            "waits": waits.summary(spans),
            "first_progress": progress.summary(progress.sorted_spans()),
            "by_contract": by_contract.summary(seen.trace.arrivals, seen.trace.cluster),
        },
        "by_account": _by_account(seen, leaves),
        "exceptions": exceptions_part(seen.trace),
        "series": seen.series.report(seen.usage.installed, leaves),
        "distributions": {name: {"wait_s": quantiles_s(found)} for name, found in spans.items()},
        "performance": performance or {},
    }


def policy_fields(policy: Policy) -> Report:
    """Every setting of a policy; durations as strings with units."""
    return {each.name: _setting(getattr(policy, each.name), str(each.type)) for each in fields(policy)}


def _setting(value: Any, kind: str) -> Any:
    return format_duration(value) if "Duration" in kind and value is not None else value


def input_part(trace: Trace) -> Report:
    """What was replayed."""
    pools = trace.cluster.pools
    return {
        "name": trace.name,
        "unit": trace.cluster.unit,
        "rows": trace.rows or len(trace.arrivals),
        "used": len(trace.arrivals),
        "dropped": {
            reason: {"count": count, "lines": list(lines)} for reason, (count, lines) in sorted(trace.dropped.items())
        },
        "notes": list(trace.notes),
        "nodes": sum(len(pool.nodes) for pool in pools),
        "slots": sum(pools[number].slots for number in counted_pools(trace.cluster)),
        "starts_s": seconds(trace.starts_at),
        "ends_s": seconds(trace.ends_at),
        "origin_unix_s": seconds(trace.origin),
    }


def _ledgers_part(seen: Measures) -> Report:
    """The ledgers, with the units that are installed in each; nothing where there is but one."""
    if not seen.ledger.parted:
        return {}
    found = [{"name": name, "pools": pools, "units": units / UNIT} for name, pools, units in seen.ledger.parts()]
    return {"ledgers": found}


def _settle(seen: Measures) -> None:
    for leaf in seen.ledger.leaves.values():
        leaf.settle(seen.where.clock)


def _still_waiting(seen: Measures) -> tuple[Waits, Waits, ByContract]:
    """The waits, with those of the workloads that are still in the queue, or still without a checkpoint."""
    waits, progress, by_contract = seen.waits.copy(), seen.first_progress.copy(), seen.by_contract.copy()
    for job in seen.jobs.values():
        if not job.started:
            waits.add(job.kind, job.waited(seen.now), reached=False)
            by_contract.add(job, job.waited(seen.now), reached=False)
        if not job.progressed:
            saved_at = job.run.progress_at(seen.now) if job.run is not None else None
            progress.add(job.kind, job.waited(saved_at or seen.now), reached=saved_at is not None)
    return waits, progress, by_contract


def _budget_metrics(seen: Measures, leaves: Sequence[Leaf]) -> Report:
    """Owed and delivered, over all leaves and windows; see `docs/reference/measures.md`."""
    windows = [window for window in seen.period.windows if window[1] <= seen.now]
    verdicts = [verdict(leaf, windows) for leaf in leaves]
    judged = [each for each in verdicts if each.owed]
    part, whole = AT_95
    whole_period = [_whole_period(leaf) for leaf in leaves]
    owed = sum(each.owed for each in whole_period)
    allocated = sum(leaf.charged + leaf.uncharged for leaf in leaves)
    steady = [sustained(leaf, windows) for leaf in leaves]
    return {
        "delivered_ratio": ratio(sum(each.delivered for each in judged), sum(each.owed for each in judged)),
        "delivered_ratio_worst": min((ratio(each.delivered, each.owed) or 0.0 for each in judged), default=None),
        "accounts_at_95": sum(each.delivered * whole >= each.owed * part for each in judged),
        "accounts": len(judged),
        "delivered_ratio_period": ratio(sum(each.delivered for each in whole_period), owed),
        "owed_given_up": ratio(sum(leaf.given_up for leaf in leaves), owed),
        "useful_ratio": ratio(sum(each.useful for each in judged), sum(each.owed for each in judged)),
        "unallocated_ratio": ratio(allocated * WHOLE - sum(leaf.within for leaf in leaves), allocated * WHOLE),
        "unallocated_ratio_period": ratio(
            allocated * WHOLE - sum(each.delivered for each in whole_period), allocated * WHOLE
        ),
        **sustained_metrics(steady),
    }


def _whole_period(leaf: Leaf) -> Verdict:
    got = leaf.so_far()
    return Verdict(got.owed, delivered(got), 0)


def _pyramid_metrics(seen: Measures) -> Report:
    usage = seen.usage
    length = seen.where.clock - seen.period.starts_at
    return {
        "occupancy": ratio(usage.busy_time, usage.capacity_time),
        "occupancy_of_demand": ratio(usage.busy_time, usage.served_time),
        "availability": ratio(usage.capacity_time, usage.installed * length),
        "utilization": None,
        "lost_ratio": ratio(seen.lost, usage.busy_time),
        "fragmentation_ratio": ratio(sum(usage.idle_time.values()), usage.capacity_time),
        "fragmentation_by_shape": {
            shape_name(shape): ratio(amount, usage.capacity_time) for shape, amount in sorted(usage.idle_time.items())
        },
        "held_idle_ratio": ratio(usage.held_time, usage.capacity_time),
    }


def _trouble_metrics(seen: Measures) -> Report:
    overdue = frozenset(
        watch.serial for run in seen.runs.values() for watch in run.watches if seen.is_overdue(run, watch, seen.now)
    )
    makespan = max(0, seen.last_end - seen.first_at) if seen.first_at is not None else 0
    starved: Duration | None = seen.starvation.longest if seen.starvation.sampled else None
    return {
        "preemptions": sum(seen.preemptions.values()),
        "preemptions_by_cause": dict(sorted(seen.preemptions.items())),
        "contract_violations": seen.audit.count,
        "repairs": seen.repairs.events,
        "repairs_needing_human": seen.repairs.needing_human(overdue),
        "starvation_s": seconds(starved),
        "starvation_workload": seen.starvation.whose,
        "makespan_s": seconds(makespan),
        "rejected": seen.rejected,
        "deadlines": {"count": seen.deadlines, "met": seen.deadlines_met},
    }


def _by_account(seen: Measures, leaves: Sequence[Leaf]) -> Report:
    windows = [window for window in seen.period.windows if window[1] <= seen.now]
    waiting: dict[str, list[Duration]] = {}
    for job in seen.jobs.values():
        if not job.started:
            waiting.setdefault(job.leaf.path, []).append(job.waited(seen.now))
    told: Report = {leaf.path: _account(leaf, windows, waiting.get(leaf.path, [])) for leaf in leaves}
    if seen.ledger.parted:
        for leaf in leaves:
            told[leaf.path] |= {
                "ledger": ledger_of(leaf.path), "share_of_all": round(seen.ledger.share_of_all(leaf) / WHOLE, 9)
            }  # fmt: skip
    return told


def _account(leaf: Leaf, windows: Sequence[tuple[int, int]], waiting: Sequence[Duration]) -> Report:
    judged = verdict(leaf, windows)
    period = _whole_period(leaf)
    waits = sorted([*leaf.waits, *waiting])
    return {
        "share": round(leaf.share / WHOLE, 9),
        "owed": scaled_unit_hours(period.owed),
        "delivered": scaled_unit_hours(period.delivered),
        "delivered_ratio": ratio(judged.delivered, judged.owed),
        "delivered_ratio_period": ratio(period.delivered, period.owed),
        "owed_given_up": scaled_unit_hours(leaf.given_up),
        "charged": unit_hours(leaf.charged),
        "uncharged": unit_hours(leaf.uncharged),
        "lost": slot_hours(leaf.lost),
        "preempted": leaf.preempted,
        "sustained": sustained(leaf, windows).part(),
        "waits": {"count": len(waits), "p50_s": percentile_s(waits, 50), "p90_s": percentile_s(waits, 90)},
    }
