"""Whether what a job depends on is done, by the listing itself. Pure.

Slurm looks after the dependencies of a held job only when it purges old jobs, once a minute: as long, GPUs would stand
idle. What the listing shows to be done is done, so mirab need not wait for that. Only what is certain counts: all
conditions met (none that are alternatives), by jobs that are listed and have ended; in every other case Slurm's word
is waited for. Should Slurm see it otherwise in the end, the job does not start, is taken back, and waits for that word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mirab.backends.slurm.records import SlurmJob

_CONDITION = re.compile(r"(?P<kind>after|afterany|afterok|afternotok):(?P<jobs>[\d_*:]+)(?:\(unfulfilled\))?")
_WHOLE_ARRAY = "_*"


class Done:
    """What the listed jobs have come to. `jobs`: by id, tasks of arrays one by one."""

    def __init__(self, jobs: Mapping[str, SlurmJob]) -> None:
        self._jobs = jobs
        self._arrays: dict[str, list[SlurmJob]] | None = None

    def fulfils(self, dependency: str) -> bool:
        """Whether a dependency, as Slurm writes it, is certainly fulfilled."""
        return all(self._met(condition) for condition in dependency.split(","))

    def _met(self, condition: str) -> bool:
        told = _CONDITION.fullmatch(condition.strip())
        return told is not None and all(
            _has_come(told["kind"], self._named(name)) for name in told["jobs"].split(":")
        )  # fmt: skip

    def _named(self, name: str) -> list[SlurmJob]:
        """The job of that name, or every task of the array; nothing if it is not listed."""
        if name in self._jobs:
            return [self._jobs[name]]
        if self._arrays is None:
            self._arrays = _by_array(self._jobs.values())
        return self._arrays.get(name.removesuffix(_WHOLE_ARRAY), [])


def _by_array(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        if job.array_job is not None:
            found.setdefault(str(job.array_job), []).append(job)
    return found


def _has_come(kind: str, jobs: list[SlurmJob]) -> bool:
    if not jobs:
        return False
    if kind == "after":
        return all(job.ended or job.has_nodes for job in jobs)
    if not all(job.ended for job in jobs):
        return False
    completed = all(job.state == "COMPLETED" for job in jobs)
    return kind == "afterany" or completed == (kind == "afterok")
