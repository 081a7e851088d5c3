"""The words of `mirab slurm advice`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mirab.model.units import SECOND
from mirab.service.advice import AGREED, LATER, NEVER, UNADVISED, Difference, Stop
from mirab.study.formats import plural, span

MEANS = {
    AGREED: "both started it at about the same time",
    LATER: "mirab would have started it sooner",
    NEVER: "mirab would have started it, and Slurm has not",
    UNADVISED: "Slurm started it before mirab would have",
}


def as_values(starts: Sequence[Difference], stops: Sequence[Stop]) -> dict[str, Any]:
    """For programs: each start and each stop."""
    return {
        "starts": [
            {
                "id": each.workload_id,
                "kind": each.kind,
                "advised_at_ms": each.advised_at,
                "started_at_ms": each.started_at,
                "sooner_s": _sooner(each),
                "on_other_nodes": each.elsewhere,
            }
            for each in starts
        ],
        "stops": [
            {"run": each.run_id, "advised_at_ms": each.advised_at, "ended_at_ms": each.ended_at} for each in stops
        ],
    }


def _sooner(each: Difference) -> float | None:
    if each.advised_at is None or each.started_at is None:
        return None
    return (each.started_at - each.advised_at) / SECOND


def as_table(starts: Sequence[Difference], stops: Sequence[Stop]) -> str:
    """For people: how many of each kind, and the starts that mirab would have made sooner, the latest first."""
    counted = Counter(each.kind for each in starts)
    lines = [plural(len(starts), "start")]
    lines += [f"{counted[kind]:8} {means}" for kind, means in MEANS.items()]
    lines.append(f"{sum(each.elsewhere for each in starts):8} of them on other nodes")
    late = sorted((each for each in starts if each.kind == LATER), key=lambda each: -(_sooner(each) or 0))
    lines += [f"{each.workload_id:>8} would have begun {span(_sooner(each))} sooner" for each in late[:10]]
    gone = sum(each.ended_at is not None for each in stops)
    many = plural(len(stops), "run")
    lines.append(f"{many} that mirab would have stopped for others; {gone} of them have ended by themselves")
    return "\n".join(lines)
