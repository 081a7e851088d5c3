"""The exceptions and reservations of a replay, for people who have to answer for them."""

from __future__ import annotations

from typing import Any

from mirab.model.accounts import Budgets, left_by
from mirab.model.policy import DRAIN_PAUSE, Exemption, Reservation
from mirab.model.resources import Cluster
from mirab.model.trace import Trace
from mirab.model.units import HOUR, UNIT, WHOLE, AccountPath, Instant
from mirab.study.owed import seconds

Part = dict[str, Any]


def exceptions_part(trace: Trace) -> list[Part]:
    """Every exception and reservation with the unit-hours that it sets aside inside the period, by begin and id.

    `in_force`: whether it holds when the period ends. `unit_hours` is None where nothing is set aside beforehand (a
    longer minimum, a guarantee): what those cost only a second replay can say.
    """
    found = [_exemption(each, trace) for each in trace.exemptions]
    found += [_reservation(each, trace) for each in trace.reservations]
    return sorted(found, key=lambda each: (each["begin_s"], each["kind"], each["id"]))


def _exemption(held: Exemption, trace: Trace) -> Part:
    rate = extra_units(held.share, held.donor, trace.cluster, trace.budgets) if held.kind == "extra-share" else None
    if held.kind == DRAIN_PAUSE:
        pool = next((pool for pool in trace.cluster.pools if held.node in pool.nodes), None)
        rate = None if pool is None else pool.slots_per_node * pool.weight / UNIT
    return _told(held, held.kind, rate, trace)


def _reservation(held: Reservation, trace: Trace) -> Part:
    weights = [pool.weight for pool in trace.cluster.pools if not held.pool or pool.name == held.pool]
    rate = held.nodes * held.gpus_per_node * max(weights, default=UNIT) / UNIT
    return _told(held, "reservation", rate, trace)


def _told(held: Exemption | Reservation, kind: str, rate: float | None, trace: Trace) -> Part:
    inside = max(0, min(held.end, trace.ends_at) - max(held.begin, trace.starts_at))
    return {
        "id": held.id,
        "kind": kind,
        "account": held.account,
        "owner": held.owner,
        "approver": held.approver,
        "reason": held.reason,
        "donor": getattr(held, "donor", "") or None,
        "begin_s": seconds(held.begin),
        "end_s": seconds(held.end),
        "in_force": in_force(held, trace.ends_at),
        "unit_hours": None if rate is None else round(rate * inside / HOUR, 3),
    }


def in_force(held: Exemption | Reservation, now: Instant) -> bool:
    return held.begin <= now < held.end


def extra_units(share: int, donor: str, cluster: Cluster, budgets: Budgets) -> float:
    """Charge units that an extra share is of; where pools have shares of their own, no more of each than is there.

    Args:
        donor: who gives it, by what they have in each ledger; "" = what is assigned to nobody.
    """
    if not budgets.pools_named():
        return share * installed_units(cluster) / WHOLE
    whole = 0
    for ledger in budgets.ledgers(cluster.pool_names):
        held = {path: each for path, _, each in ledger.budgets.walk()}
        given = min(share, held.get(AccountPath(donor), 0) if donor else left_by(ledger.budgets.roots))
        whole += given * sum(cluster.pools[number].charge_units for number in ledger.pools)
    return whole / UNIT / WHOLE


def installed_units(cluster: Cluster) -> float:
    """Charge units of all nodes."""
    return cluster.charge_units / UNIT
