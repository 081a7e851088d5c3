"""A wire between a program and PostgreSQL that breaks where it hurts most: around a COMMIT."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from enum import Enum

COMMIT = b"COMMIT"


class Break(Enum):
    """Where the wire breaks, once."""

    BEFORE_COMMIT = "the server never hears of the commit"
    BEFORE_ANSWER = "the server commits, and nobody hears of it"


class BreakingWire:
    """Listens on loopback and passes all on to the server; `breaks` is done once, at the next COMMIT."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.breaks: Break | None = None
        self.broken = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self._open += [client, server]
                last = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, last), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client, last), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, last: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                how = self._take_break() if COMMIT in data else None
                if how is Break.BEFORE_COMMIT:
                    break
                if how is Break.BEFORE_ANSWER:
                    last.set()
                server.sendall(data)
        _close(client, server)

    def _take_break(self) -> Break | None:
        """The break that is due, taken before the wire breaks: a client that dials again at once finds it whole."""
        with self._lock:
            how, self.breaks = self.breaks, None
            self.broken += how is not None
        return how

    def _answers(self, server: socket.socket, client: socket.socket, last: threading.Event) -> None:
        """`last`: what the server says now is said to nobody: it has committed, and the wire is broken."""
        with suppress(OSError):
            while (data := server.recv(65_536)) and not last.is_set():
                client.sendall(data)
        _close(client, server)

    def close(self) -> None:
        _close(self._listener, *self._open)


def _close(*wires: socket.socket) -> None:
    for wire in wires:
        with suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
        wire.close()
