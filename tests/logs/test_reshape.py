"""Parts, copies and multiples of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirab.logs.detect import load
from mirab.logs.errors import LogError
from mirab.logs.options import LoadOptions, parse_overlay
from mirab.model.units import DAY
from tests.logs.helpers import FIXTURES, H, S, adds_up, dropped, ids, native, read, written

DAILY = native(*(f"j{number},{number * 86400 + 60},a,u,1,1,600" for number in range(10)))


def test_from_and_to_by_duration_move_instant_zero(tmp_path: Path) -> None:
    trace = read(tmp_path, DAILY, from_="3d", to="5d")
    assert ids(trace) == ["j3", "j4"]
    assert [arrival.workload.submitted_at for arrival in trace.arrivals] == [60 * S, DAY + 60 * S]
    assert (trace.starts_at, trace.ends_at, trace.rows) == (0, 2 * DAY, 10)
    assert dropped(trace) == {"submitted outside --from and --to": 8}
    assert adds_up(trace)


def test_to_alone_keeps_instant_zero(tmp_path: Path) -> None:
    trace = read(tmp_path, DAILY, to="36h")
    assert (ids(trace), trace.starts_at, trace.ends_at) == (["j0", "j1"], 0, 36 * H)


def test_from_and_to_by_date(tmp_path: Path) -> None:
    trace = load(FIXTURES / "philly.csv", LoadOptions(from_="2017-10-09", to="2017-10-10T12:00:01"))
    assert ids(trace) == ["2", "5"]
    assert trace.origin == 1507507200 * S
    assert trace.arrivals[0].workload.submitted_at == 7 * H


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"from_": "2017-10-09"}, "--from: the log has no calendar: write a duration from its start"),
        ({"to": "soon"}, "--to: 'soon' is neither a date nor a duration"),
        ({"from_": "40d"}, "no job was submitted between --from 40d and --to its end: the log spans 9d1h"),
        ({"from_": "5d", "to": "3d"}, "no job was submitted between --from 5d and --to 3d"),
    ],
)
def test_a_part_that_is_none_is_one_sentence(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(LogError, match=message):
        read(tmp_path, DAILY, **options)


def test_the_files_beside_the_log_move_with_it(tmp_path: Path) -> None:
    events = written(
        tmp_path, "time_s,node,event,repair_s,stuck\n86400,n1,down,60,0\n345600,n1,degraded,60,0\n", "e.csv"
    )
    text = (
        "cluster: {pools: {p: {nodes: n1, gpus_per_node: 8}}}\nbudgets: {a: {share: 10%}}\n"
        "budget_changes: [{at: 2d, budgets: {a: {share: 20%}}}, {at: 4d, budgets: {a: {share: 30%}}}]\n"
        "reservations:\n- {account: a, nodes: 1, gpus_per_node: 8, from: 5d, until: 6d,"
        " owner: o, approver: p, reason: r}\n"
    )
    trace = read(tmp_path, DAILY, from_="3d", cluster=written(tmp_path, text, "c.yaml"), node_events=events)
    assert [(trouble.at, trouble.kind) for trouble in trace.troubles] == [(DAY, "degraded")]
    assert "node events before the replay's start, not used: 1" in trace.notes
    assert [budget.share for budget in trace.budgets.roots] == [200_000_000], "the change before the start is in force"
    assert [change.at for change in trace.budget_changes] == [DAY]
    assert [(held.begin, held.end) for held in trace.reservations] == [(2 * DAY, 3 * DAY)]


def test_overlay_shifts_copies_cyclically_inside_the_period(tmp_path: Path) -> None:
    trace = read(tmp_path, DAILY, to="10d", overlay="3x4d")
    at = {str(arrival.workload.id): arrival.workload.submitted_at for arrival in trace.arrivals}
    assert len(at) == 30
    assert (at["j2"], at["j2+1"], at["j2+2"]) == (2 * DAY + 60 * S, 6 * DAY + 60 * S, 60 * S)
    assert all(trace.starts_at <= instant < trace.ends_at for instant in at.values())
    assert {(arrival.workload.user, arrival.workload.account) for arrival in trace.arrivals} == {("u", "a")}
    assert any(note.startswith("overlay: 3 copies, each shifted by 4d") for note in trace.notes)


def test_overlay_keeps_ids_unique_whatever_they_are(tmp_path: Path) -> None:
    trace = read(tmp_path, native("a,0,x,u,1,1,60", "a+1,0,x,u,1,1,60", "a++1,0,x,u,1,1,60"), overlay="3x1h")
    assert len(set(ids(trace))) == len(trace.arrivals) == 9


def test_an_overlay_infers_the_cluster_of_one_log(tmp_path: Path) -> None:
    assert read(tmp_path, DAILY, overlay="4x1d").cluster == read(tmp_path, DAILY).cluster


@pytest.mark.parametrize("text", ["4", "x7d", "0x7d", "4x0", "4x7", "9999x1d", "4x-7d", "fourx7d"])
def test_an_overlay_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(LogError, match="is not an overlay: write copies x shift, such as 4x7d"):
        parse_overlay(text)


def test_scale_below_one_thins_evenly_and_counts(tmp_path: Path) -> None:
    trace = read(tmp_path, DAILY, scale=0.4)
    assert ids(trace) == ["j2", "j4", "j7", "j9"]
    assert dropped(trace) == {"thinned out by --scale": 6}
    assert adds_up(trace)
    assert "scale 0.4: 4 arrivals of 10" in trace.notes


def test_scale_above_one_multiplies_by_whole_days(tmp_path: Path) -> None:
    trace = read(tmp_path, DAILY, to="10d", scale=2.5)
    assert len(set(ids(trace))) == len(trace.arrivals) == 25
    assert {arrival.workload.submitted_at % DAY for arrival in trace.arrivals} == {60 * S}
    assert read(tmp_path, DAILY, to="10d", scale=2.5) == trace, "deterministic"


@pytest.mark.parametrize("scale", [0, -1, 1e9, float("nan")])
def test_a_scale_that_is_none_is_one_sentence(scale: float) -> None:
    with pytest.raises(LogError, match="is not above 0"):
        LoadOptions(scale=scale)


def test_a_scale_that_leaves_nothing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="leaves no job"):
        read(tmp_path, DAILY, scale=0.01)


@pytest.mark.parametrize(("name", "value"), [("unit", "gpus"), ("account_by", "team"), ("timezone", "Mars/Olympus")])
def test_options_that_are_none_are_one_sentence(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(LogError, match="is not known"):
        read(tmp_path, DAILY, **{name: value})


def test_a_log_that_starts_late_starts_at_its_own_midnight(tmp_path: Path) -> None:
    trace = read(tmp_path, native(f"1,{40 * 86400 + 7200},a,u,1,1,60"))
    assert (trace.arrivals[0].workload.submitted_at, trace.origin) == (2 * H, None)


def test_unix_times_in_the_native_form_give_a_calendar(tmp_path: Path) -> None:
    trace = read(tmp_path, native("1,1507507261,a,u,1,1,60"))
    assert (trace.origin, trace.arrivals[0].workload.submitted_at) == (1507507200 * S, 61 * S)


def test_deadlines_move_with_their_job(tmp_path: Path) -> None:
    text = "id,submit_s,gpus_per_node,run_s,deadline_s\n" + "".join(
        f"{n},{n * 3600},1,60,{n * 3600 + 500}\n" for n in range(9)
    )
    trace = read(tmp_path, text, from_="2h", overlay="2x3h")
    gaps = {(a.workload.deadline_at or 0) - a.workload.submitted_at for a in trace.arrivals}
    assert gaps == {500 * S}
