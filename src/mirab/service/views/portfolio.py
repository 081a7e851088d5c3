"""What exceptions cost, and how a live service does against gates: the portfolio plane, to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mirab.model.accounts import Budgets, covers
from mirab.model.policy import DRAIN_PAUSE
from mirab.model.resources import Cluster
from mirab.model.units import HOUR, UNIT, Instant, format_duration, format_share, plural
from mirab.service.desk.cases import GRANTED, RESERVATION, Case
from mirab.service.views.moments import iso
from mirab.study.exceptions import extra_units

Part: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an exception sets aside, in GPU-hours (charge units of weight 1).

    Attributes:
        rate: GPUs at a time; None = it sets nothing aside beforehand, and only a replay says what it costs.
        whole, so_far: over its whole time, and until now.
        payers: account -> its part of `whole`.
        told: a sentence.
    """

    rate: float | None
    whole: float | None
    so_far: float | None
    payers: Mapping[str, float] = field(default_factory=dict)
    told: str = ""


def cost(case: Case, cluster: Cluster, budgets: Budgets, now: Instant) -> Cost:
    """What the case costs whom, by the budgets and the cluster of now."""
    rate = _rate(case, cluster, budgets)
    if rate is None:
        return Cost(None, None, None, told=_UNSET.get(case.kind, "it sets nothing aside"))
    held = max(0, min(now, case.end) - case.begin) if case.state == GRANTED else 0
    whole = rate * (case.end - case.begin) / HOUR
    payers = _payers(case, cluster, budgets, whole)
    return Cost(rate, whole, rate * held / HOUR, payers, _told(case, rate))


_UNSET = {
    "longer-minimum": "sets nothing aside: whoever is owed waits longer for its runs; `mirab whatif --with-exception` "
    "says how long",
    "guaranteed": "sets nothing aside: nobody gets a GPU by stopping its runs; `mirab whatif --with-exception` says "
    "what that costs",
    "rollout": "costs nobody a GPU: it only lets an account be governed although its gates are not met",
}


def _rate(case: Case, cluster: Cluster, budgets: Budgets) -> float | None:
    """GPUs that it sets aside at a time."""
    if case.kind == "extra-share":
        return extra_units(case.share, case.donor, cluster, budgets)
    if case.kind == RESERVATION:
        weights = [pool.weight for pool in cluster.pools if case.pool in ("", pool.name) and pool.slots_per_node]
        return case.nodes * case.gpus_per_node * max(weights, default=UNIT) / UNIT
    if case.kind == DRAIN_PAUSE:
        pool = next((pool for pool in cluster.pools if case.node in pool.nodes), None)
        return None if pool is None else pool.slots_per_node * pool.weight / UNIT
    return None


def _tree_of(case: Case, cluster: Cluster, budgets: Budgets) -> Budgets:
    """The shares that hold where it sets something aside: those of its pool, if it has shares of its own."""
    pool = next((pool.name for pool in cluster.pools if case.node in pool.nodes), case.pool) if case.node else case.pool
    ledgers = budgets.ledgers(cluster.pool_names)
    return next((ledger.budgets for ledger in ledgers if ledger.name == pool), ledgers[0].budgets)


def _payers(case: Case, cluster: Cluster, budgets: Budgets, whole: float) -> dict[str, float]:
    """The donor; for a reservation and a paused drain all others in proportion to what they are promised."""
    if case.kind == "extra-share":
        return {case.donor: whole} if case.donor else {}
    others = {
        path: share
        for path, budget, share in _tree_of(case, cluster, budgets).walk()
        if not budget.children and share and not covers(case.account, path)
    }
    promised = sum(others.values())
    return {path: whole * share / promised for path, share in others.items()} if promised else {}


def _told(case: Case, rate: float) -> str:
    gpus = plural(round(rate, 1), "GPU")
    if case.kind == "extra-share":
        return f"{gpus} more for {case.account}, from {case.donor or 'what is promised to nobody'}"
    if case.kind == DRAIN_PAUSE:
        return f"{gpus} of {case.node} that are neither repaired nor given to anybody else, at most"
    return f"{gpus} set aside for {case.account}, and charged to it whether used or not"


def case_part(case: Case, cluster: Cluster, budgets: Budgets, now: Instant, note: str = "") -> Part:
    """The case as JSON."""
    costs = cost(case, cluster, budgets, now)
    standing = case.standing(now)
    return {
        "id": case.id,
        "kind": case.kind,
        "account": case.account,
        "owner": case.owner,
        "approver": case.approver,
        "reason": case.reason,
        "state": standing,
        "decided": case.decided,
        "asked_at": iso(case.asked_at),
        "begin": iso(case.begin),
        "end": iso(case.end),
        "ends_soon": standing == "in force" and case.warn_at <= now,
        "terms": _terms(case),
        "gpus": costs.rate,
        "gpu_hours": _round(costs.whole),
        "gpu_hours_so_far": _round(costs.so_far),
        "paid_by": {path: round(hours, 3) for path, hours in costs.payers.items()},
        "cost": costs.told,
        "note": note,
    }


def _round(hours: float | None) -> float | None:
    return None if hours is None else round(hours, 3)


def _terms(case: Case) -> str:
    """What is excepted, in a few words."""
    if case.kind == "longer-minimum":
        return f"minimum up to {format_duration(case.cap)}"
    if case.kind == "extra-share":
        return f"{format_share(case.share)} of the cluster, from {case.donor or 'the unassigned rest'}"
    if case.kind == RESERVATION:
        where = f" of {case.pool}" if case.pool else ""
        return f"{case.nodes} x {plural(case.gpus_per_node, 'GPU')}{where}"
    if case.kind == DRAIN_PAUSE:
        return f"no drain stops what runs on {case.node}"
    return ""
