"""Values as sbatch's users write them: times, memory, GPUs, signals. Pure functions from text to value.

Every error is a ValueError with a sentence without a full stop, so that the caller can say where it stood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirab.model.units import DAY, HOUR, MINUTE, SECOND, Duration, parse_duration

UNLIMITED = ("unlimited", "infinite", "-1")
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(\d{1,8})(?::(\d{1,3}))?(?::(\d{1,3}))?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_MEBIBYTES = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024 * 1024}
_SIGNAL = re.compile(r"(?:[RB]+:)?([A-Za-z0-9+]+)(?:@(\d{1,6}))?", re.ASCII)
_TYPE = re.compile(r"([A-Za-z][\w.+-]*)?")
_NODES = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
SIGNAL_NAMES = (  # noqa: SIM905
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU "
    "URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
).split()
"""Linux's signals in the order of their numbers, from 1."""
NOTICE_S = 60
"""Slurm's notice where ``--signal`` does not name one."""


def slurm_time(text: str) -> Duration | None:
    """Milliseconds of a time limit; None = no limit.

    Slurm's forms: ``60`` (minutes), ``5:30`` (minutes and seconds), ``1:00:00``, ``1-12`` (days and hours),
    ``1-12:30``, ``1-0:0:0``; and mirab's: ``90s``, ``1h30m``.
    """
    compact = text.strip().lower()
    if compact in UNLIMITED:
        return None
    match = _CLOCK.fullmatch(compact)
    if match is None:
        return _with_unit(text)
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        return int(days) * DAY + _sum(numbers, (HOUR, MINUTE, SECOND))
    return _sum(numbers, (HOUR, MINUTE, SECOND) if len(numbers) == 3 else (MINUTE, SECOND))


def _sum(numbers: list[int], units: tuple[Duration, ...]) -> Duration:
    return sum(number * unit for number, unit in zip(numbers, units, strict=False))


def _with_unit(text: str) -> Duration:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a time: write minutes (90), hours:minutes:seconds (1:30:00), days-hours (1-12), or 90m"
        ) from error


def span_text(span: Duration) -> str:
    """A duration in the exact form that the API reads: whole seconds where it can, else milliseconds."""
    return f"{span // SECOND}s" if span % SECOND == 0 else f"{span}ms"


def memory_mib(text: str) -> int:
    """Mebibytes of ``64G``, ``500000`` (Slurm: mebibytes), ``2T``, ``64GiB``; a part of one counts as one."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory: write it as 64G")
    amount = int(match[1]) * _MEBIBYTES[match[2].lower()]
    return int(amount) + (amount > int(amount))


@dataclass(frozen=True, slots=True)
class Gpus:
    """A number of GPUs, and their type where one was asked for."""

    number: int
    type: str = ""


def gpus(text: str) -> Gpus:
    """``4``, ``h100:4``, ``h100`` (one)."""
    kind, colon, number = text.strip().rpartition(":")
    if not colon and not number.isdigit():
        kind, number = number, "1"
    if not (number.isascii() and number.isdigit() and len(number) < 7) or not _TYPE.fullmatch(kind):
        raise ValueError(f"{text!r} is not a number of GPUs: write 4, or h100:4")
    return Gpus(int(number), kind.lower())


def gres(text: str) -> tuple[Gpus, list[str]]:
    """The GPUs of ``gpu:h100:4`` or ``gres:gpu:4``, and the other resources that stand beside them."""
    found, others = Gpus(0), []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = part.removeprefix("gres:").removeprefix("gres/").replace("=", ":").partition(":")
        if name.lower() == "gpu":
            more = gpus(re.sub(r"\(.*\)$", "", rest) or "1")
            found = Gpus(found.number + more.number, more.type or found.type)
        elif name.lower() != "none":
            others.append(part)
    return found, others


def node_count(text: str) -> int:
    """The nodes of ``4``; of ``2-4`` the fewest, as a gang starts whole."""
    match = _NODES.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise ValueError(f"{text!r} is not a number of nodes: write 2")
    return int(match[1])


def signal_notice(text: str) -> tuple[str, int]:
    """Name and seconds of notice of ``USR1@120``, ``B:USR1@120``, ``10@60``, ``SIGTERM``.

    ``B:`` and ``R:`` make no difference here: the whole process group hears it.
    """
    match = _SIGNAL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a signal: write USR1@120, the seconds are its notice")
    return signal_name(match[1]), int(match[2]) if match[2] else NOTICE_S


def signal_name(text: str) -> str:
    """``USR1`` of ``USR1``, ``SIGUSR1``, ``sigusr1`` or ``10``."""
    if text.isdigit():
        if 1 <= int(text) <= len(SIGNAL_NAMES):
            return SIGNAL_NAMES[int(text) - 1]
    elif (name := text.upper().removeprefix("SIG")) in SIGNAL_NAMES:
        return name
    raise ValueError(f"{text!r} is not a signal of this system: write USR1, TERM, INT or another by its name")
