"""What goes over the wire: requests with their limits, and answers. The OpenAPI document is made from these.

Durations are strings with units (``15m``), instants ISO 8601 in UTC (``2026-03-01T12:00:00Z``), amounts of charge in
GPU-hours. A job's own words keep the names that they have in `mirab.model.records`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from mirab.service.fields import (
    AccountText,
    Argument,
    DurationText,
    LineText,
    Moment,
    Name,
    PathText,
    ScriptText,
    Sentence,
    ShareText,
    SignalText,
    UserText,
    VariableName,
    whole,
)

JobState: TypeAlias = Literal[
    "PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL",
    "REJECTED",
]  # fmt: skip


class Request(BaseModel):
    """What is sent to the service: an unknown key is an error, since it is most likely a typing error."""

    model_config = ConfigDict(extra="forbid")


class Reply(BaseModel):
    """What the service answers: keys may be added in later versions, so readers ignore those they do not know."""

    model_config = ConfigDict(extra="ignore")


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
    ] = "15m"
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


class Why(Request):
    """Why something is done, for the audit log and for whom it concerns."""

    why: Sentence = ""


# --- shares and budgets --------------------------------------------------------------------------------------------
class ShareUser(Reply):
    user: str
    used_h: float = 0
    committed_h: float = 0
    running_gpus: int = 0
    waiting_jobs: int = 0


class ShareAccount(Reply):
    """An account of the tree: what it is promised and what it got, in GPU-hours of the window."""

    path: str
    share: Annotated[float, Field(description="Of the whole cluster, 0 to 1.")]
    used_h: float = 0
    par_h: Annotated[
        float, Field(description="The part of the window before the account's first day, counted as delivered.")
    ] = 0
    owed_h: float | None = None
    delivered_h: float | None = None
    entitled_h: float = 0
    committed_h: float = 0
    debt_h: float | None = None
    ratio: Annotated[
        float | None, Field(description="(used + par + committed) / entitled; null = nothing is entitled.")
    ] = None
    running_gpus: int = 0
    waiting_jobs: int = 0
    waiting_gpus: int = 0
    users: list[ShareUser] = []
    debt_from: Annotated[Moment | None, Field(description="When its debt begins to leave the window, unpaid.")] = None
    debt_gone_by: Annotated[Moment | None, Field(description="When all of it has.")] = None
    next_job: Annotated[str, Field(description="The one of its waiting jobs that is forecast to start first.")] = ""
    next_start: Annotated[Moment | None, Field(description="By then in half of the runs forward.")] = None
    next_start_p90: Annotated[Moment | None, Field(description="The same in nine of ten; null = not known.")] = None
    owner: str = ""
    review: str = ""
    hypothesis: str = ""


class Shares(Reply):
    accounts: list[ShareAccount]


class BudgetNode(Request):
    """One account's budget, as in the cluster file."""

    share: Annotated[ShareText, Field(description="Of its parent.")]
    children: Annotated[dict[Name, BudgetNode], Field(max_length=10_000)] = {}
    owner: Sentence = ""
    review: Sentence = ""
    hypothesis: Sentence = ""
    outcome: Sentence = ""
    closed: Sentence = ""
    formerly: Annotated[list[Name], Field(max_length=100, description="Names that it had before.")] = []
    save_for_gangs: Annotated[bool, Field(strict=True)] = False
    equal_users: Annotated[bool, Field(strict=True)] = True
    gpus_max: Annotated[int | None, Field(ge=0, description="The most GPUs that it may use at once.")] = None
    min_runtime_cap: Annotated[str | None, Field(max_length=100, description="Its longest minimum, such as 4h.")] = None
    gang_gpus_max: Annotated[int | None, Field(ge=0, description="The most GPUs of one of its jobs.")] = None


class BudgetChange(Request):
    """The whole tree as it is to be: what it leaves out is closed."""

    budgets: Annotated[dict[Name, BudgetNode], Field(min_length=1, max_length=10_000)]
    why: Sentence = ""


class BudgetTree(Reply):
    budgets: dict[str, BudgetNode]
    version: Annotated[str, Field(description="Changes with each change; the ETag without its quotes.")]
    changed_at: Moment | None = None
    changed_by: str = ""
    why: str = ""


# --- nodes ---------------------------------------------------------------------------------------------------------
class Node(Reply):
    """A node as it is: what it has, what runs there, and why it takes nothing new if so."""

    name: str
    pool: str
    state: Annotated[str, Field(examples=["idle", "mixed", "allocated", "draining", "drained", "down"])]
    gpus: int
    gpus_used: int = 0
    gpu_type: str = ""
    cpus: int = 0
    jobs: list[str] = []
    reason: str = ""
    drain_until: Moment | None = None


class Nodes(Reply):
    nodes: list[Node]


class NodeReport(Request):
    """What was seen on a node: an NVIDIA XID, or words."""

    xid: Annotated[int, whole(1, 1_000)] | None = None
    text: Sentence = ""


class Squatter(Reply):
    """A run that holds GPUs without a sign of progress for longer than it declared."""

    job: str
    run: str
    user: str
    account: str
    gpus: int
    since: Annotated[Moment | None, Field(description="Its last sign of progress, or its start.")] = None
    silent_s: float
    gpu_hours: Annotated[float, Field(description="What it has held meanwhile.")] = 0
    activity: Annotated[float | None, Field(description="Mean GPU activity, 0 to 1; null = nothing measures it.")] = (
        None
    )
    interactive: bool = False
    flag: str = ""


class Squatters(Reply):
    runs: list[Squatter]


class Decision(Reply):
    seq: int
    at: Moment
    facts: list[dict[str, Any]]
    plan: dict[str, Any]


class Decisions(Reply):
    decisions: list[Decision]
    before: Annotated[int | None, Field(description="Ask with this for older ones; null = there are none.")] = None


# --- who may -------------------------------------------------------------------------------------------------------
Role: TypeAlias = Literal["researcher", "manager", "operator", "admin"]


class GrantModel(BaseModel):
    """A role on an account and all below it; '' = the whole cluster."""

    model_config = ConfigDict(extra="forbid", title="Grant")

    role: Role
    account: AccountText = ""


class NewToken(Request):
    """A token for a user, or (`local`) the roles of a Unix user of this machine, who needs no token."""

    user: UserText
    grants: Annotated[list[GrantModel], Field(min_length=1, max_length=100)]
    expires_in: Annotated[DurationText | None, Field(description="null = it does not expire.")] = None
    note: Sentence = ""
    local: Annotated[bool, Field(strict=True)] = False


class Token(Reply):
    """A token as it is stored, without itself; or the roles of a local user."""

    id: str
    user: str
    grants: list[GrantModel]
    local: bool = False
    created_at: Moment
    created_by: str
    expires_at: Moment | None = None
    revoked_at: Moment | None = None
    note: str = ""


class TokenMade(Token):
    token: Annotated[str | None, Field(description="Shown this once; null for a local user.")] = None


class Tokens(Reply):
    tokens: list[Token]


class Audit(Reply):
    """A change that somebody made."""

    at: Moment
    who: str
    origin: str
    action: str
    target: str
    before: str = ""
    after: str = ""
    why: str = ""


class AuditPage(Reply):
    entries: list[Audit]
    next: Annotated[str | None, Field(description="Cursor of the next page; null = this is the last.")] = None


class WhoAmI(Reply):
    user: str
    origin: str
    grants: list[GrantModel]
    rights: Annotated[list[str], Field(description="What you may do somewhere.")]


class Version(Reply):
    version: str
    api: str = "v1"
    started_at: Annotated[Moment | None, Field(description="When this service began to answer.")] = None


class Health(Reply):
    status: str
    detail: str = ""


class Problem(Reply):
    """RFC 9457. `detail` is for people; `type` is for programs."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(examples=["urn:mirab:problem:not-found"])] = "about:blank"
    title: str
    status: int
    detail: str = ""
    instance: Annotated[str, Field(description="The request's id, as in the service's log.")] = ""
