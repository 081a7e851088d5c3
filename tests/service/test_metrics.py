"""Metrics: the page names what is exposed, labels stay few, and the numbers are those of the state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirab.model.events import NodeDegraded, Outcome, RunEnded, RunStarted, WorkloadSubmitted
from mirab.model.plans import Plan, Preempt, Start
from mirab.model.reasons import DrainedFrom, InOrder
from mirab.model.resources import Allocation
from mirab.model.units import AccountPath, NodeName, RunId, WorkloadId
from mirab.service.live import Live
from mirab.service.loop import Timing
from mirab.service.metrics import Metrics
from tests.service.doubles import MemoryStore, job, make_live

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def scraped(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, kind = metrics.render()
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def start(number: int, slots: int) -> Start:
    return Start(RunId(f"{number}.1"), WorkloadId(str(number)), Allocation(0, 1, slots), 0,
                 InOrder(AccountPath("red"), 0.0, True))  # fmt: skip


def running(live: Live, number: int, gpus: int, account: str = "red") -> None:
    state, now = live.state, live.state.now
    state.fold(WorkloadSubmitted(now, job(number, account, gpus=gpus)))
    state.commit(Plan(now, 0, (start(number, gpus),)))
    state.fold(RunStarted(now, RunId(f"{number}.1")))


def test_the_page_names_what_is_exposed() -> None:
    documented = re.findall(r"^\| `(mirab_\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.M)
    metrics = Metrics(make_live())
    exposed = {family.name: family for family in metrics.registry.collect()}
    assert [name for name, _, _ in documented] != []
    assert {name for name, _, _ in documented} == set(exposed)
    assert {name: kind for name, kind, _ in documented} == {name: family.type for name, family in exposed.items()}
    assert all(family.documentation for family in exposed.values())


def test_no_label_grows_with_the_jobs() -> None:
    live = make_live()
    metrics = Metrics(live)
    for number in range(1, 3):
        running(live, number, 1)
    metrics.after_cycle(1, (), Plan(0, 0, tuple(start(number, 1) for number in range(1, 3))), Timing())
    before = len(scraped(metrics))
    for number in range(3, 5):
        running(live, number, 1)
    metrics.after_cycle(2, (), Plan(0, 0, tuple(start(number, 1) for number in range(3, 5))), Timing())
    assert len(scraped(metrics)) == before
    labels = {name for name, pairs in scraped(metrics) for name, _ in pairs}
    assert labels <= {"version", "kind", "cause", "outcome", "le", "route", "method", "status", "account", "pool",
                      "state", "health"}  # fmt: skip


def test_gpus_by_state_add_up() -> None:
    live = make_live()
    running(live, 1, 3)
    running(live, 2, 1, "blue")
    live.state.fold(NodeDegraded(live.state.now, NodeName("n0")))
    found = scraped(Metrics(live))
    gpus = {dict(labels)["state"]: value for (name, labels), value in found.items() if name == "mirab_gpus"}
    assert sum(gpus.values()) == 8
    assert (gpus["busy"], gpus["draining"], gpus["free"]) == (0, 4, 4)
    assert found["mirab_jobs_running", (("account", "blue"),)] == 1
    assert found["mirab_account_gpus_running", (("account", "red"),)] == 3
    assert found["mirab_nodes_troubled", (("health", "degraded"),)] == 1


def test_what_was_lost_is_counted_in_gpu_seconds() -> None:
    metrics = Metrics(make_live())
    metrics.after_cycle(1, (), Plan(0, 0, (start(1, 4),)), Timing(0.002, 0.003, 0.006))
    stop = Preempt(RunId("1.1"), 0, DrainedFrom(NodeName("n0"), "sick"))
    metrics.after_cycle(2, (), Plan(0, 0, (stop,)), Timing())
    metrics.after_cycle(3, (RunEnded(0, RunId("1.1"), Outcome.PREEMPTED, 2_500),), Plan(0, 0), Timing())
    found = scraped(metrics)
    assert found["mirab_lost_gpu_seconds_total", (("outcome", "PREEMPTED"),)] == 10
    assert found["mirab_preemptions_total", (("cause", "DrainedFrom"),)] == 1
    assert found["mirab_decisions_total", ()] == 3
    assert found["mirab_decision_seconds_sum", ()] == pytest.approx(0.002)


def test_a_ledger_whose_file_is_gone_is_seen_at_the_next_scrape() -> None:
    store = MemoryStore()
    live = make_live(store)
    metrics = Metrics(live)
    live.pulse.running = True
    assert (scraped(metrics)["mirab_up", ()], scraped(metrics)["mirab_store_trouble", ()]) == (1, 0)
    store.database.out_of_place = lambda: "it has been removed"
    assert (scraped(metrics)["mirab_up", ()], scraped(metrics)["mirab_store_trouble", ()]) == (0, 1)


def test_a_state_that_may_not_be_shown_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    live = make_live()
    metrics = Metrics(live)
    assert ("mirab_holds", ()) in scraped(metrics)
    live.pulse.failed = "the scheduler stopped"
    found = scraped(metrics)
    assert found["mirab_up", ()] == 0
    assert ("mirab_holds", ()) not in found
