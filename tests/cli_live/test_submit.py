"""`mirab submit`: scripts, commands, what is printed, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from mirab.service.forms.jobs import SubmitRequest
from tests.cli.conftest import Mirab
from tests.cli_live.double import Answer, Asked, Double, job, problem


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH -A red/a --gres=gpu:4 -t 60\n#MIRAB --min-runtime 30m\necho $1\n")
    return path


def sent(double: Double) -> dict[str, object]:
    body = double.requests("POST", "/jobs")[-1].body
    SubmitRequest.model_validate(body)
    assert isinstance(body, dict)
    return body


def test_a_script_is_submitted_as_sbatch_would_say_it(mirab: Mirab, double: Double, script: Path) -> None:
    said = mirab("submit", "-J", "x", script, "--not-mine", "a b")
    assert (said.code, said.out, said.err) == (0, "Submitted batch job 7\n", "")
    body = sent(double)
    assert body["script"] == script.read_text()
    assert body["argv"] == ["--not-mine", "a b"]
    assert (body["account"], body["name"], body["gpus_per_node"]) == ("red/a", "x", 4)
    assert (body["time_limit"], body["min_runtime"], body["cwd"]) == ("3600s", "1800s", str(script.parent))


def test_the_name_is_that_of_the_script_or_program(mirab: Mirab, double: Double, script: Path) -> None:
    mirab("submit", script)
    assert sent(double)["name"] == "job.sh"
    mirab("submit", "--", "/usr/bin/env", "-i", "true")
    assert (sent(double)["name"], sent(double)["argv"]) == ("env", ["/usr/bin/env", "-i", "true"])
    assert "script" not in sent(double)


def test_wrap_and_standard_input(mirab: Mirab, double: Double, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirab("submit", "--wrap", "echo 'hi there'")
    assert str(sent(double)["script"]).endswith("\n\necho 'hi there'\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(script.read_bytes())))
    mirab("submit")
    assert sent(double)["script"] == script.read_text()
    assert mirab("submit", "--wrap", "echo", script).code == 2


def test_what_is_printed_can_be_chosen(mirab: Mirab, double: Double, script: Path) -> None:
    assert mirab("submit", "--parsable", script).out == "7\n"
    assert mirab("submit", "-Q", script).out == ""
    reply = json.loads(mirab("submit", "--json", script).out)
    assert (reply["job"], reply["ids"], reply["jobs"][0]["id"]) == ("9", ["9"], "9")


def test_notes_of_the_service_are_said(mirab: Mirab, double: Double, script: Path) -> None:
    double.notes = ["its minimum is cut from 9h to 8h"]
    assert mirab("submit", script).err == "mirab: its minimum is cut from 9h to 8h.\n"


def test_a_dry_run_submits_nothing_and_shows_the_decision(mirab: Mirab, double: Double, script: Path) -> None:
    said = mirab("submit", "--test-only", script)
    assert (said.code, said.out) == (0, "wait: needs 8 free GPUs\n")
    assert double.jobs == {}
    assert json.loads(mirab("submit", "--dry-run", "--json", script).out)["decision"] == "wait"
    double.special = lambda asked: Answer(
        {"decision": "reject", "sentence": "it never fits", "reason": {}, "nodes": [], "notes": []}
    )
    assert mirab("submit", "--dry-run", script).code == 1


def test_wait_ends_with_the_jobs_code(mirab: Mirab, double: Double, script: Path) -> None:
    def failing(asked: Asked) -> Answer | None:
        if asked.path.endswith("/await"):
            return Answer(job("7", state="FAILED", exit_code=3))
        return None

    double.special = failing
    said = mirab("submit", "--wait", script)
    assert (said.code, said.out) == (3, "Submitted batch job 7\n")


def test_gpus_in_all_ask_for_the_size_of_the_nodes(mirab: Mirab, double: Double) -> None:
    double.nodes = [{"name": "n0", "gpus": 4}, {"name": "n1", "gpus": 8}]
    mirab("submit", "-G", "16", "--", "true")
    assert (sent(double)["nodes"], sent(double)["gpus_per_node"]) == (2, 8)


def test_flags_of_sbatch_that_change_nothing_get_a_word(mirab: Mirab, double: Double) -> None:
    said = mirab("submit", "-p", "gpu", "--mail-type=END", "--exclusive", "--nice=3", "--", "true")
    assert said.code == 0
    assert said.err.splitlines() == [
        "mirab: --partition is ignored: mirab chooses the nodes; ask for a type with --gpu-type.",
        "mirab: --mail-type is ignored: mirab sends no mail; `mirab await` tells when a job ends.",
        "mirab: --exclusive is ignored: ask for a node's GPUs with --gpus-per-node.",
        "mirab: --nice is ignored: who goes first among your own jobs is said with --priority.",
    ]


def test_the_words_of_a_program_stay_as_they_are(mirab: Mirab, double: Double) -> None:
    mirab("submit", "--nice=3", "--", "tool", "--nice=3")
    assert sent(double)["argv"] == ["tool", "--nice=3"]


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--no-requeue"], "resume", False),
        (["--resume"], "resume", True),
        (["--no-resume", "--requeue"], "resume", True),
        (["-H"], "hold", True),
        (["--signal=B:USR1@120"], "grace", "120s"),
        (["-d", "afterok:3"], "dependency", "afterok:3"),
        (["--array=0-9%2"], "array", "0-9%2"),
        (["--open-mode=append"], "append", True),
        (["--deadline", "2031-01-01T00:00:00+00:00"], "deadline", "2031-01-01T00:00:00+00:00"),
    ],
)
def test_flags(mirab: Mirab, double: Double, words: list[str], field: str, value: object) -> None:
    assert mirab("submit", *words, "--", "true").code == 0
    body = double.requests("POST", "/jobs")[-1].body
    if field == "deadline":
        from datetime import datetime

        assert datetime.fromisoformat(body[field]) == datetime.fromisoformat(str(value))
    else:
        assert body[field] == value


def test_an_odd_script_says_which_line_and_is_not_sent(mirab: Mirab, double: Double, script: Path) -> None:
    script.write_text("#!/bin/sh\n#MIRAB --min-runtim 1h\n")
    said = mirab("submit", script)
    assert said.code == 2
    meant = "there is no option --min-runtim; did you mean --min-runtime?"
    assert said.sentence == f"mirab: {script}: line 2: {meant}"
    script.write_text("#!/bin/sh\n#SBATCH -t soon\n")
    assert f"mirab: {script.name}: line 2: --time: 'soon' is not a time" in mirab("submit", script).sentence
    assert double.asked == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"echo\n", "put -- before it"),
        (b"\xff\xfe#!", "UTF-8"),
        (b"", "empty"),
        (b"#!/bin/sh\n" + b"x" * (1 << 20), "MiB"),
    ],
)
def test_what_is_no_script(mirab: Mirab, double: Double, script: Path, content: bytes, message: str) -> None:
    script.write_bytes(content)
    said = mirab("submit", script)
    assert said.code == 2
    assert message in said.sentence


def test_a_script_that_is_not_there(mirab: Mirab, double: Double, tmp_path: Path) -> None:
    assert mirab("submit", "no-such-script").code == 3
    assert mirab("submit", tmp_path / "no-such.sh").code == 3
    assert mirab("submit", tmp_path).code == 2


def test_the_servers_refusal_is_the_sentence(mirab: Mirab, double: Double, script: Path) -> None:
    double.special = lambda asked: problem(403, "ann may not submit for blue: ask its manager for access")
    said = mirab("submit", script)
    assert (said.code, said.sentence) == (4, "mirab: ann may not submit for blue: ask its manager for access.")


def test_without_a_server_the_sentence_says_what_to_do(
    mirab: Mirab, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirab.cli.address.SYSTEM_STATE", "/nonexistent")
    said = mirab("ls")
    assert said.code == 8
    assert "mirab serve" in said.sentence
