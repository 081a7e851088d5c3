"""What really happens inside one attempt of a workload: restart, work, checkpoints, and the way out."""

from __future__ import annotations

from zlib import crc32

from mirab.model.events import Outcome
from mirab.model.resources import Allocation
from mirab.model.units import Duration, Instant, RunId
from mirab.model.workloads import Workload


class Attempt:
    """The hidden truth about one run. Spans are running time of this attempt, counted from `started_at`.

    Attributes:
        began_with: work that earlier attempts had saved.
        restart: running time before the first new work; 0 for the first attempt.
        interval: work between two checkpoints, 0 = it never saves anything.
        minimum: the end of its minimum, at which a workload that checkpoints at all also saves.
        ends_at, outcome: its next end as things stand; a stop or a failure brings it forward.
        ticket: serial number of the entry in the event heap that carries this end; older entries are stale.
        told: it has been told to stop.
    """

    __slots__ = (
        "allocation",
        "began_with",
        "ends_at",
        "interval",
        "minimum",
        "outcome",
        "restart",
        "run_id",
        "started_at",
        "ticket",
        "told",
        "workload",
    )

    def __init__(
        self,
        run_id: RunId,
        workload: Workload,
        allocation: Allocation,
        started_at: Instant,
        began_with: Duration,
        restart: Duration,
        interval: Duration,
        minimum: Duration,
    ) -> None:
        self.run_id = run_id
        self.workload = workload
        self.allocation = allocation
        self.started_at = started_at
        self.began_with = began_with
        self.restart = restart
        self.interval = interval
        self.minimum = minimum
        self.ends_at = started_at
        self.outcome = Outcome.COMPLETED
        self.ticket = 0
        self.told = False

    def foresee_end(self, work: Duration, limit: Duration | None) -> None:
        """Its end if nobody interferes: all `work` done, or the limit of this attempt reached (None = no limit)."""
        span = self.restart + max(0, work - self.began_with)
        if limit is not None and limit < span:
            self.ends_at, self.outcome = self.started_at + limit, Outcome.TIMEOUT
        else:
            self.ends_at, self.outcome = self.started_at + span, Outcome.COMPLETED

    def last_checkpoint(self, elapsed: Duration) -> Duration:
        """When it last saved something new, as a span of this attempt; 0 = not yet in this attempt."""
        if not self.interval:
            return 0
        worked = elapsed - self.restart
        last = elapsed - worked % self.interval if worked >= self.interval else 0
        if self.restart < self.minimum <= elapsed:
            last = max(last, self.minimum)
        return last

    def saved_and_lost(self, at: Instant) -> tuple[Duration, Duration]:
        """If it stops at `at`: work of the workload that is saved, and running time that has to be repeated."""
        elapsed = max(0, at - self.started_at)
        last = self.last_checkpoint(elapsed)
        saved = self.began_with + (last - self.restart if last else 0)
        return saved, elapsed - last


def exit_delay(run_id: RunId, grace: Duration) -> Duration:
    """How long after its notice a run is gone: half of all runs use their whole grace, the others leave earlier.

    Drawn from a checksum of the run id alone, so that the same run behaves alike in every replay and on every machine.
    """
    draw = crc32(run_id.encode())
    return grace if draw & 1 else grace * ((draw >> 1) % 1000) // 1000
