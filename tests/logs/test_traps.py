"""What went wrong with other people's logs: SCENARIOS.md, lines 26 and 47 to 49 (files themselves: test_damage.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirab.logs.errors import LogError
from mirab.logs.fields import memory_mib, milliseconds, slurm_span, span
from mirab.logs.intake import DUPLICATE, NEVER_RAN, SAME_ID
from mirab.logs.requeues import JOINED
from mirab.logs.tres import parse_tres
from mirab.model.nodelists import expand
from mirab.model.units import DAY, WEEK
from tests.logs.helpers import H, M, S, adds_up, dropped, ids, read, sacct, sizes

SWF_ROW = "{id} {submit} {wait} {run} {procs} -1 -1 {asked} {limit} -1 {status} 7 2 1 1 -1 -1 -1"


def swf(*rows: dict[str, object], header: str = "; UnixStartTime: 1400000000\n") -> str:
    usual = {"id": 1, "submit": 0, "wait": 0, "run": 60, "procs": 4, "asked": 4, "limit": -1, "status": 1}
    return header + "".join(SWF_ROW.format(**(usual | row)) + "\n" for row in rows)


# --- line 26: an unclear duration is an error, never a silent reading -----------------------------------------------
@pytest.mark.parametrize("text", ["60", "1:00:00", "", "1x", "-5m", "1h30", "1e3s", "nan", "8 hours", "9" * 200 + "h"])
def test_line_26_a_duration_without_a_clear_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        span(text)


@pytest.mark.parametrize(
    ("text", "value"), [("1w", WEEK), ("1h30m", 90 * M), ("0", 0), ("90s", 90 * S), ("1.5h", 90 * M)]
)
def test_line_26_units_that_others_crash_on_are_read(text: str, value: int) -> None:
    assert span(text) == value


@pytest.mark.parametrize(
    "text", ["60", "1:2:3:4", "UNLIMITED", "01-02", "1-", "-01:00", "1-00:00:00x", "99999999-00:00:00"]
)
def test_line_26_slurm_reports_never_print_a_bare_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|longer than"):
        slurm_span(text)


@pytest.mark.parametrize("text", ["512", "12QiB", "-1G", "G", "1 000G", "nanG"])
def test_line_26_memory_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it with a unit"):
        memory_mib(text)


@pytest.mark.parametrize(
    "text", ["1e400", "nan", "inf", "-inf", "1_000", "١٢", "0x10", "", " ", "9" * 5000, "1e999999999"]
)
def test_line_26_numbers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|out of range"):
        milliseconds(text)


# --- line 47: sacct -------------------------------------------------------------------------------------------------
def test_line_47_cancelled_by_uid_before_it_ran(tmp_path: Path) -> None:
    never = {"JobID": "2", "State": "CANCELLED by 1001", "Start": "Unknown", "Elapsed": "00:00:00"}
    none = {"JobID": "3", "State": "CANCELLED", "Start": "None", "End": "None", "Elapsed": "00:00:00"}
    same = {"JobID": "4", "State": "CANCELLED by 0", "Start": "2024-03-01T09:00:00", "Elapsed": "00:00:00"}
    trace = read(tmp_path, sacct({}, never, none, same))
    assert trace.dropped == {NEVER_RAN: (3, (3, 4, 5))}


def test_line_47_cancelled_while_running_counts_as_a_run(tmp_path: Path) -> None:
    trace = read(tmp_path, sacct({"State": "CANCELLED by 1001", "Elapsed": "00:10:00"}))
    assert trace.arrivals[0].run == 10 * M


@pytest.mark.parametrize("end", ["Unknown", "None", ""])
def test_line_47_unknown_end_of_a_running_job_is_its_time_so_far(tmp_path: Path, end: str) -> None:
    trace = read(tmp_path, sacct({"State": "RUNNING", "End": end}))
    assert trace.arrivals[0].run == 2 * H
    assert (
        "1 row: still running when the log was made: the time so far is taken as the run (first at line 2)"
        in trace.notes
    )


def test_line_47_a_pending_job_and_an_unknown_run_are_counted(tmp_path: Path) -> None:
    pending = {"JobID": "2", "State": "PENDING", "Start": "Unknown", "End": "Unknown", "Elapsed": "00:00:00"}
    lost = {"JobID": "3", "State": "RUNNING", "Elapsed": "", "End": "Unknown"}
    trace = read(tmp_path, sacct({}, pending, lost))
    assert dropped(trace) == {"still waiting when the log was made: run time unknown": 1, "run time unknown": 1}


def test_line_47_elapsed_of_125_days(tmp_path: Path) -> None:
    assert read(tmp_path, sacct({"Elapsed": "125-00:00:00"})).arrivals[0].run == 125 * DAY


def test_line_47_bracketed_node_lists() -> None:
    assert expand("d09n04s[01-02],d13n[03,05,07-08]") == [
        "d09n04s01",
        "d09n04s02",
        "d13n03",
        "d13n05",
        "d13n07",
        "d13n08",
    ]
    assert expand("r[1-2]n[09-10]") == ["r1n09", "r1n10", "r2n09", "r2n10"]
    assert expand("cpn-k16-35-01") == ["cpn-k16-35-01"]
    for broken in ("a[1-", "a]1[", "a[5-3]", "a[x]", "a[0-999999999]", "a[[1]]", "a[1-200000]b[1-200000]"):
        with pytest.raises(ValueError, match=r"not a"):
            expand(broken)


def test_line_47_node_lists_name_the_inferred_cluster(tmp_path: Path) -> None:
    gang = {
        "JobID": "2",
        "Start": "2024-03-01T12:00:00",
        "NNodes": "3",
        "NodeList": "g[01-02,07]",
        "AllocTRES": "cpu=24,gres/gpu=24,node=3",
    }
    trace = read(tmp_path, sacct({}, gang))
    (pool,) = trace.cluster.pools
    assert (pool.nodes, pool.gpus_per_node) == (("g01", "g02", "g07"), 8)


def test_line_47_a_bar_inside_a_job_name(tmp_path: Path) -> None:
    trace = read(tmp_path, sacct({"JobName": "a|b||c"}, {"JobID": "2"}))
    assert ids(trace) == ["1", "2"]
    columns = "jobid,jobname,user,account,submit,start,elapsed,state,nnodes,alloctres"
    row = "5|x|y|eve|fish|2024-03-01T08:00:00|2024-03-01T08:00:00|01:00:00|COMPLETED|1|gres/gpu=1"
    assert read(tmp_path, row, columns=columns).arrivals[0].workload.account == "fish"


def test_line_47_arrays_are_their_tasks(tmp_path: Path) -> None:
    trace = read(tmp_path, sacct({"JobID": "7_[1-3%2]"}, {"JobID": "7_4"}, {"JobID": "8_[9-11,20]"}))
    assert ids(trace) == ["7_1", "7_2", "7_3", "7_4", "8_10", "8_11", "8_20", "8_9"]
    assert (trace.rows, adds_up(trace)) == (8, True)
    assert (
        "2 rows: several tasks of a job array in one row, each counted as a row of its own (first at line 2)"
        in trace.notes
    )


@pytest.mark.parametrize("job_id", ["7_[1-", "7_[0-999999999]", "7_[]", "7_[3-1]", "[1-2]"])
def test_line_47_an_array_that_is_none_is_counted(tmp_path: Path, job_id: str) -> None:
    trace = read(tmp_path, sacct({}, {"JobID": job_id}))
    assert dropped(trace) == {"no usable job id": 1}


def test_line_47_requeued_jobs_are_one_workload(tmp_path: Path) -> None:
    first = {"State": "NODE_FAIL", "Elapsed": "00:30:00"}
    later = {"Submit": "2024-03-01T08:31:00", "Start": "2024-03-01T08:40:00", "Elapsed": "02:00:00"}
    trace = read(tmp_path, sacct(first, later, later))
    (job,) = trace.arrivals
    assert (job.workload.id, job.run, job.workload.submitted_at) == ("1", 150 * M, 8 * H)
    assert trace.dropped == {DUPLICATE: (1, (4,)), JOINED: (1, (3,))}
    assert adds_up(trace)


@pytest.mark.parametrize("other", [{"User": "kim"}, {"Submit": "2024-06-01T08:00:00", "Start": "2024-06-01T08:00:00"}])
def test_line_47_an_id_used_again_is_another_job(tmp_path: Path, other: dict[str, str]) -> None:
    trace = read(tmp_path, sacct({}, other))
    assert sorted(ids(trace)) == ["1", "1#2"]
    assert any("job ids used again for other jobs" in note for note in trace.notes)


def test_line_47_gres_gpu_and_its_type_are_not_added() -> None:
    assert parse_tres("cpu=8,gres/gpu:h100=8,gres/gpu=8,node=2").gpus == 8
    assert parse_tres("gres/gpu:a100=4,gres/gpu:v100=2").gpus == 6
    assert parse_tres("gres/gpu:a100=4,gres/gpu:v100=2").gpu_type == "a100"
    assert parse_tres("gres/gpu=2,gres/gpumem=80G,gres/gpuutil=100").gpus == 2


def test_line_47_gpus_only_in_alloctres(tmp_path: Path) -> None:
    trace = read(
        tmp_path, sacct({"ReqTRES": "cpu=12,node=1", "AllocTRES": "billing=12,cpu=12,gres/gpu=2,mem=31000M,node=1"})
    )
    assert sizes(trace) == [(1, 2)]


def test_line_47_older_gres_columns_count_for_each_node(tmp_path: Path) -> None:
    columns = "jobid,user,account,submit,start,elapsed,state,nnodes,ncpus,allocgres"
    row = "5|eve|fish|2019-03-01T08:00:00|2019-03-01T08:00:00|01:00:00|COMPLETED|2|8|gpu:tesla:4"
    assert sizes(read(tmp_path, row, columns=columns)) == [(2, 4)]


def test_line_47_no_header_needs_its_columns(tmp_path: Path) -> None:
    row = "5|eve|2024-03-01T08:00:00|2024-03-01T08:00:00|01:00:00|COMPLETED|1|gres/gpu=1"
    with pytest.raises(LogError, match="--columns"):
        read(tmp_path, row)
    columns = "JobID%20,User,Submit,Start,Elapsed,State,NNodes,AllocTRES"
    trace = read(tmp_path, row, columns=columns)
    assert trace.arrivals[0].workload.account == "eve"
    assert "no column Account: accounts are by user" in trace.notes


def test_line_47_local_time_across_a_clock_change(tmp_path: Path) -> None:
    """Clocks in New York went back at 02:00 on 2020-11-01: two hours ran between 00:30 and 01:30."""
    row = {"Submit": "2020-11-01T00:00:00", "Start": "2020-11-01T00:30:00", "End": "2020-11-01T01:30:00"}
    trace = read(tmp_path, sacct(row | {"Elapsed": "02:00:00"}), timezone="America/New_York")
    assert trace.arrivals[0].run == 2 * H
    assert trace.origin == 1604203200 * S, "local midnight is 04:00 UTC"
    later = {"JobID": "2", "Submit": "2020-11-02T00:00:00", "Start": "2020-11-02T00:00:00"}
    first, second = read(tmp_path, sacct(row, later), timezone="America/New_York").arrivals
    assert second.workload.submitted_at - first.workload.submitted_at == 25 * H, "that day had 25 hours"


def test_line_47_parsable_output_ends_each_line_with_a_bar(tmp_path: Path) -> None:
    text = sacct({}, {"JobID": "2", "JobName": "a|b"})
    assert read(tmp_path, text.replace("\n", "|\n")).arrivals == read(tmp_path, text).arrivals


def test_line_47_steps_have_a_row_of_their_job(tmp_path: Path) -> None:
    trace = read(tmp_path, sacct({}, {"JobID": "1.batch"}, {"JobID": "1.extern"}, {"JobID": "1.0"}))
    assert dropped(trace) == {"a job step (its job has a row of its own)": 3}


def test_line_47_an_unknown_state_is_judged_by_its_times(tmp_path: Path) -> None:
    trace = read(tmp_path, sacct({"State": "FOO"}, {"JobID": "2", "State": "BAR", "Start": "Unknown"}))
    assert ids(trace) == ["1"]
    assert dropped(trace) == {NEVER_RAN: 1}
    assert "1 row: state FOO is not one of Slurm's: judged by its times (first at line 2)" in trace.notes


# --- line 48: SWF ---------------------------------------------------------------------------------------------------
def test_line_48_all_columns_minus_one(tmp_path: Path) -> None:
    trace = read(tmp_path, swf({}) + " ".join(["-1"] * 18) + "\n")
    assert dropped(trace) == {"submit time unknown (-1)": 1}


@pytest.mark.parametrize(
    "header", ["; UnixStartTime: 0\n", "", "; UnixStartTime: 1500000000\n", "; UnixStartTime: never\n"]
)
def test_line_48_absolute_times_whatever_the_header_says(tmp_path: Path, header: str) -> None:
    trace = read(tmp_path, swf({"submit": 1_500_003_600}, header=header), form="swf")
    assert trace.origin is not None
    assert trace.origin + trace.arrivals[0].workload.submitted_at == 1_500_003_600 * S


def test_line_48_headers_that_lie_about_counts(tmp_path: Path) -> None:
    header = "; UnixStartTime: 1400000000\n; MaxJobs: 500000\n; MaxProcs: 8\n; MaxNodes: 2\n"
    trace = read(tmp_path, swf({"procs": 30}, {"id": 2, "procs": 10}, header=header))
    assert "the header says 500,000 jobs, the file has 2 rows" in trace.notes
    assert trace.cluster.slots >= 40, "two jobs of 40 cores ran at once"
    assert any("the peak of concurrent use is 40, more than the 8 of the header" in note for note in trace.notes)


def test_line_48_unsorted_rows(tmp_path: Path) -> None:
    assert ids(read(tmp_path, swf({"id": 1, "submit": 900}, {"id": 2, "submit": 5}))) == ["2", "1"]


def test_line_48_negative_run_times(tmp_path: Path) -> None:
    trace = read(tmp_path, swf({}, {"id": 2, "run": -1}, {"id": 3, "run": -5}, {"id": 4, "run": -1, "status": 5}))
    assert dropped(trace) == {"negative run time (unknown)": 2, NEVER_RAN: 1}


def test_line_48_extra_columns_and_fractions(tmp_path: Path) -> None:
    text = swf({"run": "60.5"}).replace("\n1 ", "\n1 ").rstrip("\n") + " 99 extra\n"
    assert read(tmp_path, text).arrivals[0].run == 60_500


def test_line_48_unknown_processors_fall_back_to_the_requested(tmp_path: Path) -> None:
    trace = read(tmp_path, swf({"procs": -1, "asked": 6}, {"id": 2, "procs": -1, "asked": -1}))
    assert trace.arrivals[0].workload.shape.gpus == 6
    assert dropped(trace) == {"number of processors unknown (-1)": 1}


def test_line_48_parts_of_a_job_are_not_jobs(tmp_path: Path) -> None:
    trace = read(tmp_path, swf({}, {"run": 20, "status": 2}, {"run": 40, "status": 3}, {"run": 7, "status": 1}))
    assert dropped(trace) == {"a part of a job that has a row of its own": 2, SAME_ID: 1}


# --- line 49: Philly, Alibaba, HTCondor -----------------------------------------------------------------------------
def test_line_49_philly_unsorted_with_exact_duplicates(tmp_path: Path) -> None:
    rows = [
        "2017-10-09 07:00:00,60.0,1,60.0,a",
        "2017-10-08 07:00:00,60.0,1,60.0,a",
        "2017-10-09 07:00:00,60.0,1,60.0,a",
    ]
    trace = read(tmp_path, "timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows))
    assert ids(trace) == ["3", "2"]
    assert trace.dropped == {DUPLICATE: (1, (4,))}


@pytest.mark.parametrize("attempts", ["[]", "null", '"None"', '[{"start_time": null, "end_time": null, "detail": []}]'])
def test_line_49_philly_attempts_missing_or_none(tmp_path: Path, attempts: str) -> None:
    good = '{"vc": "a", "jobid": "g", "user": "u", "submitted_time": "2017-10-07 01:00:00", "attempts": [%s]}'
    detail = '"detail": [{"ip": "m", "gpus": ["0"]}]'
    attempt = '{"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 02:00:00", ' + detail + "}"
    bad = '{"vc": "a", "jobid": "b", "user": null, "submitted_time": "2017-10-07 01:00:00", "attempts": %s}'
    trace = read(tmp_path, f"[{good % attempt}, {bad % attempts}]")
    assert ids(trace) == ["g"]
    assert sum(dropped(trace).values()) == 1


PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def test_line_49_alibaba_never_scheduled_pods_and_fractional_gpus(tmp_path: Path) -> None:
    rows = [
        "a,1000,1,1,120,,BE,Running,0,100,10",
        "b,1000,1,1,1000,,LS,Pending,0,100,",
        "c,1000,1,2,1000,,LS,Running,0,,10",
    ]
    trace = read(tmp_path, PODS + "\n".join(rows))
    assert sizes(trace) == [(1, 1)]
    assert dropped(trace) == {"never scheduled: run time unknown": 1, "not deleted: run time unknown": 1}
    assert "pods that ask for a share of a GPU, each given a whole one: 1" in trace.notes


def test_line_49_htcondor_attributes_twice_the_last_wins(tmp_path: Path) -> None:
    ad = "ClusterId = 1\nQDate = 1290671437\nRemoteWallClockTime = 0.0\nJobStartDate = 1290671460\nRequestCpus = 1\n"
    trace = read(tmp_path, ad + "remotewallclocktime = 910.0\nREQUESTCPUS = 8\n")
    assert trace.arrivals[0].run == 910 * S
    assert trace.arrivals[0].workload.shape.gpus == 8
    assert trace.cluster.unit == "cpu"


def test_line_49_htcondor_suspended_time_does_not_count(tmp_path: Path) -> None:
    ad = "ClusterId = 1\nQDate = 1290671437\nRemoteWallClockTime = 900.0\nCumulativeSuspensionTime = 300\n"
    assert read(tmp_path, ad + "JobStartDate = 1290671460\n").arrivals[0].run == 600 * S
