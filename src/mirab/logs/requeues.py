"""Attempts of requeued jobs: several rows of one job id."""

from __future__ import annotations

from mirab.logs.intake import DUPLICATE, Intake, Job
from mirab.model.units import DAY

JOINED = "a further attempt of a requeued job, joined to its first row"


class Attempts:
    """Makes one workload of the rows of one requeued job: its run is the sum over the attempts.

    An id that turns up for another user, or submitted more than a day after the job had ended, is a new job (Slurm
    starts its counter again); it gets a number behind its id.
    """

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self.at: dict[str, int] = {}
        self.rows: dict[int, list[tuple[object, ...]]] = {}
        self.ends: dict[int, int] = {}
        self.reused = 0

    def add(self, job: Job) -> None:
        """Take a job in, or join it to the job whose attempt it is."""
        jobs = self.intake.jobs
        index = self.at.setdefault(job.id, len(jobs))
        if index == len(jobs):
            jobs.append(job)
            return
        first = jobs[index]
        attempt = _attempt(job)
        rows = self.rows.setdefault(index, [_attempt(first)])
        if attempt in rows:
            self.intake.drop(job.line, DUPLICATE)
        elif self._same(index, first, job):
            rows.append(attempt)
            self.intake.drop(job.line, JOINED)
            self.ends[index] = max(self.ends.get(index, _end(first)), _end(job))
            jobs[index] = _joined(first, job)
        else:
            self._as_new(job)

    def _same(self, index: int, first: Job, job: Job) -> bool:
        end = self.ends.get(index, _end(first))
        begin = min(first.submitted, job.submitted)
        return (first.user, first.account) == (job.user, job.account) and (
            max(first.submitted, job.submitted) <= max(min(end, _end(job)), begin) + DAY
        )

    def _as_new(self, job: Job) -> None:
        self.reused += 1
        number = 2
        while f"{job.id}#{number}" in self.at:
            number += 1
        self.at[f"{job.id}#{number}"] = len(self.intake.jobs)
        self.intake.jobs.append(job._replace(id=f"{job.id}#{number}"))

    def notes(self) -> list[str]:
        """How many jobs were joined or renamed."""
        joined = sum(1 for rows in self.rows.values() if len(rows) > 1)
        extra = sum(len(rows) - 1 for rows in self.rows.values())
        notes = []
        if joined:
            notes.append(
                f"requeued jobs: {joined:,}, with {extra:,} further attempts; each is one workload, "
                "and its run is the sum over all attempts"
            )
        if self.reused:
            notes.append(f"job ids used again for other jobs, which got a number behind the id: {self.reused:,}")
        return notes


def _attempt(job: Job) -> tuple[object, ...]:
    return job.user, job.account, job.submitted, job.started, job.run


def _end(job: Job) -> int:
    return (job.submitted if job.started is None else job.started) + job.run


def _joined(first: Job, later: Job) -> Job:
    starts = [start for start in (first.started, later.started) if start is not None]
    return first._replace(
        submitted=min(first.submitted, later.submitted),
        run=first.run + later.run,
        started=min(starts, default=None),
        nodes=max(first.nodes, later.nodes),
        gpus=max(first.gpus, later.gpus),
        cpus=max(first.cpus, later.cpus),
        memory_mib=max(first.memory_mib, later.memory_mib),
    )
