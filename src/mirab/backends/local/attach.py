"""The client's end of a session: this terminal becomes the session's until one of them lets go.

Standard library only: a client command imports this.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import tty

from mirab.backends.local import frames, rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

ESCAPE = 0x1D
"""Control-]: detach. Twice, quickly: one Control-] for the session."""
QUICK_S = 0.4


class AttachError(Exception):
    """It cannot be attached to; says why."""


class End:
    """How a session that was attached to ended: as the shim said it. `exit_code` None: it had none."""

    def __init__(self, outcome: str, exit_code: int | None) -> None:
        self.outcome, self.exit_code = outcome, exit_code


def attach(
    socket_path: str | os.PathLike[str], stdin: IO[bytes] | int | None = None, stdout: IO[bytes] | int | None = None
) -> End | None:
    """Show the session here and type into it, until it ends or the person detaches (Control-]).

    What it showed before comes first. Without a terminal on `stdin` what is there is typed, and its end is no reason
    to let go.

    Returns: how the session ended; None: detached, it goes on.

    Raises:
        AttachError: nobody listens there, or it is somebody else's.
    """
    keys = descriptor(stdin, sys.stdin)
    screen = descriptor(stdout, sys.stdout)
    connection = connect(os.fspath(socket_path))
    try:
        with raw(keys), window_changes(screen, lambda rows, columns: resize(connection, rows, columns)):
            return talk(connection, keys, screen)
    finally:
        connection.close()


def descriptor(given: IO[bytes] | int | None, default: IO[str]) -> int:
    if isinstance(given, int):
        return given
    return default.fileno() if given is None else given.fileno()


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with rundir.socket_address(path) as address:
            connection.connect(address)
    except OSError as error:
        connection.close()
        raise AttachError(f"no session can be reached at {path}: {(error.strerror or str(error)).lower()}") from None
    return connection


def talk(connection: socket.socket, keys: int, screen: int) -> End | None:
    """Pass on what is typed and what is shown."""
    unpacker, typing = frames.Unpacker(), Typing()
    sources: list[int] = [connection.fileno(), keys]
    while True:
        ready, _, _ = select.select(sources, [], [], QUICK_S if typing.escaped else None)
        if not ready:
            return None
        if keys in ready:
            data = os.read(keys, 4096)
            if not data:
                sources.remove(keys)
            passed_on = typing.feed(data)
            if passed_on:
                connection.sendall(frames.pack(frames.DATA, passed_on))
            if typing.detached:
                return None
        if connection.fileno() in ready:
            data = received(connection)
            if not data:
                return None
            for kind, payload in unpacker.feed(data):
                if kind == frames.DATA:
                    write_all(screen, payload)
                elif kind == frames.END:
                    end = json.loads(payload)
                    return End(end["outcome"], end["exit_code"])


class Typing:
    """What is typed, without the key that detaches.

    Attributes:
        escaped: that key was the last one; whether it was meant, the next key or the time shows.
    """

    def __init__(self) -> None:
        self.escaped = self.detached = False

    def feed(self, data: bytes) -> bytes:
        """What of it is for the session. Sets `detached`."""
        passed_on = bytearray()
        for key in data:
            if self.escaped and key != ESCAPE:
                self.detached = True
                break
            if key != ESCAPE or self.escaped:
                passed_on.append(key)
            self.escaped = key == ESCAPE and not self.escaped
        return bytes(passed_on)


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def write_all(screen: int, data: bytes) -> None:
    while data:
        data = data[os.write(screen, data) :]


# --- the terminal here ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def raw(keys: int) -> Iterator[None]:
    """Every key goes through as it is, and the terminal is put back as it was."""
    if not os.isatty(keys):
        yield
        return
    before = termios.tcgetattr(keys)
    try:
        tty.setraw(keys, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


@contextlib.contextmanager
def window_changes(screen: int, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Tell the size of the window now and whenever it changes (in the main thread, where signals come)."""
    if not os.isatty(screen):
        yield
        return

    def changed(*_: object) -> None:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(screen, termios.TIOCGWINSZ, bytes(8)))
        with contextlib.suppress(OSError):
            tell(rows, columns)

    changed()
    try:
        before = signal.signal(signal.SIGWINCH, changed)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def resize(connection: socket.socket, rows: int, columns: int) -> None:
    connection.sendall(frames.pack(frames.WINDOW, frames.SIZE.pack(rows, columns)))
