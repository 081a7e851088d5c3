"""Arrays of jobs as in sbatch: ``0-15%4`` is sixteen tasks, of which four may wait or run at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirab.model.units import WorkloadId
from mirab.service.desk.errors import DeskError, invalid

LARGEST_INDEX = 999_999
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_LIMIT = re.compile(r"\d{1,9}")
_AGAIN = re.compile(r"\d{1,18}(?:_\d{1,9})?r\d{1,9}")
_WHOLE = re.compile(r"(\d{1,18})(?:_(?:(\d{1,9})|\[([^\]]*)\]))?")


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Tasks in ascending order, and how many of them may wait or run at a time; 0 = all."""

    tasks: tuple[int, ...]
    limit: int = 0


def parse_array(text: str, most: int) -> ArraySpec:
    """``0-15%4``, ``1,3,7-9:2``.

    Raises:
        DeskError: it is written otherwise, or has more than `most` tasks.
    """
    listed, percent, limit = text.replace(" ", "").partition("%")
    if percent and not (_LIMIT.fullmatch(limit) and int(limit)):
        raise invalid(f"the limit of the array {text!r} is not a whole number from 1 on: write for example 0-15%4")
    tasks = _tasks(listed, text, most)
    return ArraySpec(tuple(sorted(tasks)), int(limit) if percent else 0)


def _tasks(listed: str, text: str, most: int) -> dict[int, None]:
    tasks: dict[int, None] = {}
    for part in listed.split(","):
        span = _span(part, text)
        if len(span) > most or len(tasks) + len(span) > 2 * most:
            raise _too_many(text, most)
        tasks.update(dict.fromkeys(span))
    if len(tasks) > most:
        raise _too_many(text, most)
    return tasks


def _span(part: str, text: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise invalid(f"{text!r} is not an array: write indices and ranges, such as 0-15%4 or 1,3,7-9:2")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if last > LARGEST_INDEX or first > LARGEST_INDEX:
        raise invalid(f"the array {text!r} has an index above {LARGEST_INDEX:,}: count from a smaller number")
    if last < first or not step:
        raise invalid(f"the range {part!r} of the array {text!r} is empty: write it upwards, with a step from 1 on")
    return range(first, last + 1, step)


def _too_many(text: str, most: int) -> DeskError:
    return invalid(f"the array {text!r} has more than {most:,} tasks: submit it in parts", most=most)


def task_id(array: WorkloadId, task: int) -> WorkloadId:
    """``12_3``."""
    return WorkloadId(f"{array}_{task}")


def array_of(workload: WorkloadId) -> WorkloadId | None:
    """The array that a task belongs to, by its id; None = a job of its own."""
    head, under, _ = workload.partition("_")
    return WorkloadId(head) if under else None


def parse_ids(text: str, most: int) -> list[WorkloadId]:
    """The ids of ``12``, ``12_3`` or ``12_[0-3,7]``, or of one of Slurm's that came again after its end, ``12r1``.

    Raises:
        DeskError: it is no id.
    """
    if _AGAIN.fullmatch(text.strip()):
        return [WorkloadId(text.strip())]
    match = _WHOLE.fullmatch(text.strip())
    if match is None:
        raise invalid(f"{text[:80]!r} is not the id of a job: write 12, 12_3 or 12_[0-3,7]")
    head, task, several = match.groups()
    job = WorkloadId(str(int(head)))
    if task is not None:
        return [task_id(job, int(task))]
    if several is not None:
        return [task_id(job, index) for index in parse_array(several, most).tasks]
    return [job]
