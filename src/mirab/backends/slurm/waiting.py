"""What keeps a waiting job out of the scheduler's queue, by one listing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mirab.backends.slurm.dependencies import Done
from mirab.backends.slurm.records import SlurmJob
from mirab.backends.slurm.seen import Seen
from mirab.model.units import MINUTE, Instant

HELD_BY_USER = "held by its user"
HELD_BY_ADMIN = "held by an administrator of Slurm"
DEPENDENCY = "it waits for another job (dependency)"
BEGINS_LATER = "its begin time has not come"
ARRAY_LIMIT = "its array runs as many tasks at once as it may"
REQUEUE_DELAY = 3 * MINUTE
"""Slurm lets a requeued job begin two minutes later; mirab sets its begin when it starts it."""


@dataclass
class Waiting:
    """The listing that the waiting jobs are in.

    Attributes:
        left: why a job is left to Slurm; "" = mirab decides about it.
        done: what the listed jobs have come to.
        room: for each array with a limit that has been met: how many more tasks may run; None = not counted yet, so
            that arrays with a limit wait.
    """

    left: Callable[[SlurmJob], str]
    done: Done
    room: dict[int, int] | None = field(default=None, init=False)

    def count_arrays(self, known: Iterable[Seen]) -> None:
        """Take what arrays with a limit run now off their limits."""
        room: dict[int, int] = {}
        for seen in known:
            job = seen.job
            if job.array_job is not None and job.array_limit and (seen.run or seen.expected):
                room[job.array_job] = room.get(job.array_job, job.array_limit) - 1
        self.room = room

    def why_not(self, job: SlurmJob, seen: Seen | None, now: Instant) -> str:
        """Why a job may not start; "" = it may, and takes its place among those of its array.

        Args:
            seen: what was known of it before this listing.
        """
        left = self.left(job)
        if left:
            return left
        if job.held_by in ("user", "admin"):
            return HELD_BY_USER if job.held_by == "user" else HELD_BY_ADMIN
        if self._depends(job, seen):
            return DEPENDENCY
        if job.eligible_at is not None and job.eligible_at > now + (REQUEUE_DELAY if job.restarts else 0):
            return BEGINS_LATER
        if job.array_limit and job.array_job is not None and not self._has_room(job.array_job, job.array_limit):
            return ARRAY_LIMIT
        return ""

    def _depends(self, job: SlurmJob, seen: Seen | None) -> bool:
        """Whether it waits for another job: by Slurm's word, unless the listing shows that all of it is done."""
        if not job.dependency and not job.reason.startswith("Dependency"):
            return False
        otherwise = seen is not None and seen.hung.startswith("Dependency")
        return otherwise or not self.done.fulfils(job.dependency)

    def _has_room(self, array: int, limit: int) -> bool:
        """Whether the array may run one more task; that one is taken off."""
        if self.room is None or self.room.setdefault(array, limit) <= 0:
            return False
        self.room[array] -= 1
        return True
