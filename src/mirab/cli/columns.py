"""squeue's columns: the letters of its `-o` formats, and the standard tables of `mirab ls`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirab.cli.clock import UNKNOWN, instant, near, now, ran, slurm_instant, slurm_span
from mirab.cli.exits import InvalidError
from mirab.cli.grid import Column, fitting, padded, table
from mirab.cli.jobs import SHORT, Job
from mirab.study.formats import printable


def _nodes_or_reason(job: Job) -> str:
    return nodelist(job) or (f"({job['reason'] or 'None'})" if job["state"] == "PENDING" else "")


def nodelist(job: Job) -> str:
    """The nodes that a run is on, as Slurm writes them: ``n[000-003],n007``."""
    if job["state"] == "PENDING":
        return ""
    names = job["node_names"]
    if len(names) < 2:
        return "".join(names)
    from mirab.cli.nodenames import folded

    return folded(names)


def _elapsed(job: Job) -> float:
    return 0 if job["state"] == "PENDING" else ran(job)


def _end(job: Job) -> str:
    started, limit = instant(job["started_at"]), job["time_limit_s"]
    if job["ended_at"] or started is None or limit is None or job["state"] == "PENDING":
        return slurm_instant(job["ended_at"])
    from datetime import timedelta

    return (started + timedelta(seconds=limit)).strftime("%Y-%m-%dT%H:%M:%S")


def _left(job: Job) -> str:
    return "UNLIMITED" if job["time_limit_s"] is None else slurm_span(job["time_limit_s"] - _elapsed(job))


def _gres(job: Job) -> str:
    return f"gres/gpu:{job['gpus_per_node']}" if job["gpus_per_node"] else UNKNOWN


@dataclass(frozen=True, slots=True)
class Letter:
    """What a letter of a format stands for."""

    head: str
    cell: Callable[[Job], str]


def _first_node(job: Job) -> str:
    return str(job["node_names"][0]) if job["node_names"] else UNKNOWN


def _text(key: str) -> Callable[[Job], str]:
    return lambda job: "" if job[key] is None else str(job[key])


LETTERS: dict[str, Letter] = {
    "a": Letter("ACCOUNT", _text("account")),
    "A": Letter("JOBID", _text("id")),
    "b": Letter("TRES_PER_NODE", _gres),
    "B": Letter("EXEC_HOST", _first_node),
    "c": Letter("MIN_CPUS", _text("cpus_per_node")),
    "C": Letter("CPUS", lambda job: str(job["cpus_per_node"] * job["nodes"])),
    "D": Letter("NODES", _text("nodes")),
    "e": Letter("END_TIME", _end),
    "F": Letter("ARRAY_JOB_ID", lambda job: str(job["array_job"] or job["id"])),
    "i": Letter("JOBID", _text("id")),
    "j": Letter("NAME", _text("name")),
    "k": Letter("COMMENT", _text("label")),
    "K": Letter("ARRAY_TASK_ID", lambda job: UNKNOWN if job["array_task"] is None else str(job["array_task"])),
    "l": Letter("TIME_LIMIT", lambda job: slurm_span(job["time_limit_s"])),
    "L": Letter("TIME_LEFT", _left),
    "M": Letter("TIME", lambda job: slurm_span(_elapsed(job))),
    "N": Letter("NODELIST", nodelist),
    "r": Letter("REASON", lambda job: job["reason"] or "None"),
    "R": Letter("NODELIST(REASON)", _nodes_or_reason),
    "S": Letter("START_TIME", lambda job: slurm_instant(job["started_at"])),
    "t": Letter("ST", lambda job: SHORT.get(str(job["state"]), "?")),
    "T": Letter("STATE", _text("state")),
    "u": Letter("USER", _text("user")),
    "V": Letter("SUBMIT_TIME", lambda job: slurm_instant(job["submitted_at"])),
    "G": Letter("GPUS", _text("gpus")),
    "W": Letter("WHY", _text("why")),
    "X": Letter("PROTECTED_UNTIL", lambda job: slurm_instant(job["protected_until"])),
}
"""squeue's letters where they make sense here; G, W and X are mirab's (GPUs, the sentence, the contract's end)."""
_FIELD = re.compile(r"%(\.?)(\d{0,4})([A-Za-z%])")


def formatted(format_text: str, jobs: Sequence[Job], *, head: bool = True) -> list[str]:
    """Lines as squeue's ``-o`` makes them: ``%.8i %20j``, right-aligned after a point, cut to the width.

    Raises:
        InvalidError: a letter that stands for nothing.
    """
    for _, _, letter in _FIELD.findall(format_text):
        if letter not in LETTERS and letter != "%":
            known = " ".join(f"%{name}" for name in LETTERS)
            raise InvalidError(f"-o: %{letter} stands for nothing; there are {known}.")
    lines = [_filled(format_text, lambda letter: letter.head)] if head else []
    return lines + [_filled(format_text, lambda letter, job=job: letter.cell(job)) for job in jobs]  # type: ignore[misc]


def _filled(format_text: str, cell: Callable[[Letter], str]) -> str:
    def field(match: re.Match[str]) -> str:
        right, width, letter = match.groups()
        if letter == "%":
            return "%"
        text = printable(cell(LETTERS[letter])).replace("\n", " ")
        if not width:
            return text
        return padded(fitting(text, int(width)), int(width), right=bool(right))

    return _FIELD.sub(field, format_text)


def protection(job: Job) -> str:
    """Until when nobody stops the run: ``14:30:00``, ``over``, or "" where it does not run."""
    if job["state"] not in ("RUNNING", "COMPLETING") or not job["protected_until"]:
        return ""
    moment = instant(job["protected_until"])
    assert moment is not None
    return near(job["protected_until"]) if moment > now() else "over"


STANDARD = (
    (Column("JOBID", right=True), LETTERS["i"].cell),
    (Column("NAME", least=8), LETTERS["j"].cell),
    (Column("USER", least=6), LETTERS["u"].cell),
    (Column("ACCOUNT", least=10), LETTERS["a"].cell),
    (Column("ST"), LETTERS["t"].cell),
    (Column("TIME", right=True), LETTERS["M"].cell),
    (Column("NODES", right=True), LETTERS["D"].cell),
    (Column("GPUS", right=True), LETTERS["G"].cell),
    (Column("NODELIST(REASON)", least=14), LETTERS["R"].cell),
)
LONG = (
    *STANDARD[:4],
    (Column("STATE"), LETTERS["T"].cell),
    *STANDARD[5:8],
    (Column("TIME_LIMIT", right=True), LETTERS["l"].cell),
    (Column("PROTECTED"), protection),
    STANDARD[8],
)


def standard(jobs: Sequence[Job], width: int, *, long: bool = False, head: bool = True) -> str:
    """The table of `mirab ls`."""
    chosen = LONG if long else STANDARD
    rows = [[cell(job) for _, cell in chosen] for job in jobs]
    return table([column for column, _ in chosen], rows, width, head=head)
