"""Who is at the other end of a Unix socket: the kernel says it, nobody can claim it."""

from __future__ import annotations

import pwd
import socket
import struct
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("iII")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected, as the kernel knew it then."""

    pid: int
    uid: int
    gid: int

    @property
    def origin(self) -> str:
        return f"unix uid={self.uid}"


def peer_of(connection: socket.socket) -> Peer | None:
    """The peer of a connected Unix socket; None for any other socket."""
    if connection.family != socket.AF_UNIX:
        return None
    return Peer(*_CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))


def user_name(uid: int) -> str:
    """The name that this machine knows for a user, or ``uid-1234``: jobs and rights go by names."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def unix_ids(user: str) -> tuple[int, int] | None:
    """User and group to run somebody's jobs as. None: this machine does not know them, or they are root.

    A token is never a way to run something as root, whatever name it carries.
    """
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return None
    return (entry.pw_uid, entry.pw_gid) if entry.pw_uid else None
