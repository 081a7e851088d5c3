"""A proposed file in place of the present one: what it replaces, whose work it is, where an exception is tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirab.logs.clusterfile import ClusterFile, read_cluster_file
from mirab.logs.errors import LogError
from mirab.logs.proposal import proposed, with_exceptions
from mirab.model.accounts import Budget, Budgets
from mirab.model.trace import Trace
from mirab.model.units import DAY, HOUR, WEEK, WHOLE, AccountPath
from mirab.study.closing import dropped_told
from tests.study.small import small_trace

ORIGIN = 1_767_225_600_000
"""2026-01-01, a Thursday."""
HEAD = "owner: ann, approver: bob, reason: a paper"


def trace(days: int = 28, origin: int | None = ORIGIN) -> Trace:
    return replace(small_trace(), ends_at=days * DAY, origin=origin)


def file(tmp_path: Path, text: str) -> ClusterFile:
    path = tmp_path / "proposal.yaml"
    path.write_text(text, encoding="utf-8")
    return read_cluster_file(path)


def test_what_the_file_does_not_say_stays(tmp_path: Path) -> None:
    present = trace()
    after = proposed(present, file(tmp_path, "budgets: {red: {share: 70%}, blue: {share: 30%}}"))
    assert [(budget.name, budget.share * 100 // WHOLE) for budget in after.budgets.roots] == [("red", 70), ("blue", 30)]
    assert after.cluster is present.cluster
    assert list(after.arrivals) == list(present.arrivals)
    assert after.troubles == present.troubles
    assert proposed(present, file(tmp_path, "policy: fifo")).budgets == present.budgets


def test_work_of_a_renamed_or_merged_account_is_its_heirs(tmp_path: Path) -> None:
    after = proposed(trace(), file(tmp_path, "budgets: {all: {share: 100%, formerly: [red, blue]}}"))
    assert {arrival.workload.account for arrival in after.arrivals} == {"all"}
    assert [arrival.workload.id for arrival in after.arrivals] == [arrival.workload.id for arrival in trace().arrivals]


def test_work_without_an_account_is_told(tmp_path: Path) -> None:
    lost = file(tmp_path, "budgets: {red: {share: 70%}}")
    with pytest.raises(LogError, match=r"has no account for work of the log: blue \(6 workloads\): give each a share"):
        proposed(trace(), lost)
    assert proposed(trace(), lost, unknown_accounts="zero").budgets.find("blue") is None


def test_other_nodes_are_told(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="describes other nodes"):
        proposed(trace(), file(tmp_path, "cluster: {pools: {p: {nodes: 9, gpus_per_node: 8}}}"))


def test_changes_to_come_take_the_place_of_those_at_present(tmp_path: Path) -> None:
    text = (
        "budgets: {red: {share: 50%}, blue: {share: 50%}}\n"
        "budget_changes:\n  - {at: 2026-01-03, budgets: {red: {share: 90%}}}\n"
    )
    after = proposed(trace(), file(tmp_path, text))
    assert [change.at for change in after.budget_changes] == [2 * DAY]
    early = proposed(trace(), file(tmp_path, text.replace("2026-01-03", "2025-12-24").replace(
        "{red: {share: 90%}}", "{red: {share: 90%}, blue: {share: 0%}}")))  # fmt: skip
    assert early.budget_changes == ()
    assert early.budgets.roots[0].share == WHOLE * 9 // 10


def test_durations_count_from_the_start_of_the_log_although_it_was_cut(tmp_path: Path) -> None:
    cut = replace(trace(origin=ORIGIN + 3 * DAY), shift=3 * DAY)
    text = f"exceptions:\n  - {{kind: guaranteed, account: red, begin: 4d, end: 2026-01-08, {HEAD}}}\n"
    (held,) = proposed(cut, file(tmp_path, text)).exemptions
    assert (held.begin, held.end) == (1 * DAY, 4 * DAY)


# --- exceptions -------------------------------------------------------------------------------------------------------
def tried(tmp_path: Path, begin: str, end: str, of: Trace, place: int | None = None) -> tuple[int, int, int]:
    text = f"exceptions:\n  - {{kind: guaranteed, account: red, begin: {begin}, end: {end}, {HEAD}}}\n"
    after, (one,) = with_exceptions(of, file(tmp_path, text), place)
    assert [each.id for each in after.exemptions] == [one.held.id]
    return one.held.begin, one.held.end, one.moved


def test_inside_the_log_it_stays_where_it_is(tmp_path: Path) -> None:
    assert tried(tmp_path, "2026-01-05", "2026-01-07", trace()) == (4 * DAY, 6 * DAY, 0)


def test_next_month_is_tried_on_the_same_weekday_of_the_log(tmp_path: Path) -> None:
    begin, end, moved = tried(tmp_path, "2026-03-02", "2026-03-05", trace())
    assert (moved % WEEK, end - begin) == (0, 3 * DAY)
    assert 28 * DAY - WEEK < end <= 28 * DAY
    begin, end, moved = tried(tmp_path, "2025-03-03", "2025-03-05", trace())
    assert (moved % WEEK, 0 <= begin < WEEK) == (0, True)


def test_longer_than_the_log_begins_inside_it(tmp_path: Path) -> None:
    begin, _, moved = tried(tmp_path, "2026-05-04", "2026-07-04", trace())
    assert (moved % WEEK, 0 <= begin < WEEK) == (0, True)


def test_without_a_calendar_it_begins_on_the_third_day(tmp_path: Path) -> None:
    assert tried(tmp_path, "2026-05-04", "2026-05-06", trace(origin=None))[:2] == (3 * DAY, 5 * DAY)
    assert tried(tmp_path, "2026-05-04", "2026-05-06", trace(origin=None), 8 * DAY)[:2] == (8 * DAY, 10 * DAY)
    assert tried(tmp_path, "5d", "6d", trace(origin=None)) == (5 * DAY, 6 * DAY, 0)


def test_a_name_that_is_taken_gets_another(tmp_path: Path) -> None:
    held = f"exceptions:\n  - {{id: x1, kind: guaranteed, account: red, begin: 1d, end: 2d, {HEAD}}}\n"
    present = proposed(trace(), file(tmp_path, held))
    after, (one,) = with_exceptions(present, file(tmp_path, held.replace("red", "blue")))
    assert ([each.id for each in after.exemptions], one.held.id) == (["x1", "x1-tried"], "x1-tried")


def test_reservations_are_tried_too(tmp_path: Path) -> None:
    text = f"reservations:\n  - {{account: red, nodes: 1, gpus_per_node: 8, from: 3d, until: 4d, {HEAD}}}\n"
    after, (one,) = with_exceptions(trace(), file(tmp_path, text))
    assert [each.account for each in after.reservations] == ["red"]
    assert one.held.end - one.held.begin == 24 * HOUR


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("policy: fifo", "has no exceptions and no reservations"),
        (f"exceptions:\n  - {{kind: guaranteed, account: rde, begin: 1d, end: 2d, {HEAD}}}\n", "did you mean red"),
        (f"exceptions:\n  - {{kind: guaranteed, account: red, begin: 2d, end: 1d, {HEAD}}}\n", "ends before it begins"),
    ],
)
def test_exceptions_that_make_no_sense_are_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(LogError, match=told):
        with_exceptions(trace(), file(tmp_path, text))


def test_an_exception_of_an_account_that_goes_moves_with_it_or_is_told(tmp_path: Path) -> None:
    held = f"exceptions:\n  - {{kind: guaranteed, account: red, begin: 1d, end: 2d, {HEAD}}}\n"
    present = proposed(trace(), file(tmp_path, held))
    after = proposed(present, file(tmp_path, "budgets: {all: {share: 100%, formerly: [red, blue]}}"))
    assert [each.account for each in after.exemptions] == [AccountPath("all")]
    with pytest.raises(LogError, match="has no account red, which x1 is an exception for"):
        proposed(present, file(tmp_path, "budgets: {blue: {share: 100%}}"), unknown_accounts="zero")


def test_accounts_that_a_proposal_leaves_out_are_told_by_the_uppermost_name() -> None:
    red = Budget("red", WHOLE // 2, children=(Budget("ann", WHOLE),))
    whole = Budgets((red, Budget("redder", 0), Budget("blue", 0)))
    blue, two = Budgets(whole.roots[2:]), Budgets(whole.roots[1:])
    assert dropped_told(whole, whole) == []
    assert dropped_told(whole, two)[0].startswith("red is left out") and "become of it" in dropped_told(whole, two)[0]
    told = dropped_told(whole, blue)[0]
    assert told.startswith("red, redder are left out") and told.endswith("become of them.")
