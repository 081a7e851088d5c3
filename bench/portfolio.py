"""What a what-if and advice cost, in replays: both ratios of issue 6 in one run.

    python -m bench.portfolio ../shared/data/reference [--repeat 3]

One replay is `mirab sim` without its reading of the log: the trace through the policy with its measures and its report.
A what-if is two of them, the days of both and the bootstrap (in one process, one after the other); advice is one with
what it notes. In seconds of the processor. What else a machine does makes the very same work up to half as dear again,
and changes from minute to minute: so each is set against the replays right before and right after it, and the median
of N such ratios counts. What the what-if does beside its replays is told apart: that is all that this project can save.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from bench.inputs import load_policy, load_trace
from mirab.model.accounts import Budgets
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.study.advise import advised
from mirab.study.days import days_of
from mirab.study.replays import measure, replay_report
from mirab.study.whatif import Side, whatif

MOST = {"whatif": 2.2, "advise": 1.5}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    trace, policy = load_trace(options.input), load_policy("budget", [])
    replays, beside = [_took(lambda: replay_report(trace, policy))], list[float]()
    ratios: dict[str, list[float]] = {name: [] for name in MOST}
    works: dict[str, Callable[[], object]] = {
        "whatif": lambda: beside.append(tried(trace, policy)),
        "advise": lambda: advised(trace, policy, price=2.0),
    }
    for _ in range(options.repeat):
        for name, work in works.items():
            took = _took(work)
            replays.append(_took(lambda: replay_report(trace, policy)))
            ratios[name].append(2 * took / (replays[-2] + replays[-1]))
    found = {name: median(each) for name, each in ratios.items()}
    print(f"{trace.name}: {len(trace.arrivals):,} workloads; median of {options.repeat}, CPU seconds")
    print(f"one replay {median(replays):.2f} s ({min(replays):.2f} to {max(replays):.2f})")
    for name, most in MOST.items():
        print(f"{name} {found[name]:.2f} replays, of {_listed(ratios[name])} (at most {most})")
    print(f"a what-if beside its two replays: {median(beside):.2f} s = {median(beside) / median(replays):.3f} replays")
    return 0 if all(found[name] <= most for name, most in MOST.items()) else 1


def _took(work: Callable[[], object]) -> float:
    """Seconds of the processor, with nothing left over from the work before."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def _listed(numbers: list[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def tried(trace: Trace, policy: Policy) -> float:
    """The first account gives a tenth of its share to the second; seconds that were not spent in the replays."""
    first, second, *rest = trace.budgets.roots
    given = first.share // 10
    moved = Budgets((replace(first, share=first.share - given), replace(second, share=second.share + given), *rest))
    seen = [measure(each, policy) for each in (trace, replace(trace, budgets=moved))]
    began = time.process_time()
    present, proposed = (Side(measures.report(cost), days_of(measures)) for measures, cost in seen)
    whatif(present, proposed)
    return time.process_time() - began


if __name__ == "__main__":
    raise SystemExit(main())
