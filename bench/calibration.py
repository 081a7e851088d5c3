"""Calibration: forecasts for workloads of a replayed log, against what then happened.

    python -m bench.calibration [--log SPEC] [--samples 500] [--runs 50] [--jobs 2] [--seed 1] [--lines FILE]

The log is replayed twice: once to see who waits and until when; then again, and beside it the forecasts are made, each
in a copy of the process as it is right after the decision that first saw the workload and left it waiting. Workloads
are drawn at random from all that were left so (at submission most start at once, and a forecast of that is no art),
from the third day on and not of the last three: there is a past to learn from, and a future to compare with.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.inputs import default_input, load_policy, load_trace
from bench.tables import columns
from mirab.core.state import State
from mirab.model.events import Event, WorkloadCancelled, WorkloadSubmitted
from mirab.model.plans import Plan, Start
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import DAY, FOREVER, Instant, WorkloadId
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.engine import drive
from mirab.study.calibration import Outcome, score, scores
from mirab.study.copies import Copy
from mirab.study.forecast import HORIZON, RUNS, Forward, bound_of, forecast, forward
from mirab.study.history import History

WARM, COOL = 2 * DAY, 3 * DAY
"""Nobody is drawn from the begin and the end of the log."""
Made = dict[str, Any]
Take = Callable[[Made], None]


@dataclass
class Seen:
    """A journal: who was left waiting at first, when each workload started, and who gave up."""

    waited: list[WorkloadId] = field(default_factory=list)
    started: dict[WorkloadId, Instant] = field(default_factory=dict)
    given_up: dict[WorkloadId, Instant] = field(default_factory=dict)

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Start):
                self.started.setdefault(action.workload_id, plan.at)
        for fact in facts:
            if isinstance(fact, WorkloadSubmitted) and fact.workload.id not in self.started:
                self.waited.append(fact.workload.id)
            elif isinstance(fact, WorkloadCancelled):
                self.given_up.setdefault(fact.workload_id, fact.at)


class Watched(SimBackend):
    """Calls `after` behind each decision, when the state has taken it in."""

    def __init__(self, trace: Trace, clock: SimClock, after: Callable[[], None]) -> None:
        super().__init__(trace, clock)
        self._after = after

    def next_due(self) -> Instant | None:
        self._after()
        return super().next_due()


def replay(trace: Trace, policy: Policy, journal: Any, after: Callable[[State], None] = lambda state: None) -> None:
    clock = SimClock()
    state = State(trace.cluster, trace.budgets, policy, now=0)
    world = Watched(trace, clock, lambda: after(state))
    drive(state, clock, world, journal, cadence=policy.cadence)


def drawn(trace: Trace, seen: Seen, samples: int, seed: int) -> set[WorkloadId]:
    """Who is forecast."""
    at = {each.workload.id: each.workload.submitted_at for each in trace.arrivals}
    last = max(at.values()) - COOL
    able = [each for each in seen.waited if WARM <= at[each] < last]
    return set(Random(seed).sample(able, min(samples, len(able))))


def forecasts(trace: Trace, policy: Policy, wanted: set[WorkloadId], runs: int, jobs: int, take: Take) -> None:
    """The same replay again, and beside it a forecast for each of the wanted, told as they are made."""
    history = History(trace.cluster)
    busy: list[Copy] = []

    def after(state: State) -> None:
        for workload in sorted(wanted & state.pending.keys()) if wanted else ():
            wanted.discard(workload)
            while len(busy) >= jobs:
                take(busy.pop(0).result())
            busy.append(Copy(lambda each=workload: one(state, history, each, runs)))  # type: ignore[misc]

    replay(trace, policy, history, after)
    for copy in busy:
        take(copy.result())


def one(state: State, history: History, workload: WorkloadId, runs: int) -> Made:
    """In a copy of the process: the forecast for one workload, each run forward in a copy of that.

    When half of the runs have reached the horizon without it, p50 and p90 are known to lie behind that.
    """
    began = time.perf_counter()
    pending = state.pending[workload]
    assert pending.queue is not None
    history.ready()

    def go(number: int) -> Forward:
        result: Forward = Copy(lambda: forward(state, history, [workload], f"{workload}/{number}")).result()
        return result

    found: list[Forward] = []
    late = 0
    while len(found) < runs and late <= runs // 2:
        found.append(go(len(found)))
        late += workload not in found[-1].starts
    found += [Forward({}, state.now + HORIZON)] * (runs - len(found))
    reason = pending.waiting.reason if pending.waiting else None
    return asdict(forecast(found, workload, state.now, bound_of(state, workload))) | {
        "kind": history.kind_of(pending.workload),
        "charged": pending.queue.info.charged,
        "reason": type(reason).__name__,
        "starts": sorted(each.starts.get(workload, FOREVER) for each in found),
        "wall_s": time.perf_counter() - began,
    }


def outcome(made: Made) -> Outcome:
    started = made["started_at"]
    until = (made["given_up_at"] or FOREVER) if started is None else started
    return Outcome(made["kind"], made["at"], made["p50"], made["p90"], started, until, made["bound"],
                   made["after_50"], made["after_90"])  # fmt: skip


def measure(log: str, policy: Policy, samples: int, runs: int, jobs: int, seed: int, take: Take) -> None:
    """Each forecast of the sample is told to `take` with what then happened, as ``started_at`` and ``given_up_at``."""
    trace = load_trace(log)
    seen = Seen()
    replay(trace, policy, seen)
    wanted = drawn(trace, seen, samples, seed)

    def compared(made: Made) -> None:
        workload = made["workload"]
        take(made | {"started_at": seen.started.get(workload), "given_up_at": seen.given_up.get(workload)})

    forecasts(trace, policy, wanted, runs, jobs, compared)


def text(made: Sequence[Made]) -> str:
    groups = scores(outcome(each) for each in made)
    for name, charged in (("charged", True), ("uncharged", False)):
        part = [outcome(each) for each in made if each["charged"] is charged]
        groups |= {name: score(part)} if part else {}
    keys = list(next(iter(groups.values())))
    rows = [["class", *keys], *([name, *(_shown(found[key]) for key in keys)] for name, found in groups.items())]
    walls = sorted(each["wall_s"] for each in made)
    cost = f"a forecast took {walls[len(walls) // 2]:.2f} s (p50), {walls[len(walls) * 9 // 10]:.2f} s (p90)"
    return f"{columns(rows)}\n\n{cost}, {walls[-1]:.1f} s at most"


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", default=default_input())
    parser.add_argument("--policy", default="budget")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=Path, help="write each forecast there as it is made, a JSON object a line")
    options = parser.parse_args(arguments)
    made: list[Made] = []

    def take(each: Made) -> None:
        made.append(each)
        if options.lines:
            with options.lines.open("a") as file:
                file.write(json.dumps(each) + "\n")

    policy = load_policy(options.policy, [])
    measure(options.log, policy, options.samples, options.runs, options.jobs, options.seed, take)
    print(text(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
