"""What is in a run's directory, and how its files are written so that a crash leaves the old or the new one.

Standard library only, and little of it: the shim imports this, and there is a shim for each run.

| file | who writes it | what it says |
|---|---|---|
| ``spec.json`` | backend | all that the shim needs: command, environment, limits, output (mode 0600) |
| ``lock`` | shim | held for as long as the shim lives |
| ``shim.json`` | shim, once | pid, start time and boot id: this run has been taken over, nobody may begin it again |
| ``status.json`` | shim | when it started, its process, its last checkpoint |
| ``heartbeat`` | shim | touched every two seconds |
| ``checkpoint`` | the run | touched by ``mirab checkpoint``; the word ``finished`` in it says that no work is left |
| ``stop.json`` | backend | how it is to end, and its grace |
| ``exit.json`` | shim (backend, if the shim was killed) | how it ended: the last word |
| ``activity.json`` | backend | GPU activity seen so far |
| ``output`` | shim | sentences that found no place in the run's own output |
| ``bell.sock``, ``attach.sock`` | shim | "look again", and the terminal of a session |
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

SPEC = "spec.json"
LOCK = "lock"
SHIM = "shim.json"
STATUS = "status.json"
HEARTBEAT = "heartbeat"
CHECKPOINT = "checkpoint"
STOP = "stop.json"
EXIT = "exit.json"
ACTIVITY = "activity.json"
OUTPUT = "output"
SCRIPT = "script"
TALK = "shim.log"
BELL = "bell.sock"
ATTACH = "attach.sock"
DOORBELL = "doorbell"
"""In the root folder: what the shims ring after they wrote something."""

RESERVE = 4096
"""Bytes kept for the files that stop a run and tell its end, so that a full disk prevents neither."""
FINISHED = b"finished"


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def print_trouble() -> None:
    """The exception that is being handled, on standard error. (Loading `traceback` costs more than all the rest.)"""
    import traceback

    traceback.print_exc()


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; None if there is no file, or nothing that is an object in it."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: str, value: Mapping[str, Any], durable: bool = False) -> None:
    """Replace a file in one step. `durable`: it is on the disk, name and all, when this returns.

    Raises:
        OSError: there is no room, or no right to write.
    """
    temporary = f"{path}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    put(descriptor, json.dumps(value).encode(), durable)
    os.rename(temporary, path)
    if durable:
        sync_directory(os.path.dirname(path))


def put(descriptor: int, data: bytes, durable: bool) -> None:
    """Write all, close in any case."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve(path: str) -> None:
    """Take the room of a file now: a disk that fills up later cannot keep it from being written.

    Raises:
        OSError: there is none now.
    """
    put(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), b" " * RESERVE, durable=True)


def write_reserved(path: str, value: Mapping[str, Any]) -> None:
    """Write a file durably, in the room that was reserved for it (trailing blanks are no part of JSON).

    Raises:
        OSError: there is no room after all, as for what is written a second time.
    """
    text = json.dumps(value).encode().ljust(RESERVE)
    put(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), text, durable=True)
    os.rename(f"{path}.new", path)
    sync_directory(os.path.dirname(path))


def write_exit(directory: str, value: Mapping[str, Any]) -> None:
    """Say the last word of a run.

    Raises:
        OSError: it is not on the disk.
    """
    write_reserved(os.path.join(directory, EXIT), value)


def take_lock(directory: str) -> int | None:
    """Become the only one that acts for this run; None: somebody else is. Held until the descriptor is closed."""
    descriptor = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def boot_id() -> str:
    """Identifies the time since the machine was started; "" where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: with the pid it names a process. None: there is none."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[19])


def stat_fields(pid: int) -> list[str] | None:
    """``/proc/<pid>/stat`` after the name, which may hold blanks and brackets: state, ppid, pgrp, session, ..."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            text = file.read()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


@contextlib.contextmanager
def socket_address(path: str) -> Iterator[str]:
    """A short name of a Unix socket while in use: the kernel takes at most 107 bytes, and folders may be deep."""
    directory = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


def listen_for_bell(path: str) -> socket.socket:
    """A datagram socket that others ring. One that was left behind by a dead owner is replaced.

    Raises:
        OSError: it cannot be made there.
    """
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        with socket_address(path) as address:
            bell.bind(address)
        os.chmod(path, 0o600)
    except OSError:
        bell.close()
        raise
    return bell


def ring(path: str, word: bytes = b"") -> bool:
    """Say "look again" to whoever listens there. False: nobody does; the files say all, so nothing is lost."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as bell:
        try:
            with socket_address(path) as address:
                bell.sendto(word, address)
        except OSError:
            return False
    return True


def heard(bell: socket.socket) -> list[bytes]:
    """The words that have come in."""
    words: list[bytes] = []
    with contextlib.suppress(OSError):
        while len(words) < 1000:
            words.append(bell.recv(256))
    return words
