"""What is inferred where the log does not say: unit, cluster, budgets; and how jobs are laid over nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.core.charge import pools_for
from mirab.logs.detect import load
from mirab.logs.errors import LogError
from mirab.logs.infer import layout, peak_use, round_shares, spread
from mirab.logs.intake import Job
from mirab.model.units import WHOLE
from tests.logs.helpers import FIXTURES, H, S, dropped, native, read, sacct, sizes, written


@pytest.mark.parametrize(
    ("total", "size", "placed"),
    [
        (1, 8, (1, 1)),
        (8, 8, (1, 8)),
        (16, 8, (2, 8)),
        (12, 8, (2, 6)),
        (20, 8, (4, 5)),
        (24, 8, (3, 8)),
        (13, 8, (2, 7)),
    ],
)
def test_gpus_spread_over_the_fewest_nodes_equally(total: int, size: int, placed: tuple[int, int]) -> None:
    assert spread(total, size) == placed


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(0, 100))
def test_a_layout_never_gives_more_than_a_node_has_nor_less_than_asked(total: int, size: int, nodes: int) -> None:
    count, per_node = layout(nodes, total, size)
    assert 1 <= per_node <= size
    assert total <= count * per_node < total + count
    assert count < 2 * -(-total // size) or (nodes and count == nodes)


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=300))
def test_rounded_shares_are_all_and_leave_nobody_out(amounts: list[int]) -> None:
    parts = round_shares(amounts)
    assert sum(parts) == WHOLE
    assert min(parts) > 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=30))
def test_peak_use_is_what_counting_instant_by_instant_gives(jobs: list[tuple[int, int, int]]) -> None:
    made = [Job(0, "x", run, "a", "u", 1, gpus=gpus, started=start) for start, run, gpus in jobs]
    counted = max(sum(gpus for start, run, gpus in jobs if start <= now < start + run) for now in range(71))
    assert peak_use(made, lambda job: job.gpus) == counted


def test_the_cluster_is_the_peak_of_concurrent_use(tmp_path: Path) -> None:
    early = {"JobID": "1", "Start": "2024-03-01T08:00:00", "Elapsed": "01:00:00", "NodeList": ""}
    meets = {"JobID": "2", "Start": "2024-03-01T09:00:00", "Elapsed": "01:00:00", "NodeList": ""}
    overlaps = {"JobID": "3", "Start": "2024-03-01T09:30:00", "Elapsed": "01:00:00", "NodeList": ""}
    trace = read(tmp_path, sacct(early, meets, overlaps))
    assert trace.cluster.slots == 8
    assert any("the peak of concurrent use is 8" in note for note in trace.notes)


def test_every_job_fits_the_inferred_cluster() -> None:
    for name in ("sacct.txt", "small.swf", "philly.csv", "helios.csv", "seren.csv", "pods.csv", "headerless.log"):
        trace = load(FIXTURES / name)
        for arrival in trace.arrivals:
            assert pools_for(arrival.workload.shape, trace.cluster), (name, arrival)


def test_without_start_times_the_work_fills_the_cluster_just_once(tmp_path: Path) -> None:
    trace = read(tmp_path, native("1,0,a,u,1,8,3600", "2,7100,a,u,2,8,3600"))
    assert trace.cluster.slots == 16, "24 GPU-hours in a period of 2 hours are 12, rounded up to nodes of 8"


@pytest.mark.parametrize(("gpu_jobs", "unit"), [(0, "cpu"), (1, "cpu"), (3, "gpu")])
def test_a_log_with_hardly_any_gpu_job_is_one_of_cores(tmp_path: Path, gpu_jobs: int, unit: str) -> None:
    tres = {"ReqTRES": "cpu=8,node=1", "AllocTRES": "cpu=8,node=1"}
    rows = [{"JobID": str(number)} | ({} if number < gpu_jobs else tres) for number in range(40)]
    trace = read(tmp_path, sacct(*rows))
    assert trace.cluster.unit == unit
    assert any(note.startswith("unit: cores") for note in trace.notes) == (unit == "cpu")
    assert len(trace.arrivals) == (40 if unit == "cpu" else gpu_jobs)


def test_few_but_large_gpu_jobs_make_a_gpu_log(tmp_path: Path) -> None:
    tres = {"ReqTRES": "cpu=8,node=1", "AllocTRES": "cpu=8,node=1", "Elapsed": "00:01:00"}
    rows = [{"JobID": str(number)} | ({} if number < 20 else tres) for number in range(1000)]
    assert read(tmp_path, sacct(*rows)).cluster.unit == "gpu"


def test_a_log_that_only_knows_nodes_is_replayed_on_nodes(tmp_path: Path) -> None:
    bare = {"NCPUS": "0", "ReqTRES": "", "AllocTRES": "", "NNodes": "3"}
    trace = read(tmp_path, sacct(bare))
    assert (trace.cluster.unit, sizes(trace)) == ("node", [(3, 1)])
    assert "unit: nodes, as the log has no GPUs (--unit gpu, cpu or node to choose)" in trace.notes


@pytest.mark.parametrize(("unit", "size"), [("gpu", (1, 4)), ("cpu", (1, 8)), ("node", (1, 1))])
def test_the_unit_can_be_chosen(tmp_path: Path, unit: str, size: tuple[int, int]) -> None:
    trace = read(tmp_path, sacct({}), unit=unit)
    assert (trace.cluster.unit, sizes(trace)) == (unit, [size])


def test_a_unit_that_no_job_has_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no job asks for GPUs: choose another --unit"):
        load(FIXTURES / "small.swf", options=_options(unit="gpu"))


def _options(**options: object):  # type: ignore[no-untyped-def]
    from mirab.logs.options import LoadOptions

    return LoadOptions(**options)  # type: ignore[arg-type]


def test_budgets_are_shares_of_the_used_time(tmp_path: Path) -> None:
    trace = read(tmp_path, native("1,0,p/a,u,1,1,3000", "2,0,p/b,u,1,1,1000", "3,0,q,u,1,2,2000"))
    shares = {path: share for path, _, share in trace.budgets.walk()}
    assert shares == {"p": WHOLE // 2, "p/a": WHOLE * 3 // 8, "p/b": WHOLE // 8, "q": WHOLE // 2}
    assert "budgets inferred from the GPU-time that each account used: q 50.0%, p/a 37.5%, p/b 12.5%" in trace.notes
    assert not any("one account has everything" in note for note in trace.notes)


def test_one_account_of_several_users_says_who_could_be_the_accounts(tmp_path: Path) -> None:
    log = native("1,0,all,ann,1,1,3000", "2,0,all,bob,1,1,1000")
    told = "one account has everything, and so nothing is shared: its 2 users could be the accounts (--account-by user)"
    assert told in read(tmp_path, log).notes
    assert told not in read(tmp_path, log, account_by="user").notes


def test_work_of_an_inner_account_leaves_its_children_theirs(tmp_path: Path) -> None:
    trace = read(tmp_path, native("1,0,p,u,1,1,3000", "2,0,p/b,u,1,1,1000"))
    assert {path: share for path, _, share in trace.budgets.walk()} == {"p": WHOLE, "p/b": WHOLE // 4}


def test_budgets_of_the_file_and_accounts_of_the_log(tmp_path: Path) -> None:
    cluster = written(tmp_path, "budgets: {a: {share: 50%}}\n", "c.yaml")
    trace = read(tmp_path, native("1,0,a,u,1,1,60", "2,0,b,u,1,1,60"), cluster=cluster)
    assert any(note.startswith("accounts without a budget: b (1 arrival); ") for note in trace.notes)
    with pytest.raises(LogError, match=r"c.yaml: has no budget for any account of the log \(b\): choose another"):
        read(tmp_path, native("2,0,b,u,1,1,60"), cluster=cluster)


def test_exceptions_of_accounts_that_the_log_lacks_are_one_sentence(tmp_path: Path) -> None:
    people = "owner: o, approver: p, reason: r, begin: 1d, end: 2d"
    cluster = written(tmp_path, f"exceptions:\n- {{kind: guaranteed, account: fsh, {people}}}\n", "c.yaml")
    with pytest.raises(LogError, match=r"c.yaml:2: there is no account 'fsh' in the budgets: did you mean fish\?"):
        read(tmp_path, sacct({}), cluster=cluster)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n"])
def test_an_empty_cluster_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(LogError, match=r"c.yaml: says nothing: write a cluster: section"):
        read(tmp_path, sacct({}), cluster=written(tmp_path, text, "c.yaml"))


def test_requests_that_fit_nowhere_are_said(tmp_path: Path) -> None:
    cluster = written(tmp_path, "cluster: {pools: {p: {nodes: 'n[1-2]', gpus_per_node: 4}}}\n", "c.yaml")
    trace = read(tmp_path, native("1,0,a,u,1,4,60", "2,0,a,u,3,4,60"), cluster=cluster)
    assert (
        "kinds of request that fit no pool of the cluster and will be refused: 1, the largest 3 x 4 GPUs" in trace.notes
    )
    assert len(trace.arrivals) == 2, "the scheduler refuses them, with its reason"


def test_a_gang_of_larger_nodes_spreads_over_those_of_the_cluster(tmp_path: Path) -> None:
    cluster = written(tmp_path, "cluster: {pools: {p: {nodes: 'n[1-9]', gpus_per_node: 4}}}\n", "c.yaml")
    trace = read(tmp_path, native("1,0,a,u,2,8,60"), cluster=cluster)
    assert sizes(trace) == [(4, 4)]


def test_work_on_cores_stays_where_a_cpu_pool_takes_it(tmp_path: Path) -> None:
    pools = "g: {nodes: g1, gpus_per_node: 8}, c: {nodes: c1, cpus_per_node: 64, weight: 0.01}"
    text = "id,submit_s,nodes,gpus_per_node,cpus_per_node,run_s\n1,0,1,1,0,60\n2,0,1,0,16,60\n"
    both = read(tmp_path, text, cluster=written(tmp_path, f"cluster: {{pools: {{{pools}}}}}", "c.yaml"))
    assert [arrival.workload.shape[1:3] for arrival in both.arrivals] == [(1, 0), (0, 16)]
    assert both.cluster.pools[1].weight == 10
    alone = read(tmp_path, text)
    assert dropped(alone) == {"asks for no GPU (replay cores with --unit cpu)": 1}


def test_cores_and_memory_count_only_where_the_cluster_has_them(tmp_path: Path) -> None:
    assert {a.workload.shape.cpus_per_node for a in read(tmp_path, sacct({})).arrivals} == {0}
    text = "cluster: {pools: {p: {nodes: 'n[1-9]', gpus_per_node: 4, cpus_per_node: 64}}}\n"
    trace = read(tmp_path, sacct({}), cluster=written(tmp_path, text, "c.yaml"))
    assert trace.arrivals[0].workload.shape.cpus_per_node == 8


def test_typed_and_untyped_accounting_of_the_same_node_drops_the_types(tmp_path: Path) -> None:
    typed = {"AllocTRES": "cpu=8,gres/gpu:h100=4,gres/gpu=4,node=1"}
    trace = read(tmp_path, sacct(typed, {"JobID": "2"}))
    assert [pool.gpu_type for pool in trace.cluster.pools] == [""]
    assert "the same nodes stand under several GPU types: types were left out" in trace.notes
    apart = read(tmp_path, sacct(typed, {"JobID": "2", "NodeList": "g09"}))
    assert [pool.gpu_type for pool in apart.cluster.pools] == ["", "h100"]


def test_a_size_no_cluster_has_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nodes would be needed \(the largest job stands at line 3\): describe"):
        read(tmp_path, native("1,0,a,u,1,1,60", "2,0,a,u,900000,1,60"))


def test_instants_count_from_midnight_and_the_period_is_whole_hours() -> None:
    trace = load(FIXTURES / "helios.csv")
    assert (trace.origin, trace.starts_at, trace.ends_at) == (1591660800 * S, 18 * H, 19 * H)


def many(nodes: int, jobs_at_once: int, gpus: int) -> str:
    """Jobs of so many GPUs, all at the same time, spread over so many nodes."""
    tres = f"cpu=8,gres/gpu={gpus},node=1"
    rows = [{"JobID": str(job), "AllocTRES": tres, "NodeList": f"g{job % nodes}"} for job in range(jobs_at_once)]
    return sacct(*rows)


def test_named_nodes_are_as_large_as_what_they_held(tmp_path: Path) -> None:
    """Nobody asked for more than 2 GPUs of a node, and yet four nodes held 32 at once."""
    trace = read(tmp_path, many(nodes=4, jobs_at_once=16, gpus=2))
    (pool,) = trace.cluster.pools
    assert (list(pool.nodes), pool.gpus_per_node) == (["g0", "g1", "g2", "g3"], 8)
    assert any("4 nodes named in its node lists" in note and "they held it" in note for note in trace.notes)


def test_node_lists_that_cannot_be_whole_do_not_make_giants(tmp_path: Path) -> None:
    trace = read(tmp_path, many(nodes=1, jobs_at_once=16, gpus=2))
    (pool,) = trace.cluster.pools
    assert (len(pool.nodes), pool.gpus_per_node) == (16, 2)


def test_groups_and_users_that_swf_does_not_know_are_unknown(tmp_path: Path) -> None:
    text = "".join(f"{number} {number} 0 60 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n" for number in range(1, 4))
    workloads = [arrival.workload for arrival in read(tmp_path, text).arrivals]
    assert {(each.account, each.user, each.label) for each in workloads} == {("unknown", "unknown", "")}
