"""Made-up reports in the form of the real ones: any number of accounts, any policy, plausible or empty."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from mirab.model.policy import POLICIES, Policy
from mirab.study.figures import policy_fields

TEAMS = (
    "language/pretrain", "language/posttrain", "language/data", "vision/multimodal", "vision/video", "vision/eval",
    "robotics/sim-rl", "robotics/policy", "robotics/bench", "science/agents", "science/literature", "science/climate",
    "platform/infra", "platform/serving", "platform/security",
)  # fmt: skip
CLASSES = ("all", "session", "debug", "small", "medium", "large", "huge")
SLOTS = 1024
HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b'c\"d", "x" * 200, "équipe/数据/ﷺ",
    "javascript:alert(1)", "{{ 7*7 }}", "</style><script>", "\u202egnp.exe", "-->", "]]>", "%s{0}",
)  # fmt: skip

GOODNESS = {"budget": 1.0, "priority": 0.35, "fifo": 0.3, "fair-tree": 0.6, "quota": 0.7}


def report(
    policy: str = "budget", accounts: Sequence[str] = TEAMS, days: int = 30, seed: int = 7, step_h: int = 1
) -> dict[str, Any]:
    """A plausible report; the same arguments give the same report."""
    draw = random.Random(f"{policy} {seed} {len(accounts)}")
    good = GOODNESS.get(policy, 0.5)
    steps = days * 24 // step_h
    series = _series(draw, good, accounts, steps, step_h * 3600)
    by_account = {name: _account(draw, good, name, len(accounts), days) for name in accounts}
    ratios = [each["delivered_ratio"] for each in by_account.values()]
    owed = sum(each["owed"] for each in by_account.values())
    metrics: dict[str, Any] = {
        "delivered_ratio": sum(e["owed"] * e["delivered_ratio"] for e in by_account.values()) / owed if owed else None,
        "delivered_ratio_worst": min(ratios, default=None),
        "accounts_at_95": sum(each >= 0.95 for each in ratios),
        "accounts": len(ratios),
        "delivered_ratio_period": 0.99 * good**0.1,
        "owed_given_up": 0.012 / good,
        "useful_ratio": 0.96 * good**0.2,
        "unallocated_ratio": 0.18,
        "occupancy": 0.981 * good**0.02,
        "occupancy_of_demand": 0.989 * good**0.02,
        "availability": 0.991,
        "utilization": None,
        "lost_ratio": 0.021 if policy in ("budget", "priority") else 0.0,
        "preemptions": 2140 if policy in ("budget", "priority") else 0,
        "preemptions_by_cause": (
            {"drain": 212, "hold": 160, "reclaim": 1403, "uncharged": 365} if policy == "budget"
            else {"priority": 2140} if policy == "priority" else {}
        ),
        "contract_violations": 0,
        "fragmentation_ratio": 0.004 / good,
        "fragmentation_by_shape": {"1x2": 0.0004, "4x8": 0.001, "16x8": 0.0021 / good, "64x8": 0.0005},
        "held_idle_ratio": 0.003 * good,
        "repairs": 61,
        "repairs_needing_human": round(61 * (1 - good)) + 3,
        "starvation_s": 29_000 / good**2,
        "makespan_s": 31.2 * 86400,
        "rejected": 2,
        "deadlines": {"count": 40, "met": round(38 * good**0.5)},
        "waits": {name: _waits(draw, good, place) for place, name in enumerate(CLASSES)},
        "first_progress": {name: _waits(draw, good * 0.9, place) for place, name in enumerate(CLASSES)},
        "by_contract": {
            contract: {
                name: _waits(draw, good, place) | {"work": 1000.0 * (place + 1), "work_unstarted": part * (place + 1)}
                for place, name in enumerate(CLASSES)
            }
            for contract, part in (("charged", 5.0), ("uncharged", 400.0))
        },
    }  # fmt: skip
    return {
        "mirab": "0.1.0",
        "policy": policy_fields(POLICIES.get(policy, Policy(name=policy))),
        "input": {
            "name": "reference", "unit": "gpu", "rows": 41300, "used": 41250,
            "dropped": {"no submit time": {"count": 38, "lines": [12, 90, 1044, 1045, 7001]},
                        "more GPUs than installed": {"count": 12, "lines": [77]}},
            "notes": ["cluster taken from the file", "minimums from the log", "15 accounts from budgets"],
            "nodes": 128, "slots": SLOTS, "starts_s": 0, "ends_s": days * 86400, "origin_unix_s": None,
        },
        "metrics": metrics,
        "by_account": by_account,
        "series": series,
        "distributions": {name: {"wait_s": _quantiles(good, place)} for place, name in enumerate(CLASSES)},
        "performance": {"wall_s": 6.1, "workloads_per_s": 6760.0, "passes": 120_000, "peak_rss_mib": 143.0},
    }  # fmt: skip


def _account(draw: random.Random, good: float, name: str, of: int, days: int) -> dict[str, Any]:
    share = 1 / max(1, of) * draw.uniform(0.5, 1.5)
    owed = share * SLOTS * 24 * days * draw.uniform(0.6, 1)
    ratio = min(1.0, max(0.1, 1 - abs(draw.gauss(0, 0.4)) * (1.06 - good)))
    return {
        "share": share, "owed": owed, "delivered": owed * ratio, "delivered_ratio": ratio,
        "delivered_ratio_period": ratio, "owed_given_up": owed * 0.01, "charged": owed * draw.uniform(0.9, 1.4),
        "uncharged": owed * 0.1, "lost": owed * 0.02, "preempted": draw.randrange(200),
        "waits": {"count": draw.randrange(300, 4000), "p50_s": draw.choice([0.0, 3.0, 40.0]),
                  "p90_s": draw.uniform(60, 20000) / good},
    }  # fmt: skip


def _waits(draw: random.Random, good: float, place: int) -> dict[str, Any]:
    quantiles = _quantiles(good, place)
    count = (41250, 900, 17000, 12000, 8000, 2900, 450)[place]
    return {
        "count": count, "started": round(count * 0.97), "mean_s": sum(quantiles) / 101, "p50_s": quantiles[50],
        "p90_s": quantiles[90], "p99_s": quantiles[99], "max_s": quantiles[100],
    }  # fmt: skip


def _quantiles(good: float, place: int) -> list[float]:
    scale = (60, 3, 2, 30, 200, 2000, 12000)[place] / good**4
    return [0.0 if p < 30 * good else round(min(scale * math.expm1(p / 18) / 20, 172_800), 3) for p in range(101)]


def _series(draw: random.Random, good: float, accounts: Sequence[str], steps: int, step_s: int) -> dict[str, Any]:
    day = 86400 / step_s
    schedulable = [SLOTS - 8 * max(0, round(draw.gauss(1, 1.2))) for _ in range(steps)]
    demand = [SLOTS * (1.5 + 0.8 * math.sin(step / day * 2 * math.pi) + step / steps) for step in range(steps)]
    if steps > 5:
        demand[4 : steps // 10] = [700.0] * (steps // 10 - 4)
    busy = [min(c, d) * (1 - abs(draw.gauss(0, 0.02))) for c, d in zip(schedulable, demand, strict=True)]
    eviction = good in (1.0, 0.35)
    return {
        "step_s": step_s,
        "t_s": [step * step_s for step in range(steps)],
        "installed": [SLOTS] * steps,
        "schedulable": schedulable,
        "busy": busy,
        "demand": demand,
        "held_idle": [min(c - b, abs(draw.gauss(0, 5))) for c, b in zip(schedulable, busy, strict=True)],
        "lost": [abs(draw.gauss(20, 9)) * eviction for _ in range(steps)],
        "preemptions": [draw.randrange(8) * eviction for _ in range(steps)],
        "accounts": {name: _account_series(draw, good, steps) for name in accounts},
    }


def _account_series(draw: random.Random, good: float, steps: int) -> dict[str, Any]:
    ratio, ratios = 1.0, []
    for _ in range(steps):
        ratio = max(0.0, ratio + draw.gauss(0, 0.02) + (1 - ratio) * 0.02 * good)
        ratios.append(round(ratio, 4))
    owed = [draw.uniform(40, 80) for _ in range(steps)]
    return {"ratio": ratios, "owed": owed, "delivered": [each * draw.uniform(0.8, 1) for each in owed]}


def empty_report(policy: str = "budget") -> dict[str, Any]:
    """A replay in which nothing happened: every measure that can be absent is."""
    made = report(policy, accounts=(), days=0)
    metrics = made["metrics"]
    for key in metrics:
        if isinstance(metrics[key], float):
            metrics[key] = None
    nothing = {"count": 0, "started": 0, "mean_s": None, "p50_s": None, "p90_s": None, "p99_s": None, "max_s": None}
    metrics |= {"preemptions": 0, "preemptions_by_cause": {}, "fragmentation_by_shape": {}, "accounts": 0}
    metrics |= {"waits": dict.fromkeys(CLASSES, nothing), "first_progress": dict.fromkeys(CLASSES, nothing)}
    metrics |= {"accounts_at_95": 0, "repairs": 0, "repairs_needing_human": 0, "deadlines": {"count": 0, "met": 0}}
    made["input"] |= {"rows": 0, "used": 0, "dropped": {}, "notes": [], "name": "empty"}
    made["distributions"] = {name: {"wait_s": []} for name in CLASSES}
    made["performance"] = {}
    return made
