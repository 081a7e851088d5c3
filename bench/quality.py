"""Quality: the measures that policy `budget` has to reach, on several logs, and the other policies beside it.

    python -m bench.quality [--shared DIR] [--seeds 1,2,3] [--jobs 2] [--json FILE] [--markdown FILE]

Logs: the reference log and the Philly overlay (2-29 October, four copies shifted by 7 days each, 1,024 GPUs) where the
shared data are there; and synthetic months of three seeds. Single runs are chaotic: judge by all columns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.inputs import shared_data
from bench.process import OUT, cluster_file, log_arguments, mirab, synthetic_log
from bench.tables import columns, markdown

POLICIES = ("budget", "priority", "fifo", "fair-tree", "quota")
Report = dict[str, Any]
Key = tuple[str, str]
"""Log and policy."""


@dataclass(frozen=True, slots=True)
class Target:
    """A measure, what it has to reach, and what the institute that described such a system reported after a month."""

    name: str
    find: Callable[[Report], float | None]
    reach: float
    at_least: bool
    elsewhere: str
    form: str

    def reached(self, value: float) -> bool:
        return value >= self.reach if self.at_least else value <= self.reach

    def show(self, value: float | None) -> str:
        if value is None:
            return "-"
        shown = _FORMS[self.form](value)
        return shown if self.reached(value) else f"{shown} !"


def _metric(name: str) -> Callable[[Report], float | None]:
    return lambda report: report["metrics"].get(name)


def _wait(group: str, key: str) -> Callable[[Report], float | None]:
    return lambda report: report["metrics"]["waits"].get(group, {}).get(key)


def _accounts(report: Report) -> float | None:
    metrics = report["metrics"]
    return metrics["accounts_at_95"] / metrics["accounts"] if metrics["accounts"] else None


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


_FORMS: dict[str, Callable[[float], str]] = {
    "%": lambda value: f"{100 * value:.1f} %",
    "s": _seconds,
    "n": lambda value: f"{value:.0f}",
}

TARGETS = (
    Target("delivered of owed", _metric("delivered_ratio"), 0.98, True, "98 %", "%"),
    Target("delivered, worst account", _metric("delivered_ratio_worst"), 0.92, True, "90 %", "%"),
    Target("accounts at 95 % or more", _accounts, 14 / 15, True, "13 of 15", "%"),
    Target("occupancy of demand", _metric("occupancy_of_demand"), 0.985, True, "98 %", "%"),
    Target("wait p50, all", _wait("all", "p50_s"), 10, False, "24 s", "s"),
    Target("wait p90, all", _wait("all", "p90_s"), 3600, False, "1.8 h", "s"),
    Target("wait p90, debug", _wait("debug", "p90_s"), 15, False, "30 s", "s"),
    Target("lost work", _metric("lost_ratio"), 0.025, False, "-", "%"),
    Target("contract violations", _metric("contract_violations"), 0, False, "-", "n"),
)
FEWER_HUMANS = Target("repairs needing a human, fewer than priority", lambda report: None, 0.74, True, "74 %", "%")

BESIDE: tuple[tuple[str, Callable[[Report], float | None], str], ...] = (
    ("occupancy", _metric("occupancy"), "%"),
    ("availability", _metric("availability"), "%"),
    ("unallocated", _metric("unallocated_ratio"), "%"),
    ("delivered, period", _metric("delivered_ratio_period"), "%"),
    ("useful", _metric("useful_ratio"), "%"),
    ("owed, given up", _metric("owed_given_up"), "%"),
    ("held idle", _metric("held_idle_ratio"), "%"),
    ("fragmentation", _metric("fragmentation_ratio"), "%"),
    ("preemptions", _metric("preemptions"), "n"),
    ("starvation", _metric("starvation_s"), "s"),
    ("wait p90, all with a minimum", lambda report: _by_contract(report, "charged", "all")["p90_s"], "s"),
    ("wait p90, medium with a minimum", lambda report: _by_contract(report, "charged", "medium")["p90_s"], "s"),
    ("work never started, with a minimum", lambda report: _unstarted(report, "charged", "all"), "%"),
    ("work never started, medium with a minimum", lambda report: _unstarted(report, "charged", "medium"), "%"),
    ("work never started, without a minimum", lambda report: _unstarted(report, "uncharged", "all"), "%"),
    ("wait p90, large", _wait("large", "p90_s"), "s"),
    ("huge gangs that started", lambda report: _started(report, "huge"), "%"),
    ("repairs needing a human", _metric("repairs_needing_human"), "n"),
)


def _by_contract(report: Report, contract: str, group: str) -> dict[str, Any]:
    found: dict[str, Any] = report["metrics"]["by_contract"][contract][group]
    return found


def _unstarted(report: Report, contract: str, group: str) -> float | None:
    """The part of the work asked for that never started."""
    row = _by_contract(report, contract, group)
    return row["work_unstarted"] / row["work"] if row["work"] else None


def _started(report: Report, group: str) -> float | None:
    waits = report["metrics"]["waits"].get(group)
    return waits["started"] / waits["count"] if waits and waits["count"] else None


def logs(shared: Path, seeds: Sequence[int]) -> dict[str, list[str]]:
    """Arguments of `mirab sim` by the log's name; those of the shared data only where they are."""
    found: dict[str, list[str]] = {}
    if (shared / "reference" / "workloads.csv.gz").exists():
        found["reference"] = log_arguments(shared / "reference")
    for seed in seeds:
        found[f"seed {seed}"] = synthetic_log(f"seed-{seed}", "--seed", str(seed))
    philly = shared / "philly" / "philly_to_2017-10-31.csv.gz"
    if philly.exists():
        found["philly"] = [str(philly), "--cluster", str(cluster_file("gpus")), *PHILLY]
    return found


PHILLY = ("--from", "2017-10-02", "--to", "2017-10-30", "--overlay", "4x7d")


def measure(shared: Path, seeds: Sequence[int], jobs: int) -> dict[Key, Report]:
    """Reports: every log under `budget`, those with hardware events under `priority` too, the first log under all."""
    inputs = logs(shared, seeds)
    first = next(iter(inputs))
    keys = [(log, policy) for log in inputs for policy in policies_for(inputs[log], log == first)]
    with ThreadPoolExecutor(jobs) as pool:
        reports = pool.map(lambda key: _replay(key, inputs[key[0]]), keys)
        return dict(zip(keys, reports, strict=True))


def policies_for(arguments: Sequence[str], first: bool) -> tuple[str, ...]:
    """Beyond the first log `priority` is there for its repairs alone; over Philly's load it takes very long."""
    if first:
        return POLICIES
    return ("budget", "priority") if "--node-events" in arguments else ("budget",)


def _replay(key: Key, arguments: Sequence[str]) -> Report:
    path = OUT / f"quality-{key[0].replace(' ', '-')}-{key[1]}.json"
    mirab("sim", *arguments, "--policy", key[1], "--quiet", "--json", str(path))
    report: Report = json.loads(path.read_text())
    return report


def fewer_humans(reports: dict[Key, Report], log: str) -> float | None:
    """1 - repairs needing a human under `budget` / under `priority`; None where there are none."""
    if (log, "priority") not in reports:
        return None
    ours, theirs = (reports[log, policy]["metrics"]["repairs_needing_human"] for policy in ("budget", "priority"))
    return 1 - ours / theirs if theirs else None


def quality_rows(reports: dict[Key, Report]) -> list[list[str]]:
    names = list(dict.fromkeys(log for log, _ in reports))
    rows = [["measure (budget)", "to reach", "reported elsewhere", *names, "spread"]]
    for target in (*TARGETS, FEWER_HUMANS):
        if target is FEWER_HUMANS:
            values = [fewer_humans(reports, name) for name in names]
        else:
            values = [target.find(reports[name, "budget"]) for name in names]
        known = [value for value in values if value is not None]
        spread = f"{_FORMS[target.form](min(known))} .. {_FORMS[target.form](max(known))}" if known else "-"
        bound = ("at least " if target.at_least else "at most ") + _FORMS[target.form](target.reach)
        rows.append([target.name, bound, target.elsewhere, *map(target.show, values), spread])
    for name, find, form in BESIDE:
        values = [find(reports[log, "budget"]) for log in names]
        rows.append([name, "", "", *(_shown(value, form) for value in values), ""])
    return rows


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else _FORMS[form](value)


def policy_rows(reports: dict[Key, Report]) -> list[list[str]]:
    first = next(iter(reports))[0]
    names = [policy for log, policy in reports if log == first]
    rows = [[f"measure ({first})", *names]]
    measures = [(target.name, target.find, target.form) for target in TARGETS]
    for name, find, form in (*measures, *BESIDE):
        rows.append([name, *(_shown(find(reports[first, policy]), form) for policy in names)])
    return rows


def text(reports: dict[Key, Report]) -> str:
    return (
        f"{columns(quality_rows(reports))}\n\n! = not reached\n\n"
        f"The same arrivals under the other policies:\n\n{columns(policy_rows(reports))}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=shared_data(), help="folder with reference/ and philly/")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    reports = measure(options.shared.resolve(), [int(seed) for seed in options.seeds.split(",")], options.jobs)
    print(text(reports))
    if options.markdown:
        tables = (markdown(quality_rows(reports)), markdown(policy_rows(reports)))
        options.markdown.write_text("\n\n".join(tables) + "\n")
    if options.json:
        metrics = {f"{log}/{policy}": report["metrics"] for (log, policy), report in reports.items()}
        options.json.write_text(json.dumps(metrics, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
