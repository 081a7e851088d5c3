"""Slurm executes, mirab decides: on a real Slurm, in front of and behind its back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.model.records import Grant
from mirab.model.units import FOREVER, MINUTE
from mirab.service.auth.principal import Principal
from mirab.service.runtime import Service
from mirab.study.weeklydiary import Diary
from tests.slurm.cluster import SlurmCluster
from tests.slurm.house import USERS, House, house, sbatch

pytestmark = pytest.mark.slow

OPS = Principal("ops", (Grant("admin", ""),), "test")
WHOLE_NODE = ("-N1", "--gpus-per-node=8")


@pytest.fixture
def governed(slurm: SlurmCluster, tmp_path: Path) -> Iterator[House]:
    with house(slurm, tmp_path / "mirab") as made:
        made.govern("red", "blue")
        made.start()
        yield made


def red(slurm: SlurmCluster, *options: str, minimum: str = "5s", **other: str) -> str:
    return sbatch(slurm, *WHOLE_NODE, "-A", "red", f"--comment=mirab:min={minimum},grace=2s", *options, **other)


def blue(slurm: SlurmCluster, *options: str, minimum: str = "5s", **other: str) -> str:
    return sbatch(slurm, *WHOLE_NODE, "-A", "blue", f"--comment=mirab:min={minimum},grace=2s", *options, **other)


def fill(governed: House, minimum: str = "5s") -> list[str]:
    """Red runs on every node."""
    jobs = [red(governed.slurm, minimum=minimum) for _ in range(governed.slurm.nodes)]
    governed.wait(lambda: [governed.state(job) for job in jobs] == ["RUNNING"] * len(jobs), "red to run everywhere")
    return jobs


def test_a_gang_is_started_whole_where_mirab_wants_it_and_its_victims_come_back(governed: House) -> None:
    slurm = governed.slurm
    marks = slurm.folder / "out" / "notice"
    jobs = [
        sbatch(slurm, *WHOLE_NODE, "-A", "red", "--comment=mirab:min=5s,grace=30s,signal=USR1",
               script=f"trap 'echo $SLURM_JOB_ID >>{marks}; exit 0' USR1\nsleep 600 & wait")
        for _ in range(3)
    ]  # fmt: skip
    governed.wait(lambda: [governed.state(job) for job in jobs] == ["RUNNING"] * 3, "red to run everywhere")
    gang = sbatch(slurm, "-N2", "--gpus-per-node=8", "-A", "blue", "--comment=mirab:min=20s")
    governed.wait(lambda: governed.state(gang) == "RUNNING", "the gang to run")
    row = governed.row(gang)
    assert row is not None and len(row.node_names) == 2
    victims = [job for job in jobs if governed.runs(job)[0].ended_at is not None]
    assert [governed.runs(job)[0].outcome for job in victims] == ["PREEMPTED"] * 2
    assert sorted(marks.read_text().split()) == sorted(victims)
    slurm.run("scancel", gang)
    governed.wait(lambda: [governed.state(job) for job in jobs] == ["RUNNING"] * 3, "the victims to run again")
    assert [len(governed.runs(job)) for job in victims] == [2, 2]
    for job in victims:
        began, ended = governed.runs(job)[0].started_at, governed.runs(job)[0].ended_at
        assert began is not None and ended is not None and ended - began >= 5_000


def test_arrays_keep_their_limit_and_dependencies_are_waited_for(governed: House) -> None:
    slurm = governed.slurm
    array = red(slurm, "--array=0-3%2", script="sleep 3")
    after = blue(slurm, f"--dependency=afterok:{array}", script="true")
    most = 0

    def all_done() -> bool:
        nonlocal most
        states = governed.listed()
        tasks = [states.get(f"{array}_{task}", "") for task in range(4)]
        most = max(most, tasks.count("RUNNING"))
        assert "COMPLETED" not in (states[after],) or tasks == ["COMPLETED"] * 4
        return states[after] == "COMPLETED"

    governed.wait(all_done, "the array and what depends on it")
    assert most <= 2
    governed.wait(lambda: governed.state(after) == "COMPLETED", "the ledger to know")
    assert [governed.state(f"{array}_{task}") for task in range(4)] == ["COMPLETED"] * 4


def test_jobs_that_are_not_mirabs_are_left_alone(governed: House) -> None:
    slurm = governed.slurm
    other = sbatch(slurm, *WHOLE_NODE, "-A", "green")
    chosen = red(slurm, "-w", "n1")
    kept = red(slurm, "--hold")
    governed.wait(lambda: slurm.states()[other] == slurm.states()[chosen] == "RUNNING", "Slurm to start its own")
    governed.wait(lambda: governed.state(other) == governed.state(chosen) == "RUNNING", "the ledger to count them")
    governed.wait(lambda: "its user" in governed.held(kept), "the user's hold to be seen")
    wanted = [blue(slurm, minimum="1h") for _ in range(3)]
    governed.wait(lambda: [slurm.states()[job] for job in wanted].count("RUNNING") == 1, "the free node to be used")
    assert slurm.states()[other] == slurm.states()[chosen] == "RUNNING"
    assert slurm.states()[kept] == "PENDING"
    slurm.run("scontrol", "release", kept)
    governed.wait(lambda: governed.held(kept) == "", "the release to be seen")
    assert "JobHeldAdmin" in slurm.run("squeue", "-h", "-j", kept, "--format=%r")


def test_a_reservation_is_slurms(governed: House) -> None:
    """Its jobs are left to Slurm; while it holds a node, mirab starts nothing there, and nobody repairs it."""
    slurm = governed.slurm
    slurm.run(
        "scontrol", "create", "reservation", "ReservationName=course", "StartTime=now", "Duration=60", "Nodes=n1",
        f"Users={','.join(USERS)}",
    )  # fmt: skip
    try:
        course = red(slurm, "--reservation=course")
        governed.wait(lambda: governed.state(course) == "RUNNING", "Slurm to start it")
        service = governed.service
        assert service is not None and governed.nodes(course) == ("n1",)
        assert service.live.state.runs[governed.runs(course)[0].id].min_runtime == FOREVER, "nobody stops it"
        governed.wait(lambda: service.live.state.troubled, "mirab to see that n1 is reserved")
        jobs = [blue(slurm, minimum="1h") for _ in range(3)]
        governed.wait(lambda: [governed.state(job) for job in jobs].count("RUNNING") == 2, "the other nodes to be used")
        slurm.run("scancel", course)
        governed.wait(lambda: governed.state(course) == "CANCELLED", "its end")
        (last,) = (job for job in jobs if governed.state(job) != "RUNNING")
    finally:
        slurm.run("scancel", "--reservation=course")
        slurm.wait_for(lambda: "RUNNING" not in slurm.run("squeue", "-h", "-R", "course", "-o", "%T"), "it to be empty")
        slurm.run("scontrol", "delete", "ReservationName=course")
    governed.wait(lambda: governed.nodes(last) == ("n1",) and governed.state(last) == "RUNNING", "n1 to be used again")
    assert len(governed.runs(last)) == 1, "it was not tried on the reserved node"


def test_without_the_plugin_mirab_holds_jobs_itself(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm may start some before mirab has seen them: they count, and what waits is mirab's."""
    with house(slurm, tmp_path / "mirab", plugin=False) as made:
        made.govern("red")
        made.start()
        jobs = [red(slurm, minimum="1h") for _ in range(3)]
        made.wait(lambda: [made.state(job) for job in jobs] == ["RUNNING"] * 3, "the nodes to be used")
        late = red(slurm, minimum="1h")
        made.wait(lambda: "JobHeldAdmin" in slurm.run("squeue", "-h", "-j", late, "--format=%r"), "mirab to hold it")
        slurm.run("scancel", jobs[0])
        made.wait(lambda: made.state(late) == "RUNNING", "mirab to start it")
        assert made.runs(late)[0].id == f"{late}.1"
        assert "mirab:placed" in slurm.run("scontrol", "show", "job", late), "it was mirab that did"


def test_a_partitions_contract_and_the_cap(slurm: SlurmCluster, tmp_path: Path) -> None:
    settings = "interval: 1s\npartitions: {main: {min: 7m, grace: 3s}}\n"
    with house(slurm, tmp_path / "mirab", settings=settings) as made:
        made.govern("red")
        service = made.start()
        silent = sbatch(slurm, *WHOLE_NODE, "-A", "red")
        greedy = red(slurm, minimum="3d")
        made.wait(lambda: made.state(silent) == made.state(greedy) == "RUNNING", "both to run")
        runs = service.live.state.runs
        spans = [runs[made.runs(job)[0].id].min_runtime for job in (silent, greedy)]
        assert spans == [7 * MINUTE, service.live.state.policy.min_runtime_cap]


def test_a_sick_node_is_emptied_repaired_and_used_again_without_anybody(slurm: SlurmCluster, tmp_path: Path) -> None:
    """What monitoring reports goes all the way: drain, the end of the minimum, requeue, repair, resume."""
    repair = tmp_path / "repair"
    repair.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/repaired\nscontrol update NodeName="$1" State=RESUME\n')
    repair.chmod(0o755)
    with house(slurm, tmp_path / "mirab", settings=f"interval: 1s\nrepair_command: {repair}\n") as made:
        made.govern("red")
        service = made.start()
        jobs = fill(made, minimum="6s")
        (sick,) = (job for job in jobs if made.nodes(job) == ("n2",))
        service.desk.node_report(OPS, "n2", xid=79)
        made.wait(lambda: len(made.runs(sick)) == 2 and made.state(sick) == "RUNNING", "it to run again")
        assert (tmp_path / "repaired").read_text().split() == ["n2"]
        first, again = made.runs(sick)
        assert first.outcome == "PREEMPTED" and (first.ended_at or 0) - (first.started_at or 0) >= 6_000
        assert made.nodes(sick) == ("n2",) and again.started_at is not None
        (drain,) = _drains_reported(service)
        assert drain["node"] == "n2" and "XID 79" in drain["cause"] and drain["person"] == ""
        assert drain["back_s"] >= drain["empty_s"] > drain["at_s"] and drain["lost_gpu_hours"] > 0


def test_what_users_do_behind_its_back(governed: House) -> None:
    slurm = governed.slurm
    first, second = red(slurm, minimum="1h"), red(slurm, minimum="1h")
    governed.wait(lambda: governed.state(first) == governed.state(second) == "RUNNING", "both to run")
    slurm.run("scontrol", "requeue", first)
    governed.wait(lambda: len(governed.runs(first)) == 2 and governed.state(first) == "RUNNING", "it to run again")
    assert governed.runs(first)[0].outcome == "REQUEUED"
    slurm.run("scancel", second)
    governed.wait(lambda: governed.state(second) == "CANCELLED", "the cancellation")
    slurm.run("scontrol", "suspend", first)
    service = governed.service
    assert service is not None
    governed.wait(lambda: service.live.state.runs[f"{first}.2"].suspended_at is not None, "the suspension")  # type: ignore[index]
    slurm.run("scontrol", "resume", first)
    governed.wait(lambda: service.live.state.runs[f"{first}.2"].suspended_at is None, "it to go on")  # type: ignore[index]
    waiting = [red(slurm, minimum="1h") for _ in range(3)]
    governed.wait(lambda: governed.state(waiting[2]) == "PENDING", "one to wait")
    service.desk.cancel(OPS, [waiting[2]])
    governed.wait(lambda: slurm.states()[waiting[2]] == "CANCELLED", "Slurm to hear of it")
    slurm.run("scancel", first, *waiting[:2])
    governed.wait(lambda: governed.state(first) == "CANCELLED", "the end")
    slurm.run("scontrol", "requeue", first)
    governed.wait(lambda: governed.state(f"{first}r1") == "RUNNING", "a job that came again after its end")


def test_drains_from_outside_and_from_mirab(governed: House) -> None:
    slurm, service = governed.slurm, governed.service
    assert service is not None
    jobs = fill(governed, minimum="6s")
    where = {governed.nodes(job)[0]: job for job in jobs}
    slurm.run("scontrol", "update", "NodeName=n0", "State=DRAIN", "Reason=fan is loud")
    governed.wait(lambda: governed.state(where["n0"]) == "PENDING", "n0 to be emptied at the end of the minimum")
    run = governed.runs(where["n0"])[0]
    assert run.outcome == "PREEMPTED" and run.started_at is not None and run.ended_at is not None
    assert run.ended_at - run.started_at >= 6_000
    assert "fan is loud" in slurm.run("sinfo", "-h", "-N", "-n", "n0", "--format=%E")
    service.desk.node_report(OPS, "n1", xid=79)
    governed.wait(lambda: governed.state(where["n1"]) == "PENDING", "n1 to be emptied")
    assert "mirab: XID 79" in slurm.run("sinfo", "-h", "-N", "-n", "n1", "--format=%E")
    slurm.run("scontrol", "update", "NodeName=n0", "State=RESUME")
    governed.wait(
        lambda: governed.nodes(where["n0"]) == ("n0",) or governed.nodes(where["n1"]) == ("n0",),
        "n0 to be used again",
    )
    service.desk.node_resume(OPS, "n1")
    governed.wait(lambda: [governed.state(job) for job in jobs] == ["RUNNING"] * 3, "all to run again")
    human = [row for _, _, plan in service.store.decisions(limit=1000) for row in [plan] if "CallHuman" in plan]
    assert not human
    fan, xid = _drains_reported(service)
    assert (fan["node"], fan["cause"], xid["node"]) == ("n0", "fan is loud", "n1")
    for drain in (fan, xid):
        assert drain["empty_s"] is not None and drain["back_s"] >= drain["empty_s"] > drain["at_s"]
        assert (drain["stopped"], drain["person"]) == (1, "") and drain["lost_gpu_hours"] >= 8 * 6 / 3600 - 0.001


def _drains_reported(service: Service) -> list[dict[str, Any]]:
    """Those of `mirab report`, by the journal, in order."""
    live = service.live
    diary = Diary(0, live.now(), live.state.cluster, live.state.budgets, lambda _: 0)
    for _, facts, plan in service.store.records():
        diary.append(facts, plan)
    return sorted(diary.drains, key=lambda drain: drain["at_s"])


def test_a_restart_finds_everything(governed: House) -> None:
    slurm = governed.slurm
    jobs = fill(governed, minimum="1h")
    late = red(slurm, minimum="1h")
    governed.wait(lambda: governed.state(late) == "PENDING", "one to wait")
    before = {job: governed.runs(job)[0].id for job in jobs}
    governed.stop()
    slurm.run("scancel", jobs[0])
    slurm.run("scontrol", "requeue", jobs[1])
    new = red(slurm, minimum="1h")
    service = governed.start()
    governed.wait(lambda: governed.state(jobs[0]) == "CANCELLED", "the cancelled one to be gone")
    governed.wait(lambda: governed.state(late) == "RUNNING", "the waiting one to run")
    assert governed.runs(jobs[2])[0].id == before[jobs[2]] and governed.state(jobs[2]) == "RUNNING"
    governed.wait(lambda: governed.runs(jobs[1])[0].outcome == "REQUEUED", "the requeue to be seen")
    assert governed.state(new) in ("PENDING", "STARTING", "RUNNING")
    service.live.state.check()
