"""Small texts inside Slurm's listings: TRES, GRES, memory, numbers that may be unset."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from mirab.model.units import MINUTE, SECOND, Duration, Instant

Json: TypeAlias = Any

NOTHING = frozenset({"", "(null)", "N/A", "None", "none", "null"})
NO_VALUE = 0xFFFFFFFE
INFINITE = 0xFFFFFFFF
_GRES = re.compile(r"(?:gres[/:])?gpu(?:[:/](?P<type>[A-Za-z_][\w.\-]*))?(?:[:=](?P<count>\d+))?(?:\(.*\))?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[cn]?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


def number(value: Json) -> int | None:
    """An integer of any version: plain, ``{"set", "infinite", "number"}``, or one of the values that mean unset."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = int(value)
    except (ValueError, OverflowError):
        return None
    return None if found in (NO_VALUE, INFINITE) else found


def count(value: Json) -> int:
    """The same, 0 where unset or negative."""
    return max(0, number(value) or 0)


def instant(value: Json) -> Instant | None:
    """Unix seconds to Unix milliseconds; 0 = not known."""
    seconds = number(value)
    return seconds * SECOND if seconds else None


def limit(value: Json) -> Duration | None:
    """A time limit in minutes; unset, infinite or 0 = none."""
    minutes = number(value)
    return minutes * MINUTE if minutes else None


def words(value: Json) -> tuple[str, ...]:
    """A state: a list of words, or one text of words joined by ``+``."""
    if isinstance(value, str):
        value = value.split("+")
    if not isinstance(value, list):
        return ()
    return tuple(str(word).strip().upper() for word in value if str(word).strip())


def text(value: Json) -> str:
    """A text; what Slurm prints for nothing is ""."""
    return "" if value is None or str(value) in NOTHING else str(value)


def gpus(listing: str) -> tuple[int, str]:
    """GPUs and their type in ``gres:gpu:h100:8``, ``gpu:8(S:0-1)``, ``cpu=4,gres/gpu=8,gres/gpu:h100=8``.

    ``gres/gpu`` counts all types already, so the largest number is the count and the first named type the type.
    """
    most, kind = 0, ""
    for part in _parts(text(listing)):
        match = _GRES.fullmatch(part)
        if match is not None:
            most = max(most, int(match["count"] or 1))
            kind = kind or (match["type"] or "")
    return most, kind


def _parts(listing: str) -> list[str]:
    """Between commas that stand outside brackets."""
    parts, depth = [""], 0
    for char in listing:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def memory_mib(listing: str) -> int:
    """Mebibytes in ``500G`` or ``4000M``; 0 where there is none."""
    match = _MEMORY.fullmatch(text(listing).strip())
    return int(float(match[1]) * _MIB[match[2].upper()]) if match else 0


def tres(listing: str) -> dict[str, str]:
    """``cpu=4,mem=500G,node=2`` as a mapping."""
    pairs = (part.partition("=") for part in _parts(text(listing)))
    return {name: value for name, equals, value in pairs if equals}


def per_node(total: int, nodes: int) -> int:
    """A total spread over nodes, rounded up."""
    return -(-total // max(1, nodes))
