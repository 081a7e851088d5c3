"""The generator against the reference log, by numbers noted from it, and against its own promises."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mirab.model.accounts import Budget, Budgets
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, MINUTE, SECOND, WHOLE
from mirab.sim.synthetic import SynthOptions, synthesize

ROWS = 39_062
PART_OF_ROWS = {
    "debug": 0.6043, "small": 0.2701, "medium": 0.0829, "session": 0.0301, "large": 0.0109, "huge": 0.0017
}  # fmt: skip
PART_OF_GPU_TIME = {
    "debug": 0.0063, "small": 0.0897, "medium": 0.2960, "session": 0.0050, "large": 0.3296, "huge": 0.2733
}  # fmt: skip
MEDIAN_RUN_S = {"debug": 353, "small": 2542, "medium": 8727, "session": 7376, "large": 17_988, "huge": 27_832}
NIGHT_TO_DAY = 0.33
"""Arrivals in an hour of the night, per arrival in an hour between 10 and 20."""


@pytest.fixture(scope="module", params=(1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))))
def month(request: pytest.FixtureRequest) -> Trace:
    return synthesize(SynthOptions(seed=request.param))


def gpu_time(trace: Trace, label: str | None = None) -> int:
    return sum(
        each.workload.shape.gpus * each.run
        for each in trace.arrivals
        if label is None or each.workload.label == label
    )  # fmt: skip


def test_a_month_has_the_references_count_and_load(month: Trace) -> None:
    assert len(month.arrivals) == pytest.approx(ROWS, rel=0.04)
    assert gpu_time(month) / (1024 * 30 * DAY) == pytest.approx(1.16, rel=0.002)


def test_classes_have_the_references_parts_of_rows_and_gpu_time(month: Trace) -> None:
    counts = Counter(each.workload.label for each in month.arrivals)
    whole = gpu_time(month)
    for label, part in PART_OF_ROWS.items():
        assert counts[label] / len(month.arrivals) == pytest.approx(part, rel=0.2 if label == "huge" else 0.08), label
        assert gpu_time(month, label) / whole == pytest.approx(PART_OF_GPU_TIME[label], rel=0.12), label


def test_run_times_and_contracts_are_the_references(month: Trace) -> None:
    for label, median_s in MEDIAN_RUN_S.items():
        runs = sorted(each.run for each in month.arrivals if each.workload.label == label)
        assert runs[len(runs) // 2] / SECOND == pytest.approx(median_s, rel=0.12), label
    uncharged = sum(not each.workload.shape.charged for each in month.arrivals)
    assert uncharged / len(month.arrivals) == pytest.approx(0.125, abs=0.01)
    preemptible = sum(each.workload.preemptible for each in month.arrivals)
    assert preemptible / len(month.arrivals) == pytest.approx(0.2, abs=0.01)
    for each in month.arrivals:
        work = each.workload
        limit = work.shape.time_limit
        assert limit is not None and limit % HOUR == 0
        assert each.run * 1.09 <= limit <= each.run * 4.01 + HOUR
        assert work.checkpoint == (0 if work.label == "session" else 30 * MINUTE)
        assert each.cancel_after == (4 * HOUR if work.label == "session" else 2 * DAY)
        assert work.restart == (3 * MINUTE if work.shape.gpus > 2 else MINUTE)


def test_people_and_hours_are_the_references(month: Trace) -> None:
    hours = Counter(each.workload.submitted_at // HOUR % 24 for each in month.arrivals)
    night = sum(hours[hour] for hour in range(8)) / 8
    day = sum(hours[hour] for hour in range(10, 20)) / 10
    assert night / day == pytest.approx(NIGHT_TO_DAY, abs=0.04)
    accounts_of: dict[str, set[str]] = {}
    for each in month.arrivals:
        accounts_of.setdefault(each.workload.user, set()).add(each.workload.account)
    assert all(len(accounts) == 1 for accounts in accounts_of.values())
    assert len(accounts_of) == pytest.approx(151, abs=3)
    first = Counter(each.workload.user for each in month.arrivals if each.workload.account == "language/pretrain")
    assert len(first) == 30
    assert max(first.values()) / sum(first.values()) == pytest.approx(0.257, abs=0.03)


def test_teams_want_more_and_less_than_their_share_and_have_idle_and_busy_days(month: Trace) -> None:
    shares = {path: share for path, _, share in month.budgets.walk()}
    wanted: Counter[str] = Counter()
    days: dict[str, Counter[int]] = {}
    for each in month.arrivals:
        path = each.workload.account
        wanted[path] += each.workload.shape.gpus * each.run
        days.setdefault(path, Counter())[each.workload.submitted_at // DAY] += 1
    ratios = sorted(wanted[path] / (1024 * 30 * DAY * shares[path] / WHOLE) for path in month.budgets.leaves())
    assert ratios[0] < 1.05 and ratios[-1] > 1.35
    assert ratios[0] > 0.5 and ratios[-1] < 2.2
    for team, counts in days.items():
        mean = sum(counts.values()) / 30
        levels = sorted(counts[day] / mean for day in range(30))
        assert levels[2] < 0.5 and levels[-3] > 1.4, team


def test_nodes_fail_as_often_as_in_the_reference(month: Trace) -> None:
    assert len(month.troubles) == 84
    assert sum(each.stuck for each in month.troubles) == 8
    assert 40 <= sum(each.kind == "degraded" for each in month.troubles) <= 65
    assert all(HOUR <= each.repair <= 6 * HOUR for each in month.troubles)
    names = set(month.cluster.pools[0].nodes)
    assert all(each.node in names for each in month.troubles)
    assert [each.at for each in month.troubles] == sorted(each.at for each in month.troubles)


def test_arrivals_are_sorted_by_instant_and_id_and_inside_the_period(month: Trace) -> None:
    keys = [(each.workload.submitted_at, each.workload.id) for each in month.arrivals]
    assert keys == sorted(keys)
    assert len({identity for _, identity in keys}) == len(keys)
    assert keys[0][0] >= 0 and keys[-1][0] < month.ends_at == 30 * DAY


def test_a_count_is_exact_and_the_period_follows_from_the_load() -> None:
    trace = synthesize(SynthOptions(workloads=10_000, load=2.0))
    assert len(trace.arrivals) == 10_000
    assert gpu_time(trace) / (1024 * trace.ends_at) == pytest.approx(2.0, rel=0.002)


def test_a_period_that_ends_within_an_hour_is_filled_evenly() -> None:
    trace = synthesize(SynthOptions(workloads=15_000, nodes=1024, load=41.0, troubles=False))
    assert trace.ends_at % HOUR
    last_minute = sum(each.workload.submitted_at >= trace.ends_at - MINUTE for each in trace.arrivals)
    assert last_minute == pytest.approx(15_000 * MINUTE / trace.ends_at, rel=0.3)


@pytest.mark.parametrize(("nodes", "scale"), [(1024, 8), (8192, 64)])
def test_sizes_scale_with_the_cluster(nodes: int, scale: int) -> None:
    base = synthesize(SynthOptions(workloads=3000))
    scaled = synthesize(SynthOptions(workloads=3000, nodes=nodes, size_scale=scale))
    assert len(scaled.arrivals) == 3000
    assert scaled.ends_at == pytest.approx(base.ends_at, rel=0.001)
    for small, big in zip(base.arrivals, scaled.arrivals, strict=True):
        assert big.workload.shape.nodes == small.workload.shape.nodes * scale
        assert big.workload.shape.gpus_per_node == small.workload.shape.gpus_per_node
    assert gpu_time(scaled) / (scaled.cluster.slots * scaled.ends_at) == pytest.approx(1.16, rel=0.002)


@pytest.mark.parametrize("accounts", [1, 7, 200])
def test_any_number_of_accounts(accounts: int) -> None:
    trace = synthesize(SynthOptions(days=3, accounts=accounts))
    assert len(trace.budgets.leaves()) == accounts
    known = set(trace.budgets.leaves())
    assert {each.workload.account for each in trace.arrivals} <= known


def test_an_own_tree_of_budgets() -> None:
    tree = Budgets((Budget("only", WHOLE // 2), Budget("nothing", 0)))
    trace = synthesize(SynthOptions(days=2, budgets=tree))
    assert {each.workload.account for each in trace.arrivals} == {"only"}


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 1), (1, 8), (3, 4), (16, 8), (20, 16)])
def test_everything_fits_half_of_a_small_cluster(nodes: int, per_node: int) -> None:
    trace = synthesize(SynthOptions(nodes=nodes, gpus_per_node=per_node, days=2))
    assert trace.arrivals
    assert all(each.workload.shape.nodes <= max(1, nodes // 2) for each in trace.arrivals)
    assert all(each.workload.shape.gpus_per_node <= per_node for each in trace.arrivals)
    domains = trace.cluster.pools[0].domains
    assert sum(domains) == (1 << nodes) - 1


def fingerprint(trace: Trace) -> str:
    return hashlib.sha256(repr((list(trace.arrivals), list(trace.troubles))).encode()).hexdigest()


FINGERPRINT = "76cee67db3d631192cacef4f3156cf4b1632e96568ffd7bf60bb597e4d039e57"


def test_the_same_seed_gives_the_same_log_on_every_machine() -> None:
    assert fingerprint(synthesize(SynthOptions(nodes=32, days=3, seed=7))) == FINGERPRINT


def test_another_seed_gives_another_log() -> None:
    assert fingerprint(synthesize(SynthOptions(nodes=32, days=3, seed=8))) != FINGERPRINT


def test_the_hash_seed_changes_nothing() -> None:
    code = (
        "from tests.synth.test_synthetic import fingerprint\n"
        "from mirab.sim.synthetic import *\n"
        "print(fingerprint(synthesize(SynthOptions(nodes=32, days=3, seed=7))))"
    )
    for hash_seed in ("0", "1", "4242"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        )
        assert run.stdout.strip() == FINGERPRINT, run.stderr


@pytest.mark.parametrize(
    "wrong", [{"nodes": 0}, {"days": 0}, {"load": 0.0}, {"load": float("nan")}, {"workloads": 0}, {"accounts": 0}]
)
def test_impossible_options_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SynthOptions(**wrong)  # type: ignore[arg-type]


def test_a_cluster_too_small_for_the_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="larger cluster"):
        synthesize(SynthOptions(nodes=4, size_scale=8))
