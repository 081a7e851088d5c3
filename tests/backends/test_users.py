"""Runs as other Unix users, which only a service that is root can start."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirab.backends.local import rundir
from mirab.backends.local.child import Identity
from mirab.model.events import Outcome, RunCheckpointed
from mirab.model.units import RunId, WorkloadId
from tests.backends.rig import Rig

ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody").pw_uid if ROOT else -1

needs_root = pytest.mark.skipif(not ROOT, reason="only root can become another user")


@pytest.fixture
def shared() -> Iterator[Rig]:
    """A rig in a folder through which every user may pass, with a working folder of nobody's."""
    folder = Path(tempfile.mkdtemp(prefix="mirab-users-"))
    folder.chmod(0o755)
    rig = Rig(folder / "root")
    work = folder / "work"
    work.mkdir()
    os.chown(work, NOBODY, -1)
    rig.backend.adopt({})
    yield rig
    rig.leave_nothing()
    shutil.rmtree(folder)


def theirs(rig: Rig, *argv: str, **fields: object) -> RunId:
    return rig.start("1", *argv, uid=NOBODY, cwd=str(rig.root.parent / "work"), **fields)


@needs_root
def test_a_run_is_its_users_with_all_their_groups_and_no_more(shared: Rig) -> None:
    shared.ended(
        theirs(shared, "sh", "-c", "id -u; id -G; id -un; echo $HOME $USER; umask; grep CapEff /proc/self/status")
    )
    entry = pwd.getpwuid(NOBODY)
    groups = " ".join(str(group) for group in os.getgrouplist("nobody", entry.pw_gid))
    said = shared.output("1").splitlines()
    assert said == [str(NOBODY), groups, "nobody", f"{entry.pw_dir} nobody", "0022", "CapEff:\t0000000000000000"]


@needs_root
def test_what_it_writes_is_theirs_and_what_keeps_it_is_not(shared: Rig) -> None:
    run_id = theirs(
        shared, "sh", "-c", "touch $MIRAB_STATE_DIR/x; sleep 0.2; echo > $MIRAB_RUN_DIR/checkpoint; sleep 100"
    )
    assert shared.fact(RunCheckpointed, run_id)
    run = Path(shared.backend.folders.run(run_id))
    state = shared.backend.state_dir(WorkloadId("1"))
    output = shared.backend.output_path(WorkloadId("1"))
    assert output is not None
    assert {
        path.stat().st_uid for path in (state, state / "x", output, run / rundir.CHECKPOINT, run / rundir.BELL)
    } == {NOBODY}
    for name in (rundir.SPEC, rundir.SHIM, rundir.LOCK):
        assert (run / name).stat().st_uid == 0 and (run / name).stat().st_mode & 0o077 == 0
    assert state.stat().st_mode & 0o077 == 0
    assert shared.backend.run_dir(WorkloadId("1")) == run


@needs_root
def test_they_can_change_nothing_of_how_their_run_is_kept(shared: Rig) -> None:
    tries = "for f in exit.json stop.json spec.json x; do (echo {} > $f) 2>/dev/null && echo wrote $f; done"
    shared.ended(theirs(shared, "sh", "-c", f"cd $MIRAB_RUN_DIR; {tries}; cat spec.json; ls; ls ..; rm -f lock; true"))
    assert "wrote" not in shared.output("1") and "MIRAB" not in shared.output("1")
    assert Path(shared.backend.folders.run(RunId("1.1")), rundir.LOCK).exists()


@needs_root
def test_their_output_is_opened_with_their_rights(shared: Rig) -> None:
    """A link to what only root may write is not followed with root's rights."""
    secret = shared.root.parent / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    (shared.root.parent / "work/out").symlink_to(secret)
    end = shared.ended(theirs(shared, "echo", "mine", output="out"))
    assert (end.outcome, end.exit_code) == (Outcome.FAILED, 126)
    assert secret.read_text() == "of root"
    assert "cannot write the output file" in shared.output("1")


@needs_root
def test_a_link_put_there_later_shows_nothing(shared: Rig) -> None:
    secret = shared.root.parent / "secret"
    secret.write_text("of root")
    shared.ended(theirs(shared, "sh", "-c", f"rm out; ln -s {secret} out", output="out"))
    assert shared.backend.open_output(WorkloadId("1")) is None


@needs_root
def test_a_script_and_a_session_of_theirs(shared: Rig) -> None:
    shared.ended(theirs(shared, script="#!/bin/sh\nid -un\n"))
    assert shared.output("1") == "nobody\n"
    run_id = shared.start("2", "sh", "-c", "id -un; stat -c %U $(tty)", uid=NOBODY, cwd="/tmp", interactive=True,
                          output=str(shared.root.parent / "work/session"))  # fmt: skip
    shared.ended(run_id)
    assert shared.output("2").split() == ["nobody", "nobody"]
    door = Path(shared.backend.folders.run(run_id), rundir.ATTACH)
    assert (door.stat().st_uid, door.stat().st_mode & 0o777) == (NOBODY, 0o600)


@needs_root
def test_they_are_stopped_like_any_other(shared: Rig) -> None:
    run_id = theirs(shared, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    shared.says("1", "ready")
    shared.preempt(run_id, grace=100)
    assert shared.ended(run_id).exit_code == 137


@needs_root
def test_a_user_whom_the_system_does_not_know(shared: Rig) -> None:
    os.chown(shared.root.parent / "work", 54321, -1)
    shared.ended(shared.start("1", "id", "-u", uid=54321, cwd=str(shared.root.parent / "work")))
    assert shared.output("1") == "54321\n"


def test_who_is_not_root_can_start_nothing_of_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.backends.local.launching.os.geteuid", lambda: 1000)
    end = rig.run("1", "true", uid=1001)
    assert end.outcome is Outcome.FAILED
    assert "does not run as root" in rig.last_word(RunId("1.1"))["why"]


def test_the_services_own_user_needs_no_change() -> None:
    assert not Identity(None, None).foreign
    assert not Identity(os.geteuid(), None).foreign
