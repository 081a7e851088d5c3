"""The commands against a real service with real processes on pretended GPUs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirab.cli import localservice
from mirab.cli.localservice import LocalService
from tests.cli.conftest import Mirab, Said
from tests.cli.signals import HEARING, PATIENT, hear
from tests.cli_live.terminal import terminal

pytestmark = pytest.mark.slow
PATIENCE_S = 180
BUDGETS = "budgets: {red: {share: 50%}, blue: {share: 50%}}\n"
MIRAB = f"{sys.executable} -m mirab"


@pytest.fixture(scope="module")
def service() -> Iterator[LocalService]:
    """One service for all tests of this file: 8 GPUs, two accounts. A short path, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="mirab-e2e-") as name:
        folder = Path(name)
        (folder / "budgets.yaml").write_text(BUDGETS, encoding="utf-8")
        with localservice.local_service(folder / "state", *flags_of(folder)) as found:
            yield found


def flags_of(folder: Path) -> tuple[str, ...]:
    return ("--pretend-gpus", "8", "--cluster", str(folder / "budgets.yaml"))


@pytest.fixture
def live(service: LocalService, mirab: Mirab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Mirab]:
    """The command in a folder of its own, pointed at the service, with nothing left running afterwards."""
    monkeypatch.setenv("MIRAB_SERVER", str(service.address))
    monkeypatch.setenv("MIRAB_ACCOUNT", "red")
    monkeypatch.chdir(tmp_path)
    yield mirab
    mirab("cancel", "-t", "PD,R,CG", "-q")
    wait_for(lambda: not jobs(mirab, "-t", "PD,R,CG"), "all jobs have ended")


def jobs(mirab: Mirab, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(mirab("ls", "--json", *words).out)["jobs"]
    return found


def one(mirab: Mirab, job_id: str) -> dict[str, Any]:
    return jobs(mirab, job_id)[0]


def wait_for(question: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if answer := question():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"never came: {what}")


def submitted(said: Said) -> str:
    assert said.code == 0, said.err
    return said.out.split()[-1]


def in_state(mirab: Mirab, job_id: str, *states: str) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        job = one(mirab, job_id)
        return job if job["state"] in states else None

    found: dict[str, Any] = wait_for(there, f"job {job_id} is {' or '.join(states)}")
    return found


def test_a_script_runs_as_under_sbatch(live: Mirab, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -J hello --gres=gpu:2 -t 5 -o %x-%j.txt\n#MIRAB --min-runtime 1m --label first\n"
        'echo "$1 $SLURM_JOB_ID $MIRAB_JOB_ID $SLURM_JOB_NAME $MIRAB_ATTEMPT $FROM_ME"\n'
        "echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l\necho $PWD >&2\n"
    )
    os.environ["FROM_ME"] = "mine"
    try:
        job_id = submitted(live("submit", script, "an arg"))
    finally:
        del os.environ["FROM_ME"]
    assert live("await", job_id).code == 0
    expected = f"an arg {job_id} {job_id} hello 1 mine\n2\n{tmp_path}\n"
    assert (tmp_path / f"hello-{job_id}.txt").read_text() == expected
    assert live("logs", job_id).out == expected
    job = one(live, job_id)
    assert (job["state"], job["account"], job["label"], job["time_limit_s"]) == ("COMPLETED", "red", "first", 300)
    assert json.loads(live("show", job_id, "--json").out)["jobs"][0]["runs"][0]["exit_code"] == 0


def test_run_follows_and_exits_with_the_code(live: Mirab) -> None:
    said = live("run", "-G", "1", "--", "sh", "-c", "echo out; sleep 0.3; echo err >&2; exit 3")
    assert (said.code, said.out) == (3, "out\nerr\n")
    assert "Job" in said.err


def test_what_cannot_run_is_refused_with_a_reason(live: Mirab) -> None:
    said = live("submit", "-N", "99", "--gpus-per-node", "8", "--", "true")
    assert said.code in (1, 2)
    assert "mirab: " in said.sentence
    said = live("submit", "-A", "rde", "--", "true")
    assert said.code in (2, 3)
    assert "red" in said.sentence


def test_a_dry_run_tells_what_would_be(live: Mirab) -> None:
    assert live("submit", "--dry-run", "-G", "8", "--", "true").out.startswith("start: ")
    job_id = submitted(live("submit", "-G", "8", "--min-runtime", "1h", "--", "sleep", "600"))
    in_state(live, job_id, "RUNNING")
    said = live("submit", "--dry-run", "-G", "8", "--", "true")
    assert said.out.startswith("wait: ")
    assert len(jobs(live)) == 1


def test_hold_release_cancel_requeue(live: Mirab) -> None:
    held = submitted(live("submit", "-H", "-G", "1", "--", "sleep", "600"))
    assert one(live, held)["reason"] == "Held"
    assert live("release", held).code == 0
    in_state(live, held, "RUNNING")
    assert live("requeue", held, "--why", "again").code == 0
    wait_for(lambda: one(live, held)["attempt"] == 2, "a second attempt")
    assert live("cancel", held).code == 0
    in_state(live, held, "CANCELLED")
    assert live("await", held).code != 0
    ended = submitted(live("submit", "--wait", "--", "true"))
    assert live("cancel", ended).err == f"Job {ended} had ended already: COMPLETED.\n"


def test_arrays_and_dependencies(live: Mirab, tmp_path: Path) -> None:
    array = submitted(
        live("submit", "-a", "1-4%2", "-G", "1", "--wrap", "sleep 0.2; exit $((SLURM_ARRAY_TASK_ID / 4))")
    )
    after = submitted(live("submit", "-d", f"afterany:{array}", "--", "true"))
    never = submitted(live("submit", "-d", f"afterok:{array}", "--", "true"))
    assert live("await", array).code == 1
    assert live("await", after).code == 0
    assert {job["id"]: job["state"] for job in jobs(live, array)} == {
        f"{array}_1": "COMPLETED", f"{array}_2": "COMPLETED", f"{array}_3": "COMPLETED", f"{array}_4": "FAILED",
    }  # fmt: skip
    assert one(live, never)["state"] != "COMPLETED"


def test_a_checkpoint_from_inside_is_seen(live: Mirab) -> None:
    job_id = submitted(live("submit", "-G", "1", "--wrap", f"{MIRAB} checkpoint && sleep 600"))
    wait_for(lambda: one(live, job_id)["checkpoint_at"], "the checkpoint")
    assert "is safe" in live("logs", job_id).out


def test_a_preempted_run_comes_back_and_run_goes_on_showing_it(live: Mirab, tmp_path: Path) -> None:
    script = 'echo "attempt $MIRAB_ATTEMPT"; if [ $MIRAB_ATTEMPT = 1 ]; then touch there; sleep 600; fi; echo done'
    said: list[Said] = []
    child = subprocess.Popen(
        [*HEARING, "run", "-G", "8", "--min-runtime", "0", "--grace", "1s", "--", "sh", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for((tmp_path / "there").exists, "the first attempt")
        said.append(live("run", "-A", "blue", "-G", "8", "--", "true"))
        out, err = child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert said[0].code == 0
    assert child.returncode == 0
    assert [line for line in out.splitlines() if not line.startswith(("mirab:", "Terminated"))] == [
        "attempt 1", "attempt 2", "done",
    ]  # fmt: skip
    assert "was stopped and waits again" in err or "runs again" in err or "ran again" in err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_service_may_go_while_a_run_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """In mid-run: the job goes on, `run` shows all of it, and a submission made meanwhile arrives once."""
    folder = Path(tempfile.mkdtemp(prefix="mirab-e2e-"))
    (folder / "budgets.yaml").write_text(BUDGETS, encoding="utf-8")
    service = localservice.begin(folder / "state", *flags_of(folder))
    monkeypatch.setenv("MIRAB_SERVER", str(service.address))
    monkeypatch.setenv("MIRAB_ACCOUNT", "red")
    monkeypatch.chdir(tmp_path)
    children: list[subprocess.Popen[str]] = []
    try:
        service.wait_until_ready()
        line = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.3; done"
        shown = tmp_path / "shown"
        with shown.open("w") as out:
            command = [*HEARING, "run", "-G", "1", "--", "sh", "-c", line]
            children.append(subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True))
        wait_for(shown.read_text, "the first line")
        service.process.send_signal(number)
        service.process.wait(PATIENCE_S)
        children.append(mirab_child("submit", "--parsable", "-G", "1", "--", "true"))
        time.sleep(0.5)
        service = localservice.begin(folder / "state", *flags_of(folder))
        service.wait_until_ready()
        _, err = children[0].communicate(timeout=PATIENCE_S)
        submitted_id, _ = children[1].communicate(timeout=PATIENCE_S)
        assert children[0].returncode == 0, err
        assert shown.read_text().split() == [str(number) for number in range(1, 11)]
        with service.client() as client:
            assert [job["id"] for job in client.get("/jobs")["jobs"]] == ["1", submitted_id.strip()]
    finally:
        for child in children:
            child.kill()
        localservice.end(service)
        shutil.rmtree(folder)


def mirab_child(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*HEARING, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_twice_ends_the_job_for_real(live: Mirab) -> None:
    child = subprocess.Popen([*PATIENT, "run", "-G", "1", "--grace", "1s", "--", "sleep", "600"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        hear(child, " runs on ")
        child.send_signal(signal.SIGINT)
        hear(child, "Ctrl-C again")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert child.returncode == 130
    assert jobs(live) == []


def test_nodes_are_drained_and_put_back(live: Mirab) -> None:
    node = json.loads(live("node", "ls", "--json").out)["nodes"][0]["name"]
    assert live("node", "drain", node, "--why", "fans").code == 0
    drained = json.loads(live("node", "ls", node, "--json").out)["nodes"][0]
    assert drained["state"].startswith("drain")
    assert live("node", "resume", node).code == 0
    back = json.loads(live("node", "ls", node, "--json").out)["nodes"][0]
    assert not back["state"].startswith("drain")
    assert "drain" in live("audit", "-n", "5").out


def test_doctor_knows_the_service(live: Mirab) -> None:
    checks = {check["what"]: check for check in json.loads(live("doctor", "--json").out)}
    assert checks["server"]["ok"]
    assert ", since " in checks["server"]["found"]
    assert checks["server's clock"]["found"] == "with ours"
    assert "admin" in checks["rights there"]["found"] or "researcher" in checks["rights there"]["found"]


def test_tokens_say_who_one_is(live: Mirab, monkeypatch: pytest.MonkeyPatch) -> None:
    token = live("token", "create", "eve", "--role", "researcher:blue", "--expires", "1d").out.strip()
    monkeypatch.setenv("MIRAB_TOKEN", token)
    said = live("node", "drain", "any")
    assert said.code in (3, 4)
    assert [each["user"] for each in json.loads(live("token", "ls", "--json").out)["tokens"]] == ["eve"]
    monkeypatch.delenv("MIRAB_TOKEN")
    found = json.loads(live("token", "ls", "--json").out)["tokens"]
    made = [each["id"] for each in found if each["user"] == "eve"]
    assert live("token", "revoke", *made).code == 0
    monkeypatch.setenv("MIRAB_TOKEN", token)
    assert live("ls").code == 4
    monkeypatch.delenv("MIRAB_TOKEN")


def test_two_may_submit_at_the_same_time(live: Mirab) -> None:
    ids: list[str] = []

    def submit() -> None:
        child = mirab_child("submit", "--parsable", "--hold", "--", "true")
        ids.append(child.communicate(timeout=PATIENCE_S)[0].strip())

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 4
    assert {job["id"] for job in jobs(live)} == set(ids)


def test_a_session_is_entered_left_entered_again_and_ended(live: Mirab) -> None:
    with terminal([*HEARING, "session", "--min-runtime", "1m", "--", "sh"]) as first:
        first.expect("leaves it running.")
        first.type("echo it is $((40 + 2))\n")
        first.expect("it is 42")
        first.type("\x1d")
        assert first.wait() == 0
        assert "goes on" in first.screen
    [session] = json.loads(live("session", "ls", "--json").out)["jobs"]
    assert (session["state"], session["interactive"], session["gpus"]) == ("RUNNING", True, 0)
    with terminal([*HEARING, "session", "attach", session["id"]]) as second:
        second.expect("it is 42")
        second.type("echo $MIRAB_STATE_DIR > there; exit 7\n")
        assert second.wait() == 7
        assert "ended: FAILED" in second.screen


def test_a_session_that_was_stopped_for_others_is_restored_by_one_command(live: Mirab) -> None:
    with terminal([*HEARING, "session", "-G", "8", "--min-runtime", "0", "--grace", "2s", "--", "sh"]) as first:
        first.expect("leaves it running.")
        first.type("echo kept > $MIRAB_STATE_DIR/file; echo saved $?\n")
        first.expect("saved 0")
        assert live("run", "-A", "blue", "-G", "8", "--", "true").code == 0
        assert first.wait() == 0
        assert "SAVE NOW" in first.screen
        assert "was stopped" in first.screen
    [session] = json.loads(live("session", "ls", "--json").out)["jobs"]
    with terminal([*HEARING, "session", "attach", session["id"]]) as second:
        second.expect("saved 0")
        second.type("cat $MIRAB_STATE_DIR/file; echo again $((1 + 1))\n")
        assert "kept" in second.expect("again 2")
        second.type("exit\n")
        assert second.wait() == 0


def test_sessions_need_a_terminal_and_belong_to_their_user(live: Mirab) -> None:
    said = live("session", "-G", "1")
    assert said.code == 2
    assert "needs a terminal" in said.sentence
    job_id = submitted(live("submit", "-G", "1", "--", "sleep", "600"))
    with terminal([*HEARING, "session", "attach", job_id]) as person:
        assert person.wait() == 2
        assert "is no session" in person.screen
    detached = live("session", "--detach", "--", "sleep", "600").out.strip()
    in_state(live, detached, "RUNNING")


def test_ctrl_c_while_a_session_waits_cancels_it(live: Mirab) -> None:
    submitted(live("submit", "-G", "8", "--min-runtime", "1h", "--", "sleep", "600"))
    with terminal([*HEARING, "session", "-G", "8", "--", "sh"]) as person:
        person.expect("waits:")
        person.type("\x03")
        assert person.wait() == 130
    assert [job["gpus"] for job in jobs(live) if job["interactive"]] == []
