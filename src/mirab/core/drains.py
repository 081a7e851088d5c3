"""Sick nodes: wait for the minimums, empty, go to repair. Nobody is asked."""

from __future__ import annotations

from mirab.core.nodes import Health, NodeState
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.plans import CallHuman, Drain, Repair, Resume
from mirab.model.policy import DRAIN_PAUSE
from mirab.model.reasons import DrainedFrom
from mirab.model.units import Instant, NodeName


def serve_drains(trial: Trial) -> None:
    """Undo, begin, press and finish drains, in the order of the nodes."""
    state = trial.state
    if not state.emptying:
        return
    draining = 0
    for sick in state.emptying.values():
        draining += sick.health is Health.DRAINING
    for place in sorted(state.emptying):
        sick = state.emptying[place]
        if sick.healthy_again:
            trial.actions.append(Resume(state.node_at(place)))
            trial.node_returns(place)
        elif sick.health is Health.DRAINING:
            _drain(trial, state.node_at(place), sick)
        elif draining < trial.policy.drains_max and not (sick.runs and paused_until(state, state.node_at(place))):
            draining += 1
            trial.actions.append(Drain(state.node_at(place), _stop_at(trial, sick), sick.cause))
            _drain(trial, state.node_at(place), sick)


def _drain(trial: Trial, node: NodeName, sick: NodeState) -> None:
    """The node is being drained: press what runs there to go, and take the node to repair once it is empty."""
    if not sick.runs:
        trial.actions.append(Repair(node))
    elif trial.policy.drains == "contract":
        _press(trial, node, sick)
    else:
        _wait(trial, node, sick)


def paused_until(state: State, node: NodeName) -> Instant:
    """Until when no drain stops what runs on the node, by an exception in force; 0 = there is none."""
    if not state.exemptions_in_force:
        return 0
    in_force = state.exemptions_in_force.values()
    return max((each.end for each in in_force if each.kind == DRAIN_PAUSE and each.node == node), default=0)


def _stop_at(trial: Trial, sick: NodeState) -> Instant | None:
    """The latest remaining minimum on the node: so no GPU of it idles while another run has hours left."""
    if trial.policy.drains != "contract":
        return None
    return _last_minimum(sick) if sick.runs else trial.now


def _last_minimum(sick: NodeState) -> Instant:
    last: Instant = 0
    for run in sick.runs.values():
        at = run.unprotected_at
        if at > last:
            last = at
    return last


def _press(trial: Trial, node: NodeName, sick: NodeState) -> None:
    """Stop everything on the node at the shared instant."""
    at = max(_last_minimum(sick), paused_until(trial.state, node))
    if trial.now < at:
        trial.wake(at)
        return
    for run in sick.runs.values():
        if run.started_at is not None and not trial.is_going(run):
            trial.stop(run, DrainedFrom(node, sick.cause))


def _wait(trial: Trial, node: NodeName, sick: NodeState) -> None:
    """Without a contract the runs end by themselves, or somebody has to go and ask."""
    if sick.human_called:
        return
    patience = trial.policy.min_runtime_cap + trial.policy.grace_max
    late_at = max(sick.since + patience, paused_until(trial.state, node))
    if trial.now >= late_at:
        first = next(iter(sick.runs))
        trial.actions.append(CallHuman(node, first, "the node does not empty by itself"))
    else:
        trial.wake(late_at)
