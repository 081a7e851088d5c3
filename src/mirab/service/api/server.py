"""Listening: HTTP over TCP and over a Unix socket at once, in one process, with the kernel's word for local callers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from mirab.service.api.guard import PEER
from mirab.service.api.parts import Parts
from mirab.service.api.problems import MEDIA_TYPE, ProblemError, respond
from mirab.service.auth.peers import peer_of

HEAD_PATIENCE = 30.0
"""Seconds within which the head of a request must have arrived."""
KEEP_ALIVE = 75
"""Seconds that a connection without a request stays open."""
CONNECTIONS_MAX = 600
"""Well below the 1,024 files that a process may usually open."""
BACKLOG = 512


class ListenError(Exception):
    """The address cannot be used; the sentence says why and what to do."""


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that knows who is at the other end of a Unix socket, and does not wait for ever for a request."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        peer = peer_of(connection) if connection is not None else None
        if peer is not None:
            self.app_state = {**self.app_state, PEER: peer}
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait_for_head()
        else:
            self._head_is_here()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets a problem like everything else."""
        answer = respond(ProblemError(400, "this is not a request in HTTP/1.1"), "none")
        head = h11.Response(
            status_code=400,
            headers=[("content-type", MEDIA_TYPE), ("content-length", str(len(answer.body))), ("connection", "close")],
            reason=b"Bad Request",
        )
        with suppress(h11.LocalProtocolError):
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_PATIENCE, self._too_slow)

    def _head_is_here(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        """Nothing came, or a head drop by drop: others need the place. A kept connection has a timer of its own."""
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self.transport.close()


class ApiServer(uvicorn.Server):
    """Serves until it is told to stop; then lets answers under way end, streams first."""

    def __init__(self, app: FastAPI, listeners: Sequence[socket.socket], grace: float = 10.0) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=PeerProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,  # the guard says it: this one is of a second ago, or more on a busy machine
                backlog=BACKLOG,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=max(1, round(grace)),
            )
        )
        self._listeners = list(listeners)
        parts = app.state.parts
        assert isinstance(parts, Parts)
        self._bus = parts.bus
        self._on_started: Callable[[], None] | None = None

    def serve_until_stopped(self, on_started: Callable[[], None] | None = None) -> None:
        """Block, in the main thread for signals to count: SIGTERM and SIGINT stop it, a second one at once."""
        self._on_started = on_started
        self.run(self._listeners)

    def stop(self) -> None:
        """From any thread; it takes effect within a tenth of a second."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_started is not None:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._bus.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals mean "stop", and are not raised again afterwards: whoever called goes on stopping in order."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


@contextmanager
def listening(tcp: tuple[str, int] | None, socket_path: Path | None) -> Generator[list[socket.socket]]:
    """Sockets that are bound; closed afterwards, and the Unix socket's file removed."""
    opened: list[socket.socket] = []
    identity = None
    try:
        if tcp is not None:
            opened.append(open_tcp(*tcp))
        if socket_path is not None:
            opened.append(open_unix(socket_path, 0o666 if os.geteuid() == 0 else 0o600))
        identity = _identity(socket_path)
        yield opened
    finally:
        for each in opened:
            each.close()
        if socket_path is not None and identity is not None and _identity(socket_path) == identity:
            socket_path.unlink(missing_ok=True)


def open_tcp(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 = any free one.

    Raises:
        ListenError: the name is not known, the port is taken, or is for root only.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port} ({error.strerror}): choose another with --listen") from error
    return bound


def open_unix(path: Path, mode: int) -> socket.socket:
    """A bound Unix socket in place of one that nobody answers on.

    Raises:
        ListenError: a service answers there, something else stands there, or the folder cannot be written.
    """
    _make_way(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(os.fspath(path))
        os.chmod(path, mode)
    except OSError as error:
        bound.close()
        raise ListenError(f"cannot make the socket {path} ({error.strerror or error}): choose another") from error
    finally:
        os.umask(before)
    return bound


def _make_way(path: Path) -> None:
    found = _identity(path)
    if found is None:
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise ListenError(f"{path} is there and is no socket: remove it, or choose another with --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(2)
        try:
            trial.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise ListenError(f"{path} is in use or not yours ({error.strerror}): choose another socket") from error
    raise ListenError(f"a service answers on {path} already: stop it, or choose another socket")


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        found = path.lstat() if path is not None else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


def address_of(bound: socket.socket) -> str:
    """``unix:///path``, ``http://127.0.0.1:7077``."""
    name: Any = bound.getsockname()
    if bound.family == socket.AF_UNIX:
        return f"unix://{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


def names_of_this_host() -> Iterable[str]:
    """Names under which others may call it, where it listens beyond loopback."""
    return dict.fromkeys(name.lower() for name in (socket.gethostname(), socket.getfqdn()))
