"""Dependencies between jobs as in sbatch: ``afterok:12:13,afterany:9``. All of them have to be met."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from mirab.model.records import JobRow, JobState
from mirab.model.units import WorkloadId
from mirab.service.desk.errors import invalid

KINDS = {
    "afterok": "after it has ended well",
    "afternotok": "after it has ended otherwise",
    "afterany": "after it has ended in any way",
}
SINGLETON = "singleton"
_ID = re.compile(r"\d{1,18}(_\d{1,9})?")


class Dependency(NamedTuple):
    """A kind, and the job or whole array that it is about; `SINGLETON` has none until it is submitted."""

    kind: str
    job: WorkloadId

    def __str__(self) -> str:
        return f"{self.kind}:{self.job}" if self.job else self.kind


class Met(Enum):
    """How a dependency stands."""

    YES = "met"
    NOT_YET = "not yet"
    NEVER = "never any more"


class Standing(NamedTuple):
    """How several dependencies stand together; `spoiler` and `state`: which can never be met, and why."""

    met: Met
    open: tuple[Dependency, ...] = ()
    spoiler: Dependency | None = None
    state: str = ""


def parse_dependencies(text: str, most: int) -> tuple[Dependency, ...]:
    """What sbatch's ``--dependency`` says, each only once.

    Raises:
        DeskError: a kind that there is not, an id that is none, ``?`` (any of several), or more than `most`.
    """
    if "?" in text:
        raise invalid("a dependency with '?' (any of several) is not supported: all that are listed have to be met")
    found: dict[Dependency, None] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        kind, _, ids = part.partition(":")
        if kind == SINGLETON and not ids:
            found[Dependency(SINGLETON, WorkloadId(""))] = None
            continue
        if kind not in KINDS:
            raise invalid(f"there is no dependency {kind!r}: write {', '.join(KINDS)} (each with :ID) or {SINGLETON}")
        for name in ids.split(":"):
            if _ID.fullmatch(name) is None:
                raise invalid(f"the dependency {part!r} names no job: write for example {kind}:12 or {kind}:12_3")
            found[Dependency(kind, WorkloadId(name))] = None
    if len(found) > most:
        raise invalid(f"a job can depend on at most {most} others, and this one names {len(found)}")
    return tuple(found)


def format_dependencies(dependencies: Iterable[Dependency]) -> str:
    return ",".join(map(str, dependencies))


def standing(dependencies: Sequence[Dependency], rows_of: Callable[[WorkloadId], Sequence[JobRow] | None]) -> Standing:
    """How they stand. `rows_of`: the jobs of an id (all tasks of an array); None = some have not ended yet."""
    left = []
    for dependency in dependencies:
        rows = rows_of(dependency.job)
        met = Met.NOT_YET if rows is None else _one(dependency.kind, rows)
        if met is Met.NEVER and rows is not None:
            return Standing(Met.NEVER, (dependency,), dependency, _spoiled_by(dependency.kind, rows))
        if met is Met.NOT_YET:
            left.append(dependency)
    return Standing(Met.NOT_YET if left else Met.YES, tuple(left))


def _one(kind: str, rows: Sequence[JobRow]) -> Met:
    """One dependency on jobs that have all ended."""
    if kind == "afterany":
        return Met.YES
    well = all(row.state is JobState.COMPLETED for row in rows)
    return Met.YES if well == (kind == "afterok") else Met.NEVER


def _spoiled_by(kind: str, rows: Sequence[JobRow]) -> str:
    if kind == "afternotok":
        return JobState.COMPLETED.value
    spoiler = next(row.state for row in rows if row.state is not JobState.COMPLETED)
    return str(spoiler.value)
