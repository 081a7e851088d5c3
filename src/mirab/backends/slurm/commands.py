"""What Slurm's own tools are told for each action. Pure: a command is a tuple of words, never a line for a shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mirab.model.nodelists import compress
from mirab.model.units import NodeName

Command: TypeAlias = tuple[str, ...]

TOP_PRIORITY = 4_294_000_000
"""Above what Slurm gives by itself: a job that mirab lets go is not overtaken by one that Slurm schedules."""
MARK = "mirab:"
"""Begins the reason of every drain that is ours, so that those of operators are told apart."""

LIST_JOBS: Command = ("squeue", "--all", "--states=all", "--json")
LIST_NODES: Command = ("sinfo", "--all", "--json")
STATES_ONLY: Command = (
    "squeue",
    "--all",
    "--noheader",
    "--states=RUNNING,COMPLETING,CONFIGURING,SUSPENDED",
    "--format=%i %T",
)
READS_ONLY = frozenset({"squeue", "sinfo", "sacct", "sdiag", "sprio", "sshare"})


def writes(command: Command) -> bool:
    """Whether a command could change anything; what is not known to be a mere look counts as a change."""
    program, *words = command
    if program in READS_ONLY:
        return False
    if program == "sacctmgr":
        return not any(word in ("show", "list") for word in words)
    if program == "scontrol":
        verb = next((word for word in words if not word.startswith("-")), "")
        return verb not in ("show", "ping", "version", "listpids")
    return True


def hold(job: str) -> Command:
    return ("scontrol", "hold", job)


def start(job: str, nodes: Sequence[NodeName]) -> Sequence[Command]:
    """Let it go to these nodes, now: also where a requeue has made its begin time two minutes later.

    In this order: a held job takes no priority, and one that is let go without its nodes could start elsewhere.
    """
    where = compress(nodes)
    return (
        ("scontrol", "update", f"JobId={job}", f"ReqNodeList={where}", "StartTime=now"),
        ("scontrol", "release", job),
        ("scontrol", "update", f"JobId={job}", f"Priority={TOP_PRIORITY}"),
    )


def back_to_slurm(job: str) -> Sequence[Command]:
    """Give a waiting job back to Slurm's own scheduler, without the nodes that mirab had chosen."""
    return (("scontrol", "update", f"JobId={job}", "ReqNodeList=", "StartTime=now"), ("scontrol", "release", job))


def notice(job: str, signal: str) -> Sequence[Command]:
    """The user's signal, to the batch script and to its steps."""
    return (("scancel", f"--signal={signal}", "--batch", job), ("scancel", f"--signal={signal}", job))


def requeue(job: str) -> Command:
    """Stop it and keep it held, so that nobody but mirab starts it again."""
    return ("scontrol", "requeuehold", job)


def cancel(job: str) -> Command:
    return ("scancel", job)


def drain(node: NodeName, cause: str) -> Command:
    return ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={MARK} {cause or 'drain'}")


def resume(node: NodeName) -> Command:
    return ("scontrol", "update", f"NodeName={node}", "State=RESUME")
