"""The report of a week: the numbers of a replay from its journal alone, and weeks that add up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date
from pathlib import Path
from typing import Any

import click
import pytest

from mirab.cli.main import run
from mirab.cli.report import week_of
from mirab.model import events as fact
from mirab.model.accounts import Budget, Budgets
from mirab.model.plans import CallHuman, Plan, Preempt, Repair, Start
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.reasons import DrainedFrom, InOrder, PreemptedFor
from mirab.model.records import Beginning
from mirab.model.resources import Allocation, Shape
from mirab.model.units import DAY, HOUR, MINUTE, WHOLE, AccountPath, Instant, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.sim.engine import replay
from mirab.study.measures import Measures
from mirab.study.weekly import ABSENT_MEASURES, Record, Week, weekly
from mirab.study.weeklytext import markdown, parts, weekly_page
from tests.api.stage import Stage
from tests.service.house import nodes
from tests.study.small import small_trace

MONDAY: Instant = 1_709_510_400_000
"""4 March 2024, a Monday, 00:00 UTC."""


class Journal:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, facts: Any, plan: Plan) -> None:
        self.records.append((tuple(facts), plan))


def report(
    records: Iterable[Record], began: Beginning, begin: Instant, end: Instant, progress: int = 0
) -> dict[str, Any]:
    return weekly(Week("2024-W10", begin, end), began, records, lambda workload: progress)


@pytest.fixture(scope="module")
def replayed() -> tuple[list[Record], Measures, Beginning]:
    trace, policy, journal = small_trace(), Policy(), Journal()
    measures = Measures(trace, policy)
    replay(trace, policy, journals=(measures, journal))
    return journal.records, measures, Beginning(trace.cluster, trace.budgets, policy, 0)


def test_a_week_that_is_the_whole_log_has_the_numbers_of_its_replay(replayed: Any) -> None:
    records, measures, began = replayed
    found, known = report(records, began, 0, DAY), measures.report()
    wanted = {key: value for key, value in known["metrics"].items() if key not in ABSENT_MEASURES}
    for late in ("by_contract", "deadlines", "first_progress", "waits"):
        wanted.pop(late)
    assert {key: found["metrics"][key] for key in wanted} == wanted
    assert found["metrics"]["waits"]["all"]["p90_s"] == known["metrics"]["waits"]["all"]["p90_s"]
    by_path = {each["path"]: each for each in found["accounts"]}
    for path, account in known["by_account"].items():
        if path in by_path:
            assert by_path[path]["owed"] == account["owed"]
            assert by_path[path]["charged"] == account["charged"]
    assert sum(each["owed"] for each in found["accounts"]) > 0


def test_two_halves_are_the_whole(replayed: Any) -> None:
    """Owed, used and lost of one half and the other add up; nothing is counted twice or forgotten between."""
    records, _, began = replayed
    cut = 5 * HOUR + 7 * MINUTE
    whole, first, second = (report(records, began, *span) for span in ((0, DAY), (0, cut), (cut, DAY)))
    for key in ("owed", "charged", "uncharged", "lost"):
        total = {each["path"]: each[key] for each in whole["accounts"]}
        for path, amount in total.items():
            halves = [each[key] for part in (first, second) for each in part["accounts"] if each["path"] == path]
            assert sum(halves) == pytest.approx(amount, abs=0.002), (key, path)
    preempted = [found["metrics"]["preemptions"] for found in (first, second)]
    assert sum(preempted) == whole["metrics"]["preemptions"]
    assert len(first["drains"]) + len(second["drains"]) == len(whole["drains"]) == 1


# --- beside the numbers ----------------------------------------------------------------------------------------------
CLUSTER = nodes(4)
VISION = AccountPath("vision")
BUDGETS = Budgets((
    Budget("vision", WHOLE // 2, owner="Ben", review="2024-03-10", hypothesis="it | sees"),
    Budget("llm", WHOLE // 2, review="2024-09-01"),
))  # fmt: skip
BEGAN = Beginning(CLUSTER, BUDGETS, Policy(), MONDAY - 3 * DAY)
SHAPE = Shape(1, 2, min_runtime=HOUR)


def at(hours: float) -> Instant:
    return MONDAY + round(hours * HOUR)


def record(instant: Instant, *facts: Any, actions: tuple[Any, ...] = ()) -> Record:
    return facts, Plan(instant, 0, actions=actions)


def start(job: str, node: int = 0) -> Start:
    return Start(RunId(f"{job}.1"), WorkloadId(job), Allocation(0, 1 << node, 2), HOUR, InOrder(VISION, 0.5, True))


def submitted(job: str, instant: Instant) -> fact.WorkloadSubmitted:
    return fact.WorkloadSubmitted(instant, Workload(WorkloadId(job), instant, VISION, UserName("ada"), SHAPE))


def one_run(job: str, begin: Instant, end: Instant, *signs: Instant) -> list[Record]:
    return [
        record(begin, submitted(job, begin), actions=(start(job),)),
        record(begin, fact.RunStarted(begin, RunId(f"{job}.1"))),
        *(record(sign, fact.RunCheckpointed(sign, RunId(f"{job}.1"))) for sign in signs),
        record(end, fact.RunEnded(end, RunId(f"{job}.1"), fact.Outcome.COMPLETED)),
    ]


def week(records: list[Record], progress: int = 0) -> dict[str, Any]:
    return report(records, BEGAN, MONDAY, MONDAY + 7 * DAY, progress)


def test_a_run_without_a_sign_holds_gpus_from_when_it_broke_its_word() -> None:
    found = week(one_run("1", at(1), at(10), at(2)), progress=HOUR)
    [squatter] = found["squatters"]
    assert (squatter["run"], squatter["user"], squatter["gpus"]) == ("1.1", "ada", 2)
    assert squatter["longest_s"] == 8 * 3600
    assert squatter["gpu_hours"] == 2 * 7
    assert week(one_run("1", at(1), at(1.9)), progress=HOUR)["squatters"] == []
    assert week(one_run("1", at(1), at(10), at(2)))["squatters"] == []


def test_only_the_part_of_a_silence_that_lies_in_the_week_counts() -> None:
    found = week(one_run("1", at(-10), at(4)), progress=HOUR)
    assert found["squatters"][0]["gpu_hours"] == 2 * 4
    assert found["squatters"][0]["longest_s"] == 14 * 3600


def test_what_ran_before_the_week_is_not_of_it() -> None:
    found = week([*one_run("1", at(-20), at(-10)), *one_run("2", at(-2), at(3))])
    [account] = [each for each in found["accounts"] if each["path"] == "vision"]
    assert account["charged"] == 2 * 3
    assert found["metrics"]["waits"]["all"]["count"] == 0


def test_a_drain_says_how_long_it_took_and_who_was_asked() -> None:
    node = NodeName("n1")
    found = week([
        record(at(-5), fact.NodeDegraded(at(-5), NodeName("n0"), "before")),
        record(at(1), fact.NodeDegraded(at(1), node, "XID 79")),
        record(at(2), actions=(CallHuman(node, RunId("1.1"), "it does not stop"),)),
        record(at(3), actions=(Repair(node),)),
        record(at(5), fact.NodeUp(at(5), node)),
        record(at(6), fact.NodeDown(at(6), NodeName("n2"))),
    ])  # fmt: skip
    first, second = found["drains"]
    assert (first["cause"], first["person"]) == ("XID 79", "it does not stop")
    assert first["empty_s"] - first["at_s"] == 2 * 3600
    assert first["back_s"] - first["at_s"] == 4 * 3600
    assert (second["kind"], second["back_s"]) == ("down", None)


def test_a_drain_says_what_it_stopped_and_what_that_lost() -> None:
    node = NodeName("n1")
    begun = one_run("1", at(0), at(4), at(1))
    ended = record(at(4), fact.RunEnded(at(4), RunId("1.1"), fact.Outcome.PREEMPTED))
    found = week([
        *begun[:-1],
        record(at(2), fact.NodeDegraded(at(2), node, "fan")),
        record(at(3), actions=(Preempt(RunId("1.1"), 0, DrainedFrom(node, "fan")),)),
        ended,
        record(at(4), actions=(Repair(node),)),
    ])  # fmt: skip
    [drain] = found["drains"]
    assert (drain["stopped"], drain["lost_gpu_hours"], drain["person"]) == (1, 2 * 3.0, "")
    assert drain["empty_s"] - drain["at_s"] == 2 * 3600


def test_exceptions_stand_with_their_end_and_reviews_with_their_day() -> None:
    def exemption(name: str, begin: float, end: float) -> fact.ExemptionGranted:
        held = Exemption(name, "guaranteed", "vision", at(begin), at(end), "ada", "mia", "a paper")
        return fact.ExemptionGranted(at(-48), held)

    booked = Reservation("r1", "llm", 1, 2, at(24 * 9), at(24 * 10), "eve", "mia", "a demo")
    found = week([
        record(at(-48), exemption("past", -40, -1), exemption("over", -40, 24), exemption("soon", -40, 24 * 10),
               exemption("long", -40, 24 * 90), exemption("gone", -40, 24 * 90), exemption("later", 24 * 8, 24 * 90),
               fact.ReservationApproved(at(-48), booked)),
        record(at(1), fact.ExemptionRevoked(at(1), "gone")),
        record(at(24 * 7), fact.NodeUp(at(24 * 7), NodeName("n0"))),
    ])  # fmt: skip
    standing = {each["id"]: each["standing"] for each in found["exceptions"]}
    assert standing == {"over": "ended", "soon": "ends soon", "r1": "to come", "long": "in force", "later": "to come"}
    assert [each["account"] for each in found["reviews"]] == ["vision"]


def test_a_change_of_the_budgets_is_told_and_its_tree_holds() -> None:
    later = Budgets((Budget("vision", WHOLE // 4, owner="Zoe"), Budget("llm", WHOLE // 2)))
    found = week([record(at(5), fact.BudgetsChanged(at(5), later, "mia", "a review")), *one_run("1", at(6), at(7))])
    assert found["budget_changes"] == [{"at_s": at(5) / 1000, "author": "mia", "reason": "a review"}]
    assert {each["path"]: each["owner"] for each in found["accounts"]}["vision"] == "Zoe"


def test_a_cluster_that_grows_in_the_week_loses_no_number() -> None:
    before = one_run("1", at(1), at(3))
    found = week([*before, record(at(4), fact.ClusterChanged(at(4), nodes(6))), *one_run("2", at(5), at(6))])
    [account] = [each for each in found["accounts"] if each["path"] == "vision"]
    assert account["charged"] == 2 * 2 + 2 * 1
    assert 0 < found["metrics"]["occupancy"] < 1


def test_a_ledger_that_began_later_has_nothing_to_report() -> None:
    with pytest.raises(ValueError, match=r"nothing to report; its first week is --week 20\d\d-\d\d-\d\d$"):
        report([], BEGAN, MONDAY - 20 * DAY, MONDAY - 13 * DAY)


# --- a week whose numbers were worked out by hand --------------------------------------------------------------------
def life(job: str, came: Instant, begin: Instant, end: Instant, minimum: int = HOUR) -> list[Record]:
    """Two GPUs of `vision` for a while."""
    work = Workload(WorkloadId(job), came, VISION, UserName("ada"), SHAPE._replace(min_runtime=minimum))
    return [
        record(came, fact.WorkloadSubmitted(came, work)),
        record(begin, actions=(replace(start(job), min_runtime=minimum),)),
        record(begin, fact.RunStarted(begin, RunId(f"{job}.1"))),
        record(end, fact.RunEnded(end, RunId(f"{job}.1"), fact.Outcome.COMPLETED)),
    ]


def stopped(job: str, begin: Instant, end: Instant, lost: int) -> list[Record]:
    """One that made room for another, lost some work, and was given up."""
    for_whom = PreemptedFor(WorkloadId("9"), AccountPath("llm"), 0.2, 1.4, lost)
    run = RunId(f"{job}.1")
    return [
        *life(job, begin, begin, end)[:-1],
        record(end - HOUR // 2, actions=(Preempt(run, 0, for_whom),)),
        record(end, fact.RunEnded(end, run, fact.Outcome.PREEMPTED, lost)),
        record(end, fact.WorkloadCancelled(end, WorkloadId(job))),
    ]


def by_hand() -> dict[str, Any]:
    """Owed: job 1 from its submission to its end, 2 GPUs x 3 h, and job 3, 2 x 3 h. Delivered: 2 x 2 h and 2 x 3 h."""
    node = NodeName("n1")
    paper = Exemption("e7", "guaranteed", "vision", at(-48), at(24 * 10), "ada", "mia", "a paper")
    return week([
        record(at(-48), fact.ExemptionGranted(at(-48), paper)),
        *life("1", at(1), at(2), at(4)),
        *life("2", at(5), at(5), at(8), minimum=0),
        *stopped("3", at(10), at(13), HOUR),
        record(at(20), fact.NodeDegraded(at(20), node, "XID 79")),
        record(at(21), actions=(CallHuman(node, RunId("1.1"), "it does not stop"),)),
        record(at(22), actions=(Repair(node),)),
        record(at(26), fact.NodeUp(at(26), node)),
        record(at(24 * 7), fact.NodeUp(at(24 * 7), NodeName("n0"))),
    ])  # fmt: skip


ROWS = (
    "vision | Ben | 50.0 % | 12 | 10 | 83.3 % | 10 | 6.0 | 2.0",
    "all | every class | 3 | 0 s | 1 h | 1 h",
    "small | at most 8 GPUs | 3 | 0 s | 1 h | 1 h",
    "made room for an account further below its share | 1",
    "n1 | XID 79 | Mon 4 Mar 20:00 | 2 h | 6 h | 0 | 0 | it does not stop",
    "e7 | guaranteed | vision | ends soon | Thu 14 Mar 00:00 | ada | mia | a paper",
    "vision | 2024-03-10 | Ben | it | sees",
)
SENTENCES = (
    "83.3 % of the 12 GPU-hours that were owed were delivered.",
    "37.5 % of the time in use was owed to nobody: bursts and uncharged work.",
    "1 account got less than 95 % of what was owed.",
    "1 run made room for others; that cost 12.5 % of the time in use.",
    "1 node fell sick or had to be emptied; 1 repair needed a person to talk to the owner of a run.",
    "1 exception or reservation; 1 of them ends within two weeks.",
    "1 budget is to be looked at again.",
    "Nobody changed them.",
)


def test_a_week_worked_out_by_hand_stands_in_both_forms() -> None:
    """Used 4 + 6 GPU-hours charged and 6 uncharged, of which 2 were lost; 6 of 16 in use were owed to nobody."""
    found = by_hand()
    text = markdown(found, UTC).replace("\\", "")
    page = " | ".join(re.sub(r"\s+", " ", cell) for cell in re.split(r"\s*<[^>]*>\s*", weekly_page(found, UTC)) if cell)
    for row in ROWS:
        assert f"| {row} |" in text, row
        assert row in page, row
    for sentence in SENTENCES:
        assert sentence in text, sentence
        assert sentence in page, sentence
    squatters = week(one_run("1", at(1), at(10), at(2)), progress=HOUR)
    assert "| 1.1 | ada | vision | 2 | 1 h | 8 h | 14 |" in markdown(squatters, UTC)


# --- as people get it ------------------------------------------------------------------------------------------------
def test_markdown_keeps_its_tables_whatever_a_name_holds() -> None:
    text = markdown(week(one_run("1", at(1), at(2))), UTC)
    assert text.startswith("# Week 2024-W10, 4 to 10 March 2024\n")
    assert "it \\| sees" in text
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1, block
    assert all(part.title in text for part in parts(week([]), UTC))


def test_the_page_is_one_file_that_loads_nothing_and_is_the_same_each_time() -> None:
    found = week(one_run("1", at(1), at(2)))
    page = weekly_page(found, UTC)
    assert page == weekly_page(json.loads(json.dumps(found)), UTC)
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("text", "name", "first"),
    [("2024-W10", "2024-W10", MONDAY), ("2024-03-10", "2024-W10", MONDAY), (None, "2024-W10", MONDAY),
     ("2020-W53", "2020-W53", 1_609_113_600_000)],
)  # fmt: skip
def test_weeks_are_named_as_calendars_name_them(text: str | None, name: str, first: Instant) -> None:
    found = week_of(text, UTC, date(2024, 3, 13))
    assert (found.name, found.begin, found.end) == (name, first, first + 7 * DAY)


@pytest.mark.parametrize("text", ["2024-W54", "W10", "last", "2024-13-01", "2023-W53"])
def test_what_names_no_week_is_said_so(text: str) -> None:
    with pytest.raises(click.UsageError, match="is no week"):
        week_of(text, UTC, date(2024, 3, 13))


def test_the_command_reads_the_store_of_a_service_that_runs(service: Stage, tmp_path: Path) -> None:
    service.submit("ada")
    declared = service.submit("ada", progress="1h", name='its "progress_interval": is declared')["id"]
    service.submit("ada", name='"progress_interval":')
    assert service.store.progress_intervals() == {declared: HOUR}
    page, data, text = (tmp_path / f"week.{kind}" for kind in ("html", "json", "md"))
    place = ["--db", service.store.url, "--timezone", "UTC"]
    wanted = ["--html", str(page), "--json", str(data), "--markdown", str(text)]
    assert run(["report", *place, "--week", date.today().isoformat(), *wanted]) == 0
    found = json.loads(data.read_text("utf-8"))
    assert {"accounts", "metrics", "squatters", "drains", "exceptions", "reviews"} <= found.keys()
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "## Waits" in text.read_text("utf-8")
    assert run(["report", *place, "--week", "1999-W01"]) == 1
