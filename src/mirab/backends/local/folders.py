"""The folders of runs: where they are, how one is made, what is there after a restart."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mirab.backends.local import rundir
from mirab.backends.local.child import Identity
from mirab.backends.local.translate import ID, Login, read_run_id
from mirab.model.records import JobSpec
from mirab.model.units import Instant, RunId, WorkloadId


class Folders:
    """``runs/<workload>/<attempt>`` and ``state/<workload>`` below the root."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.runs, self.states = self.root / "runs", self.root / "state"
        for path in (self.root, self.runs, self.states):
            path.mkdir(parents=True, exist_ok=True, mode=0o755)
        for path in (self.runs, self.states):
            path.chmod(passable())

    @property
    def doorbell(self) -> str:
        return str(self.root / rundir.DOORBELL)

    def run(self, run_id: RunId) -> str:
        workload, attempt = read_run_id(run_id)
        return str(self.runs / workload / str(attempt))

    def state(self, workload_id: WorkloadId) -> Path:
        """The folder of a workload that outlives its attempts.

        Raises:
            ValueError: the id is no name for a folder.
        """
        if not ID.fullmatch(workload_id):
            raise ValueError(f"{workload_id!r} is no job id")
        return self.states / workload_id

    def all_runs(self) -> Iterator[tuple[RunId, str]]:
        """Every run that has a folder, in order of names."""
        for workload in sorted(os.listdir(self.runs)):
            if ID.fullmatch(workload) and os.path.isdir(self.runs / workload):
                for attempt in sorted(filter(str.isdigit, os.listdir(self.runs / workload)), key=int):
                    yield RunId(f"{workload}.{attempt}"), str(self.runs / workload / attempt)

    def attempts(self, workload_id: WorkloadId) -> list[int]:
        if not ID.fullmatch(workload_id):
            return []
        try:
            return sorted(int(name) for name in os.listdir(self.runs / workload_id) if name.isdigit())
        except FileNotFoundError:
            return []

    def find(self, workload_id: WorkloadId, attempt: int | None = None) -> Path | None:
        """The folder of an attempt (the last one, if not said); None: there is none."""
        attempts = self.attempts(workload_id)
        if not attempts or (attempt is not None and attempt not in attempts):
            return None
        return Path(self.run(RunId(f"{workload_id}.{attempts[-1] if attempt is None else attempt}")))

    def prune(self, ended_before: Instant) -> int:
        """Remove the folders of runs that ended before an instant."""
        count = 0
        for _, directory in list(self.all_runs()):
            last_word = rundir.read_json(os.path.join(directory, rundir.EXIT))
            if last_word is not None and last_word["ended_at"] < ended_before:
                shutil.rmtree(directory)
                count += 1
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.dirname(directory))
        return count

    # --- making one ----------------------------------------------------------------------------------------------
    def make(self, directory: str, job: JobSpec, spec: dict[str, Any]) -> None:
        """All that the shim needs, on the disk; the spec last, for with it the folder counts as made.

        What is impossible to execute gets a folder too: its shim leaves the sentence that says why.

        Raises:
            OSError: no room, or no right.
        """
        impossible = bool(spec["impossible"])
        who = Identity(None, None) if impossible else Identity(job.uid, job.gid)
        self.make_state(job.workload_id, who)
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        os.chmod(os.path.dirname(directory), passable())
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, passable())
        if job.script and not impossible:
            write_script(os.path.join(directory, rundir.SCRIPT), job.script, who)
        for name in (rundir.EXIT, rundir.STOP):
            rundir.reserve(os.path.join(directory, name))
        rundir.write_json(os.path.join(directory, rundir.SPEC), spec, durable=True)
        rundir.sync_directory(os.path.dirname(directory))
        rundir.sync_directory(str(self.runs))

    def make_state(self, workload_id: WorkloadId, who: Identity) -> None:
        path = self.state(workload_id)
        if not path.exists():
            path.mkdir(mode=0o700)
            who.give(str(path))


def passable() -> int:
    """Root's folders may be passed through by users to what is theirs, but not listed; others' are their own."""
    return 0o711 if os.geteuid() == 0 else 0o700


def write_script(path: str, text: str, who: Identity) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500)
    rundir.put(descriptor, text.encode("utf-8", "surrogateescape"), durable=False)
    who.give(path)


def login_of(uid: int | None) -> Login:
    """Name, home and shell of a Unix user; a number where the system knows no more."""
    number = os.geteuid() if uid is None else uid
    try:
        entry = pwd.getpwuid(number)
    except KeyError:
        return Login(str(number))
    return Login(entry.pw_name, entry.pw_dir or "/", entry.pw_shell or "/bin/sh")


def open_own(path: str, uid: int | None) -> IO[bytes] | None:
    """Open a file of a run for reading, if it is a plain file of the run's user; None if it is anything else.

    A service with more rights than the run's user must not be led by a link to what that user could not read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    owner = os.geteuid() if uid is None else uid
    if is_plain(descriptor) and os.fstat(descriptor).st_uid == owner:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def is_plain(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
