"""Every form: detected, named, every row used or counted, fields with their meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirab.logs.detect import FORMS, load
from mirab.logs.errors import LogError
from mirab.logs.intake import DUPLICATE, NEVER_RAN
from mirab.logs.options import LoadOptions
from mirab.model.trace import Trace
from tests.logs.helpers import FIXTURES, H, M, S, adds_up, dropped, ids, read, sizes, written


def fixture(name: str, **options: object) -> Trace:
    return load(FIXTURES / name, LoadOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "form", "rows", "used"),
    [
        ("native.csv", "native", 4, 3),
        ("sacct.txt", "sacct", 7, 3),
        ("headerless.log", "sacct", 3, 2),
        ("small.swf", "swf", 5, 2),
        ("philly.csv", "philly", 5, 3),
        ("philly.json", "philly-json", 3, 1),
        ("helios.csv", "helios", 4, 2),
        ("seren.csv", "acme", 2, 2),
        ("kalos.csv", "acme", 1, 1),
        ("pods.csv", "alibaba", 4, 2),
        ("history.condor", "htcondor", 2, 1),
    ],
)
def test_each_form_is_detected_named_and_counted(name: str, form: str, rows: int, used: int) -> None:
    trace = fixture(name)
    assert trace.notes[0] == f"form: {FORMS[form].title} (detected)"
    assert (trace.rows, len(trace.arrivals)) == (rows, used)
    assert adds_up(trace)
    assert list(trace.arrivals) == sorted(trace.arrivals, key=lambda a: (a.workload.submitted_at, a.workload.id))
    assert trace == fixture(name, form=form) or trace.notes != fixture(name, form=form).notes


def test_native_fields_keep_their_meaning() -> None:
    first, second, third = fixture("native.csv").arrivals
    assert (first.run, first.cancel_after, first.workload.priority) == (600 * S, 2 * H, 2)
    assert (first.workload.shape.min_runtime, first.workload.shape.time_limit) == (15 * M, 1 * H)
    assert (first.workload.checkpoint, first.workload.restart, first.workload.shape.grace) == (30 * M, 60 * S, 10 * S)
    assert first.workload.resume
    assert not first.workload.preemptible
    assert (second.workload.submitted_at, second.workload.checkpoint) == (30_500, 0), "0 = never, not unknown"
    assert not second.workload.resume
    assert (third.workload.shape.min_runtime, third.workload.checkpoint, third.workload.priority) == (2 * H, 30 * M, 1)
    assert third.cancel_after is None


@pytest.mark.parametrize(
    ("column", "hint"), [("gpus", r"was gpus meant\? Call it gpus_per_node"), ("x", "add it"), ("user", "add it")]
)
def test_native_without_a_size_of_a_node(tmp_path: Path, column: str, hint: str) -> None:
    with pytest.raises(LogError, match=f":1: has neither a column gpus_per_node nor cpus_per_node: {hint}$"):
        read(tmp_path, f"submit_s,nodes,{column},run_s\n0,1,8,9\n")


def test_native_rows_say_which_field_is_wrong(tmp_path: Path) -> None:
    header = "id,submit_s,nodes,gpus_per_node,run_s,resume,priority,memory_per_node,deadline_s"
    rows = [
        "ok,0,1,1,9,,,,", "a,-1,1,1,9,,,,", "b,0,1,1,0,,,,", "c,0,1,1,9,maybe,,,", "d,0,1,1,9,,urgent,,",
        "e,0,1,1,9,,,64,", "f,0,1,1,9,,,,soon", "h,0,1,1,nan,,,,", ",0,1,1,9,,,,", "ok,5,1,1,9,,,,", "g,0,0,1,9,,,,",
    ]  # fmt: skip
    assert dropped(read(tmp_path, "\n".join([header, *rows]))) == {
        "submit_s is neither seconds since the start of the log nor a Unix time": 1,
        "run_s is not above 0, or beyond a hundred years": 1,
        "run_s is not a number of seconds": 1,
        "resume is neither yes nor no": 1,
        "priority is neither low, normal, high nor a number": 1,
        "memory_per_node is not an amount with a unit": 1,
        "deadline_s is not a number of seconds": 1,
        "id is empty": 1,
        "the id of an earlier row": 1,
        "nodes, gpus_per_node or cpus_per_node are no usable size": 1,
    }


def test_a_misspelled_native_column_is_said_with_the_nearest(tmp_path: Path) -> None:
    trace = read(tmp_path, "id,submit_s,gpus_per_node,run_s,min_runtime\n1,0,1,60,900\n")
    assert "column 'min_runtime' is not known and was not used (did you mean min_runtime_s?)" in trace.notes


def test_sacct_fields_keep_their_meaning() -> None:
    trace = fixture("sacct.txt")
    whole, piped, requeued = trace.arrivals
    assert sizes(trace) == [(2, 8), (1, 1), (1, 4)]
    assert whole.workload.shape.gpu_types == ("h100",), "asked for by type"
    assert piped.workload.shape.gpu_types == (), "any type would have done"
    assert (whole.run, whole.workload.shape.time_limit) == (2 * H, 24 * H)
    assert (piped.workload.account, piped.workload.user, piped.workload.label) == ("fish", "eve", "gpu")
    assert (requeued.workload.id, requeued.run) == ("104_7", 3 * H), "the run is the sum over the attempts"
    assert trace.origin == 1709251200_000, "midnight of 2024-03-01"
    assert whole.workload.submitted_at == 8 * H


@pytest.mark.parametrize(
    ("by", "accounts"),
    [("account", {"fish", "bird"}), ("user", {"eve", "kim"}), ("partition", {"gpu"}), ("qos", {"normal", "high"})],
)
def test_the_account_column_can_be_chosen(by: str, accounts: set[str]) -> None:
    assert {arrival.workload.account for arrival in fixture("sacct.txt", account_by=by).arrivals} == accounts


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("sacct.txt", "vc"), ("small.swf", "qos"), ("philly.csv", "user"), ("philly.json", "qos"),
        ("helios.csv", "partition"), ("seren.csv", "vc"), ("pods.csv", "user"), ("history.condor", "qos"),
        ("native.csv", "qos"),
    ],
)  # fmt: skip
def test_an_account_column_that_the_form_lacks_is_one_clear_sentence(name: str, by: str) -> None:
    with pytest.raises(LogError, match=r"has no|have no") as raised:
        fixture(name, account_by=by)
    assert name in str(raised.value)
    assert "choose" in str(raised.value) or "can only be" in str(raised.value)


def test_swf_fields_keep_their_meaning() -> None:
    trace = fixture("small.swf")
    early, late = trace.arrivals
    assert (trace.cluster.unit, trace.cluster.slots, len(trace.cluster.pools[0].nodes)) == ("cpu", 64, 4)
    assert (late.run, late.workload.shape.time_limit, late.workload.shape.gpus) == (1 * H, 2 * H, 32)
    assert (late.workload.account, late.workload.user, late.workload.label) == ("group2", "user7", "queue1")
    assert early.workload.shape.time_limit is None
    assert trace.origin is not None
    assert trace.origin + late.workload.submitted_at == (1_400_000_000 + 60) * S, "submitted, not started"


@pytest.mark.parametrize(("by", "names"), [("user", ["user9", "user7"]), ("partition", ["queue2", "queue1"])])
def test_swf_accounts_by_user_or_queue(by: str, names: list[str]) -> None:
    assert [arrival.workload.account for arrival in fixture("small.swf", account_by=by).arrivals] == names


def test_philly_durations_are_over_all_attempts_and_gangs_fit_nodes() -> None:
    trace = fixture("philly.csv")
    assert [arrival.run for arrival in trace.arrivals] == [2 * H, 60 * S, 100 * S]
    assert sizes(trace) == [(2, 8), (1, 1), (2, 6)]
    (job,) = fixture("philly.json").arrivals
    assert (job.run, job.workload.user, job.workload.account) == (61 * M, "u1", "aa11")
    assert sizes(fixture("philly.json")) == [(2, 4)]
    assert fixture("philly.json", account_by="user").arrivals[0].workload.account == "u1"


def test_helios_and_acme_fields_keep_their_meaning() -> None:
    trace = fixture("helios.csv")
    assert sizes(trace) == [(2, 8), (1, 4)]
    assert [arrival.workload.account for arrival in trace.arrivals] == ["vcA", "vcB"]
    assert dropped(trace)[NEVER_RAN] == 1
    seren = fixture("seren.csv")
    assert sizes(seren) == [(1, 8), (32, 8)]
    assert seren.arrivals[1].workload.label == "Pretrain"
    assert seren.origin is not None
    assert seren.origin + seren.arrivals[0].workload.submitted_at == 1677601080 * S, "the offset +08:00 counts"


def test_alibaba_nodes_are_pools_of_their_kind() -> None:
    trace = fixture("pods.csv", cluster=FIXTURES / "nodes.csv")
    assert [(pool.gpu_type, len(pool.nodes), pool.gpus_per_node) for pool in trace.cluster.pools] == [
        ("V100", 2, 8),
        ("T4", 1, 2),
    ]
    assert "nodes without GPUs, left out: 1 (replay cores with --unit cpu)" in trace.notes
    shared = trace.arrivals[1].workload
    assert (shared.shape.gpu_types, shared.shape.gpus, shared.shape.cpus_per_node) == (("V100", "T4"), 1, 6)
    assert shared.preemptible, "best effort"
    cores = fixture("pods.csv", cluster=FIXTURES / "nodes.csv", unit="cpu")
    assert (len(cores.cluster.pools), cores.cluster.slots) == (3, 96 + 96 + 32 + 64)
    assert sizes(cores) == [(1, 12), (1, 6), (1, 7)], "6.5 cores are rounded up"


def test_the_table_of_nodes_is_not_taken_for_a_log() -> None:
    with pytest.raises(LogError, match="is a table of nodes: give it with --cluster"):
        fixture("nodes.csv")


def test_htcondor_fields_keep_their_meaning() -> None:
    (job,) = fixture("history.condor").arrivals
    assert (job.workload.id, job.run, job.workload.shape.gpus) == ("7.0", 600_500, 2)
    assert (job.workload.account, job.workload.user) == ("group_sea/fish", "eve")
    assert fixture("history.condor", account_by="user").arrivals[0].workload.account == "eve"


def test_htcondor_reads_archives_and_folders(tmp_path: Path) -> None:
    import tarfile

    folder = tmp_path / "history"
    folder.mkdir()
    for number in (3, 1, 2):
        ad = f'ClusterId = {number}\nProcId = 0\nQDate = 170000000{number}\nOwner = "eve"\nRemoteWallClockTime = 5.0\n'
        written(folder, ad + "JobStartDate = 1700000100\n", f"history.{number}.0")
    written(folder, "not an ad\n", "README")
    with tarfile.open(tmp_path / "history.tar.gz", "w:gz") as archive:
        archive.add(folder, "history")
    packed, plain = load(tmp_path / "history.tar.gz"), load(folder)
    assert ids(packed) == ids(plain) == ["1.0", "2.0", "3.0"]
    assert (packed.rows, packed.dropped) == (4, plain.dropped)
    assert sum(dropped(packed).values()) == 1


def test_duplicates_are_counted_in_every_form_with_ids(tmp_path: Path) -> None:
    for name in ("helios.csv", "pods.csv", "history.condor", "small.swf"):
        text = (FIXTURES / name).read_text()
        first = text.index("*** ") if name == "history.condor" else 0
        head, rows = (text[:first], "") if first else ("", "")
        lines = text.splitlines(keepends=True)
        if name == "history.condor":
            twice = head + "\n" + text
        elif name == "small.swf":
            twice = text + lines[7]
        else:
            twice = text + lines[1]
        trace = read(tmp_path, twice + rows)
        assert dropped(trace)[DUPLICATE] == 1, name
        assert ids(trace) == ids(load(FIXTURES / name)), name


def test_an_unknown_form_shows_what_was_seen(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"log:1: has no known form; it begins with 'a,b,c'.*--columns"):
        read(tmp_path, "a,b,c\n1,2,3\n")
    with pytest.raises(LogError, match=r"form 'slurm' is not known: choose one of native, sacct"):
        read(tmp_path, "a", form="slurm")
    with pytest.raises(LogError, match="is sacct's table for people: add --parsable2"):
        read(tmp_path, "JobID           JobName  Partition\n------------ ---------- ----------\n1 a b\n")
    with pytest.raises(LogError, match="is sacct --json: its text form is read"):
        read(tmp_path, '{"jobs": [], "meta": {}}')
