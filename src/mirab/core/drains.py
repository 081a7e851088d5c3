"""Sick nodes: wait for the minimums, empty, go to repair. Nobody is asked. And runs that must go for other reasons."""

from __future__ import annotations

from mirab.core.nodes import Health, NodeState
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.plans import CallHuman, Drain, Repair, Resume
from mirab.model.policy import DRAIN_PAUSE
from mirab.model.reasons import DrainedFrom, StartTimedOut
from mirab.model.units import Instant, NodeName


def serve_drains(trial: Trial) -> None:
    """Undo, begin, press and finish drains, in the order of the nodes."""
    troubled = trial.state.troubled
    places = [place for place, state in troubled.items() if state.counts_what_runs]
    if not places:
        return
    places.sort()
    draining = sum([troubled[place].health is Health.DRAINING for place in places])
    for place in places:
        state = troubled[place]
        if state.healthy_again:
            trial.actions.append(Resume(_name(trial, place)))
            trial.node_returns(place)
        elif state.health is Health.DRAINING:
            _drain(trial, place, state)
        elif draining < trial.policy.drains_max:
            node = _name(trial, place)
            if not (state.runs and paused_until(trial.state, node)):
                draining += 1
                trial.actions.append(Drain(node, _stop_at(trial, state), state.cause))
                _drain(trial, place, state)


def _name(trial: Trial, place: tuple[int, int]) -> NodeName:
    return trial.state.cluster.pools[place[0]].nodes[place[1]]


def _drain(trial: Trial, place: tuple[int, int], state: NodeState) -> None:
    """The node is being drained: press what runs there to go, and take the node to repair once it is empty."""
    if not state.runs:
        trial.actions.append(Repair(_name(trial, place)))
    elif trial.policy.drains == "contract":
        _press(trial, place, state)
    else:
        _wait(trial, _name(trial, place), state)


def paused_until(state: State, node: NodeName) -> Instant:
    """Until when no drain stops what runs on the node, by an exception in force; 0 = there is none."""
    if not state.exemptions_in_force:
        return 0
    in_force = state.exemptions_in_force.values()
    return max((each.end for each in in_force if each.kind == DRAIN_PAUSE and each.node == node), default=0)


def _stop_at(trial: Trial, state: NodeState) -> Instant | None:
    """The latest remaining minimum on the node: so no GPU of it idles while another run has hours left."""
    if trial.policy.drains != "contract":
        return None
    return _last_minimum(state) if state.runs else trial.now


def _last_minimum(state: NodeState) -> Instant:
    last = 0
    for run in state.runs.values():
        last = max(last, run.unprotected_at)
    return last


def _press(trial: Trial, place: tuple[int, int], state: NodeState) -> None:
    """Stop everything on the node at the shared instant; call a human for what does not go."""
    at = _last_minimum(state)
    if trial.state.exemptions_in_force:
        at = max(at, paused_until(trial.state, _name(trial, place)))
    if trial.now < at:
        trial.wake(at)
        return
    node = _name(trial, place)
    for run in state.runs.values():
        if (
            run.stop_by is None
            and run.id not in trial.stopped
            and run.started_at is not None
            and run.excused_until <= trial.now
        ):
            trial.stop(run, DrainedFrom(node, state.cause))


def _wait(trial: Trial, node: NodeName, state: NodeState) -> None:
    """Without a contract the runs end by themselves, or somebody has to go and ask."""
    patience = trial.policy.min_runtime_cap + trial.policy.grace_max
    late_at = max(state.since + patience, paused_until(trial.state, node))
    if state.human_called:
        return
    if trial.now >= late_at:
        first = next(iter(state.runs))
        trial.actions.append(CallHuman(node, first, "the node does not empty by itself"))
    else:
        trial.wake(late_at)


def serve_unwanted(trial: Trial) -> None:
    """Runs that their own users want gone go at once; the contract protects a run from others only."""
    for run in trial.state.unwanted.values():
        if run.excused_until <= trial.now:
            trial.cancel(run)
        else:
            trial.wake(run.excused_until)


def serve_late(trial: Trial) -> None:
    """Starts that never came are ended; for stops that do not happen a human is called."""
    for run in trial.state.late.values():
        if run.id in trial.stopped or run.stuck:
            continue
        if run.stop_by is None:
            trial.stop(run, StartTimedOut(trial.policy.start_timeout))
        else:
            node = trial.state.nodes_named(run.pool, run.mask & -run.mask)[0]
            trial.actions.append(CallHuman(node, run.id, "does not stop"))
