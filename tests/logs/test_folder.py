"""A folder of mirab's own form: log, cluster and node events of one folder are taken together."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mirab.logs.detect import load
from mirab.logs.errors import LogError
from mirab.logs.options import LoadOptions
from tests.logs.helpers import written

LOG = "id,submit_s,account,user,nodes,gpus_per_node,run_s\na,0,red,ann,1,4,600\nb,60,blue,bob,1,2,600\n"
CLUSTER = """\
cluster: {pools: {big: {nodes: 'n[0-3]', gpus_per_node: 4}}}
budgets: {red: {share: 60%}, blue: {share: 40%}}
"""
EVENTS = "time_s,node,event,repair_s\n30,n2,down,600\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    written(path, gzip.compress(LOG.encode()), "workloads.csv.gz")
    written(path, CLUSTER, "cluster.yaml")
    written(path, EVENTS, "node_events.csv")
    return path


def test_all_three_files_are_taken_and_said(folder: Path) -> None:
    trace = load(folder)
    assert trace.name == "mine"
    assert [arrival.workload.id for arrival in trace.arrivals] == ["a", "b"]
    assert [len(pool.nodes) for pool in trace.cluster.pools] == [4]
    assert [str(path) for path, _, _ in trace.budgets.walk()] == ["red", "blue"]
    assert [trouble.node for trouble in trace.troubles] == ["n2"]
    assert trace.notes[0] == (
        "the log is workloads.csv.gz of the folder mine, with cluster.yaml and node_events.csv beside it"
    )


def test_it_is_the_same_replay_as_with_each_file_named(folder: Path) -> None:
    options = LoadOptions(cluster=folder / "cluster.yaml", node_events=folder / "node_events.csv")
    apart, together = load(folder / "workloads.csv.gz", options), load(folder)
    assert (together.arrivals, together.cluster, together.troubles) == (apart.arrivals, apart.cluster, apart.troubles)


def test_what_is_named_wins_over_what_lies_in_the_folder(folder: Path, tmp_path: Path) -> None:
    other = written(tmp_path, CLUSTER.replace("n[0-3]", "n[0-7]"), "other.yaml")
    trace = load(folder, LoadOptions(cluster=other))
    assert [len(pool.nodes) for pool in trace.cluster.pools] == [8]
    assert trace.notes[0] == "the log is workloads.csv.gz of the folder mine, with node_events.csv beside it"


def test_a_log_alone_is_enough(tmp_path: Path) -> None:
    written(tmp_path, LOG, "workloads.csv")
    trace = load(tmp_path)
    assert len(trace.arrivals) == 2
    assert trace.notes[0] == f"the log is workloads.csv of the folder {tmp_path.name}"


def test_the_file_named_itself_takes_nothing_from_its_folder(folder: Path) -> None:
    trace = load(folder / "workloads.csv.gz")
    assert not trace.troubles
    assert trace.cluster.name == "inferred"


def test_packed_and_not_packed_is_one_too_many(folder: Path) -> None:
    written(folder, LOG, "workloads.csv")
    with pytest.raises(LogError, match=r"holds both workloads\.csv and workloads\.csv\.gz: name the one that is meant"):
        load(folder)


def test_a_folder_of_history_is_one_whatever_lies_in_it(folder: Path) -> None:
    with pytest.raises(LogError, match="read as HTCondor history"):
        load(folder, LoadOptions(form="htcondor"))


def test_a_folder_with_a_cluster_and_no_log_is_told_what_its_log_would_be_called(folder: Path) -> None:
    (folder / "workloads.csv.gz").unlink()
    with pytest.raises(LogError, match=r"name the file of the log; .* in it as workloads\.csv"):
        load(folder)
