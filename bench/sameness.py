"""Whether two versions of the core decide alike: a checksum of every decision of several replays.

    python -m bench.sameness [--only NAME,...] [--save FILE] [--against FILE]

`acted` covers the instant, the actions and the holds of every plan that has any; `told` also the reasons of those who
wait; `plans` also when to wake, what was folded, and empty plans. A change that only saves work keeps all three; one
that saves needless passes keeps two; one that tells reasons less often keeps the first. Each line has the processor
time of the replay alone, without reading the log and without measures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.inputs import load_policy, load_trace, shared_data
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.sim.engine import replay

CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "load2": ("synth:workloads=10000,load=2", "budget", ()),
    "week": ("synth:seed=2,days=7", "budget", ()),
    "small": ("synth:seed=3,days=5,nodes=8,load=1.5", "budget", ()),
    "short-window": ("synth:seed=4,days=4,nodes=32", "budget", ("window=12h", "margin=0")),
    "surplus": ("synth:seed=5,days=4,nodes=32,load=1.5", "budget", ("surplus_minimum_cap=30m", "holds_per_leaf=2")),
    "any": ("synth:seed=6,days=3,nodes=32", "budget", ("backfill=any",)),
    "fifo": ("synth:seed=2,days=3,nodes=32", "fifo", ()),
    "strict": ("synth:seed=2,days=3,nodes=32", "fifo", ("backfill=none", "cadence=0")),
    "priority": ("synth:seed=2,days=3,nodes=32", "priority", ()),
    "fair-tree": ("synth:seed=2,days=3,nodes=32", "fair-tree", ()),
    "quota": ("synth:seed=2,days=3,nodes=32", "quota", ()),
    "maintenance": ("maintenance:seed=3", "budget", ()),
    "reference": ("", "budget", ()),
}
"""Name: input, policy, settings. The reference log is used where the shared data are."""


class Checksum:
    """A journal that keeps three checksums."""

    def __init__(self) -> None:
        self._acted, self._told, self._plans = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self.passes = 0

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        self.passes += 1
        if plan.actions or plan.holds:
            self._acted.update(repr((plan.at, plan.actions, plan.holds)).encode())
        if plan.actions or plan.holds or plan.waiting:
            self._told.update(repr((plan.at, plan.actions, plan.holds, plan.waiting)).encode())
        self._plans.update(repr(plan).encode())

    def summary(self) -> dict[str, Any]:
        return {
            "passes": self.passes,
            "acted": self._acted.hexdigest()[:10],
            "told": self._told.hexdigest()[:10],
            "plans": self._plans.hexdigest()[:10],
        }


class Nobody:
    """A journal that forgets."""

    def append(self, facts: Sequence[Event], plan: Plan) -> None:
        pass


def replayed(name: str) -> dict[str, Any] | None:
    """The checksums of one case and its processor time; None = its log is not here."""
    spec, policy_name, settings = CASES[name]
    if not spec:
        spec = str(shared_data() / "reference")
        if not Path(spec).exists():
            return None
    trace, policy = load_trace(spec), load_policy(policy_name, list(settings))
    checksum = Checksum()
    replay(trace, policy, journals=[checksum])
    began = time.process_time()
    replay(trace, policy, journals=[Nobody()])
    return checksum.summary() | {"cpu_s": round(time.process_time() - began, 2), "workloads": len(trace.arrivals)}


def verdict(found: dict[str, Any], known: dict[str, Any] | None) -> str:
    if known is None:
        return ""
    for what, said in (("plans", "same"), ("told", "same but for passes"), ("acted", "same actions")):
        if found[what] == known[what]:
            return said
    return "DIFFERENT"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--save", type=Path, help="write the checksums there")
    parser.add_argument("--against", type=Path, help="compare with those written by --save; exit 1 if any differs")
    options = parser.parse_args(arguments)
    known = json.loads(options.against.read_text()) if options.against else {}
    found: dict[str, Any] = {}
    different = False
    print(f"{'':14s} workloads   passes   cpu s  us/pass  acted       told        plans")
    for name in options.only.split(","):
        if name not in CASES:
            parser.error(f"no case {name!r}: there are {', '.join(CASES)}")
        row = replayed(name)
        if row is None:
            continue
        found[name] = row
        said = verdict(row, known.get(name))
        different |= said == "DIFFERENT"
        print(
            f"{name:14s} {row['workloads']:9d} {row['passes']:8d} {row['cpu_s']:7.2f} "
            f"{row['cpu_s'] / row['passes'] * 1e6:8.0f}  {row['acted']}  {row['told']}  {row['plans']}  {said}",
            flush=True,
        )
    if options.save:
        options.save.write_text(json.dumps(found, indent=1) + "\n")
    return int(different)


if __name__ == "__main__":
    sys.exit(main())
