"""Facts that change what the scheduler stands on while it runs: the policy, and the cluster itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirab.core.folding import drop_hold
from mirab.core.nodes import Bank
from mirab.core.portfolio import requeue_all
from mirab.model import events
from mirab.model.resources import Pool, extends

if TYPE_CHECKING:
    from mirab.core.state import State


def policy_changed(state: State, event: events.PolicyChanged) -> None:
    """From now on; contracts of what runs stay what they were."""
    if event.policy.half_life != state.policy.half_life:
        raise ValueError(
            f"the half life cannot change from {state.policy.half_life} to {event.policy.half_life} ms on a ledger "
            "that has begun: begin a new one"
        )
    state.policy = event.policy
    for ledger in state.ledgers.values():
        ledger.window.change_length(state.now, event.policy.window)
    _judge_anew(state)
    _expose_anew(state)


def cluster_changed(state: State, event: events.ClusterChanged) -> None:
    """New nodes are up and empty. Shapes that could never fit may fit now, and a dominant share may be another."""
    wrong = extends(event.cluster, state.cluster)
    if wrong:
        raise ValueError(f"the new cluster does not extend the old one: {wrong}")
    old = state.cluster.pools
    state.cluster = event.cluster
    for number, pool in enumerate(event.cluster.pools):
        if number == len(state.banks):
            state.banks.append(Bank(pool))
            state.usable.append((1 << len(pool.nodes)) - 1)
        else:
            state.usable[number] |= state.banks[number].grow(pool)
        _place(state, number, pool, already=len(old[number].nodes) if number < len(old) else 0)
    state.choices.clear()
    if state.divide(state.budgets):
        state.install(state.budgets)
    state.capacity_changed(grown=True)
    _judge_anew(state)


def _place(state: State, number: int, pool: Pool, already: int) -> None:
    for index, node in enumerate(pool.nodes[already:], already):
        state.places[node] = (number, index)


def _judge_anew(state: State) -> None:
    """What was worked out for each shape is worked out again; everybody queues anew, with the same seniority.

    Holds are given back: the next decision grants them again, by the rules that hold now.
    """
    for workload_id in list(state.holds):
        drop_hold(state, state.pending[workload_id])
    state.shapes.clear()
    requeue_all(state)


def _expose_anew(state: State) -> None:
    """Who is protected depends on the policy: all runs past their minimum are exposed again, if it exposes any."""
    state.exposures.clear()
    for run in state.runs.values():
        state.cover(run)
        if run.started_at is not None and not run.stopping:
            state.will_expose(run)
