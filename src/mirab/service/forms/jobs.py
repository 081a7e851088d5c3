"""Jobs: how they are submitted, and what is told of them and their runs."""

# ruff: noqa: RUF012  # pydantic copies its defaults

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, Field

from mirab.service.desk.forms import USUAL_MINIMUM
from mirab.service.fields import (
    AccountText,
    Argument,
    DurationText,
    LineText,
    Moment,
    Name,
    PathText,
    ScriptText,
    SignalText,
    VariableName,
    whole,
)
from mirab.service.forms.base import Reply, Request

JobState: TypeAlias = Literal[
    "PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL",
    "REJECTED",
]  # fmt: skip


# --- jobs ----------------------------------------------------------------------------------------------------------
class SubmitRequest(Request):
    """A job as it is submitted: a `script`, or the program and its arguments as `argv`."""

    account: Annotated[AccountText, Field(description="'' = the only one that you may submit for.")] = ""
    name: Annotated[Name, Field(description="Default: the script's or program's name.")] = ""
    script: Annotated[ScriptText, Field(description="Text of a batch script, with its `#!` line.")] = ""
    argv: Annotated[
        list[Argument],
        Field(max_length=4_096, description="Program and arguments; with a script, the script's own arguments."),
    ] = []
    cwd: Annotated[PathText, Field(description="Absolute path of the folder to run in.")] = "/"
    environment: Annotated[
        dict[VariableName, Argument],
        Field(max_length=4_096, description="The whole environment, without what mirab adds."),
    ] = {}
    nodes: Annotated[int, whole(1, 100_000)] = 1
    gpus_per_node: Annotated[int, whole(0, 1_024)] = 0
    cpus_per_node: Annotated[int, whole(0, 65_536), Field(description="0 = what goes with the GPUs.")] = 0
    memory_mib_per_node: Annotated[int, whole(0, 1 << 30)] = 0
    gpu_types: Annotated[list[Name], Field(max_length=64, description="Accepted types; none = any.")] = []
    time_limit: Annotated[DurationText | None, Field(description="null = none.")] = None
    min_runtime: Annotated[
        DurationText, Field(description="Nobody stops a run before; 0 = not charged, and may be stopped at any time.")
    ] = USUAL_MINIMUM
    signal: Annotated[SignalText, Field(description="Sent `grace` before a stop.")] = "TERM"
    grace: Annotated[DurationText, Field(description="Notice before a stop.")] = "10s"
    output: Annotated[
        PathText,
        Field(description="File name with Slurm's %j %A %a %x %u in it, relative to `cwd`; '' = mirab-%j.out."),
    ] = ""
    error: Annotated[PathText, Field(description="As `output`; '' = both into `output`.")] = ""
    append: Annotated[bool, Field(strict=True)] = False
    checkpoint: Annotated[DurationText, Field(description="Interval between checkpoints; 0 = it never does.")] = "0"
    checkpoint_file: Annotated[PathText, Field(description="Touching it says that work is safe.")] = ""
    restart: Annotated[DurationText, Field(description="What a resumed run needs to get going again.")] = "0"
    resume: Annotated[bool, Field(strict=True, description="A stopped run goes back to the queue.")] = True
    verify_resume: Annotated[Argument, Field(description="Command that proves that what was saved restores.")] = ""
    priority: Annotated[int, whole(0, 100), Field(description="Rank among your own jobs.")] = 1
    deadline: Annotated[AwareDatetime | None, Field(description="Orders your own jobs by their slack.")] = None
    dependency: Annotated[LineText, Field(description="As in sbatch.", examples=["afterok:12:13,afterany:9"])] = ""
    array: Annotated[LineText, Field(description="As in sbatch.", examples=["0-15%4"])] = ""
    hold: Annotated[bool, Field(strict=True, description="Keep it out of the queue until it is released.")] = False
    label: Annotated[Name, Field(description="Your own word for jobs that belong together.")] = ""
    interactive: Annotated[bool, Field(strict=True, description="A person is attached: a session.")] = False
    idle_timeout: Annotated[DurationText, Field(description="For sessions; 0 = never.")] = "0"
    progress: Annotated[
        DurationText, Field(description="Longest time without a sign of progress; 0 = not declared.")
    ] = "0"


class Job(Reply):
    """A job as everybody sees it."""

    id: str
    name: str
    user: str
    account: str
    state: JobState
    reason: Annotated[str, Field(description="Why it waits, as a short word.", examples=["Resources", "Held"])] = ""
    why: Annotated[str, Field(description="The same as a sentence, with its numbers.")] = ""
    nodes: int
    gpus_per_node: int
    gpus: int
    cpus_per_node: int = 0
    min_runtime_s: float = 0
    time_limit_s: float | None = None
    submitted_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = None
    protected_until: Annotated[Moment | None, Field(description="Nobody stops it before.")] = None
    attempt: Annotated[int, Field(description="Number of the present or last run; 0 = it never started.")] = 0
    node_names: list[str] = []
    exit_code: Annotated[int | None, Field(description="As a shell gives it: 128 + signal.")] = None
    preemptions: int = 0
    lost_s: Annotated[float, Field(description="Running time that its stops have cost so far.")] = 0
    label: str = ""
    array_job: str | None = None
    array_task: int | None = None
    held: Annotated[str, Field(description="Why it is kept out of the queue; '' = it is not.")] = ""
    checkpoint_at: Moment | None = None
    progress_flag: Annotated[str, Field(description="'' = well; else what is missed.")] = ""
    interactive: bool = False


class Run(Reply):
    """One attempt of a job."""

    id: str
    attempt: int
    node_names: list[str] = []
    gpus: int = 0
    decided_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = None
    outcome: str = ""
    exit_code: int | None = None
    lost_s: float | None = None


class JobSpec(Reply):
    """What is executed: for the owner, managers of the account, and admins."""

    argv: list[str] = []
    script: str = ""
    cwd: str = "/"
    environment: dict[str, str] = {}
    output: str = ""
    error: str = ""
    append: bool = False
    signal: str = "TERM"
    grace_s: float = 10
    checkpoint_file: str = ""
    verify_resume: str = ""
    idle_timeout_s: float = 0
    progress_s: float = 0
    dependency: str = ""
    array_limit: int = 0


class JobDetail(Job):
    """A job with its attempts, and with what it executes for those who may see that (else null)."""

    runs: list[Run] = []
    spec: JobSpec | None = None
    run_dir: Annotated[
        str,
        Field(description="Folder of the present run on the service's machine, for those who see `spec`."),
    ] = ""


class Jobs(Reply):
    jobs: list[Job]
    next: Annotated[str | None, Field(description="Cursor of the next page; null = this is the last.")] = None


class Submitted(Reply):
    ids: Annotated[list[str], Field(description="Of an array: its tasks.")]
    job: Annotated[str, Field(description="The job's or array's own number.")]
    jobs: list[Job]
    notes: Annotated[list[str], Field(description="What is not as it was asked for.")] = []


class DryRun(Reply):
    """What would be decided if the job were submitted now."""

    decision: Literal["start", "wait", "reject"]
    sentence: str
    reason: dict[str, Any] = {}
    nodes: list[str] = []
    protected_until: Moment | None = None
    notes: list[str] = []
    account: Annotated[
        str, Field(description="Who would be charged; where the pool has shares of its own, h100:vision.")
    ] = ""
