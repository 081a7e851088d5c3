"""The keeper of one run, as a process: no child of the service, and needing nothing of it.

A run goes on, keeps to its time limit and leaves its last word while the service is down. Standard library only, and
quick to start: ``python -I -S .../shim.py RUN_DIRECTORY``. The process that was started leaves as soon as the run has
been taken over (exit code 0), or another shim has it (0), or it cannot be done (1, with the reason in ``shim.log`` or
on standard error); what stays is its child.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from mirab.backends.local import child, endings, processes, rundir
from mirab.backends.local.keeper import Keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def take_over(directory: str) -> bool:
    """Whether this process is the first and only one to keep the run. It holds the lock until it ends."""
    if rundir.take_lock(directory) is None:
        return False
    return not any(os.path.exists(os.path.join(directory, name)) for name in (rundir.SHIM, rundir.EXIT))


def detach(directory: str) -> int | None:
    """Fork into a session of its own. The parent gets the end of a pipe on which the keeper says that it keeps."""
    ear, mouth = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(mouth)
        return ear
    os.setsid()
    os.umask(0o022)
    os.chdir("/")
    silence = os.open(os.devnull, os.O_RDWR)
    talk = os.open(os.path.join(directory, rundir.TALK), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, silence), (1, talk), (2, talk)):
        os.dup2(source, target)
    os.close(ear)
    os.close(silence)
    os.close(talk)
    own = {"pid": os.getpid(), "start": rundir.start_ticks(os.getpid()), "boot": rundir.boot_id()}
    rundir.write_json(os.path.join(directory, rundir.SHIM), {**own, "at": rundir.now_ms()}, durable=True)
    os.write(mouth, b"k")
    os.close(mouth)
    return None


def main(arguments: Sequence[str]) -> int:
    directory = os.path.abspath(arguments[0])
    if not take_over(directory):
        return 0
    spec: dict[str, Any] | None = rundir.read_json(os.path.join(directory, rundir.SPEC))
    if spec is None:
        print(f"{directory} holds no readable {rundir.SPEC}", file=sys.stderr)
        return 1
    ear = detach(directory)
    if ear is not None:
        return 0 if os.read(ear, 1) == b"k" else 1
    processes.become_subreaper()
    child.spare_from_memory_killer()
    keep(Keeper(directory, spec))
    return 0


def keep(keeper: Keeper) -> None:
    """Keep the run. A keeper that fails takes it down and says so: nothing runs unseen."""
    try:
        keeper.run()
    except Exception:
        rundir.print_trouble()
        processes.kill_family(os.getpid())
        keeper.wish = endings.NODE_FAIL if keeper.started_at is not None else endings.LAUNCH_FAILED
        keeper.why = "the keeper of this run failed: see shim.log in its folder"
        keeper.terminal = None
        keeper.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
