"""Units: integer milliseconds, integer charge, strict durations and shares.

Time is an integer count of milliseconds since the log's or the cluster's own origin. Charge is an integer count of
milli-units (one GPU of weight 1 is 1,000 milli-units), so an amount of charge is in milli-unit-milliseconds. Nothing
in the core holds a float that it has not just computed from integers by one correctly rounded division.
"""

from __future__ import annotations

import re
from typing import NewType, TypeAlias

WorkloadId = NewType("WorkloadId", str)
RunId = NewType("RunId", str)
AccountPath = NewType("AccountPath", str)
UserName = NewType("UserName", str)
NodeName = NewType("NodeName", str)

Instant: TypeAlias = int
"""Milliseconds since the origin."""
Duration: TypeAlias = int
"""Milliseconds."""
ChargeRate: TypeAlias = int
"""Milli-units: the charge that one millisecond adds."""
Charge: TypeAlias = int
"""Milli-unit-milliseconds."""
NodeMask: TypeAlias = int
"""A set of nodes of one pool: bit i stands for the pool's node i."""

SECOND: Duration = 1_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR
WEEK: Duration = 7 * DAY

FOREVER: Instant = 1 << 62
"""Later than any instant."""

UNIT: ChargeRate = 1_000
"""Milli-units in one charge unit (one GPU of weight 1)."""
WHOLE: int = 1_000_000_000
"""A share of 100 %, in parts per thousand million."""

_STEP = {"ms": 1, "s": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w)")


def parse_duration(text: str) -> Duration:
    """Milliseconds of a duration written with units: ``90s``, ``1h30m``, ``7d``, ``0``.

    A bare number other than 0 is refused: Slurm reads it as minutes, YAML as seconds, and people mean either.

    Raises:
        ValueError: the text is not a duration with units.
    """
    compact = text.strip().lower().replace(" ", "")
    if compact == "0":
        return 0
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration: write a number with a unit, such as 90s, 15m, 8h or 7d")
    return sum(_scaled(number, _STEP[unit]) for number, unit in parts)


def plural(number: float, noun: str, several: str = "") -> str:
    """A count as people write it: ``1 node``, ``3 nodes``, ``1.5 GPUs``, ``1,200 jobs``."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def _scaled(number: str, step: int) -> int:
    whole, _, fraction = number.partition(".")
    return int(whole) * step + (int(fraction) * step // 10 ** len(fraction) if fraction else 0)


def format_duration(span: Duration) -> str:
    """The two largest units of a duration: ``1h30m``, ``45s``, ``2d4h``; ``0`` for none."""
    if span < 0:
        return "-" + format_duration(-span)
    if 0 < span < SECOND:
        return f"{span}ms"
    parts = []
    for name, step in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        count, span = divmod(span, step)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts[:2]) or "0"


def exact_duration(span: Duration) -> str:
    """A duration that `parse_duration` reads back as the same: ``4h``, ``90s``, ``1500ms``."""
    for name, step in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        if span and span % step == 0:
            return f"{span // step}{name}"
    return f"{span}ms" if span else "0"


def workload_of(run_id: str) -> WorkloadId:
    """The workload of a run: ``12_3`` of ``12_3.2``."""
    return WorkloadId(run_id.rpartition(".")[0])


def attempt_of(run_id: str) -> int:
    """Which attempt of its workload a run is, from 1 on: 2 of ``12_3.2``."""
    return int(run_id.rpartition(".")[2])


def parse_share(text: str) -> int:
    """A share such as ``12.5%`` in parts of `WHOLE`.

    Raises:
        ValueError: no per cent sign, not a number, or outside 0 to 100 %.
    """
    match = re.fullmatch(r"\s*(\d+)(?:\.(\d{1,7}))?\s*%\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a share: write a percentage such as 12.5%")
    whole, fraction = match.group(1), match.group(2) or ""
    parts = (int(whole) * 10**7 + int(fraction.ljust(7, "0"))) if fraction else int(whole) * 10**7
    if parts > WHOLE:
        raise ValueError(f"{text!r} is more than 100%")
    return parts


def exact_share(parts: int) -> str:
    """A share as a percentage with all its digits, so that siblings still sum to what they summed to."""
    whole, rest = divmod(parts * 100, WHOLE)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") + "%"


def format_share(parts: int) -> str:
    """A share as people write it: ``12.5%``."""
    return f"{parts / 10**7:.4f}".rstrip("0").rstrip(".") + "%"
