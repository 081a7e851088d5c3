"""Listings of the recorded version and, made by hand, of the newer forms say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.backends.slurm.amounts import gpus, memory_mib, number
from mirab.backends.slurm.listings import ListingError, bookings, jobs, nodes
from mirab.backends.slurm.records import SlurmJob

RECORDED = Path(__file__).parent / "recorded"


def by_id(listing: str) -> dict[str, SlurmJob]:
    return {job.id: job for job in jobs(listing)}


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


# --- 22.05, as recorded ----------------------------------------------------------------------------------------------
def test_a_running_job_of_22_05() -> None:
    job = by_id(recorded("squeue-22.05.json"))["1"]
    assert (job.state, job.account, job.nodes, job.gpus_per_node, job.node_names) == (
        "RUNNING",
        "vision",
        1,
        4,
        ("n0",),
    )
    assert (job.name, job.comment) == ('we|ird "name"', "mirab:min=2h|x")
    assert job.started_at is not None and job.time_limit is None and job.attempt == 1


def test_the_waiting_tasks_of_an_array_are_jobs_of_their_own() -> None:
    found = by_id(recorded("squeue-22.05.json"))
    assert sorted(found) == ["1", "2_0", "2_1", "2_2", "2_3", "3", "4", "5"]
    assert {found[f"2_{task}"].state for task in (1, 2, 3)} == {"PENDING"}
    assert found["2_0"].node_names == ("n1", "n2") and found["2_0"].array_limit == 2
    assert found["2_3"].gpu_type == "h100" and found["2_3"].time_limit == 3_600_000


def test_holds_dependencies_and_ends_of_22_05() -> None:
    found = by_id(recorded("squeue-22.05.json"))
    assert found["4"].held_by == "user" and found["4"].gpus_per_node == 2
    assert found["3"].dependency == "afterok:1(unfulfilled)" and not found["3"].held_by
    assert found["5"].ended and found["5"].exit_code == 1


def test_nodes_of_22_05() -> None:
    found = nodes(recorded("sinfo-22.05.json"))
    assert [(node.name, node.state, node.gpus, node.gpu_type) for node in found] == [
        (f"n{number}", "MIXED", 8, "h100") for number in range(3)
    ]
    assert not any(node.dead or node.draining for node in found)


# --- from 23.11 on ---------------------------------------------------------------------------------------------------
def put(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


UNSET = {"set": False, "infinite": False, "number": 0}
ENDLESS = {"set": True, "infinite": True, "number": 0}


def newer(**other: Any) -> str:
    job = {
        "job_id": 7,
        "name": "train",
        "user_name": "ana",
        "account": "vision",
        "partition": "main",
        "job_state": ["RUNNING"],
        "state_reason": "None",
        "node_count": put(2),
        "cpus": put(16),
        "tres_req_str": "cpu=16,mem=200G,node=2,billing=16,gres/gpu=16,gres/gpu:h100=16",
        "tres_per_node": "gres/gpu:h100:8",
        "nodes": "n[1-2]",
        "time_limit": put(90),
        "submit_time": put(1_796_005_212),
        "eligible_time": put(1_796_005_212),
        "start_time": put(1_796_005_300),
        "end_time": put(1_796_010_700),
        "priority": put(120),
        "hold": False,
        "array_job_id": put(0),
        "array_task_id": UNSET,
        "array_max_tasks": put(0),
        "restart_cnt": 2,
        "comment": "",
        "exit_code": {"status": ["SUCCESS"], "return_code": put(0), "signal": {"id": UNSET, "name": ""}},
        "a_field_of_tomorrow": {"deep": ["things"]},
    }
    return json.dumps({"jobs": [job | other], "last_update": put(1), "meta": {"slurm": {"release": "26.05.0"}}})


def test_a_running_job_of_the_newer_form() -> None:
    (job,) = jobs(newer())
    assert (job.state, job.nodes, job.gpus_per_node, job.gpu_type) == ("RUNNING", 2, 8, "h100")
    assert (job.cpus_per_node, job.memory_mib_per_node) == (8, 102_400)
    assert job.node_names == ("n1", "n2") and job.time_limit == 90 * 60_000
    assert job.started_at == 1_796_005_300_000 and job.attempt == 3


def test_states_are_lists_and_flags_stand_beside_the_base_state() -> None:
    (job,) = jobs(newer(job_state=["CANCELLED", "COMPLETING"]))
    assert (job.state, job.flags) == ("CANCELLED", ("COMPLETING",)) and job.has_nodes and not job.ended
    (job,) = jobs(newer(job_state=["PENDING", "REQUEUE_HOLD"], hold=True, priority=put(0)))
    assert job.waits and job.held_by == "admin"


def test_a_state_of_tomorrow_is_kept_and_is_nothing_that_we_act_on() -> None:
    (job,) = jobs(newer(job_state=["TELEPORTING"]))
    assert job.state == "TELEPORTING" and not job.known
    assert not (job.waits or job.has_nodes or job.ended)


def test_an_infinite_limit_is_none_and_an_unset_time_is_unknown() -> None:
    (job,) = jobs(newer(time_limit=ENDLESS, eligible_time=UNSET, job_state=["PENDING"], start_time=UNSET))
    assert job.time_limit is None and job.eligible_at is None and job.started_at is None


def test_how_it_ended_in_the_newer_form() -> None:
    told = {"status": ["SIGNALED"], "return_code": put(0), "signal": {"id": put(9), "name": "KILL"}}
    (job,) = jobs(newer(job_state=["FAILED"], exit_code=told))
    assert (job.exit_code, job.signal) == (0, 9)


def test_pending_arrays_of_the_newer_form() -> None:
    listing = newer(job_state=["PENDING"], array_job_id=put(7), array_task_string="0-4:2%3", nodes="")
    assert [job.id for job in jobs(listing)] == ["7_0", "7_2", "7_4"]
    assert {job.array_limit for job in jobs(listing)} == {3}


def test_nodes_in_groups_that_are_alike() -> None:
    group = {
        "node": {"state": ["MIXED", "DRAIN"]},
        "nodes": {"allocated": 1, "nodes": ["n1", "n2"], "total": 2},
        "gres": {"total": "gpu:h100:8(S:0-1)", "used": "gpu:h100:1(IDX:0)"},
        "cpus": {"minimum": 64, "maximum": 64},
        "memory": {"minimum": 500_000, "maximum": 500_000},
        "reason": {"description": "ECC errors", "user": "root"},
        "partition": {"name": "main"},
    }
    found = nodes(json.dumps({"sinfo": [group], "errors": []}))
    assert [(node.name, node.gpus, node.cpus, node.memory_mib, node.reason) for node in found] == [
        (name, 8, 64, 500_000, "ECC errors") for name in ("n1", "n2")
    ]
    assert all(node.draining and not node.dead and node.partitions == ("main",) for node in found)


@pytest.mark.parametrize(
    ("told", "dead", "draining"),
    [
        (["IDLE"], False, False),
        (["DOWN", "NOT_RESPONDING"], True, False),
        (["IDLE", "DRAIN"], False, True),
        (["DRAINED"], False, True),
        (["ALLOCATED", "FAIL"], False, True),
        (["MIXED", "RESERVED"], False, True),
        (["IDLE", "MAINT"], False, True),
        (["IDLE", "POWERED_DOWN"], True, False),
        (["HUMMING"], False, False),
    ],
)
def test_what_a_node_may_do(told: list[str], dead: bool, draining: bool) -> None:
    (node,) = nodes(json.dumps({"nodes": [{"name": "n0", "state": told, "gres": "gpu:4"}]}))
    assert (node.dead, node.draining) == (dead, draining)


def test_nodes_come_in_the_order_of_their_numbers() -> None:
    listing = json.dumps({"nodes": [{"name": name, "state": "idle"} for name in ("n10", "n2", "n1")]})
    assert [node.name for node in nodes(listing)] == ["n1", "n2", "n10"]


# --- small texts -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gres:gpu:h100:8", (8, "h100")),
        ("gres/gpu:8", (8, "")),
        ("gpu", (1, "")),
        ("gpu:a100:2(S:0-1),nic:1", (2, "a100")),
        ("cpu=4,gres/gpu=8,gres/gpu:h100=8", (8, "h100")),
        ("gpu:h100:4(IDX:0-1,3,5)", (4, "h100")),
        ("N/A", (0, "")),
        ("", (0, "")),
    ],
)
def test_gpus_in_a_text(text: str, found: tuple[int, str]) -> None:
    assert gpus(text) == found


@pytest.mark.parametrize(
    ("text", "found"), [("500G", 512_000), ("4000M", 4000), ("1000", 1000), ("2.5T", 2_621_440), ("?", 0)]
)
def test_memory_in_a_text(text: str, found: int) -> None:
    assert memory_mib(text) == found


def test_numbers_that_mean_nothing() -> None:
    nothing: tuple[Any, ...] = (None, UNSET, ENDLESS, 0xFFFFFFFE, "x", True, [])
    assert [number(value) for value in nothing] == [None] * 7


# --- what is not as expected -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Unable to contact slurm controller", "[]", "{}", "null"])
def test_what_is_no_listing_is_one_sentence(text: str) -> None:
    with pytest.raises(ListingError):
        jobs(text)
    with pytest.raises(ListingError):
        nodes(text)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(sorted(json.loads(newer())["jobs"][0])), ANY, max_size=6),
    st.dictionaries(st.sampled_from(["name", "state", "gres", "cpus", "node", "nodes", "partition", "reason"]), ANY),
)
def test_no_value_whatever_crashes_the_reading(job: dict[str, Any], node: dict[str, Any]) -> None:
    jobs(newer(**job))
    nodes(json.dumps({"nodes": [node]}))


def test_what_was_requeued_in_the_second_of_its_begin_is_booked_as_nothing() -> None:
    """Slurm books no begin then; what waited when it was cancelled has none either, and is no run."""
    rows = bookings("7|REQUEUED|0:0|None|1796030064\n8|CANCELLED by 9|0:0|None|1796030064\n")
    assert [(row.job, row.started_at, row.ended_at) for row in rows] == [("7", 1796030064000, 1796030064000)]
