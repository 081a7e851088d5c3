"""Reservations: GPUs for an account from a fixed instant on. The core says whether it can keep the promise."""

from __future__ import annotations

from dataclasses import replace

from mirab.core.reservations import earliest, lead, longest_minimum
from mirab.core.state import State
from mirab.model.plans import HoldReleased, Plan
from mirab.model.units import MINUTE, SECOND, Instant
from mirab.service.desk.cases import ASKED, RESERVATION, Case
from mirab.service.desk.errors import invalid
from mirab.study.budgettext import minute
from mirab.study.formats import plural, span


def in_a_pool(case: Case, state: State) -> Case:
    """The reservation with the pool that is meant: that of GPUs, where it names none and there is only one.

    A pool without GPUs has cores in place of them, and nobody who asks for GPUs means those.
    """
    if case.kind != RESERVATION or case.pool:
        return case
    named = [pool.name for pool in state.cluster.pools if pool.gpus_per_node]
    if len(named) == 1:
        return replace(case, pool=named[0])
    if named and len(named) < len(state.cluster.pools):
        raise invalid(f"there are several pools of GPUs, {', '.join(named)}: say which with --pool")
    return case


def check_size(case: Case, state: State) -> None:
    """Raises DeskError where no pool is large enough, whatever else is promised."""
    if case.nodes < 1 or case.gpus_per_node < 1:
        raise invalid("a reservation is of at least one node and one GPU: say --nodes and --gpus-per-node")
    pools = [pool for pool in state.cluster.pools if case.pool in ("", pool.name)]
    if not pools:
        raise invalid(f"there is no pool {case.pool}: there are {', '.join(state.cluster.pool_names)}")
    fitting = [pool for pool in pools if pool.slots_per_node >= case.gpus_per_node and len(pool.nodes) >= case.nodes]
    if not fitting:
        most = max(pools, key=lambda pool: (pool.slots_per_node, len(pool.nodes)))
        raise invalid(
            f"{plural(case.nodes, 'node')} of {plural(case.gpus_per_node, 'GPU')} are more than there are: {most.name} "
            f"has {plural(len(most.nodes), 'node')} of {plural(most.slots_per_node, 'GPU')}"
        )


def ahead_told(case: Case, state: State, now: Instant) -> str:
    """A note where it comes so late that its nodes may not be clear as it begins; "" = it is early enough."""
    needed = lead(state, case.begin)
    decided_at = now if case.state == ASKED else case.decided_at
    if decided_at is None or case.begin - decided_at >= needed:
        return ""
    ahead = case.begin - decided_at
    if ahead >= longest_minimum(state, case.begin):
        told = f"approved so late its nodes may be clear up to {span((needed - ahead) / SECOND)} after its begin"
    else:
        told = "approved so late runs inside their minimum may still be on its nodes as it begins"
    return f"{told}; from {_when(now + needed)} on they are clear" if case.state == ASKED else told


def earliest_told(case: Case, state: State, now: Instant) -> str:
    """What could be asked for in place of a reservation that cannot be promised."""
    at = earliest(state, case.reservation(), now)
    if at is None:
        return "Ask for fewer nodes: beside what is promised to others so many are never there"
    return f"The earliest begin that can be promised is {_when(at)}; or ask for fewer nodes"


def _when(at: Instant) -> str:
    """To the next full minute."""
    return f"{minute(-(-at // MINUTE) * MINUTE)} UTC"


def refusal(plan: Plan, case_id: str) -> str:
    """Why the core would not promise it, in its own words; "" = it did."""
    for change in plan.holds:
        if isinstance(change, HoldReleased) and change.reservation_id == case_id and change.why.startswith("refused"):
            return change.why
    return ""
