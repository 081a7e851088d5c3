"""What people really print with sacct: separators at the end, texts cut short, commas, another order of columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirab.logs.errors import LogError
from mirab.model.units import HOUR
from tests.logs.helpers import dropped, read

HEAD = "JobID|JobName|User|Account|State|Submit|Start|Elapsed|NNodes|AllocTRES|Comment"
TRES = "cpu=8,gres/gpu=2,node=1"


def row(job: int, name: str = "train", state: str = "COMPLETED", comment: str = "") -> str:
    return f"{job}|{name}|ann|red|{state}|2026-03-01T08:00:00|2026-03-01T08:00:01|01:00:00|1|{TRES}|{comment}"


ROWS = [row(1), row(2, "a|b sweep"), row(3, "a|b|c", comment="x"), row(4, comment="y")]


def ids(tmp_path: Path, text: str, **options: str) -> list[str]:
    trace = read(tmp_path, text, **options)
    assert [arrival.workload.account for arrival in trace.arrivals] == ["red"] * len(trace.arrivals)
    assert all(arrival.run == HOUR for arrival in trace.arrivals)
    return [arrival.workload.id for arrival in trace.arrivals]


@pytest.mark.parametrize("end", ["", "|"], ids=["parsable2", "parsable"])
@pytest.mark.parametrize("header", [True, False])
def test_a_separator_in_a_name_and_an_empty_last_field_lose_no_job(tmp_path: Path, end: str, header: bool) -> None:
    lines = [each + end for each in ([HEAD] if header else []) + ROWS]
    options = {} if header else {"columns": HEAD.replace("|", ",")}
    assert ids(tmp_path, "\n".join(lines) + "\n", **options) == ["1", "2", "3", "4"]


def test_columns_in_another_order_are_the_same_log(tmp_path: Path) -> None:
    turned = ["|".join(reversed(each.split("|"))) for each in [HEAD, row(1), row(4)]]
    assert ids(tmp_path, "\n".join(turned) + "\n") == ["1", "4"]


@pytest.mark.parametrize("state", ["OUT_OF_ME+", "CANCELLED+", "CANCELLED by 1000", "NODE_FAIL", "TIMEOUT"])
def test_a_state_that_was_cut_short_is_one_of_slurms(tmp_path: Path, state: str) -> None:
    trace = read(tmp_path, f"{HEAD}\n{row(1, state=state)}\n")
    assert len(trace.arrivals) == 1
    assert not any("is not one of Slurm's" in note for note in trace.notes)


def test_a_state_cut_short_that_means_waiting_is_waiting(tmp_path: Path) -> None:
    text = f"{HEAD}\n{row(1)}\n{row(2, state='PENDI+').replace('01:00:00', '00:00:00')}\n"
    assert [reason.partition(":")[0] for reason in dropped(read(tmp_path, text))] == [
        "still waiting when the log was made"
    ]


def test_commas_between_fields_that_hold_commas_say_how_to_print_it(tmp_path: Path) -> None:
    text = "\n".join(each.replace("|", ",") for each in [HEAD, row(1), row(4)])
    with pytest.raises(LogError, match=r"log:1: has commas between its fields and in them.*--parsable2: TZ=UTC sacct"):
        read(tmp_path, text)


def test_a_log_of_jobs_that_never_ran_asks_for_one_of_jobs_that_did(tmp_path: Path) -> None:
    text = f"{HEAD}\n{row(1, state='CANCELLED').replace('01:00:00', '00:00:00')}\n"
    with pytest.raises(LogError, match=re.escape("never ran: run time unknown (line 2): give a log of jobs that have")):
        read(tmp_path, text)
