"""The columns of a table: what stands twice, and what was left over behind the last one."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from mirab.logs.detect import load
from mirab.logs.errors import LogError
from mirab.logs.nodeevents import read_node_events
from tests.logs.helpers import read, written

NATIVE = "id,submit_s,account,user,nodes,gpus_per_node,run_s,user\na,0,red,ann,1,4,600,bob\n"
SACCT = (
    "JobID|User|Account|Submit|Start|Elapsed|State|NNodes|AllocTRES|Elapsed\n"
    "7|ann|red|2026-03-01T10:00:00|2026-03-01T10:00:05|01:00:00|COMPLETED|1|gres/gpu=4|01:00:00\n"
)
ALIBABA = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time,qos\n"
    "pod,1000,1,1,1000,,LS,Succeeded,0,100,10,BE\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NATIVE, "log:1: has more than one column of the name 'user' (columns 4 and 8): give each column"),
        ("\n" + NATIVE, "log:2: has more than one column of the name 'user'"),
        (NATIVE.replace("user,nodes", "User ,nodes"), "more than one column of the name 'user'"),
        (SACCT, "log:1: has more than one column of the name 'elapsed' (columns 6 and 10)"),
        (ALIBABA, "more than one column of the name 'qos' (columns 7 and 12)"),
    ],
    ids=["native", "header-on-line-2", "case-and-blanks", "sacct", "alibaba"],
)
def test_a_column_that_stands_twice_is_named_with_its_places(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(LogError, match=re.escape(told)):
        read(tmp_path, text)


def test_in_a_packed_log_it_is_found_too(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(NATIVE.encode()), "jobs.csv.gz")
    with pytest.raises(LogError, match=r"jobs\.csv\.gz:1: has more than one column"):
        load(path)


def test_three_of_a_name_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=re.escape("(columns 1, 2 and 3)")):
        read(tmp_path, "user,user,user,submit_s,run_s,gpus_per_node\na,b,c,0,60,1\n")


def test_columns_named_by_hand_twice(tmp_path: Path) -> None:
    columns = "jobid,user,account,submit,start,elapsed,state,nnodes,alloctres,elapsed"
    with pytest.raises(LogError, match=re.escape("--columns names 'elapsed' more than once (columns 6 and 10)")):
        read(tmp_path, SACCT.partition("\n")[2], columns=columns)
    trace = read(tmp_path, SACCT.partition("\n")[2], columns=columns.removesuffix("elapsed") + "unused")
    assert [arrival.run for arrival in trace.arrivals] == [3_600_000]


def test_a_column_that_nothing_reads_may_stand_twice(tmp_path: Path) -> None:
    text = "comment,submit_s,run_s,gpus_per_node,comment\nx,0,60,1,y\n"
    assert len(read(tmp_path, text).arrivals) == 1


def test_names_that_are_empty_are_no_column(tmp_path: Path) -> None:
    trace = read(tmp_path, "submit_s,run_s,gpus_per_node,,\n0,60,1,,\n")
    assert len(trace.arrivals) == 1
    assert not any("did you mean" in note for note in trace.notes)


def test_node_events_with_a_column_twice(tmp_path: Path) -> None:
    path = written(tmp_path, "time_s,node,event,repair_s,node\n1,n0,down,60,n1\n", "events.csv")
    with pytest.raises(LogError, match=r"events\.csv:1: has more than one column of the name 'node' \(columns 2 and 5"):
        read_node_events(path, ["n0"], None)
