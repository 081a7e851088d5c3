"""Forecasts in plain English: what was found, what it hangs on, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirab.model.units import DAY, SECOND, Duration, Instant, WorkloadId
from mirab.study.forecast import Forecast
from mirab.study.formats import Names, percent, plural, span

ENOUGH_JUDGED = 20
"""With fewer past forecasts compared, how often they held says little."""

_HISTORY = {
    "user": "the same users' own work of the class",
    "class": "all work of the class",
    "all": "all work",
    "nothing": "no history at all",
}


def when_sentence(told: Forecast, names: Names) -> str:
    """By when it starts, as far as the runs forward can say."""
    runs = plural(told.runs, "run")
    if told.p50 is None:
        text = f"fewer than half of {runs} of the scheduler forward start it before {names.at(told.after_50)}"
        text += ", which is as far as they looked"
    elif told.p90 is not None and told.p90 - told.at <= SECOND:
        text = f"it starts at once, or so say nine of ten of {runs} of the scheduler forward"
    else:
        half = _by(told.p50, told, names)
        most = f"later than {names.at(told.after_90)}" if told.p90 is None else _by(told.p90, told, names)
        text = f"of {runs} of the scheduler forward, half start it {half} and nine of ten {most}"
    if told.bound is not None:
        text += f"; the contract says {names.at(told.bound)} at the latest"
    return text


def stand_in_sentence(other: WorkloadId, kind: str, sentence: str) -> str:
    """For one that has no forecast of its own yet: what another's says."""
    return (
        f"until it has been looked at for itself, job {other} stands in, the nearest of class {kind} that waited at "
        f"the last look forward: {sentence}"
    )


def _by(instant: Instant, told: Forecast, names: Names) -> str:
    wait = instant - told.at
    return f"by {names.at(instant)} (in {span(wait / SECOND)})" if wait > SECOND else "at once"


def assumption_sentence(told: Forecast, sources: Mapping[str, float], past: Duration, names: Names) -> str:
    """What the answer hangs on most; `past`: how much of it arrivals were drawn from."""
    match told.assumption:
        case "contract":
            return "it hangs on the contract: nodes are kept or cleared for it, and no minimum outlasts that instant"
        case "none":
            return "it hangs on nothing much: there is room for it in nearly all of them"
        case "arrivals":
            little = " and nothing older" if past < DAY else ""
            alone = "later still" if told.alone_p50 is None else f"by {names.at(told.alone_p50)}"
            return (
                f"it hangs most on what comes in meanwhile, drawn from the arrivals of the last {span(past / SECOND)}"
                f"{little}: with nothing new half would start it {alone}"
            )
        case _:
            return f"it hangs most on how long the others run, drawn from {_drawn_from(sources)}"


def _drawn_from(sources: Mapping[str, float]) -> str:
    told = [f"{_HISTORY[where]} ({percent(part, 0)})" for where, part in sources.items() if part >= 0.005]
    return ", ".join(told) or "nothing: nothing else runs"


def trust_sentence(score: Mapping[str, Any] | None, kind: str) -> str:
    """How often past p90s of its class held."""
    judged = 0 if score is None else score["judged"]
    if score is None or not judged:
        return f"no past forecast of class {kind} could be compared with what happened so far"
    if judged < ENOUGH_JUDGED:
        return f"only {plural(judged, 'past forecast')} of class {kind} could be compared with what happened so far"
    return f"of {judged:,} past forecasts of class {kind}, {percent(score['p90_held'], 0)} of the p90s held"
