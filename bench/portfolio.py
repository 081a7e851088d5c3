"""What a what-if and advice cost, in replays: both ratios of issue 6 in one run.

    python -m bench.portfolio ../shared/data/reference [--repeat 3]

One replay is `mirab sim` without its reading of the log: the trace through the policy with its measures and its report.
A what-if is two of them, the days of both and the bootstrap (in one process, one after the other); advice is one with
what it notes. Of each the fastest of N, interleaved, in seconds of the processor, so that what else the machine does
meets all alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from bench.inputs import load_policy, load_trace
from mirab.model.accounts import Budgets
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.study.advise import advised
from mirab.study.days import days_of
from mirab.study.replays import measure, replay_report
from mirab.study.whatif import Side, whatif

WHATIF_MOST, ADVISE_MOST = 2.2, 1.5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(arguments)
    trace, policy = load_trace(options.input), load_policy("budget", [])
    works: dict[str, Callable[[], object]] = {
        "replay": lambda: replay_report(trace, policy),
        "whatif": lambda: tried(trace, policy),
        "advise": lambda: advised(trace, policy, price=2.0),
    }
    took = {name: float("inf") for name in works}
    for _ in range(options.repeat):
        for name, work in works.items():
            began = time.process_time()
            work()
            took[name] = min(took[name], time.process_time() - began)
    whatif_ratio, advise_ratio = took["whatif"] / took["replay"], took["advise"] / took["replay"]
    print(f"{trace.name}: {len(trace.arrivals):,} workloads; fastest of {options.repeat}, CPU seconds")
    print(f"one replay {took['replay']:.2f} s")
    print(f"whatif     {took['whatif']:.2f} s = {whatif_ratio:.2f} replays (at most {WHATIF_MOST})")
    print(f"advise     {took['advise']:.2f} s = {advise_ratio:.2f} replays (at most {ADVISE_MOST})")
    return 0 if whatif_ratio <= WHATIF_MOST and advise_ratio <= ADVISE_MOST else 1


def tried(trace: Trace, policy: Policy) -> object:
    """The first account gives a tenth of its share to the second."""
    first, second, *rest = trace.budgets.roots
    given = first.share // 10
    moved = Budgets((replace(first, share=first.share - given), replace(second, share=second.share + given), *rest))
    return whatif(_side(trace, policy), _side(replace(trace, budgets=moved), policy))


def _side(trace: Trace, policy: Policy) -> Side:
    seen, cost = measure(trace, policy)
    return Side(seen.report(cost), days_of(seen))


if __name__ == "__main__":
    raise SystemExit(main())
