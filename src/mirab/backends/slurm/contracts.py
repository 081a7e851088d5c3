"""The contract of a Slurm job: what its comment says, else its partition's default, else a rule that anybody can see.

A comment may hold ``mirab:min=2h,grace=120s,signal=USR1,checkpoint=10m`` beside other text. What cannot be read leaves
the default contract in force, and says so: a slip of the finger must not leave a job unprotected in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from signal import Signals
from typing import Any

from mirab.backends.slurm.records import SlurmJob
from mirab.model.units import HOUR, MINUTE, SECOND, Duration, parse_duration

_TOKEN = re.compile(r"(?:^|[\s;|])mirab:(\S+)")
_SIGNALS = frozenset(known.name.removeprefix("SIG") for known in Signals)


@dataclass(frozen=True, slots=True)
class Contract:
    """What a job asks of the scheduler beyond its size.

    Attributes:
        grace: notice before it is stopped; signal: the notice.
        checkpoint: declared interval; 0 = never.
        note: what could not be read, for people; "" = nothing.
    """

    min_runtime: Duration
    grace: Duration = 10 * SECOND
    signal: str = "TERM"
    checkpoint: Duration = 0
    restart: Duration = 0
    resume: bool = True
    label: str = ""
    note: str = ""


SMALL = Contract(15 * MINUTE)
"""At most two GPUs: somebody is looking for a bug."""
LARGE = Contract(2 * HOUR)


def default_for(job: SlurmJob, partitions: Mapping[str, Contract]) -> Contract:
    """The contract of a job whose comment says nothing."""
    named = partitions.get(job.partition)
    if named is not None:
        return named
    return SMALL if job.nodes * job.gpus_per_node <= 2 else LARGE


def contract_of(job: SlurmJob, partitions: Mapping[str, Contract]) -> Contract:
    """The contract of a job."""
    contract = default_for(job, partitions)
    told = _TOKEN.search(job.comment)
    for part in told[1].split(",") if told else ():
        try:
            contract = _with(contract, part)
        except ValueError as error:
            return replace(default_for(job, partitions), note=f"its comment says {part!r}: {error}")
    return contract


def contract_from(told: Mapping[str, str]) -> Contract:
    """The contract of a partition, from the words of the settings; what they do not say is as for large jobs.

    Raises:
        ValueError: a word or a value that is not known.
    """
    contract = LARGE
    for name, value in told.items():
        contract = _with(contract, f"{name}={value}")
    return contract


def _with(contract: Contract, part: str) -> Contract:
    name, equals, value = part.partition("=")
    name = name.strip().lower().replace("-", "_")
    read = _READERS.get(name)
    if read is None or not equals:
        close = get_close_matches(name, _READERS, n=1)
        raise ValueError(f"did you mean {close[0]}=...?" if close else f"it may say {', '.join(_READERS)}")
    field, parse = read
    changes: dict[str, Any] = {field: parse(value)}
    return replace(contract, **changes)


def _signal(text: str) -> str:
    name = text.upper().removeprefix("SIG")
    if name not in _SIGNALS and not (name.isdigit() and 0 < int(name) <= 64):
        raise ValueError("write a signal such as USR1")
    return name


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise ValueError("write yes or no")
    return text.lower() == "yes"


_READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "min": ("min_runtime", parse_duration),
    "min_runtime": ("min_runtime", parse_duration),
    "grace": ("grace", parse_duration),
    "signal": ("signal", _signal),
    "checkpoint": ("checkpoint", parse_duration),
    "restart": ("restart", parse_duration),
    "resume": ("resume", _yes),
    "label": ("label", str),
}
