"""Which processes belong to a run, and an end to all of them. Standard library only: the shim imports this."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from mirab.backends.local.rundir import stat_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SHELLS = ("sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh")
ROUNDS = 100
"""How often it is looked for processes that were forked while the others were being frozen."""

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process, so that none gets out of sight."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """SIGKILL for this process when its parent is gone. Cleared by a change of user, so: after that."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def family(root: int) -> list[int]:
    """The living descendants of a process (zombies are nobody), parents before children."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for pid in all_pids():
        fields = stat_fields(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
            if fields[0] in "ZX":
                dead.add(pid)
    found: list[int] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            todo.append(child)
            if child not in dead:
                found.append(child)
    return found


def cpu_ticks(pids: Iterable[int]) -> int:
    """CPU time that these processes have used so far, in clock ticks."""
    fields = (stat_fields(pid) for pid in pids)
    return sum(int(known[11]) + int(known[12]) for known in fields if known is not None)


def send(pid: int, number: int) -> bool:
    """Signal a process; False: it is gone, or not ours to signal."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def kill_family(root: int) -> list[int]:
    """SIGKILL for every descendant of a process. They are frozen first, so that none can fork past it.

    Returns: those that were found; a second call shows whether they are gone.
    """
    frozen: dict[int, bool] = {}
    for _ in range(ROUNDS):
        fresh = [pid for pid in family(root) if pid not in frozen]
        if not fresh:
            break
        for pid in fresh:
            frozen[pid] = send(pid, signal.SIGSTOP)
    for pid in frozen:
        send(pid, signal.SIGKILL)
    return list(frozen)


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False: nobody is in it."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def signal_catchers(root: int, number: int) -> list[int]:
    """Signal the descendants that have a handler for it and are no shells: the notice of a session.

    A shell would end of it, and its terminal with it, while the person still has the grace to save things in.
    """
    found = [pid for pid in family(root) if catches(pid, number) and name_of(pid) not in SHELLS]
    return [pid for pid in found if send(pid, number)]


def catches(pid: int, number: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="latin-1") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="latin-1") as file:
            return file.read().strip()
    except OSError:
        return ""


def marked(mark: str, sessions: Iterable[int] = ()) -> list[int]:
    """Living processes that carry ``NAME=value`` in the environment they were started with, or are in a session.

    For a run whose shim is dead: its processes have scattered, but inherited the run's folder in their environment.
    A process that has cleared its environment and left its session and its parents is not found.
    """
    wanted = os.fsencode(mark)
    known = frozenset(sessions)
    return [pid for pid in all_pids() if pid != os.getpid() and belongs(pid, wanted, known)]


def belongs(pid: int, mark: bytes, sessions: frozenset[int]) -> bool:
    fields = stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return False
    return int(fields[3]) in sessions or mark in environment_of(pid)


def environment_of(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def kill_marked(mark: str, sessions: Iterable[int] = (), patience_s: float = 5) -> list[int]:
    """End all processes of a run that has no shim any more. Returns those that would not go in time."""
    known = tuple(sessions)
    deadline = time.monotonic() + patience_s
    while True:
        left = marked(mark, known)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                send(pid, number)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def reap() -> dict[int, int]:
    """Statuses (as `waitpid` gives them) of the children that have ended, by pid."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def no_child_left() -> bool:
    """Nobody is left, then: orphans among the descendants come to us, so without children there are none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def shell_code(status: int) -> int:
    """A wait status as a shell gives it: the exit code, or 128 + the signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def signal_number(name: str) -> int:
    """The number of ``USR1``, ``SIGUSR1`` or ``10``; SIGTERM for what is no signal."""
    text = name.strip().upper()
    if text.isdigit() and int(text) in signal.valid_signals():
        return int(text)
    known = getattr(signal, text if text.startswith("SIG") else f"SIG{text}", None)
    return int(known) if isinstance(known, signal.Signals) else int(signal.SIGTERM)
