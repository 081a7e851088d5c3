"""One decision on a large, crowded cluster: 1,024 nodes and at least 10,000 workloads waiting.

    python -m bench.decision [--nodes 1024] [--waiting 10000] [--decisions 1000]

Far more work than the cluster holds comes within some minutes. From when so many wait, each `decide(state, now)` of
the replay is timed, while that many wait.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace

from mirab.core.decide import decide
from mirab.core.state import State
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import MINUTE
from mirab.sim.backend import SimBackend, SimClock
from mirab.sim.synthetic import SynthOptions, synthesize


@dataclass(frozen=True, slots=True)
class Decisions:
    """Milliseconds of one decision, over many; `waiting` at the fewest."""

    count: int
    waiting: int
    running: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def crowd(nodes: int, count: int) -> Trace:
    """So many workloads of the usual mix, submitted within minutes."""
    trace = synthesize(SynthOptions(nodes=nodes, workloads=count, load=2.0, troubles=False))
    last = max(1, trace.arrivals[-1].workload.submitted_at)
    squeezed = [
        replace(each, workload=replace(each.workload, submitted_at=each.workload.submitted_at * 5 * MINUTE // last))
        for each in trace.arrivals
    ]
    return replace(trace, arrivals=squeezed)


def measure(nodes: int, waiting: int, decisions: int) -> Decisions:
    """Raises RuntimeError: the log ended before so many waited for so long."""
    trace = crowd(nodes, waiting * 3 // 2)
    policy = Policy()
    clock = SimClock()
    world = SimBackend(trace, clock)
    state = State(trace.cluster, trace.budgets, policy, now=0)
    times: list[float] = []
    fewest = sys.maxsize
    instant = world.next_due()
    while instant is not None and len(times) < decisions:
        clock.jump(instant)
        for fact in world.observe():
            state.fold(fact)
        state.advance(instant)
        began = time.perf_counter()
        plan = decide(state, instant)
        took = time.perf_counter() - began
        if len(state.pending) >= waiting:
            times.append(took * 1000)
            fewest = min(fewest, len(state.pending))
        state.commit(plan)
        for action in plan.actions:
            world.submit(action)
        instant = _next(instant, world.next_due(), plan.wake_at, policy.cadence)
    if len(times) < decisions:
        raise RuntimeError(f"only {len(times)} decisions with {waiting} waiting before the log ended")
    times.sort()
    return Decisions(
        len(times), fewest, len(state.runs), times[len(times) // 2], times[len(times) * 99 // 100], times[-1]
    )


def _next(now: int, due: int | None, wake: int | None, cadence: int) -> int | None:
    soonest = [instant for instant in (due, wake) if instant is not None]
    return max(min(soonest), now + cadence) if soonest else None


def text(found: Decisions) -> str:
    return (
        f"one decision, {found.waiting}+ waiting, {found.running} running: median {found.p50_ms:.2f} ms "
        f"(to reach: 5), p99 {found.p99_ms:.2f} ms, max {found.max_ms:.1f} ms, over {found.count}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=1000)
    options = parser.parse_args(arguments)
    print(text(measure(options.nodes, options.waiting, options.decisions)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
