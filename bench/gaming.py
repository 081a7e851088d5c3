"""Adversaries: what an account gains by gaming the rules, and what the others lose.

    python -m bench.gaming [INPUT] [--set surplus_minimum_cap=1h] [--accounts A,B,C] [--only cap,split] [--repeats 1]

For each adversary and account the same log is replayed twice, honest and sly. Replays are chaotic: what moving each
submission by up to a minute does to the honest account is shown as the noise beside which a gain counts. `--repeats`
replays the pairs on such moved logs as well, and shows means.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from bench.adversaries import ADVERSARIES, Adversary, Resubmitter
from bench.effects import NOISE, Effect, as_json, compare, effect_rows, markdown_rows
from bench.inputs import default_input, load_policy, load_trace
from bench.outcomes import Outcomes
from bench.tables import columns, markdown
from mirab.core.state import State
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import DAY, MINUTE, SECOND, AccountPath, Instant
from mirab.sim.backend import SimClock
from mirab.sim.engine import drive, replay
from mirab.study.measures import Measures

ACCOUNTS = ("language/posttrain", "robotics/policy", "platform/infra")
"""12 %, 5 % and 2 % of the cluster."""
REPEATS = 1
NOISE_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What the whole bench is run on."""

    spec: str
    changes: tuple[str, ...] = ()
    """Settings of the policy, `name=value`."""


@dataclass(frozen=True, slots=True)
class _Run:
    outcomes: Outcomes
    delivered: dict[str, float]
    ratios: tuple[list[float], dict[str, list[float | None]]]


def _run(trace: Trace, policy: Policy, resubmits: bool = False) -> _Run:
    outcomes = Outcomes(trace.ends_at)
    if resubmits:
        clock = SimClock()
        world = Resubmitter(trace, clock)
        state = State(trace.cluster, trace.budgets, policy, now=0)
        drive(state, clock, world, outcomes, cadence=policy.cadence)
        return _Run(outcomes, {}, ([], {}))
    measures = Measures(trace, policy)
    replay(trace, policy, journals=[outcomes, measures], attach=measures.attach)
    report = measures.report()
    series = report["series"]
    return _Run(
        outcomes,
        {path: row["delivered_ratio"] for path, row in report["by_account"].items()},
        (series["t_s"], {path: row["ratio"] for path, row in series["accounts"].items()}),
    )


# ---- jobs of the pool; each worker keeps the honest replays it has made ----


@cache
def _base(setting: Setting, repeat: int) -> tuple[Trace, Policy, _Run]:
    trace = load_trace(setting.spec)
    if repeat:
        trace = jittered(trace, repeat)
    policy = load_policy("budget", list(setting.changes))
    return trace, policy, _run(trace, policy)


def _attack(job: tuple[Setting, int, str, str]) -> Effect:
    setting, repeat, name, account = job
    adversary = next(each for each in ADVERSARIES if each.name == name)
    path = AccountPath(account)
    trace, policy, base = _base(setting, repeat)
    honest_trace = adversary.honest(trace, path)
    honest = base if honest_trace is trace else _run(honest_trace, policy)
    sly = _run(_sly(adversary, trace, path, honest), policy, adversary.resubmits)
    before, after = (run.delivered.get(account) for run in (honest, sly))
    known = adversary.keeps_name and before is not None and after is not None
    delivered = after - before if known and after is not None and before is not None else None
    return compare(name, path, repeat, honest.outcomes, sly.outcomes, delivered)


def _sly(adversary: Adversary, trace: Trace, path: AccountPath, honest: _Run) -> Trace:
    sly = adversary.sly(trace, path)
    if adversary.foresees:
        return adversary.foresees(sly, path, honest.outcomes)
    return adversary.acts(sly, path, peaks(honest, path)) if adversary.acts else sly


def peaks(run: _Run, path: str) -> list[Instant]:
    """The instants, at least three days apart, at which the account's ratio was highest and above 1.1."""
    times, ratios = run.ratios
    chosen: list[float] = []
    known = [(ratio, at) for ratio, at in zip(ratios[path], times, strict=False) if ratio is not None]
    for ratio, at in sorted(known, reverse=True):
        if ratio > 1.1 and all(abs(at - other) >= 3 * DAY // SECOND for other in chosen):
            chosen.append(at)
    return sorted(int(at) * SECOND for at in chosen)


def jittered(trace: Trace, seed: int) -> Trace:
    """The same log with each submission up to a minute later."""
    rng = Random(seed)
    moved = []
    for arrival in trace.arrivals:
        at = arrival.workload.submitted_at + int(rng.random() * MINUTE) // SECOND * SECOND
        moved.append(replace(arrival, workload=replace(arrival.workload, submitted_at=at)))
    moved.sort(key=lambda each: (each.workload.submitted_at, each.workload.id))
    return replace(trace, arrivals=moved)


def _noise(job: tuple[Setting, int, tuple[str, ...]]) -> list[Effect]:
    setting, repeat, accounts = job
    (_, _, base), (_, _, moved) = _base(setting, 0), _base(setting, repeat)
    return [compare(NOISE, AccountPath(each), repeat, base.outcomes, moved.outcomes, None) for each in accounts]


def measure(
    setting: Setting, accounts: Sequence[str], names: Sequence[str], *, repeats: int = REPEATS, jobs: int = 2
) -> list[Effect]:
    """The effects of all adversaries, and samples of the noise."""
    attacks = [(setting, repeat, name, account) for repeat in range(repeats) for name in names for account in accounts]
    with ProcessPoolExecutor(jobs) as pool:
        noise = pool.map(_noise, [(setting, repeat, tuple(accounts)) for repeat in range(1, 1 + NOISE_SAMPLES)])
        return [*pool.map(_attack, attacks), *(each for several in noise for each in several)]


def text(effects: Sequence[Effect], names: Sequence[str]) -> str:
    return columns(effect_rows(effects, names))


def table(effects: Sequence[Effect], names: Sequence[str]) -> str:
    """The table of docs/gaming.md."""
    does = {each.name: each.does for each in ADVERSARIES}
    return markdown(markdown_rows(effects, {name: does[name] for name in names}))


def main(arguments: list[str] | None = None) -> int:
    known = [each.name for each in ADVERSARIES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="?", default=None)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="FIELD=VALUE")
    parser.add_argument("--accounts", default=",".join(ACCOUNTS))
    parser.add_argument("--only", default=",".join(known), help=f"of {', '.join(known)}")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no adversary {unknown[0]!r}: there are {', '.join(known)}")
    setting = Setting(options.input or default_input(), tuple(options.settings))
    effects = measure(setting, options.accounts.split(","), names, repeats=options.repeats, jobs=options.jobs)
    print(f"Gaming, on {setting.spec} {' '.join(setting.changes)}; sly against honest\n\n{text(effects, names)}")
    if options.markdown:
        options.markdown.write_text(table(effects, names) + "\n")
    if options.json:
        options.json.write_text(json.dumps(as_json(effects), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
