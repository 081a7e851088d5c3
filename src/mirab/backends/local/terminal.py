"""The terminal of a session: a pty whose picture is kept, shown to whoever attaches, and watched for signs of life.

Standard library only: the shim imports this.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import termios
import time

from mirab.backends.local import frames, processes, rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mirab.backends.local.child import Identity

SCROLLBACK = 8 << 20
"""Bytes that are kept; when there are more, the older half goes."""
SHOWN = 256 << 10
"""Bytes of it that somebody sees who attaches."""
LAGGING = 4 << 20
"""Bytes that a client may lag behind before it is cut off: nobody's slow line stops the session."""
TYPED_AHEAD = 1 << 20
WARN_S = 300.0
"""Before the minimum ends, and before an idle session does."""
BUSY = 0.02
"""Part of one core above which a session is at work though nobody types and nothing is printed."""
LOOK_S = 15.0
"""Between two looks at the CPU time used."""


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.unpacker = frames.Unpacker()
        self.unsent = bytearray()


class Terminal:
    hangup_s = 1.0
    """Before the kill: the hang-up, on which shells write their history and editors their swap files."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        socket_path: str,
        output_path: str,
        output: int,
        spec: dict[str, Any],
        who: Identity,
    ) -> None:
        self.selector, self.who, self.spec = selector, who, spec
        self.output_path, self.output = output_path, output
        self.master: int | None = None
        self.typed = bytearray()
        self.clients: list[Client] = []
        self.window = (24, 80)
        self.signs_of_life = time.monotonic()
        self.life = Life(spec)
        self.hung_up = False
        self.door = listen(socket_path)
        who.give(socket_path)
        selector.register(self.door, selectors.EVENT_READ, self.welcome)

    def open(self) -> int:
        """A new pty; returns the side that becomes the command's terminal."""
        self.master, slave = os.openpty()
        os.set_blocking(self.master, False)
        self.who.give(os.ttyname(slave))
        self.resize(*self.window)
        self.selector.register(self.master, selectors.EVENT_READ, self.shown)
        return slave

    def started(self, now: float) -> None:
        self.signs_of_life = now
        self.life.begin(now)
        attempt = int(self.spec["attempt"])
        if attempt > 1:
            self.tell(f"attempt {attempt} of this session begins; {self.spec['state_dir']} is as it was left")

    # --- what is shown -------------------------------------------------------------------------------------------
    def shown(self) -> None:
        """The command has printed something, or has room again for what was typed."""
        self.pass_on_typed()
        assert self.master is not None
        try:
            data = os.read(self.master, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(self.master)
            os.close(self.master)
            self.master = None
            return
        self.signs_of_life = time.monotonic()
        self.show(data)

    def show(self, data: bytes) -> None:
        """Keep it, and send it to all who look."""
        with contextlib.suppress(OSError):
            os.write(self.output, data)
            if os.fstat(self.output).st_size > SCROLLBACK:
                self.forget_half()
        for client in list(self.clients):
            self.send(client, frames.pack(frames.DATA, data))

    def tell(self, sentence: str) -> None:
        """A line of ours on the terminal. It is no sign of life."""
        self.show(f"\r\n\x07mirab: {sentence}\r\n".encode(errors="backslashreplace"))

    def tail(self, length: int) -> bytes:
        """The last bytes of what was kept, from the beginning of a line; b"" if the file is no longer ours."""
        with contextlib.suppress(OSError):
            with self.who.acting():
                file = os.open(self.output_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as kept:
                stat, own = os.fstat(kept.fileno()), os.fstat(self.output)
                if (stat.st_dev, stat.st_ino) != (own.st_dev, own.st_ino):
                    return b""
                kept.seek(max(0, stat.st_size - length))
                data = kept.read(length)
            return data if stat.st_size <= length else data.partition(b"\n")[2]
        return b""

    def forget_half(self) -> None:
        kept = self.tail(SCROLLBACK // 2)
        os.ftruncate(self.output, 0)
        os.write(self.output, kept)

    # --- clients -------------------------------------------------------------------------------------------------
    def welcome(self) -> None:
        """Somebody attaches: what was shown before comes first."""
        try:
            connection, _ = self.door.accept()
        except OSError:
            return
        connection.setblocking(False)
        client = Client(connection)
        self.clients.append(client)
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.serve(client))
        self.send(client, frames.pack(frames.DATA, self.tail(SHOWN)))

    def serve(self, client: Client) -> None:
        self.send(client, b"")
        if client not in self.clients:
            return
        try:
            data = client.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(client)
            return
        try:
            for kind, payload in client.unpacker.feed(data):
                self.obey(kind, payload)
        except frames.BadFrameError:
            self.drop(client)

    def obey(self, kind: bytes, payload: bytes) -> None:
        if kind == frames.DATA:
            self.signs_of_life = time.monotonic()
            self.typed += payload[: TYPED_AHEAD - len(self.typed)]
            self.pass_on_typed()
        elif kind == frames.WINDOW and len(payload) == frames.SIZE.size:
            rows, columns = frames.SIZE.unpack(payload)
            if (rows, columns) == self.window and rows > 1:
                self.resize(rows - 1, columns)
            self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        """A change makes programs draw anew, so who attaches with the size that it has gets a picture too."""
        self.window = (rows, columns)
        if self.master is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pass_on_typed(self) -> None:
        if self.master is None:
            return
        with contextlib.suppress(BlockingIOError, OSError):
            while self.typed:
                del self.typed[: os.write(self.master, self.typed[:4096])]
        self.selector.modify(self.master, interest(self.typed), self.shown)

    def send(self, client: Client, data: bytes) -> None:
        client.unsent += data
        try:
            while client.unsent:
                del client.unsent[: client.connection.send(client.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.drop(client)
            return
        if len(client.unsent) > LAGGING:
            self.drop(client)
            return
        self.selector.modify(client.connection, interest(client.unsent), lambda: self.serve(client))

    def drop(self, client: Client) -> None:
        self.clients.remove(client)
        self.selector.unregister(client.connection)
        client.connection.close()

    # --- time passes -----------------------------------------------------------------------------------------------
    def tend(self, now: float) -> bool:
        """Say what has to be said by now. True: it has been idle for as long as it may be."""
        sentence, over = self.life.look(now, self.signs_of_life)
        if sentence:
            self.tell(sentence)
        return over

    def last_call(self, grace_s: float, why: str) -> None:
        self.tell(f"SAVE NOW: this session is stopped in {grace_s:g} s: {why}. {self.spec['state_dir']} is kept")

    def signal(self, number: int) -> None:
        """To whoever is in the foreground."""
        if self.master is not None:
            with contextlib.suppress(OSError):
                processes.signal_group(os.tcgetpgrp(self.master), number)

    def hang_up(self, leader: int) -> None:
        if not self.hung_up and leader:
            self.hung_up = True
            self.signal(signal.SIGHUP)
            for number in (signal.SIGHUP, signal.SIGCONT):
                processes.signal_group(leader, number)

    def drain(self) -> None:
        """Show what is still in the pty after the last process has gone."""
        deadline = time.monotonic() + 1
        while self.master is not None and time.monotonic() < deadline:
            before = self.signs_of_life
            self.shown()
            if self.signs_of_life == before:
                break

    def close(self, outcome: str, code: int | None) -> None:
        """Tell all who look that it is over."""
        end = json.dumps({"outcome": outcome, "exit_code": code}).encode()
        for client in list(self.clients):
            with contextlib.suppress(OSError):
                client.connection.settimeout(1)
                client.connection.sendall(bytes(client.unsent) + frames.pack(frames.END, end))
            client.connection.close()
        self.door.close()


class Life:
    """When a session is warned, and when it is idle: no key, no output, no work."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.idle_s = spec["idle_timeout_ms"] / 1000
        self.minimum_s = spec["min_runtime_ms"] / 1000
        self.begun = 0.0
        self.told_minimum = self.minimum_s <= 0
        self.told_idle = False
        self.looked_at = 0.0
        self.ticks = 0
        self.worked_at = 0.0

    def begin(self, now: float) -> None:
        self.begun = self.worked_at = self.looked_at = now

    def look(self, now: float, signs_of_life: float) -> tuple[str, bool]:
        """What the person has to be told now ("" = nothing), and whether the session is over for idleness."""
        warning = self.minimum_warning(now)
        if self.idle_s <= 0:
            return warning, False
        self.look_at_work(now)
        idle = now - max(signs_of_life, self.worked_at)
        left = self.idle_s - idle
        if left > min(WARN_S, self.idle_s / 2):
            self.told_idle = False
        elif left > 0 and not self.told_idle:
            self.told_idle = True
            warning = f"nothing has happened here for {idle:.0f} s; press a key, or the session ends in {left:.0f} s"
        return warning, left <= 0 and self.told_idle

    def minimum_warning(self, now: float) -> str:
        left = self.begun + self.minimum_s - now
        if self.told_minimum or left > min(WARN_S, self.minimum_s / 2):
            return ""
        self.told_minimum = True
        return (
            f"this session is protected for another {left:.0f} s; after that it may be stopped for others: save often"
        )

    def look_at_work(self, now: float) -> None:
        if now - self.looked_at < min(LOOK_S, self.idle_s / 4):
            return
        ticks = processes.cpu_ticks(processes.family(os.getpid()))
        share = abs(ticks - self.ticks) / os.sysconf("SC_CLK_TCK") / (now - self.looked_at)
        if share > BUSY:
            self.worked_at = now
        self.ticks, self.looked_at = ticks, now


def interest(waiting: bytearray) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if waiting else 0)


def listen(path: str) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    before = os.umask(0o177)
    try:
        with rundir.socket_address(path) as address:
            door.bind(address)
        door.listen(8)
    finally:
        os.umask(before)
    return door
