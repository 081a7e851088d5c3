"""Ports of loopback for the daemons of tests: nobody else's by chance.

What the kernel gives for port 0 is only free at that instant. Until a daemon listens there, and again while it is
restarted, any connection that goes out may get the same number; a client that dials it may even reach itself.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

LOWEST, HIGHEST = 15_000, 32_767
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The numbers of connections that go out."""
_claims: list[socket.socket] = []


def free_port() -> int:
    """A port that no connection gets by chance, and no other process of tests while this one lives."""
    for port in SystemRandom().sample(_candidates(), 1_000):
        if _claimed(port) and _is_free(port):
            return port
    raise OSError("no port of loopback is free")


def _candidates() -> range:
    with suppress(OSError, ValueError):
        first, last = map(int, GIVEN_OUT.read_text().split())
        if first - LOWEST > 2_000:
            return range(LOWEST, min(first, HIGHEST + 1))
        if 65_535 - last > 2_000:
            return range(last + 1, 65_536)
    return range(LOWEST, HIGHEST + 1)


def _claimed(port: int) -> bool:
    """By a name in the kernel, which goes with the process."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0mirab-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
