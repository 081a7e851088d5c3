"""The measures of a live journal over its last window, and gates on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirab.model.events import Outcome, PolicyChanged
from mirab.model.units import DAY, HOUR, MINUTE
from mirab.service.desk.exceptions import Wish
from mirab.service.inbox import Entry
from mirab.service.views.windowed import Reports, window_report
from mirab.study.gates import findings
from mirab.study.gatesfile import parse_gates
from tests.service.house import ADA, EVE, ROOT, Bench

GATES = """
gates:
  debug-wait: {at_most: 5m, percentile: p90}
  contracts: {at_most: 0}
  starvation: {at_most: 24h}
"""


def lived(bench: Bench) -> None:
    """Two days: on the first llm has all 8 GPUs for 20 h, on the second vision one of them for 12 h."""
    first = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h")[0]
    bench.wait(20 * HOUR)
    bench.end(first)
    bench.wait(4 * HOUR)
    second = bench.submit(ADA, gpus_per_node=1, min_runtime="15m")[0]
    bench.wait(12 * HOUR)
    bench.end(second)
    bench.wait(12 * HOUR)


def report(bench: Bench, window: int = 7 * DAY) -> dict[str, Any]:
    return window_report(bench.store._store, bench.live.now(), window)


def test_only_what_happened_in_the_window_counts(bench: Bench) -> None:
    lived(bench)
    whole, day = report(bench), report(bench, DAY)
    assert (whole["input"]["ends_s"] - whole["input"]["starts_s"]) == 48 * 3_600, "the ledger is younger than a window"
    assert whole["by_account"]["llm"]["charged"] == pytest.approx(160)
    assert whole["by_account"]["vision/video"]["charged"] == pytest.approx(12)
    assert whole["metrics"]["waits"]["all"]["count"] == 2
    assert day["by_account"]["llm"]["charged"] == 0
    assert day["by_account"]["vision/video"]["charged"] == pytest.approx(12)
    assert day["metrics"]["waits"]["all"]["count"] == 1
    assert day["metrics"]["occupancy"] == pytest.approx(12 / (8 * 24))


def test_what_ran_when_the_window_began_is_known(bench: Bench) -> None:
    run = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h")[0]
    bench.wait(30 * HOUR)
    bench.end(run)
    assert report(bench, 6 * HOUR)["metrics"]["occupancy"] == pytest.approx(1)
    waiting = bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="1h")[0]
    behind = bench.submit(ADA, nodes=2, gpus_per_node=4, min_runtime="15m")[0]
    bench.wait(30 * MINUTE)
    told = report(bench, 6 * HOUR)["metrics"]["waits"]["all"]
    assert waiting != behind
    assert told["count"] == 2, "who still waits counts with the wait so far"
    assert told["p99_s"] == pytest.approx(30 * 60)


def test_a_gate_that_is_not_met_says_the_number(bench: Bench) -> None:
    bench.submit(EVE, account="llm", nodes=2, gpus_per_node=4, min_runtime="8h")
    bench.submit(ADA, gpus_per_node=1, min_runtime="15m")
    bench.wait(HOUR)
    found = {each.gate: each for each in findings(parse_gates(GATES.encode(), Path("gates.yaml")), report(bench))}
    assert not found["debug-wait"].met
    assert found["debug-wait"].value == pytest.approx(3_600)
    assert found["contracts"].met
    assert found["starvation"].met, "sampled from the state that the journal makes"


def test_a_process_of_its_own_says_the_same(bench: Bench) -> None:
    lived(bench)
    bench.submit(ADA, gpus_per_node=1)
    bench.end(*[row.id for row in bench.store.jobs()[0] if row.state.value == "RUNNING"], outcome=Outcome.FAILED)
    reports = Reports(bench.store.url)
    assert reports.last_window(bench.live.now(), DAY) == report(bench, DAY)


def test_what_the_journal_of_a_service_holds_besides(bench: Bench) -> None:
    """Held and released work, an exception that was ended early, another policy: all of it is understood."""
    job = bench.submit(ADA, gpus_per_node=1, hold=True)[0]
    bench.wait(HOUR)
    bench.desk.release(ADA, [job])
    exceptions = bench.desk.portfolio.exceptions
    case = exceptions.request(ADA, Wish("guaranteed", "vision/video", "a try", bench.live.now() + DAY))
    exceptions.approve(ROOT, case.id)
    bench.wait(2 * HOUR)
    exceptions.revoke(ROOT, case.id, "enough")
    changed = replace(bench.state.policy, mode="observe")
    bench.live.send(lambda state, now: Entry((PolicyChanged(now, changed, "root", "a look"),)))
    waits = bench.submit(EVE, account="llm", gpus_per_node=1)[0]
    bench.wait(HOUR)
    told = report(bench)
    assert told["metrics"]["waits"]["all"]["count"] == 2
    assert told["metrics"]["waits"]["all"]["p50_s"] == 0, "time in which its user held it is not waiting"
    assert told["by_account"]["llm"]["charged"] == 0, "observing starts nothing"
    assert told["by_account"]["llm"]["waits"]["p90_s"] == pytest.approx(3_600)
    assert bench.row(waits).state.value == "PENDING"
    held = told["exceptions"]
    assert [(each["id"], each["end_s"] - each["begin_s"], each["in_force"]) for each in held] == [
        (case.id, pytest.approx(7_200), False)
    ]
    assert told["policy"]["mode"] == "observe"
