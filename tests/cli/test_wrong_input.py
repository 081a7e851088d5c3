"""Wrong input, as a person meets it: one sentence that says what, where, and what to do; and the right exit code."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mirab.cli.exits import UnusableError, report
from tests.cli.conftest import ROWS, Mirab, write_log


def test_a_file_that_is_not_there(mirab: Mirab, tmp_path: Path) -> None:
    said = mirab("sim", tmp_path / "no.csv")
    assert said.code == 3
    assert "no.csv does not exist" in said.sentence


def test_a_cluster_file_that_is_not_there(mirab: Mirab, log: Path, tmp_path: Path) -> None:
    said = mirab("sim", log, "--cluster", tmp_path / "no.yaml")
    assert said.code == 3
    assert "no.yaml does not exist" in said.sentence


def test_a_folder_in_place_of_a_file(mirab: Mirab, log: Path, tmp_path: Path) -> None:
    said = mirab("sim", log, "--cluster", tmp_path)
    assert said.code == 2
    assert "is a folder" in said.sentence


def test_a_folder_that_holds_no_log(mirab: Mirab, tmp_path: Path) -> None:
    """A folder may be a log: HTCondor writes one file a job."""
    (tmp_path / "notes.txt").write_text("nothing of interest\n", encoding="utf-8")
    said = mirab("sim", tmp_path)
    assert said.code == 1
    assert str(tmp_path) in said.sentence


def test_a_file_that_may_not_be_read(mirab: Mirab, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)
    said = mirab("sim", log)
    assert said.code == 4
    assert "may not be opened by you" in said.sentence


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_an_end_is_not_read_to_it(mirab: Mirab, log: Path, device: str) -> None:
    for words in (("sim", device), ("sim", log, "--cluster", device), ("gate", log, "--gates", device)):
        said = mirab(*words)
        assert said.code == 1
        assert said.sentence == f"mirab: {device} is a device without an end: name a file."


def test_a_policy_that_is_not_known(mirab: Mirab, log: Path) -> None:
    said = mirab("sim", log, "--policy", "bugdet")
    assert said.code == 2
    assert "did you mean 'budget'" in said.sentence


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("windw=7d", "did you mean 'window'"),
        ("window", "write name=value"),
        ("window=7", "window cannot be '7': write a duration"),
        ("window=99999d", "window cannot be '99999d': write a duration above 0, at most 36525d (a hundred years)"),
        ("cadence=99999d", "cadence cannot be '99999d': write a duration from 0 to 36525d (a hundred years)"),
        ("margin=0.1", "write a percentage"),
        ("headroom=200%", "from 0% to 100%"),
        ("holds_max=-1", "a whole number from 0 to 999,999,999"),
        ("holds_max=12345678901", "a whole number from 0 to 999,999,999"),
        ("backfill=easy", "contract|limit|any|none"),
    ],
)
def test_a_setting_that_makes_no_sense(mirab: Mirab, log: Path, setting: str, told: str) -> None:
    said = mirab("sim", log, "--set", setting)
    assert said.code == 2
    assert told in said.sentence


def test_yaml_that_is_none(mirab: Mirab, log: Path, cluster: Path) -> None:
    cluster.write_text("cluster: {pools: [\n", encoding="utf-8")
    said = mirab("sim", log, "--cluster", cluster)
    assert said.code == 1
    assert f"{cluster}:" in said.sentence


def test_a_key_that_is_not_known_names_the_nearest(mirab: Mirab, log: Path, cluster: Path) -> None:
    cluster.write_text(cluster.read_text(encoding="utf-8").replace("gpus_per_node", "gpu_per_node"), encoding="utf-8")
    said = mirab("sim", log, "--cluster", cluster)
    assert said.code == 1
    assert "did you mean gpus_per_node" in said.sentence


def test_shares_that_sum_to_more_than_all(mirab: Mirab, log: Path, cluster: Path) -> None:
    cluster.write_text(cluster.read_text(encoding="utf-8").replace("50%", "60%"), encoding="utf-8")
    said = mirab("sim", log, "--cluster", cluster)
    assert said.code == 1
    assert "more than 100%" in said.sentence


def test_a_form_that_is_not_known(mirab: Mirab, log: Path) -> None:
    said = mirab("sim", log, "--form", "slrum")
    assert said.code in (1, 2)
    assert "slrum" in said.sentence


@pytest.mark.parametrize(
    ("option", "value"),
    [("--overlay", "4"), ("--scale", "0"), ("--unit", "gpus"), ("--from", "yesterday"), ("--timezone", "Mars")],
)
def test_options_that_make_no_sense(mirab: Mirab, log: Path, option: str, value: str) -> None:
    said = mirab("sim", log, option, value)
    assert said.code in (1, 2)
    assert value in said.sentence


@pytest.mark.parametrize("content", ["", "\n", "id,submit_s\n"])
def test_a_log_without_jobs(mirab: Mirab, tmp_path: Path, content: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(content, encoding="utf-8")
    said = mirab("sim", path)
    assert said.code == 1
    assert "empty.csv" in said.sentence


def test_a_csv_with_other_columns_is_told_which_are_needed(mirab: Mirab, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("start,team,cards\n0,red,8\n", encoding="utf-8")
    said = mirab("sim", path)
    assert said.code == 1
    assert "other.csv:1: has no known form; it begins with 'start,team,cards'" in said.sentence
    assert "a header with submit_s, run_s and nodes or gpus_per_node" in said.sentence


def test_a_packed_log_that_breaks_off_in_its_first_line(mirab: Mirab, tmp_path: Path) -> None:
    path = tmp_path / "broken.csv.gz"
    path.write_bytes(gzip.compress(("submit_s,account,user," + "".join(map(str, range(9999)))).encode())[:200])
    said = mirab("sim", path)
    assert said.code == 1
    assert "cut short" in said.sentence
    assert said.sentence.endswith("fetch it again.")


@pytest.mark.parametrize("group", ["budget", "token", "node", "db", "slurm", "except", "rollout"])
def test_a_group_without_a_command_names_its_commands(mirab: Mirab, group: str) -> None:
    said = mirab(group)
    assert said.code == 2
    assert re.match(rf"mirab: mirab {group} needs one of its commands: [a-z-]+(, [a-z-]+)+\. See", said.sentence)


@pytest.mark.parametrize(
    ("words", "told"), [(("logs", "x"), "'x' is not one job"), (("logs", "3_[0-2]"), "a task 12_3")]
)
def test_a_job_is_not_asked_for_by_a_word(mirab: Mirab, words: tuple[str, ...], told: str) -> None:
    said = mirab(*words, "--server", "http://127.0.0.1:1")
    assert said.code == 2
    assert told in said.sentence


def test_what_is_revoked_is_named_by_its_id_not_by_itself(mirab: Mirab) -> None:
    said = mirab("token", "revoke", "mirab_7mojwk9INyXAnE", "--server", "http://127.0.0.1:1")
    assert said.code == 2
    assert "`mirab token ls` shows the ids" in said.sentence
    assert "7mojwk9INyXAnE" not in said.sentence


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--pretend-gpus", "99999999999"), "--pretend-gpus cannot be '99999999999': write a whole number from 0 to"),
        (("--pretend-nodes", "two"), "--pretend-nodes cannot be 'two': write a whole number from 1 to"),
        (("--state-dir", __file__), "test_wrong_input.py is a file: name a folder"),
        (("--listen", "127.0.0.1:99999"), "write HOST:PORT"),
        (("--backend", "kube"), "choose one of local, slurm, null"),
    ],
)
def test_a_service_with_settings_that_make_no_sense(mirab: Mirab, words: tuple[str, ...], told: str) -> None:
    said = mirab("serve", *words)
    assert said.code == 2
    assert told in said.sentence


@pytest.mark.parametrize("error", [UnusableError("squeue failed:\nno host\nno way"), ValueError("a\n\nb")])
def test_whatever_a_program_said_becomes_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    report(error)
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("no such thing", "no such thing."),
        ("it is wrong.", "it is wrong."),
        ("did you mean owner?.", "did you mean owner?"),
    ],
)
def test_a_sentence_has_one_mark_at_its_end(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    report(UnusableError(words))
    assert capsys.readouterr().err == f"mirab: {told}\n"


def test_what_is_no_log_at_all(mirab: Mirab, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(bytes(range(256)) * 40)
    said = mirab("sim", path)
    assert said.code == 1
    assert "picture.png" in said.sentence


def test_rows_that_cannot_be_used_are_counted_and_said(mirab: Mirab, tmp_path: Path, cluster: Path) -> None:
    log = write_log(tmp_path / "jobs.csv", [*ROWS, "f,300,red,ann,train,1,8,soon,300,3600"])
    said = mirab("sim", log, "--cluster", cluster)
    assert said.code == 0
    assert "7" in said.out


@pytest.mark.parametrize("option", ["--json", "--html", "--journal"])
def test_a_full_disk(mirab: Mirab, log: Path, cluster: Path, option: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    said = mirab("sim", log, "--cluster", cluster, option, "/dev/full")
    assert said.code == 1
    assert "/dev/full could not be written, the disk is full" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("option", ["--json", "--html", "--journal"])
def test_a_folder_that_is_not_there_is_said_before_the_work(
    mirab: Mirab, log: Path, tmp_path: Path, option: str
) -> None:
    said = mirab("sim", log, option, tmp_path / "no" / "report")
    assert said.code == 3
    assert "mkdir -p" in said.sentence


def test_the_log_is_not_overwritten_by_the_report(mirab: Mirab, log: Path) -> None:
    before = log.read_bytes()
    said = mirab("sim", log, "--json", log)
    assert said.code == 5
    assert "is an input" in said.sentence
    assert log.read_bytes() == before


def test_a_workload_that_is_not_in_the_record(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    assert mirab("sim", log, "--cluster", cluster, "--journal", tmp_path / "record.jsonl").code == 0
    said = mirab("explain", tmp_path / "record.jsonl", "aa")
    assert said.code == 3
    assert "aa" in said.sentence


def test_what_is_no_record(mirab: Mirab, log: Path) -> None:
    said = mirab("explain", log, "a")
    assert said.code == 1
    assert "--journal" in said.sentence


def test_a_command_and_an_option_that_are_not_known(mirab: Mirab) -> None:
    said = mirab("comprae")
    assert said.code == 2
    assert "did you mean 'compare'" in said.sentence
    said = mirab("sim", "--polcy", "fifo")
    assert said.code == 2
    assert "--policy" in said.sentence


def test_a_missing_argument_says_where_help_is(mirab: Mirab) -> None:
    said = mirab("sim")
    assert said.code == 2
    assert "mirab sim --help" in said.sentence


def test_without_the_right_to_write(log: Path, cluster: Path, tmp_path: Path) -> None:
    """As its owner, into a folder that is closed to the owner too; root gives up what root may beyond that."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    become = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.getuid() == 0 else []
    words = ["sim", str(log), "--cluster", str(cluster), "--json", str(closed / "report.json")]
    said = subprocess.run([*become, sys.executable, "-m", "mirab", *words], capture_output=True, text=True, check=False)
    assert said.returncode == 4
    assert f"report.json cannot be written: you may not write into the folder {closed}: choose" in said.stderr
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--html", "--journal", "--save-cluster"])
def test_only_the_report_goes_to_standard_output(
    mirab: Mirab, log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = mirab("sim", log, option, "-")
    assert said.code == 2
    assert "./-" in said.sentence
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--form", "slrum"), ("--from", "yesterday"), ("--to", "2017-13-01"), ("--timezone", "Mars")]
)
def test_an_option_that_no_log_could_make_right_is_a_wrong_usage(
    mirab: Mirab, log: Path, option: str, value: str
) -> None:
    said = mirab("sim", log, option, value)
    assert said.code == 2
    assert value in said.sentence


def test_an_empty_name_is_no_folder(mirab: Mirab) -> None:
    said = mirab("sim", "")
    assert said.code == 3
    assert "an empty name" in said.sentence


def test_an_output_below_a_file_does_not_ask_for_a_folder_there(mirab: Mirab, log: Path) -> None:
    said = mirab("sim", log, "--json", log / "report.json")
    assert said.code == 1
    assert "a part of the path is a file" in said.sentence


def test_a_question_ends_with_one_mark(mirab: Mirab, log: Path) -> None:
    assert "'budget'? See" in mirab("sim", log, "--policy", "bugdet").sentence


def test_a_duration_beyond_reason(mirab: Mirab, log: Path) -> None:
    said = mirab("sim", log, "--set", "cadence=99999999999999d")
    assert said.code == 2
    assert "cadence cannot be" in said.sentence


@pytest.mark.parametrize(
    ("option", "value"),
    [("--days", "0"), ("--load", "1e9"), ("--accounts", "9999999"), ("--users", "99999999"), ("--nodes", "9999999")],
)
def test_synth_refuses_what_no_machine_holds(mirab: Mirab, tmp_path: Path, option: str, value: str) -> None:
    said = mirab("synth", option, value, "--out", tmp_path)
    assert said.code == 2
    assert option in said.sentence


def test_a_record_that_was_cut_short_says_so(mirab: Mirab, log: Path, cluster: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl.gz"
    assert mirab("sim", log, "--cluster", cluster, "--journal", record).code == 0
    assert "cut short" not in mirab("explain", record, "nobody").sentence
    record.write_bytes(record.read_bytes()[:-40])
    said = mirab("explain", record, "nobody")
    assert said.code == 3
    assert "The record is cut short" in said.sentence


@pytest.mark.parametrize("words", [("status",), ("import",), ("release-all",)])
def test_a_slurm_that_does_not_answer(
    mirab: Mirab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in ("squeue", "sacctmgr", "scontrol", "sinfo"):
        (tmp_path / program).write_text("#!/bin/sh\necho no controller >&2\nexit 1\n", encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    said = mirab("slurm", *words, "--state-dir", tmp_path / "state")
    assert said.code == 1
    assert said.sentence.endswith("no controller. Is the controller up (`scontrol ping`)?")
