"""What is known of one Slurm job, and how its words become ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirab.backends.slurm.contracts import Contract
from mirab.backends.slurm.records import Booking, SlurmJob
from mirab.model.events import Outcome
from mirab.model.resources import Shape
from mirab.model.units import SECOND, AccountPath, Instant, NodeName, RunId, UserName, WorkloadId, attempt_of
from mirab.model.workloads import Workload

OUTCOMES = {
    "COMPLETED": Outcome.COMPLETED,
    "FAILED": Outcome.FAILED,
    "OUT_OF_MEMORY": Outcome.FAILED,
    "LAUNCH_FAILED": Outcome.FAILED,
    "CANCELLED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "TIMEOUT": Outcome.TIMEOUT,
    "DEADLINE": Outcome.TIMEOUT,
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
}
ON_NOTICE = frozenset({"COMPLETED", "FAILED"})
"""Ways in which a run goes that was given notice and went before it was stopped."""


@dataclass(slots=True)
class Seen:
    """What is known of a job that has not ended.

    Attributes:
        attempt: number of its last run.
        run: its present run, if it has one; begun: when that (or its last one) began, in Slurm's words.
        restarts: of the job when the run began; None = not known, as after a restart of mirab.
        expected: a run that mirab has let go and that has not been seen running; since: when it was; where: its nodes;
            unwritten: Slurm has not taken the command yet, as while the run before is still on its way out;
            refused: what it said to that; hung: why Slurm had not started it when it was to be taken back.
        past: the last of its runs that mirab has told the begin of, or that it came to nothing: it is not let go again.
        held: why we told the scheduler that it may not start; "" = it may.
        asked: the outcome that mirab asked for when it told the run to stop, and when; back: the job is to queue again;
            stopped_at: when it was really stopped, after its notice.
        suspended: the scheduler knows that it stands still.
        over: since when its run is over whose end only the accounting can tell, and has not yet; None = there is none.
        returning: it went on its notice and is to be requeued; since when.
    """

    job: SlurmJob
    workload_id: WorkloadId
    attempt: int = 0
    run: RunId | None = None
    begun: Instant | None = None
    restarts: int | None = None
    expected: RunId | None = None
    since: Instant = 0
    where: tuple[NodeName, ...] = ()
    unwritten: bool = False
    refused: str = ""
    past: RunId | None = None
    hung: str = ""
    held: str = ""
    asked: Outcome | None = None
    asked_at: Instant = 0
    back: bool = False
    stopped_at: Instant | None = None
    suspended: bool = False
    over: Instant | None = None
    returning: Instant | None = None

    def begins(self, run: RunId, job: SlurmJob, at: Instant) -> None:
        self.run, self.attempt = run, attempt_of(run)
        self.past = run
        self.begun, self.restarts = at, job.restarts
        self.expected, self.held, self.returning, self.hung, self.refused = None, "", None, "", ""

    def gives_up(self) -> RunId:
        """The run that was expected comes to nothing."""
        assert self.expected is not None
        self.past, self.expected = self.expected, None
        return self.past

    def answers(self, at: Instant) -> bool:
        """Whether an end at that instant may be what mirab asked for. One before is the run's own, however late it is
        seen; Slurm counts whole seconds."""
        return self.asked is not None and at > self.asked_at - SECOND

    def outcome(self, job: SlurmJob, now: Instant) -> Outcome:
        """What the end is called: as mirab asked for, if that is how it came; who goes on notice was stopped."""
        ours = job.state in ON_NOTICE or (job.state == "CANCELLED" and not self.back)
        if self.asked is not None and ours and self.answers(end_of(job, now)):
            return self.asked
        return OUTCOMES.get(job.state, Outcome.COMPLETED)

    def is_over(self, job: SlurmJob | None) -> bool:
        """Whether the present run is, whatever the job does now."""
        if job is None:
            return True
        if not job.known:
            return False
        if not job.has_nodes:
            return True
        again = self.restarts is not None and job.restarts > self.restarts
        return again or self.is_later(job)

    def is_later(self, job: SlurmJob) -> bool:
        """Whether the job's start is later than that of the run that is known; Slurm counts whole seconds."""
        return job.started_at is not None and (self.begun is None or job.started_at > self.begun + SECOND)

    def is_where_it_was_to_be(self, job: SlurmJob) -> bool:
        """Whether it runs on the nodes that mirab gave it; without them it is a start of Slurm's own."""
        return not self.where or not job.node_names or sorted(self.where) == sorted(job.node_names)

    def came_and_was_requeued(self, job: SlurmJob) -> bool:
        """Whether it waits or runs again after a start that no listing has shown; after a restart of mirab, it may."""
        before = self.job.restarts if self.job.job_id else 0
        goes_on = job.waits or job.has_nodes
        return self.expected is not None and self.run is None and goes_on and job.restarts > before

    def in_the_dark(self, job: SlurmJob | None) -> bool:
        """Whether the listing does not tell the end of its run, or not even that it was."""
        if self.run is None:
            return job is not None and self.came_and_was_requeued(job)
        return self.is_over(job) and (job is None or not job.ended)

    def requeued_at(self, job: SlurmJob | None) -> Instant | None:
        """When Slurm put the job back into its queue after its present run: it then counts as submitted anew."""
        after = job is not None and self.begun is not None and job.submitted_at > self.begun
        return job.submitted_at if job is not None and after else None

    def booked(self, bookings: Sequence[Booking]) -> Booking | None:
        """Its present run in the accounting, if that knows its end."""
        begun = self.begun
        if begun is None:
            return None
        ended = [each for each in bookings if each.job == self.job.id and each.ended_at is not None]
        return next((each for each in ended if abs(each.started_at - begun) <= SECOND), None)


def unseen(job_id: str) -> SlurmJob:
    """A stand-in for a job that the state knows and that this process has not seen yet."""
    return SlurmJob(job_id, 0, "", "", "", "", "PENDING", (), "", 1, 0, 0)


def job_of(workload_id: WorkloadId) -> str:
    """Slurm's id; `5r1` is job 5 as it came again after it had ended."""
    return workload_id.partition("r")[0]


def workload_for(job: SlurmJob, workload_id: WorkloadId, account: AccountPath, contract: Contract) -> Workload:
    """The job as the scheduler sees it. A contract that could not be read says so in its label."""
    shape = Shape(
        job.nodes,
        job.gpus_per_node,
        job.cpus_per_node,
        job.memory_mib_per_node,
        (job.gpu_type,) if job.gpu_type else (),
        contract.min_runtime,
        job.time_limit,
        contract.grace,
    )
    label = contract.label or job.name
    return Workload(
        workload_id,
        job.submitted_at,
        account,
        UserName(job.user),
        shape,
        label=f"{label} ({contract.note})" if contract.note else label,
        checkpoint=contract.checkpoint,
        restart=contract.restart,
        resume=contract.resume and job.requeue,
    )


def exit_code(job: SlurmJob | Booking) -> int:
    """As a shell gives it."""
    return 128 + job.signal if job.signal else job.exit_code


def end_of(job: SlurmJob | None, now: Instant) -> Instant:
    return now if job is None or job.ended_at is None else min(job.ended_at, now)
