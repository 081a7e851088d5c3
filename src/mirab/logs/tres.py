"""Slurm's words for what a job was given: TRES, and the older GRES."""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import NamedTuple

from mirab.logs.fields import count, memory_mib


class Tres(NamedTuple):
    """What a TRES string says, over all nodes; 0 = nothing."""

    nodes: int = 0
    cpus: int = 0
    gpus: int = 0
    gpu_type: str = ""
    memory_mib: int = 0


@lru_cache(maxsize=4096)
def parse_tres(text: str) -> Tres:
    """``billing=36,cpu=36,gres/gpu:h100=8,gres/gpu=8,mem=48000M,node=3``; parts that are not understood count nothing.

    ``gres/gpu`` is the total; where it is missing, the types are added up. The type is that of most GPUs.
    """
    amounts: dict[str, str] = {}
    types: dict[str, int] = {}
    for part in text.split(","):
        name, _, told = part.strip().partition("=")
        if name.startswith("gres/gpu:"):
            types[name[9:]] = types.get(name[9:], 0) + amount(told)
        else:
            amounts[name] = told
    total = amount(amounts.get("gres/gpu", "")) or sum(types.values())
    kind = max(sorted(types), key=lambda name: types[name], default="")
    return Tres(
        amount(amounts.get("node", "")), amount(amounts.get("cpu", "")), total, intern(kind),
        _memory(amounts.get("mem", "")),
    )  # fmt: skip


def parse_gres(text: str, nodes: int) -> Tres:
    """Slurm's older ``gpu:2`` or ``gpu:tesla:2`` for each node, over all of them."""
    gpus, kind = 0, ""
    for part in text.split(","):
        fields = part.strip().split("(")[0].removeprefix("gres:").removeprefix("gres/").split(":")
        if fields[0] == "gpu":
            number = amount(fields[-1]) if len(fields) > 1 and fields[-1].isdigit() else 1
            gpus += number * max(nodes, 1)
            kind = kind or next((field for field in fields[1:] if not field.isdigit()), "")
    return Tres(gpus=gpus, gpu_type=intern(kind))


def amount(text: str) -> int:
    """The count; 0 where it is none."""
    try:
        return count(text)
    except ValueError:
        return 0


def _memory(text: str) -> int:
    try:
        return memory_mib(text)
    except ValueError:
        return 0
