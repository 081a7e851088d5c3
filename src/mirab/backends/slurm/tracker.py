"""From one listing to the next: what has happened in between, as facts. Pure: no command is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirab.backends.slurm.contracts import Contract
from mirab.backends.slurm.places import Places, grown
from mirab.backends.slurm.records import STANDS_STILL, SlurmJob, SlurmNode
from mirab.model import events as facts
from mirab.model.events import Event, Outcome
from mirab.model.resources import Cluster, Shape
from mirab.model.units import FOREVER, MINUTE, AccountPath, Instant, NodeName, RunId, UserName, WorkloadId
from mirab.model.workloads import Workload

LEFT_TO_SLURM = "left to Slurm"
HELD_BY_USER = "held by its user"
DEPENDENCY = "dependency"
BEGINS_LATER = "begins later"
ARRAY_LIMIT = "array task limit"
REQUEUE_DELAY = 3 * MINUTE
"""Slurm lets a requeued job begin two minutes later; mirab sets its begin when it starts it."""

_OUTCOMES = {
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


@dataclass(slots=True)
class Seen:
    """What is known of a job that has not ended.

    Attributes:
        run: its present run, if it has one; `restarts`: of the job when that run began.
        attempt: number of its last run.
        held: why we told the scheduler that it may not start; "" = it may.
        asked: the outcome that mirab asked for when it told the run to stop.
        suspended: the scheduler knows that it stands still.
    """

    job: SlurmJob
    attempt: int = 0
    run: RunId | None = None
    restarts: int = 0
    held: str = ""
    asked: Outcome | None = None
    suspended: bool = False


class Tracker:
    """Keeps what the last listing said, and tells what the next one changes.

    Attributes:
        expected: runs that mirab has released and that have not been seen running.
    """

    def __init__(
        self,
        cluster: Cluster,
        governs: Callable[[SlurmJob], bool],
        contract: Callable[[SlurmJob], Contract],
        account: Callable[[SlurmJob], AccountPath],
    ) -> None:
        self.places = Places(cluster)
        self._governs = governs
        self._contract = contract
        self._account = account
        self._seen: dict[WorkloadId, Seen] = {}
        self._health: dict[NodeName, str] = {}
        self.expected: dict[WorkloadId, RunId] = {}

    # --- what mirab does ----------------------------------------------------------------------------------------------
    def released(self, workload_id: WorkloadId, run_id: RunId) -> None:
        """The job has been, or is about to be, let go to its nodes as this run."""
        self.expected[workload_id] = run_id

    def unreleased(self, workload_id: WorkloadId) -> None:
        self.expected.pop(workload_id, None)

    def asked(self, workload_id: WorkloadId, outcome: Outcome) -> None:
        """Its run has been told to stop; this is what its end will be called."""
        seen = self._seen.get(workload_id)
        if seen is not None:
            seen.asked = outcome

    def remember(self, runs: Mapping[WorkloadId, RunId], waiting: Iterable[WorkloadId]) -> None:
        """After a restart: what the state believes to run and to wait."""
        for workload_id, run_id in runs.items():
            attempt = int(run_id.rpartition(".")[2])
            self._seen[workload_id] = Seen(_unseen(workload_id), attempt, run_id)
        for workload_id in waiting:
            self._seen[workload_id] = Seen(_unseen(workload_id))

    def job(self, workload_id: WorkloadId) -> SlurmJob | None:
        seen = self._seen.get(workload_id)
        return None if seen is None else seen.job

    # --- what Slurm says ----------------------------------------------------------------------------------------------
    def take_in(self, jobs: Sequence[SlurmJob], nodes: Sequence[SlurmNode], now: Instant) -> list[Event]:
        """What the listing tells that was not known, in order of time; ends before starts."""
        told = self._nodes(nodes, now)
        listed = {
            WorkloadId(job.id): job for job in sorted(jobs, key=lambda job: (job.submitted_at, job.job_id, job.id))
        }
        for workload_id, job in listed.items():
            told += self._submissions(workload_id, job, now)
        ends = [end for workload_id in list(self._seen) for end in self._end(workload_id, listed, now)]
        told += sorted(ends, key=lambda fact: fact.at)
        starts = [start for workload_id, job in listed.items() for start in self._begin(workload_id, job, now)]
        told += sorted(starts, key=lambda fact: fact.at)
        running = _running_of_arrays(self._seen.values())
        for workload_id, job in listed.items():
            told += self._holding(workload_id, job, running, now)
        return told

    # --- nodes
    def _nodes(self, nodes: Sequence[SlurmNode], now: Instant) -> list[Event]:
        told: list[Event] = []
        cluster = grown(self.places.cluster, nodes)
        if cluster is not self.places.cluster:
            self.places = Places(cluster)
            told.append(facts.ClusterChanged(now, cluster))
        listed = {node.name for node in nodes}
        gone = [NodeName(name) for pool in cluster.pools for name in pool.nodes if name not in listed]
        for node in nodes:
            told += self._node(node.name, _health(node), node.reason, now)
        for name in gone:
            told += self._node(name, "down", "no longer in Slurm's configuration", now)
        return told

    def _node(self, name: NodeName, health: str, cause: str, now: Instant) -> list[Event]:
        before = self._health.get(name, "up")
        self._health[name] = health
        if health == before:
            return []
        if health == "up":
            return [facts.NodeUp(now, name)]
        if health == "degraded":
            back: list[Event] = [facts.NodeUp(now, name)] if before == "down" else []
            return [*back, facts.NodeDegraded(now, name, cause)]
        return [facts.NodeDown(now, name, cause)]

    # --- jobs
    def _submissions(self, workload_id: WorkloadId, job: SlurmJob, now: Instant) -> list[Event]:
        seen = self._seen.get(workload_id)
        if seen is not None:
            return []
        if job.ended or not job.known:
            return []
        self._seen[workload_id] = Seen(job)
        submitted = facts.WorkloadSubmitted(min(job.submitted_at, now), self._workload(job))
        held = self._why_not(job, {}, now)
        if not held:
            return [submitted]
        self._seen[workload_id].held = held
        return [submitted, facts.WorkloadHeld(now, workload_id, held)]

    def _workload(self, job: SlurmJob) -> Workload:
        contract = self._contract(job)
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
        return Workload(
            WorkloadId(job.id),
            job.submitted_at,
            self._account(job),
            UserName(job.user),
            shape,
            label=contract.label,
            checkpoint=contract.checkpoint,
            restart=contract.restart,
            resume=contract.resume and job.requeue,
        )

    def _end(self, workload_id: WorkloadId, listed: Mapping[WorkloadId, SlurmJob], now: Instant) -> list[Event]:
        """The end of a run, or of a job that waited."""
        seen = self._seen[workload_id]
        job = listed.get(workload_id)
        told: list[Event] = []
        if seen.run is not None and (job is None or not job.has_nodes or job.restarts > seen.restarts):
            told.append(self._run_ended(seen, job, now))
            seen.run, seen.asked, seen.suspended = None, None, False
        if job is None or job.ended:
            if not told and workload_id not in self.expected:
                told.append(facts.WorkloadCancelled(_at(job, now), workload_id))
            elif workload_id in self.expected:
                told += self._came_and_went(workload_id, job, now)
            del self._seen[workload_id]
        return told

    def _came_and_went(self, workload_id: WorkloadId, job: SlurmJob | None, now: Instant) -> list[Event]:
        """It was released, and ran and ended between two looks; or it was cancelled before it could run."""
        run_id = self.expected.pop(workload_id)
        if job is None or job.started_at is None or not job.node_names:
            ended = facts.RunEnded(_at(job, now), run_id, Outcome.CANCELLED)
            return [facts.WorkloadCancelled(_at(job, now), workload_id), ended]
        outcome = _OUTCOMES.get(job.state, Outcome.COMPLETED)
        started = facts.RunStarted(job.started_at, run_id)
        return [started, facts.RunEnded(_at(job, now), run_id, outcome, exit_code=_code(job))]

    def _run_ended(self, seen: Seen, job: SlurmJob | None, now: Instant) -> Event:
        assert seen.run is not None
        if job is None:
            return facts.RunEnded(now, seen.run, seen.asked or Outcome.COMPLETED)
        if job.ended:
            outcome = seen.asked if job.state == "CANCELLED" and seen.asked else _OUTCOMES.get(job.state)
            return facts.RunEnded(_at(job, now), seen.run, outcome or Outcome.COMPLETED, exit_code=_code(job))
        lost_node = any(self._health.get(node) == "down" for node in seen.job.node_names)
        outcome = seen.asked or (Outcome.NODE_FAIL if lost_node else Outcome.REQUEUED)
        return facts.RunEnded(now, seen.run, outcome)

    def _begin(self, workload_id: WorkloadId, job: SlurmJob, now: Instant) -> list[Event]:
        """The start of a run, and whether it stands still."""
        seen = self._seen.get(workload_id)
        if seen is None:
            return []
        seen.job = job
        told: list[Event] = []
        if job.has_nodes and seen.run is None:
            told += self._run_begins(seen, job, now)
        if seen.run is not None and (job.state in STANDS_STILL) != seen.suspended:
            seen.suspended = not seen.suspended
            kind = facts.RunSuspended if seen.suspended else facts.RunContinued
            told.append(kind(now, seen.run))
        return told

    def _run_begins(self, seen: Seen, job: SlurmJob, now: Instant) -> list[Event]:
        started = min(job.started_at or now, now)
        workload_id = WorkloadId(job.id)
        expected = self.expected.pop(workload_id, None)
        seen.restarts, seen.held = job.restarts, ""
        if expected is not None:
            seen.run, seen.attempt = expected, int(expected.rpartition(".")[2])
            return [facts.RunStarted(started, expected)]
        given = self.places.allocation(job)
        if given is None:
            return []
        seen.attempt = max(seen.attempt + 1, job.attempt)
        seen.run = RunId(f"{workload_id}.{seen.attempt}")
        minimum = self._contract(job).min_runtime if self._governs(job) else FOREVER
        return [facts.RunAdopted(now, seen.run, workload_id, given, started, minimum)]

    # --- what may start
    def _holding(self, workload_id: WorkloadId, job: SlurmJob, running: Mapping[int, int], now: Instant) -> list[Event]:
        seen = self._seen.get(workload_id)
        if seen is None or seen.run is not None or workload_id in self.expected or not job.waits:
            return []
        held = self._why_not(job, running, now)
        if held == seen.held:
            return []
        before, seen.held = seen.held, held
        if not held:
            return [facts.WorkloadReleased(now, workload_id)]
        released: list[Event] = [facts.WorkloadReleased(now, workload_id)] if before else []
        return [*released, facts.WorkloadHeld(now, workload_id, held)]

    def _why_not(self, job: SlurmJob, running: Mapping[int, int], now: Instant) -> str:
        """What keeps a waiting job out of the queue; "" = nothing."""
        if job.has_nodes or not job.waits:
            return ""
        if not self._governs(job):
            return LEFT_TO_SLURM
        if job.held_by == "user":
            return HELD_BY_USER
        if "unfulfilled" in job.dependency or job.reason.startswith("Dependency"):
            return DEPENDENCY
        if job.eligible_at is not None and job.eligible_at > now + (REQUEUE_DELAY if job.restarts else 0):
            return BEGINS_LATER
        if job.array_limit and job.array_job is not None and running.get(job.array_job, 0) >= job.array_limit:
            return ARRAY_LIMIT
        return ""


def _unseen(workload_id: WorkloadId) -> SlurmJob:
    """A stand-in for a job that the state knows and that this process has not seen yet."""
    return SlurmJob(workload_id, 0, "", "", "", "", "PENDING", (), "", 1, 0, 0)


def _running_of_arrays(seen: Iterable[Seen]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in seen:
        if each.job.array_job is not None and each.run is not None:
            found[each.job.array_job] = found.get(each.job.array_job, 0) + 1
    return found


def _health(node: SlurmNode) -> str:
    if node.dead:
        return "down"
    return "degraded" if node.draining else "up"


def _at(job: SlurmJob | None, now: Instant) -> Instant:
    return now if job is None or job.ended_at is None else min(job.ended_at, now)


def _code(job: SlurmJob) -> int:
    """As a shell gives it."""
    return 128 + job.signal if job.signal else job.exit_code
