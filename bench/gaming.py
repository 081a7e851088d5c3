"""Adversaries: what an account gains by gaming the rules, and what the others lose.

    python -m bench.gaming [INPUT] [--accounts A,B,C] [--only cap,split] [--jobs 2] [--json FILE] [--markdown FILE]

For each adversary and account the same log is replayed twice, honest and sly. Replays are chaotic: the honest log is
also replayed with every submission moved by up to a minute, and that spread is the noise beside which a gain counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean

from bench.adversaries import ADVERSARIES, Adversary, Resubmitter
from bench.inputs import default_input, load_trace
from bench.outcomes import ORIGIN_MARK, Outcomes
from bench.quality import columns
from mirab.core.state import State
from mirab.model.policy import Policy
from mirab.model.trace import Trace
from mirab.model.units import DAY, MINUTE, SECOND, AccountPath, Instant
from mirab.sim.backend import SimClock
from mirab.sim.engine import drive, replay
from mirab.study.measures import Measures

ACCOUNTS = ("language/posttrain", "robotics/policy", "platform/infra")
"""12 %, 5 % and 2 % of the cluster."""
NOISE_SEEDS = (1, 2)


@dataclass(frozen=True, slots=True)
class Effect:
    """One account and its doings, sly against honest; parts of what it was (0.02 = 2 % more)."""

    adversary: str
    account: str
    useful: float
    """Its GPU-hours of work that lasts."""
    turnaround: float
    """Mean time to the end of what was done both times; less is a gain."""
    wait_mean: float
    wait_p50_s: float
    """In seconds more: a median of a few seconds has no useful ratio."""
    wait_p90: float
    lost: float
    """Its lost GPU-hours, in parts of its useful ones, more than when honest."""
    delivered: float | None
    """Its delivered ratio, more than when honest."""
    others_useful: float
    others_turnaround: float
    others_wait_p90: float


@dataclass(frozen=True, slots=True)
class _Run:
    outcomes: Outcomes
    delivered: dict[str, float]
    ratios: tuple[list[float], dict[str, list[float]]]


def _run(trace: Trace, resubmits: bool = False) -> _Run:
    policy = Policy()
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


def effect(name: str, account: AccountPath, honest: _Run, sly: _Run) -> Effect:
    def mine(path: AccountPath) -> bool:
        return path.partition(ORIGIN_MARK)[0] == account

    def theirs(path: AccountPath) -> bool:
        return not mine(path)

    before, after = honest.outcomes.got(mine), sly.outcomes.got(mine)
    others_before, others_after = honest.outcomes.got(theirs), sly.outcomes.got(theirs)
    delivered = None
    if name != "rename" and account in honest.delivered and account in sly.delivered:
        delivered = sly.delivered[account] - honest.delivered[account]
    return Effect(
        adversary=name,
        account=account,
        useful=_more(before.useful, after.useful),
        turnaround=_turnaround(honest.outcomes, sly.outcomes, mine),
        wait_mean=_more(before.wait_mean, after.wait_mean),
        wait_p50_s=after.wait_p50 - before.wait_p50,
        wait_p90=_more(before.wait_p90, after.wait_p90),
        lost=after.lost / max(1, after.useful) - before.lost / max(1, before.useful),
        delivered=delivered,
        others_useful=_more(others_before.useful, others_after.useful),
        others_turnaround=_turnaround(honest.outcomes, sly.outcomes, theirs),
        others_wait_p90=_more(others_before.wait_p90, others_after.wait_p90),
    )


def _more(before: float, after: float) -> float:
    return after / before - 1 if before else 0.0


def _turnaround(honest: Outcomes, sly: Outcomes, belongs: Callable[[AccountPath], bool]) -> float:
    before, after = honest.turnarounds(belongs), sly.turnarounds(belongs)
    both = sorted(before.keys() & after.keys())
    return _more(sum(before[each] for each in both), sum(after[each] for each in both))


# ---- one job of the pool: everything for one (adversary, account) or one noise seed ----


@cache
def _base(spec: str) -> tuple[Trace, _Run]:
    trace = load_trace(spec)
    return trace, _run(trace)


def _attack(job: tuple[str, str, str]) -> Effect:
    spec, name, account = job
    adversary = next(each for each in ADVERSARIES if each.name == name)
    path = AccountPath(account)
    trace, base = _base(spec)
    honest_trace = adversary.honest(trace, path)
    honest = base if honest_trace is trace else _run(honest_trace)
    return effect(name, path, honest, _sly(adversary, trace, path, honest))


def _sly(adversary: Adversary, trace: Trace, path: AccountPath, honest: _Run) -> _Run:
    sly = adversary.sly(trace, path)
    if adversary.acts:
        sly = adversary.acts(sly, path, peaks(honest, path))
    return _run(sly, adversary.resubmits)


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


def _noise(job: tuple[str, int, tuple[str, ...]]) -> list[Effect]:
    spec, seed, accounts = job
    trace, base = _base(spec)
    moved = _run(jittered(trace, seed))
    return [effect("noise", AccountPath(account), base, moved) for account in accounts]


def measure(spec: str, accounts: Sequence[str], names: Sequence[str], jobs: int) -> list[Effect]:
    """All effects, noise first."""
    attacks = [(spec, name, account) for name in names for account in accounts]
    with ProcessPoolExecutor(jobs) as pool:
        noise = list(pool.map(_noise, [(spec, seed, tuple(accounts)) for seed in NOISE_SEEDS]))
        return [*(each for several in noise for each in several), *pool.map(_attack, attacks)]


# ---- tables ----

_HEADS = (
    "its useful work", "its turnaround", "its mean wait", "its p50", "its p90", "its lost work", "its delivered ratio",
    "others' useful work", "others' turnaround", "others' p90",
)  # fmt: skip


def summary(effects: Sequence[Effect], name: str) -> dict[str, float | None]:
    """Means over the accounts."""
    mine = [each for each in effects if each.adversary == name]
    delivered = [each.delivered for each in mine if each.delivered is not None]
    fields = (
        "useful", "turnaround", "wait_mean", "wait_p50_s", "wait_p90", "lost",
        "others_useful", "others_turnaround", "others_wait_p90",
    )  # fmt: skip
    means: dict[str, float | None] = {field: fmean(getattr(each, field) for each in mine) for field in fields}
    means["delivered"] = fmean(delivered) if delivered else None
    return means


def noise_band(effects: Sequence[Effect]) -> dict[str, float]:
    """The largest change that moving submissions by a minute made, by field."""
    band: dict[str, float] = {}
    for each in effects:
        if each.adversary == "noise":
            for field, value in asdict(each).items():
                if isinstance(value, float):
                    band[field] = max(band.get(field, 0.0), abs(value))
    return band


def markdown(effects: Sequence[Effect], names: Sequence[str]) -> str:
    """The table of docs/gaming.md: one row an adversary, means over the accounts, and the noise beside them."""
    lines = ["| adversary | " + " | ".join(_HEADS) + " |", "|---|" + "---:|" * len(_HEADS)]
    for name in names:
        does = next(each.does for each in ADVERSARIES if each.name == name)
        lines.append(f"| {does} | " + " | ".join(_cells(summary(effects, name))) + " |")
    band: dict[str, float | None] = {**noise_band(effects)}
    lines.append(
        "| *noise: the largest change when each submission moves by up to a minute* | "
        + " | ".join(cell.replace("+", "±") for cell in _cells(band))
        + " |"
    )
    return "\n".join(lines)


def text(effects: Sequence[Effect], names: Sequence[str]) -> str:
    """One row an adversary and account, then their means, then the noise."""
    rows = [["adversary", "account", *_HEADS]]
    rows += [[each.adversary, each.account, *_cells(asdict(each))] for each in effects if each.adversary != "noise"]
    rows += [[name, "mean", *_cells(summary(effects, name))] for name in names]
    rows.append(["noise", "largest change", *_cells({**noise_band(effects)})])
    return columns(rows)


def _cells(values: dict[str, float | None]) -> list[str]:
    cells = []
    for field in (
        "useful", "turnaround", "wait_mean", "wait_p50_s", "wait_p90", "lost", "delivered",
        "others_useful", "others_turnaround", "others_wait_p90",
    ):  # fmt: skip
        value = values.get(field)
        if value is None:
            cells.append("-")
        elif field == "wait_p50_s":
            cells.append(f"{value:+.0f} s")
        else:
            cells.append(f"{100 * value:+.1f} %")
    return cells


def main(arguments: list[str] | None = None) -> int:
    known = [each.name for each in ADVERSARIES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="?", default=None)
    parser.add_argument("--accounts", default=",".join(ACCOUNTS))
    parser.add_argument("--only", default=",".join(known), help=f"of {', '.join(known)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    spec = options.input or default_input()
    names = [name for name in options.only.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no adversary {unknown[0]!r}: there are {', '.join(known)}")
    effects = measure(spec, options.accounts.split(","), names, options.jobs)
    print(f"Gaming, on {spec}; sly against honest\n\n{text(effects, names)}")
    if options.markdown:
        options.markdown.write_text(markdown(effects, names) + "\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in effects], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
