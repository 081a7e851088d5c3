"""Where the reader is, as far as clocks are concerned."""

from __future__ import annotations

import os

LOCALTIME = "/etc/localtime"
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/")


def zone_name() -> str:
    """The name of the local zone, such as ``Europe/Berlin``, so that a service can write times in it; "" = unknown."""
    name = os.environ.get("TZ", "").removeprefix(":") or _linked()
    return name if set(name) <= _PLAIN else ""


def _linked() -> str:
    try:
        return os.readlink(LOCALTIME).partition("zoneinfo/")[2]
    except OSError:
        return ""
