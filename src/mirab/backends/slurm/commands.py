"""What Slurm's own tools are told for each action. Pure: a command is a tuple of words, never a line for a shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mirab.backends.slurm.records import HELD_MARK, PLACED_MARK
from mirab.model.nodelists import compress
from mirab.model.units import NodeName

Command: TypeAlias = tuple[str, ...]

TOP_PRIORITY = 4_294_967_000
"""Above what Slurm gives by itself (`priority/basic` begins at 4,294,901,760): what mirab lets go is not overtaken."""
MARK = "mirab:"
"""Begins the reason of every drain that is ours, so that those of operators are told apart."""

LIST_JOBS: Command = ("squeue", "--all", "--states=all", "--json")
LIST_NODES: Command = ("sinfo", "--all", "--json")
GLANCE: Command = ("squeue", "--all", "--array", "--noheader", "--format=%i %T",
                   "--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED")  # fmt: skip
READS_ONLY = frozenset({"squeue", "sinfo", "sacct", "sdiag", "sprio", "sshare"})


def writes(command: Command) -> bool:
    """Whether a command could change anything; what is not known to be a mere look counts as a change."""
    program, *words = command
    if program in READS_ONLY:
        return False
    verb = next((word for word in words if not word.startswith("-")), "")
    if program == "sacctmgr":
        return verb not in ("show", "list")
    if program == "scontrol":
        return verb not in ("show", "ping", "version", "listpids")
    return True


def list_some(jobs: Sequence[str]) -> Command:
    return ("squeue", "--all", "--states=all", "--json", f"--jobs={','.join(jobs)}")


def look_up(jobs: Sequence[str]) -> Command:
    """Every attempt of these jobs in the accounting, with Unix seconds (`SLURM_TIME_FORMAT=%s`)."""
    return ("sacct", "--duplicates", "--allocations", "--noheader", "--parsable2",
            f"--jobs={','.join(jobs)}", "--format=JobID,State,ExitCode,Start,End")  # fmt: skip


def hold(job: str, placed: bool = False) -> Command:
    """By the administrator, so that its user cannot let it go past mirab; with the mark by which it is ours."""
    return ("scontrol", "update", f"JobId={job}", "Priority=0", _mark(placed))


def _mark(placed: bool) -> str:
    return f"AdminComment={HELD_MARK},{PLACED_MARK}" if placed else f"AdminComment={HELD_MARK}"


def start(job: str, nodes: Sequence[NodeName]) -> Sequence[Command]:
    """Let it go to these nodes, now: also where a requeue has made its begin time two minutes later.

    In this order: a held job takes no priority, and one that is let go without its nodes could start elsewhere.
    """
    return (
        ("scontrol", "update", f"JobId={job}", f"ReqNodeList={compress(nodes)}", "StartTime=now", _mark(True)),
        ("scontrol", "release", job),
        ("scontrol", "update", f"JobId={job}", f"Priority={TOP_PRIORITY}"),
    )


def back_to_slurm(job: str, placed: bool) -> Sequence[Command]:
    """Give a waiting job back to Slurm's own scheduler, without the nodes and the marks that mirab had given it."""
    nodes = ("ReqNodeList=", "StartTime=now") if placed else ()
    return (
        ("scontrol", "update", f"JobId={job}", *nodes, "AdminComment="),
        ("scontrol", "release", job),
    )


def notice(job: str, signal: str) -> Sequence[Command]:
    """The user's signal, to the batch script and to its steps."""
    return (("scancel", f"--signal={signal}", "--batch", job), ("scancel", f"--signal={signal}", job))


def requeue(job: str) -> Sequence[Command]:
    """Stop it and keep it held, so that nobody but mirab starts it again."""
    return (
        ("scontrol", "update", f"JobId={job}", _mark(True)),
        ("scontrol", "requeuehold", job),
    )


def cancel(job: str) -> Command:
    return ("scancel", job)


def drain(node: NodeName, cause: str) -> Command:
    return ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={MARK} {cause or 'drain'}")


def resume(node: NodeName) -> Command:
    return ("scontrol", "update", f"NodeName={node}", "State=RESUME")


def as_lines(commands: Sequence[Command]) -> str:
    """Commands of one `scontrol`, as it reads them from its standard input."""
    return "".join(" ".join(map(_quoted, command[1:])) + "\n" for command in commands)


def _quoted(word: str) -> str:
    plain = " ".join(word.replace('"', "'").split())
    return f'"{plain}"' if " " in plain and "=" not in plain else _value_quoted(plain)


def _value_quoted(word: str) -> str:
    name, equals, value = word.partition("=")
    return f'{name}="{value}"' if equals and " " in value else word
