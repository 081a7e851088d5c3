"""What goes over the socket of a session's terminal, in both directions: frames of a kind, a length and a payload.

| kind | from | payload |
|---|---|---|
| ``d`` | both | bytes typed, or bytes shown |
| ``w`` | client | rows and columns of its window, two big-endian 16-bit numbers |
| ``x`` | shim | the session is over: ``{"outcome": ..., "exit_code": ...}`` |
"""

from __future__ import annotations

import struct

DATA = b"d"
WINDOW = b"w"
END = b"x"
HEADER = struct.Struct(">cI")
SIZE = struct.Struct(">HH")
LONGEST = 1 << 20
"""Bytes that a payload may have; a peer that announces more is no peer of ours."""


class BadFrameError(Exception):
    """The peer does not speak this language."""


def pack(kind: bytes, payload: bytes) -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


class Unpacker:
    """Frames out of a stream of bytes that is cut anywhere."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The frames that are complete now.

        Raises:
            BadFrameError: an unknown kind, or a payload that is too long.
        """
        self.buffer += data
        frames: list[tuple[bytes, bytes]] = []
        while len(self.buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self.buffer)
            if kind not in (DATA, WINDOW, END) or length > LONGEST:
                raise BadFrameError(f"{kind!r} of {length} bytes")
            whole = HEADER.size + length
            if len(self.buffer) < whole:
                break
            frames.append((kind, bytes(self.buffer[HEADER.size : whole])))
            del self.buffer[:whole]
        return frames
