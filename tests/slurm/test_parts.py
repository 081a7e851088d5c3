"""Small parts without a Slurm: contracts, commands, places, the governed file, associations, advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirab.backends.slurm import commands
from mirab.backends.slurm.associations import as_yaml, associations, budgets_of, with_paths
from mirab.backends.slurm.contracts import LARGE, SMALL, Contract, contract_from, contract_of
from mirab.backends.slurm.governed import Governed, read_governed, write_governed
from mirab.backends.slurm.places import Places, cluster_of, grown
from mirab.backends.slurm.plugin import plugin_text
from mirab.backends.slurm.records import SlurmJob, SlurmNode
from mirab.backends.slurm.rules import Judgement
from mirab.backends.slurm.runner import ReadOnlyRunner, Runner, SlurmCommandError
from mirab.cli import jobs
from mirab.core.state import State
from mirab.logs.clusterfile import read_cluster_file
from mirab.model.accounts import Budget, Budgets
from mirab.model.events import Outcome, RunAdopted, RunEnded, WorkloadSubmitted
from mirab.model.plans import Plan, Preempt, Start
from mirab.model.policy import Policy
from mirab.model.reasons import DrainedFrom, InOrder
from mirab.model.resources import Allocation, Cluster, Pool, Shape
from mirab.model.units import HOUR, MINUTE, SECOND, WHOLE, AccountPath, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload
from mirab.service.advice import AGREED, LATER, NEVER, UNADVISED, compared
from mirab.service.desk.arrays import parse_ids
from mirab.service.desk.book import Tasks
from mirab.service.desk.followers import _index, array_goes_on

JOB = SlurmJob("1", 1, "train", "ana", "vlm", "main", "PENDING", (), "None", 1, 8, 0)


def node(name: str, gpus: int = 8, kind: str = "h100", **other: object) -> SlurmNode:
    return replace(SlurmNode(NodeName(name), "IDLE", (), gpus, kind, 64, 500_000, "", ("main",)), **other)  # type: ignore[arg-type]


# --- contracts
def test_a_contract_stands_anywhere_in_a_comment() -> None:
    told = contract_of(replace(JOB, comment="exp 7; mirab:min=3h,grace=2m,signal=SIGUSR1,resume=no,label=x ok"), {})
    assert (told.min_runtime, told.grace, told.signal, told.resume, told.label) == (
        3 * HOUR,
        2 * MINUTE,
        "USR1",
        False,
        "x",
    )


def test_who_says_nothing_gets_the_default_by_partition_or_size() -> None:
    assert contract_of(JOB, {}) == LARGE and contract_of(replace(JOB, gpus_per_node=2), {}) == SMALL
    assert contract_of(JOB, {"main": Contract(MINUTE)}).min_runtime == MINUTE


@pytest.mark.parametrize("word", ["min=soon", "mni=2h", "min", "signal=rm -rf", "resume=maybe", "grace="])
def test_a_slip_leaves_the_default_in_force_and_says_so(word: str) -> None:
    told = contract_of(replace(JOB, comment=f"mirab:{word}"), {})
    assert told.min_runtime == LARGE.min_runtime and told.note


def test_the_contract_of_a_partition_is_checked() -> None:
    assert contract_from({"min": "15m"}).min_runtime == 15 * MINUTE
    with pytest.raises(ValueError, match="did you mean"):
        contract_from({"mni": "15m"})


# --- commands
@pytest.mark.parametrize(
    "command",
    [
        commands.LIST_JOBS, commands.LIST_NODES, commands.GLANCE, commands.look_up(["1"]), commands.list_some(["1"]),
        ("scontrol", "--json", "show", "nodes"), ("sacctmgr", "-P", "show", "associations"),
    ],
)  # fmt: skip
def test_looks_are_known_as_looks(command: tuple[str, ...]) -> None:
    assert not commands.writes(command)


@pytest.mark.parametrize(
    "command",
    [
        commands.hold("1"), *commands.start("1", [NodeName("n0")]), *commands.back_to_slurm("1", True),
        commands.cancel("1"),
        *commands.notice("1", "USR1"), *commands.requeue("1"), commands.drain(NodeName("n0"), "x"),
        commands.resume(NodeName("n0")), ("sacctmgr", "add", "account", "show"), ("scontrol",), ("rm", "show"),
    ],
)  # fmt: skip
def test_whatever_else_counts_as_a_change_and_an_observer_refuses_it(command: tuple[str, ...]) -> None:
    assert commands.writes(command)
    runner = ReadOnlyRunner()
    assert runner.write([command]) == ["observing only: nothing is changed"]
    with pytest.raises(SlurmCommandError, match="only observes"):
        runner.read(command)


def test_many_commands_go_to_one_process_and_a_failure_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = tmp_path / "scontrol"
    program.write_text(
        f'#!/bin/sh\n[ $# -gt 0 ] && echo "alone $*" >>{log} || {{ echo together >>{log}; lines=$(cat); }}\n'
        'case "$lines$*" in *JobId=2*) echo no such job >&2; exit 1;; esac\n'
    )
    program.chmod(0o755)
    runner = Runner(environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert runner.write([commands.hold("1"), commands.hold("3")]) == ["", ""]
    assert log.read_text() == "together\n"
    wrong = runner.write([commands.hold("1"), commands.hold("2")])
    assert wrong[0] == "" and "no such job" in wrong[1]


def test_a_program_that_is_missing_or_hangs_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SlurmCommandError, match="not installed"):
        Runner(environment={"PATH": str(tmp_path)}).read(("squeue",))
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(SlurmCommandError, match="did not answer"):
        Runner(0.2, {"PATH": str(tmp_path)}).read(("squeue",))


# --- places
def test_nodes_become_pools_and_keep_their_places() -> None:
    nodes = [node("a0"), node("a1"), node("b0", kind="b300"), node("c0", 0, "")]
    cluster = cluster_of(nodes, "slurm", {"b300": 2500})
    assert [(pool.name, pool.nodes, pool.weight) for pool in cluster.pools] == [
        ("h100", ("a0", "a1"), 1000), ("b300", ("b0",), 2500), ("cpu", ("c0",), 10),
    ]  # fmt: skip
    assert grown(cluster, nodes[::-1]) is cluster
    more = grown(cluster, [*nodes, node("a2"), node("d0", 4)])
    assert more.pools[0].nodes == ("a0", "a1", "a2") and more.pools[-1].nodes == ("d0",)
    places = Places(more)
    given = places.allocation(replace(JOB, nodes=2, node_names=(NodeName("a0"), NodeName("a2"))))
    assert given is not None and (given.pool, given.mask, given.slots_per_node) == (0, 0b101, 8)
    assert places.names(given) == ["a0", "a2"]
    assert places.allocation(replace(JOB, node_names=(NodeName("elsewhere"),))) is None


# --- who is governed
def test_the_file_of_governed_accounts_is_read_again_when_it_changes(tmp_path: Path) -> None:
    governed = Governed(tmp_path / "governed")
    assert "red" not in governed
    write_governed(governed.path, ["red"])
    assert "red" in governed and "blue" not in governed and read_governed(governed.path) == ("red",)
    write_governed(governed.path, ["*"])
    assert "blue" in governed
    governed.path.unlink()
    assert "red" not in governed


def test_the_plugin_reads_the_same_file(tmp_path: Path) -> None:
    assert f'"{tmp_path}/governed"' in plugin_text(tmp_path / "governed")
    with pytest.raises(ValueError, match="quotes"):
        plugin_text(tmp_path / 'a"b')


def judged(job: SlurmJob, *, observing: bool = False, nodes: tuple[SlurmNode, ...] = (node("n0"),)) -> tuple[str, str]:
    tree = Budgets((Budget("research", WHOLE // 2, (Budget("vlm", WHOLE),)), Budget("product", WHOLE // 2)))
    judgement = Judgement(
        {"vlm", "ghost"}, observing, lambda: tree, lambda account, declared: declared, lambda _: False, {},
        lambda: {each.name: each for each in nodes},
    )  # fmt: skip
    return judgement.left(job), judgement.account(job)


def test_accounts_are_found_in_the_tree_and_what_is_not_ours_is_left() -> None:
    assert judged(JOB) == ("", "research/vlm")
    assert "not governed" in judged(replace(JOB, account="product"))[0]
    assert "has no budget" in judged(replace(JOB, account="ghost"))[0]
    assert judged(replace(JOB, account="ghost"), observing=True) == ("", "ghost")
    assert "reservation" in judged(replace(JOB, special="a reservation"), observing=True)[0]
    assert "partition" in judged(JOB, nodes=(node("n0"), node("n1", partitions=("other",))))[0]
    assert judged(JOB, nodes=(node("n0"), node("c0", 0, "", partitions=("other",))))[0] == ""


# --- import
def test_associations_become_a_tree_of_shares(tmp_path: Path) -> None:
    listing = "root|||1\nroot||root|1\na|root||60\na||ana|1\nb|root||20\nc|a||parent\nd|a||1\nbroken\n"
    budgets = budgets_of(associations(listing))
    assert {path: share / WHOLE for path, _, share in budgets.walk()} == {
        "a": 0.75, "a/c": 0.375, "a/d": 0.375, "b": 0.25,
    }  # fmt: skip
    (tmp_path / "b.yaml").write_text(as_yaml(budgets))
    read = read_cluster_file(tmp_path / "b.yaml").budgets
    assert read is not None and [path for path, _, _ in read.walk()] == ["a", "a/c", "a/d", "b"]
    with pytest.raises(ValueError, match="nothing to import"):
        budgets_of(associations("root|||1\n"))


def test_thirds_can_be_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(as_yaml(budgets_of(associations("a|root||1\nb|root||1\nc|root||1\n"))))
    assert read_cluster_file(tmp_path / "b.yaml").budgets is not None


def test_a_log_names_paths_where_it_named_accounts() -> None:
    assert with_paths("JobID|Account|JobName\n1|vlm|a|b\n2|x|c\n", {"vlm": "r/vlm"}) == (
        "JobID|Account|JobName\n1|r/vlm|a|b\n2|x|c\n"
    )


# --- advice
def start(at: int, job: str, mask: int = 1) -> Plan:
    reason = InOrder(AccountPath("red"), 0.0, False)
    return Plan(at, 0, (Start(RunId(f"{job}.1"), WorkloadId(job), Allocation(0, mask, 8), HOUR, reason),))


def adopted(at: int, job: str) -> RunAdopted:
    return RunAdopted(at, RunId(f"{job}.1"), WorkloadId(job), Allocation(0, 1, 8), at, HOUR)


def test_advice_is_compared_with_what_slurm_did() -> None:
    early = Workload(WorkloadId("9"), 0, AccountPath("red"), UserName("ana"), Shape(1, 8))
    stop = Plan(9 * SECOND, 0, (Preempt(RunId("1.1"), SECOND, DrainedFrom(NodeName("n0"), "")),))
    records = [
        ((WorkloadSubmitted(0, early), adopted(0, "9")), start(SECOND, "1")),
        ((), start(2 * SECOND, "1", 2)),
        ((adopted(3 * SECOND, "1"),), start(4 * SECOND, "2", 2)),
        ((adopted(60 * SECOND, "2"), adopted(60 * SECOND, "3")), start(61 * SECOND, "4")),
        ((), stop),
        ((RunEnded(99 * SECOND, RunId("1.1"), Outcome.COMPLETED),), Plan(99 * SECOND, 0)),
    ]
    starts, stops = compared(records)
    assert [(each.workload_id, each.kind, each.elsewhere) for each in starts] == [
        ("1", AGREED, False), ("2", LATER, True), ("3", UNADVISED, False), ("4", NEVER, False),
    ]  # fmt: skip
    assert [(each.run_id, each.ended_at) for each in stops] == [("1.1", 99 * SECOND)]


def test_a_task_that_came_again_after_its_end_has_its_place_in_the_array() -> None:
    """A soak found it: the scheduler stopped for good at the first fact of such an array."""
    tasks = Tasks(2, dict.fromkeys(map(WorkloadId, ("7_10", "7_2", "7_0r1"))))
    state = State(Cluster("c", (Pool("n", (NodeName("n0"),), 8),)), Budgets((Budget("red", WHOLE),)), Policy())
    assert list(array_goes_on(state, tasks, 0)) == []
    assert sorted(tasks.live, key=_index) == ["7_0r1", "7_2", "7_10"]


@pytest.mark.parametrize("name", ["5r1", "258_0r12", "258_0", "5"])
def test_a_job_that_came_again_has_a_name_that_people_can_say(name: str) -> None:
    assert parse_ids(name, 100) == [name] == jobs.parse_ids([name])
