"""What a live service keeps beside facts and plans: what to execute, who did what, and each job as people see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from mirab.model.accounts import Budgets
from mirab.model.policy import Policy
from mirab.model.resources import Cluster
from mirab.model.units import AccountPath, Duration, Instant, NodeName, RunId, UserName, WorkloadId


class JobState(Enum):
    """A job's state in Slurm's words."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    """Told to stop, and not gone yet."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    REJECTED = "REJECTED"
    """It can never run as asked."""

    @property
    def ended(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.COMPLETING)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What an engine executes for a workload. Nothing of it decides anything; it never enters State.

    Attributes:
        argv: program and arguments; with a `script`, the script's own arguments.
        script: text of a batch script with its ``#!`` line; "" = run `argv` itself.
        environment: the whole environment that the submitter exported, without what mirab adds.
        output, error: file names with Slurm's ``%j %A %a %x %u`` in them; `error` "" = both into `output`.
        append: keep what is in the output file, as for a requeued job.
        signal: the notice that comes `grace` before the stop.
        checkpoint_file: touching it says that work is safe; "" = none.
        verify_resume: a command that proves that the saved state restores; "" = none.
        uid, gid: the Unix user to run as, where the service may choose; None = the service's own.
        interactive: a person is attached to a terminal (a session).
        idle_timeout: a session without a sign of life for so long is ended after a warning; 0 = never.
        array_job, array_task, array_limit: the array it is a part of, its index, and how many may run at once.
        after: ids of jobs that must have ended well (``afterok``), by kind of dependency.
        progress_interval: the longest that it should hold GPUs without a sign of progress; 0 = not declared.
        launches_forgiven: launches that failed in attempts up to this one no longer count: it was released since.
        account, user: who it is for, as the run's environment and the names of its output files tell it.
    """

    workload_id: WorkloadId
    name: str
    argv: tuple[str, ...] = ()
    script: str = ""
    cwd: str = "/"
    environment: tuple[tuple[str, str], ...] = ()
    output: str = "mirab-%j.out"
    error: str = ""
    append: bool = False
    signal: str = "TERM"
    grace: Duration = 10_000
    time_limit: Duration | None = None
    checkpoint_file: str = ""
    verify_resume: str = ""
    uid: int | None = None
    gid: int | None = None
    interactive: bool = False
    idle_timeout: Duration = 0
    array_job: WorkloadId | None = None
    array_task: int | None = None
    array_limit: int = 0
    after: tuple[tuple[str, WorkloadId], ...] = ()
    progress_interval: Duration = 0
    launches_forgiven: int = 0
    account: AccountPath | str = ""
    user: UserName | str = ""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as `ls` shows it: the read model that is kept in step with the journal.

    Attributes:
        attempt: number of the present or last run, 0 = it never started.
        protected_until: nobody stops it before; None = not running, or not known yet.
        preemptions, node_failures: how often it was stopped for another, and by hardware.
        exit_code: of the last attempt, as a shell gives it (128 + signal).
        held: why it is kept out of the queue; "" = it is not.
        lost: running time that its stops have cost so far.
    """

    id: WorkloadId
    name: str
    user: UserName
    account: AccountPath
    state: JobState
    nodes: int
    gpus_per_node: int
    submitted_at: Instant
    cpus_per_node: int = 0
    min_runtime: Duration = 0
    time_limit: Duration | None = None
    label: str = ""
    attempt: int = 0
    started_at: Instant | None = None
    ended_at: Instant | None = None
    protected_until: Instant | None = None
    checkpoint_at: Instant | None = None
    node_names: tuple[NodeName, ...] = ()
    exit_code: int | None = None
    preemptions: int = 0
    node_failures: int = 0
    lost: Duration = 0
    held: str = ""
    array_job: WorkloadId | None = None
    array_task: int | None = None
    interactive: bool = False


@dataclass(frozen=True, slots=True)
class RunRow:
    """One attempt of a job, for its story and for checking usage against the engine's own records."""

    id: RunId
    workload_id: WorkloadId
    attempt: int
    node_names: tuple[NodeName, ...]
    slots: int
    decided_at: Instant
    started_at: Instant | None = None
    ended_at: Instant | None = None
    outcome: str = ""
    exit_code: int | None = None
    lost: Duration | None = None


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a ledger began with, and when: its facts are folded on that."""

    cluster: Cluster
    budgets: Budgets
    policy: Policy
    at: Instant


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that a person or program made: who, when, from where, what, before, after, why."""

    at: Instant
    who: str
    origin: str
    action: str
    target: str
    before: str = ""
    after: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on a subtree of accounts ("" = the whole tree)."""

    role: str
    """``researcher``, ``manager``, ``operator`` or ``admin``."""
    account: AccountPath | str = ""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as it is stored: its hash, never itself.

    `digest`: SHA-256 of the token, hexadecimal (tokens are 256 random bits, so a slow hash would add nothing).
    """

    id: str
    digest: str
    user: UserName
    grants: tuple[Grant, ...]
    created_at: Instant
    created_by: str
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class IdempotentReply:
    """What was answered to a request that carried an Idempotency-Key, so that its repetition gets the same."""

    key: str
    who: str
    at: Instant
    request_digest: str
    reply: str


Write: TypeAlias = JobSpec | AuditEntry | TokenRow | IdempotentReply
"""What is written in the same transaction as the facts that it belongs to."""
