"""Commands that change something: cancel, hold, release, requeue, checkpoint, node."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mirab.backends.local import rundir
from tests.cli.conftest import Mirab
from tests.cli_live.double import Answer, Double, job


@pytest.fixture
def some(double: Double) -> Double:
    double.jobs = {
        "7": job("7", state="RUNNING"),
        "8": job("8"),
        "9": job("9", state="COMPLETED"),
        "10": job("10", user="bob"),
        "12_0": job("12_0", array_job="12", array_task=0),
        "12_1": job("12_1", array_job="12", array_task=1, state="COMPLETED"),
    }
    return double


def deeds(double: Double) -> list[str]:
    return [each.path for each in double.requests("POST")]


@pytest.mark.parametrize(("command", "done"), [("cancel", "Cancelled"), ("hold", "Held"), ("release", "Released")])
def test_one_request_for_each_job(mirab: Mirab, some: Double, command: str, done: str) -> None:
    said = mirab(command, "7", "8", "--why", "an error")
    assert (said.code, said.out, said.err) == (0, "", f"{done} 2 jobs: 7 8\n")
    assert deeds(some) == [f"/jobs/7/{command}", f"/jobs/8/{command}"]
    assert some.asked[-1].body == {"why": "an error"}


def test_filters_choose_the_jobs_for_which_it_makes_sense(mirab: Mirab, some: Double) -> None:
    mirab("cancel", "--me")
    assert deeds(some) == ["/jobs/7/cancel", "/jobs/8/cancel", "/jobs/12_0/cancel"]
    some.asked.clear()
    mirab("hold", "-u", "ann")
    assert deeds(some) == ["/jobs/8/hold", "/jobs/12_0/hold"]
    some.asked.clear()
    mirab("requeue", "-A", "red/a")
    assert deeds(some) == ["/jobs/7/requeue"]
    some.asked.clear()
    mirab("cancel", "--state", "PD", "-u", "bob")
    assert deeds(some) == ["/jobs/10/cancel"]


def test_an_arrays_id_means_its_tasks(mirab: Mirab, some: Double) -> None:
    mirab("cancel", "12", "-t", "PD")
    assert deeds(some) == ["/jobs/12_0/cancel"]


def test_filters_hold_for_jobs_that_are_named_too(mirab: Mirab, some: Double) -> None:
    mirab("cancel", "7", "10", "--me")
    assert deeds(some) == ["/jobs/7/cancel"]
    some.asked.clear()
    mirab("cancel", "7", "8", "-A", "blue")
    mirab("cancel", "7", "8", "--label", "nightly")
    assert deeds(some) == []
    mirab("cancel", "8", "-A", "red")
    assert deeds(some) == ["/jobs/8/cancel"]


def test_a_role_on_an_account_that_is_not_there_gets_a_word(mirab: Mirab, double: Double) -> None:
    grants = [{"role": "researcher", "account": "visoin"}, {"role": "operator", "account": ""}]
    made = {"id": "5f", "token": "mirab_x", "grants": grants}
    double.special = lambda asked: Answer(made if asked.path == "/tokens" else {"accounts": [{"path": "vision"}]})
    said = mirab("token", "create", "ada", "--role", "researcher:visoin", "--role", "operator")
    assert (said.code, said.out) == (0, "mirab_x\n")
    assert "there is no account visoin yet" in said.err
    said = mirab("token", "create", "ada", "--role", "operator", "--expires", "3")
    assert said.code == 2
    assert "--expires: '3' is not a duration" in said.sentence


def test_without_a_job_or_a_filter_nothing_happens(mirab: Mirab, some: Double) -> None:
    said = mirab("cancel")
    assert said.code == 2
    assert "name a job" in said.sentence
    assert some.asked == []


def test_where_one_fails_the_others_go_on_and_the_code_tells(mirab: Mirab, some: Double) -> None:
    said = mirab("cancel", "9", "8", "--json")
    assert said.code == 5
    assert said.err == "mirab: job 9 has ended: there is nothing to cancel.\n"
    reply = json.loads(said.out)
    assert [each["id"] for each in reply["jobs"]] == ["8"]
    assert reply["failed"] == [{"id": "9", "detail": "job 9 has ended: there is nothing to cancel"}]
    assert mirab("cancel", "99").code == 3


def test_many_go_out_at_a_time_and_are_told_in_order(mirab: Mirab, double: Double) -> None:
    double.jobs = {str(number): job(str(number)) for number in range(100, 160)}
    double.jobs["130"]["state"] = "COMPLETED"
    said = mirab("cancel", *double.jobs, "--json")
    assert said.code == 5
    assert [each["id"] for each in json.loads(said.out)["jobs"]] == [each for each in double.jobs if each != "130"]
    assert sorted(deeds(double)) == [f"/jobs/{number}/cancel" for number in range(100, 160)]


def test_nothing_to_do_is_said(mirab: Mirab, some: Double) -> None:
    assert mirab("cancel", "-u", "nobody").err == "Nothing to cancel.\n"
    assert mirab("cancel", "-u", "nobody", "-q").err == ""


def test_a_checkpoint_from_inside_needs_no_server(
    mirab: Mirab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell = rundir.listen_for_bell(str(tmp_path / rundir.BELL))
    os.utime(tmp_path, (0, 0))
    monkeypatch.setenv("MIRAB_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("MIRAB_JOB_ID", "7")
    said = mirab("checkpoint")
    assert (said.code, said.err) == (0, "The work of 7 is safe.\n")
    assert (tmp_path / rundir.CHECKPOINT).read_bytes() == b""
    assert rundir.heard(bell) == [b""]
    assert json.loads(mirab("checkpoint", "--finished", "--json").out) == {"jobs": ["7"]}
    assert (tmp_path / rundir.CHECKPOINT).read_bytes() == rundir.FINISHED
    bell.close()


def test_a_checkpoint_from_outside_names_the_job(mirab: Mirab, some: Double) -> None:
    assert mirab("checkpoint", "7").code == 0
    assert deeds(some) == ["/jobs/7/checkpoint"]
    said = mirab("checkpoint")
    assert said.code == 3
    assert "name the job" in said.sentence


def node(name: str) -> dict[str, object]:
    return {"name": name, "pool": "gpu", "state": "draining", "gpus": 8, "gpus_used": 4, "jobs": ["7", "8"],
            "reason": "xid 79", "drain_until": "2036-03-01T12:00:00Z", "gpu_type": "h100", "cpus": 96}  # fmt: skip


def test_nodes(mirab: Mirab, double: Double) -> None:
    double.nodes = [node("n0"), node("n1")]
    lines = mirab("node", "ls").out.splitlines()
    assert lines[0].split() == ["NODE", "POOL", "STATE", "GPUS", "USED", "JOBS", "CLEAR_BY", "REASON"]
    assert lines[1].split()[:6] == ["n0", "gpu", "draining", "8", "4", "7,8"]
    assert len(json.loads(mirab("node", "ls", "n1", "--json").out)["nodes"]) == 1
    said = mirab("node", "drain", "n[0-1]", "--why", "fans")
    assert said.err.startswith("n0 is draining, clear by 2036-03-01")
    assert [(each.path, each.body) for each in double.requests("POST")] == [
        ("/nodes/n0/drain", {"why": "fans"}),
        ("/nodes/n1/drain", {"why": "fans"}),
    ]
    mirab("node", "resume", "n0")
    assert double.asked[-1].path == "/nodes/n0/resume"
    assert mirab("node", "drain", "n9").code == 3


def test_a_report_carries_the_xid_or_words(mirab: Mirab, double: Double) -> None:
    double.nodes = [node("n0")]
    mirab("node", "report", "n0", "--xid", "79")
    assert double.asked[-1].body == {"text": "", "xid": 79}
    mirab("node", "report", "n0", "smells", "of", "smoke")
    assert double.asked[-1].body == {"text": "smells of smoke"}
    assert mirab("node", "report", "n0").code == 2
