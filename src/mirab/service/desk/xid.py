"""NVIDIA's XID numbers: what each says of a GPU, in our words, and whether the node needs a repair for it.

The numbers are those of NVIDIA's public list of XID errors. A fault of the program that ran is no reason to take a node
away; memory, bus, firmware and link faults that stay are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Xid(NamedTuple):
    """What an XID means. `degrades`: the node is to be drained and looked at."""

    means: str
    degrades: bool


PROGRAM, HARDWARE = False, True

XIDS: Mapping[int, Xid] = MappingProxyType(
    {
        13: Xid("a program did what the GPU's engine cannot (often an index outside an array)", PROGRAM),
        31: Xid("a program touched memory of the GPU that is not its own", PROGRAM),
        32: Xid("the GPU was sent commands that make no sense", PROGRAM),
        38: Xid("the driver's firmware failed", HARDWARE),
        43: Xid("the GPU stopped a program that had failed", PROGRAM),
        45: Xid("the GPU cleaned up after a program that was ended", PROGRAM),
        46: Xid("the GPU stopped answering", HARDWARE),
        48: Xid("two bits of the GPU's memory flipped at once, which it cannot repair", HARDWARE),
        61: Xid("a small processor inside the GPU reported a fault", HARDWARE),
        62: Xid("a small processor inside the GPU stopped", HARDWARE),
        63: Xid("the GPU put bad memory out of use, as it should; the spare takes over at its next reset", PROGRAM),
        64: Xid("the GPU could not put bad memory out of use", HARDWARE),
        68: Xid("the video decoder was given what it cannot decode", PROGRAM),
        69: Xid("a program used the GPU's engine wrongly", PROGRAM),
        74: Xid("the link to another GPU failed", HARDWARE),
        79: Xid("the GPU is no longer found on the bus", HARDWARE),
        92: Xid("single bits of the GPU's memory flip often", HARDWARE),
        94: Xid("a memory fault was contained: one program was lost, the GPU goes on", PROGRAM),
        95: Xid("a memory fault was not contained: other programs may have wrong results", HARDWARE),
        109: Xid("the GPU took too long to change from one program to another", PROGRAM),
        110: Xid("the GPU's security processor failed", HARDWARE),
        119: Xid("the GPU's system processor did not answer in time", HARDWARE),
        120: Xid("the GPU's system processor failed", HARDWARE),
        121: Xid("the link between GPU and CPU corrected an error", PROGRAM),
        122: Xid("the GPU could not read its own settings", HARDWARE),
        123: Xid("the GPU could not write its own settings", HARDWARE),
        136: Xid("the links between GPUs could not be set up", HARDWARE),
        137: Xid("a program was stopped for an access over the links between GPUs", PROGRAM),
        140: Xid("memory errors were found that were not repaired", HARDWARE),
        143: Xid("the GPU could not be started", HARDWARE),
        155: Xid("the GPU's own software failed", HARDWARE),
        156: Xid("a resource of the GPU was put out of use", HARDWARE),
    }
)


def judged(number: int) -> Xid:
    """What it means; an unknown one is noted, and a person has to decide."""
    return XIDS.get(number, Xid("a fault that mirab does not know; drain the node if it comes again", PROGRAM))
