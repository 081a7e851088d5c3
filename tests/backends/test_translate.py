"""Names of files out of patterns and hostile names; what is a run id."""

from __future__ import annotations

import os.path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirab.backends.local.folders import login_of
from mirab.backends.local.processes import shell_code, signal_number
from mirab.backends.local.translate import Login, harmless, output_file, read_run_id, why_stopped
from mirab.model.reasons import DrainedFrom, PreemptedFor, ReservationBegins, StartTimedOut
from mirab.model.records import JobSpec
from mirab.model.units import AccountPath, RunId, WorkloadId
from tests.backends.rig import Rig

LOGIN = Login("ada")


def named(pattern: str, name: str = "train", **fields: Any) -> str:
    return output_file(pattern, JobSpec(WorkloadId("12_3"), name, cwd="/work", **fields), LOGIN)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("mirab-%j.out", "/work/mirab-12_3.out"),
        ("%A_%a.log", "/work/12_3.log"),
        ("%A_%4a.log", "/work/12_0003.log"),
        ("logs/%u/%x", "/work/logs/ada/train"),
        ("/scratch/100%%-%x", "/scratch/100%-train"),
        ("%q%", "/work/%q%"),
        ("../up.%j", "/up.12_3"),
        ("%%j", "/work/%j"),
    ],
)
def test_patterns(pattern: str, path: str) -> None:
    assert named(pattern, array_job="12", array_task=3) == path


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", ".", "/etc/passwd", "a/b", "%j", "\n\t\0", "x" * 5000, "é" * 3000, ""]
)
def test_a_job_cannot_be_called_so_that_its_output_goes_elsewhere(name: str) -> None:
    path = named("logs/%x/out", name)
    assert path == "/work/logs/out" if not name else os.path.dirname(os.path.dirname(path)) == "/work/logs"
    assert all(len(part.encode()) < 256 for part in path.split("/"))
    assert all(letter.isprintable() for letter in path)


@given(st.text())
def test_no_value_holds_what_has_a_meaning_in_a_path(value: str) -> None:
    text = harmless(value)
    assert "/" not in text and "\0" not in text and text not in (".", "..")
    assert len(text.encode()) <= 100


@pytest.mark.parametrize("run_id", ["", "1", "../x.1", "a/b.1", "1.x", "1.-1", ".1", "x" * 65 + ".1", "1\n.1"])
def test_what_is_no_run_id(run_id: str) -> None:
    with pytest.raises(ValueError, match="no run id"):
        read_run_id(RunId(run_id))


def test_a_run_id() -> None:
    assert read_run_id(RunId("12_3.4")) == ("12_3", 4)


@pytest.mark.parametrize("workload", ["../evil", "", "a/b", "x" * 65])
def test_no_folder_outside(rig: Rig, workload: str) -> None:
    with pytest.raises(ValueError):
        rig.backend.state_dir(WorkloadId(workload))
    assert rig.backend.output_path(WorkloadId(workload)) is None
    assert rig.backend.open_output(WorkloadId(workload)) is None


@pytest.mark.parametrize(
    ("name", "number"), [("USR1", 10), ("sigusr2", 12), ("15", 15), ("nonsense", 15), ("999", 15), ("SIG", 15)]
)
def test_signals_by_name(name: str, number: int) -> None:
    assert signal_number(name) == number


def test_statuses_as_shells_give_them() -> None:
    assert (shell_code(3 << 8), shell_code(9)) == (3, 137)


def test_logins() -> None:
    assert login_of(0).name == "root"
    assert login_of(54321) == Login("54321")


def test_every_reason_to_stop_has_its_words() -> None:
    assert "job 7 of ml/nlp" in why_stopped(PreemptedFor(WorkloadId("7"), AccountPath("ml/nlp"), 0.5, 1.5, 0))
    assert "n1" in why_stopped(DrainedFrom("n1"))
    assert "r1" in why_stopped(ReservationBegins("r1", AccountPath("ml")))
    assert why_stopped(StartTimedOut(0))


@pytest.mark.parametrize("name", ['"; rm -rf $HOME; "', "$(reboot)", "a\nb", "-rf", "日本語"])
def test_hostile_names_reach_the_run_as_they_are(rig: Rig, name: str) -> None:
    rig.run("1", "printenv", "MIRAB_JOB_NAME", name=name, output="%x.out")
    assert rig.output("1") == f"{name}\n"


@pytest.mark.parametrize("argument", ["", " ", "'", '"', "$HOME", "a\nb", "`id`", "\udcff", "x" * 100_000])
def test_arguments_reach_the_run_as_they_are(rig: Rig, argument: str) -> None:
    rig.run("1", "printf", "[%s]", argument)
    path = rig.backend.output_path(WorkloadId("1"))
    assert path is not None and path.read_bytes() == b"[" + argument.encode("utf-8", "surrogateescape") + b"]"
