"""Sick nodes: wait for the minimums, empty, go to repair. Nobody is asked. And runs that must go for other reasons."""

from __future__ import annotations

from mirab.core.nodes import Health
from mirab.core.runs import Run
from mirab.core.state import State
from mirab.core.trial import Trial
from mirab.model.plans import CallHuman, Drain, Repair, Resume
from mirab.model.policy import DRAIN_PAUSE
from mirab.model.reasons import DrainedFrom, StartTimedOut
from mirab.model.units import Instant, NodeName


def serve_drains(trial: Trial) -> None:
    """Undo, begin, press and finish drains, in the order of the nodes."""
    troubled = trial.state.troubled
    if not troubled:
        return
    draining = sum(state.health is Health.DRAINING for state in troubled.values())
    for place in sorted(troubled):
        state = troubled[place]
        if state.health not in (Health.DEGRADED, Health.DRAINING):
            continue
        runs = list(state.runs.values())
        node = trial.state.cluster.pools[place[0]].nodes[place[1]]
        if state.healthy_again:
            trial.actions.append(Resume(node))
            trial.node_returns(place)
            continue
        if state.health is Health.DEGRADED:
            if draining >= trial.policy.drains_max or (runs and paused_until(trial.state, node)):
                continue
            draining += 1
            trial.actions.append(Drain(node, _stop_at(trial, runs), state.cause))
        if not runs:
            trial.actions.append(Repair(node))
        elif trial.policy.drains == "contract":
            _press(trial, place, node, runs)
        else:
            _wait(trial, place, node, runs)


def paused_until(state: State, node: NodeName) -> Instant:
    """Until when no drain stops what runs on the node, by an exception in force; 0 = there is none."""
    in_force = state.exemptions_in_force.values()
    return max((each.end for each in in_force if each.kind == DRAIN_PAUSE and each.node == node), default=0)


def _stop_at(trial: Trial, runs: list[Run]) -> Instant | None:
    """The latest remaining minimum on the node: so no GPU of it idles while another run has hours left."""
    if trial.policy.drains != "contract":
        return None
    return max((run.unprotected_at for run in runs), default=trial.now)


def _press(trial: Trial, place: tuple[int, int], node: NodeName, runs: list[Run]) -> None:
    """Stop everything on the node at the shared instant; call a human for what does not go."""
    state = trial.state.troubled[place]
    at = max(_stop_at(trial, runs) or trial.now, paused_until(trial.state, node))
    if trial.now < at:
        trial.wake(at)
        return
    for run in runs:
        if (
            run.stop_by is None
            and run.id not in trial.stopped
            and run.started_at is not None
            and run.excused_until <= trial.now
        ):
            trial.stop(run, DrainedFrom(node, state.cause))


def _wait(trial: Trial, place: tuple[int, int], node: NodeName, runs: list[Run]) -> None:
    """Without a contract the runs end by themselves, or somebody has to go and ask."""
    state = trial.state.troubled[place]
    patience = trial.policy.min_runtime_cap + trial.policy.grace_max
    late_at = max(state.since + patience, paused_until(trial.state, node))
    if state.human_called:
        return
    if trial.now >= late_at:
        trial.actions.append(CallHuman(node, runs[0].id, "the node does not empty by itself"))
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
            node = trial.state.nodes_named(run.allocation.pool, run.allocation.mask & -run.allocation.mask)[0]
            trial.actions.append(CallHuman(node, run.id, "does not stop"))
