"""Runs that must go whatever the contract says: their own users want them gone, or they never came, or do not leave."""

from __future__ import annotations

from mirab.core.trial import Trial
from mirab.model.plans import CallHuman
from mirab.model.reasons import StartTimedOut


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
