"""A run from its start to its end, as real processes."""

from __future__ import annotations

import os
import sys
from itertools import combinations
from pathlib import Path

import pytest

from mirab.backends.local import rundir
from mirab.backends.local.usage import UsageRecord
from mirab.model.events import ActionRefused, Outcome, RunCheckpointed, RunEnded, RunStarted
from mirab.model.units import RunId, WorkloadId
from tests.backends.rig import CPU, PATIENCE_S, Rig, node, wait_for


def test_a_command_runs_and_its_output_is_kept(rig: Rig) -> None:
    end = rig.run("1", "sh", "-c", "echo out; echo err >&2")
    start = rig.started(RunId("1.1"))
    assert (end.outcome, end.exit_code, end.lost) == (Outcome.COMPLETED, 0, 0)
    assert start.at <= end.at <= rundir.now_ms()
    assert not start.checkpoints_vouched
    assert rig.output("1") == "out\nerr\n"


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)])
def test_exit_codes_are_kept_as_a_shell_gives_them(rig: Rig, command: str, code: int) -> None:
    end = rig.run("1", "sh", "-c", command)
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, code)


def test_the_loop_is_woken_by_what_happens(rig: Rig) -> None:
    rig.start("1", "true")
    assert rig.woken.wait(PATIENCE_S)


def test_what_failed_has_lost_its_time_since_the_last_checkpoint(rig: Rig) -> None:
    end = rig.run("1", "sh", "-c", "sleep 0.2; exit 1")
    assert end.lost == end.at - rig.started(RunId("1.1")).at > 0


def test_facts_come_in_order_of_time(rig: Rig) -> None:
    runs = [rig.start(str(number), "true") for number in range(5)]
    for run_id in runs:
        rig.ended(run_id)
    for run_id in runs:
        assert [type(fact) for fact in rig.facts if getattr(fact, "run_id", "") == run_id] == [RunStarted, RunEnded]


def test_the_same_start_again_does_nothing(rig: Rig) -> None:
    start = rig.decide("1", "sh", "-c", "echo once; sleep 0.3")
    for _ in range(3):
        rig.backend.submit(start)
    rig.ended(start.run_id)
    rig.backend.submit(start)
    assert wait_for(lambda: len(rig.facts_of(RunEnded, "1.1")) == 2, "its end, told again to who asks again")
    assert rig.output("1") == "once\n"


# --- what a run finds around it  ----------------------------------------------------------------------------


def test_the_environment_of_a_run(rig: Rig) -> None:
    rig.decide("12_3", "env", environment=(("GREETING", "it's \"quoted\"\nand long"), ("MIRAB_ATTEMPT", "lies")),
               name="my job", array_job="12", array_task=3, account="ml/nlp", minimum=3_600_000)  # fmt: skip
    rig.backend.submit(rig.starts[RunId("12_3.1")])
    end = rig.ended(RunId("12_3.1"))
    said = rig.output("12_3")
    state = str(rig.backend.state_dir(WorkloadId("12_3")))
    for line in (
        "GREETING=it's \"quoted\"\nand long", "MIRAB_JOB_ID=12_3", "MIRAB_ATTEMPT=1", "MIRAB_RUN_ID=12_3.1",
        f"MIRAB_STATE_DIR={state}", "MIRAB_JOB_NAME=my job", "MIRAB_JOB_ACCOUNT=ml/nlp", "MIRAB_ARRAY_JOB_ID=12",
        "MIRAB_ARRAY_TASK_ID=3", f"MIRAB_JOB_NODELIST={node(rig)}", "MIRAB_NNODES=1", "CUDA_VISIBLE_DEVICES=0",
        "SLURM_JOB_ID=12_3", "SLURM_ARRAY_TASK_ID=3", f"SLURM_JOB_NODELIST={node(rig)}", "SLURM_JOB_ACCOUNT=ml/nlp",
    ):  # fmt: skip
        assert f"\n{line}\n" in f"\n{said}"
    until = int(said.split("MIRAB_PROTECTED_UNTIL=")[1].split()[0])
    assert until <= (rig.started(RunId("12_3.1")).at + 3_600_000) / 1000 <= until + 60
    assert os.path.isdir(state) and end.exit_code == 0


def test_nothing_of_the_service_is_inherited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "1")
    rig.run("1", sys.executable, "-c", "import os, signal; print(sorted(os.listdir('/proc/self/fd')), dict(os.environ),"
            " signal.getsignal(signal.SIGPIPE), os.getsid(0) == os.getpid(), os.read(0, 1))")  # fmt: skip
    said = rig.output("1")
    assert said.startswith("['0', '1', '2', '3']"), "3 is the folder that is being listed"
    assert "SECRET" not in said
    assert said.endswith("True b''\n")


def test_a_script_is_run_by_its_interpreter_with_its_arguments(rig: Rig) -> None:
    rig.run("1", "a b", "c", script='#!/bin/sh\necho "$# $1"\n# UTF-8: \u00e4\n')
    assert rig.output("1") == "2 a b\n"


def test_gpus_are_given_once(rig: Rig) -> None:
    """Eight pretended GPUs a node: the third run gets what the first has left."""
    wait = ("sh", "-c", "echo got $CUDA_VISIBLE_DEVICES; sleep 100")
    first = rig.start("1", *wait, gpus=3)
    rig.start("2", *wait, gpus=5)
    assert "got 0,1,2" in rig.says("1", "got")
    assert "got 3,4,5,6,7" in rig.says("2", "got")
    refused = rig.fact(ActionRefused, rig.start("3", "true", gpus=1))
    assert refused.action == "start" and "GPUs" in refused.why
    rig.cancel(first)
    rig.ended(first)
    rig.start("4", *wait, gpus=2)
    assert "got 0,1" in rig.says("4", "got")


def test_a_run_on_two_nodes_knows_them_and_work_without_gpus_sees_none(rig: Rig) -> None:
    both = "echo $MIRAB_JOB_NODELIST $MIRAB_NNODES [$CUDA_VISIBLE_DEVICES]"
    rig.run("1", "sh", "-c", both, nodes=2, gpus=8)
    assert rig.output("1") == f"{node(rig, 0)},{node(rig, 1)} 2 [0,1,2,3,4,5,6,7]\n"
    rig.run("2", "sh", "-c", both, pool=CPU)
    assert rig.output("2") == f"{node(rig, 0, CPU)} 1 []\n"


# --- output  ----------------------------------------------------------------------------


def test_output_and_error_go_where_they_are_sent_and_folders_are_made(rig: Rig) -> None:
    rig.run("7", "sh", "-c", "echo out; echo err >&2", output="logs/%x/%j.out", error="%u.err", name="n", user="ada")
    assert (rig.root / "logs/n/7.out").read_text() == "out\n"
    assert (rig.root / "ada.err").read_text() == "err\n"
    assert rig.backend.output_path(WorkloadId("7"), stream="err") == rig.root / "ada.err"


def test_a_later_attempt_goes_on_in_the_same_file(rig: Rig) -> None:
    rig.run("1", "echo", "first")
    rig.run("1", "sh", "-c", "echo $MIRAB_ATTEMPT $MIRAB_RESUMED", attempt=2)
    assert rig.output("1") == "first\n2 1\n"


def test_a_first_attempt_replaces_the_file_unless_it_is_to_append(rig: Rig) -> None:
    (rig.root / "same").write_text("old\n")
    rig.run("1", "echo", "one", output="same")
    rig.run("2", "echo", "two", output="same", append=True)
    assert rig.output("2") == "one\ntwo\n"


def test_a_large_output_costs_the_shim_nothing(rig: Rig) -> None:
    end = rig.run("1", "sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' x")
    path = rig.backend.output_path(WorkloadId("1"))
    assert end.exit_code == 0 and path is not None and path.stat().st_size == 50_000_000


def test_output_that_is_a_link_to_what_the_user_does_not_own_is_not_shown(rig: Rig, tmp_path: Path) -> None:
    """A service with root's rights would read anything; a file of somebody else is no output of this run."""
    if os.geteuid() != 0:
        pytest.skip("needs root to own nothing")
    rig.run("1", "echo", "mine")
    path = rig.backend.output_path(WorkloadId("1"))
    assert path is not None
    os.chown(path, 12345, 12345)
    assert rig.backend.open_output(WorkloadId("1")) is None


# --- what cannot be run  ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"argv": ["no-such-command"]}, 127, "no such command"),
        ({"argv": ["/etc/passwd"]}, 126, "cannot run '/etc/passwd'"),
        ({"argv": ["true"], "cwd": "/no/such/place", "output": "/dev/null"}, 126, "cannot enter the working directory"),
        ({"argv": [], "script": "#!/no/interpreter\n"}, 127, "interpreter named in its first line does not exist"),
        ({"argv": [], "script": "echo no first line\n"}, 126, "a script needs a first line"),
        ({"argv": ["echo", "a\0b"]}, 126, "NUL"),
        ({"argv": ["echo", "\ud800"]}, 126, "half a character"),
        ({"argv": ["true"], "environment": (("A=B", "c"),)}, 126, "impossible name"),
        ({"argv": ["true"], "output": "/proc/no/such"}, 126, "cannot write the output file"),
        ({"argv": ["true"], "environment": (("BIG", "x" * 10_000_000),)}, 126, "too large together"),
        ({"argv": []}, 126, "neither a command nor a script"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_has_failed_and_says_why(
    rig: Rig, fields: dict[str, object], code: int, sentence: str
) -> None:
    argv = fields.pop("argv")
    assert isinstance(argv, list)
    end = rig.run("1", *argv, **fields)
    assert (end.outcome, end.exit_code, end.lost) == (Outcome.FAILED, code, 0)
    assert not rig.facts_of(RunStarted, "1.1")
    if fields.get("output") != "/dev/null":
        assert sentence in rig.output("1")
    assert sentence in rig.last_word(RunId("1.1"))["why"]


def test_a_working_directory_that_is_not_there_is_not_made_for_its_output(rig: Rig) -> None:
    place = rig.root / "vison" / "work"
    end = rig.run("1", "true", cwd=str(place))
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 126)
    assert "cannot enter the working directory" in rig.last_word(RunId("1.1"))["why"]
    assert not place.parent.exists()


def test_a_start_that_nobody_knows_the_command_of_is_refused(rig: Rig) -> None:
    start = rig.decide("1", "true")
    rig.jobs.clear()
    rig.backend.submit(start)
    assert rig.fact(ActionRefused, "1.1").action == "start"


def test_a_store_that_cannot_be_read_now_refuses_the_start(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_: WorkloadId) -> None:
        raise ConnectionError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(rig.backend.launcher, "spec_of", down)
        refused = rig.fact(ActionRefused, rig.start("1", "true", gpus=8))
    assert refused.action == "start" and "away" in refused.why
    assert rig.run("2", "true", gpus=8).outcome is Outcome.COMPLETED


def test_a_folder_that_cannot_be_made_refuses_the_start_and_gives_the_gpus_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rundir, "reserve", full)
        refused = rig.fact(ActionRefused, rig.start("1", "true", gpus=8))
    assert refused.action == "start" and "No space" in refused.why
    assert rig.run("2", "true", gpus=8).outcome is Outcome.COMPLETED


# --- progress  ----------------------------------------------------------------------------


def test_a_touched_file_is_a_checkpoint(rig: Rig) -> None:
    (rig.root / "model.pt").write_text("from an earlier life: no checkpoint of this run")
    run_id = rig.start("1", "sh", "-c", "sleep 0.3; touch model.pt; sleep 100", checkpoint_file="model.pt")
    safe = rig.fact(RunCheckpointed, run_id)
    assert rig.started(run_id).at < safe.at <= rundir.now_ms()
    rig.cancel(run_id)
    end = rig.ended(run_id)
    assert end.lost == end.at - safe.at


def test_folders_of_old_runs_are_removed_and_what_was_saved_is_kept(rig: Rig) -> None:
    first = rig.run("1", "sh", "-c", "touch $MIRAB_STATE_DIR/kept")
    rig.run("2", "true")
    running = rig.start("3", "sleep", "100")
    rig.started(running)
    assert rig.backend.prune(first.at) == 0
    assert rig.backend.prune(first.at + 1) == 1
    assert rig.backend.run_dir(WorkloadId("1")) is None and rig.backend.run_dir(WorkloadId("2")) is not None
    assert rig.backend.prune(rundir.now_ms() + 1_000) == 1
    assert (rig.backend.state_dir(WorkloadId("1")) / "kept").exists()
    assert [record.run_id for record in rig.backend.usage_records()] == [running]


@pytest.mark.slow
def test_fifty_quick_jobs(rig: Rig) -> None:
    """Seven times as many as there are GPUs: as soon as one has ended, the next begins; no two have the same at once.

    The first eight wait for each other, so that they overlap however slow the machine is.
    """
    together = "touch here.$MIRAB_JOB_ID; until [ $(ls here.* | wc -l) -ge 8 ]; do sleep 0.01; done"
    runs: list[RunId] = []
    for number in range(56):
        wait_for(lambda: len(runs) - sum(bool(rig.facts_of(RunEnded, run)) for run in runs) < 8, "a free GPU")
        script = together if number < 8 else f"sleep 0.0{number % 7}"
        runs.append(rig.start(str(number), "sh", "-c", f"echo $CUDA_VISIBLE_DEVICES; {script}"))
    assert all(rig.ended(run_id).outcome is Outcome.COMPLETED for run_id in runs)
    records = rig.backend.usage_records()
    assert len(records) == 56 and all(record.outcome == "COMPLETED" for record in records)
    for record in records:
        start, end = rig.started(record.run_id), rig.ended(record.run_id)
        assert (record.started_at, record.ended_at, record.ran) == (start.at, end.at, end.at - start.at)
    overlapping = [(a, b) for a, b in combinations(records, 2) if overlap(a, b)]
    assert len(overlapping) >= 28, "at least the first eight, each with each"
    has = {record.run_id: rig.output(record.workload_id) for record in records}
    assert set(has.values()) <= {f"{gpu}\n" for gpu in range(8)}
    assert not [(a.run_id, b.run_id, has[a.run_id]) for a, b in overlapping if has[a.run_id] == has[b.run_id]]


def overlap(one: UsageRecord, other: UsageRecord) -> bool:
    """Whether two runs that have ended ran at the same time."""
    assert one.started_at is not None and one.ended_at is not None
    assert other.started_at is not None and other.ended_at is not None
    return one.started_at < other.ended_at and other.started_at < one.ended_at
