"""What goes over the wire about changesets, exceptions, gates and the rollout."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from mirab.service.fields import AccountText, DurationText, Moment, Name, Sentence, ShareText, whole
from mirab.service.forms.base import Reply, Request
from mirab.service.forms.sharing import BudgetNode

Text = Annotated[str, Field(max_length=256 << 10)]

Version = Annotated[int, whole(0, 1 << 31)]


# --- changesets ------------------------------------------------------------------------------------------------------
class ChangesetWanted(Request):
    """One decision about budgets: all children of each account that it names."""

    edits: Annotated[
        dict[AccountText, Annotated[dict[Name, BudgetNode], Field(min_length=1, max_length=10_000)]],
        Field(
            default_factory=dict,
            max_length=10_000,
            description="Account ('' = the top) -> all its children as they are to be.",
        ),
    ]
    reverts: Annotated[Version, Field(description="The version that it takes back, in place of edits.")] = 0
    base: Annotated[Version | None, Field(description="The version that you saw; null = the latest.")] = None
    effective_at: Annotated[AwareDatetime | None, Field(description="From when on; null = at once.")] = None
    why: Sentence = ""
    evidence: Annotated[Sentence, Field(description="What it was decided on, such as a what-if and its hash.")] = ""


class ChangesetMade(Reply):
    """A decision that was recorded."""

    version: int
    based_on: int
    author: str
    reason: str
    recorded_at: Moment
    effective_at: Moment
    reverts: int | None = None
    cancelled: Annotated[bool, Field(description="Taken back before it took effect.")] = False
    evidence: str = ""
    evidence_told: Annotated[list[str], Field(description="What the what-if says that `evidence` names.")] = []  # noqa: RUF012
    changes: Annotated[list[dict[str, Any]], Field(description="Account, term, before and after.")]


class ChangesetKept(ChangesetMade):
    """The same with its edits in the form of the journal, from which the tree of any instant follows."""

    edits: Annotated[dict[str, Any], Field(description="As `mirab.model.codec` writes a Changeset.")]


class BudgetHistory(Reply):
    version: Annotated[int, Field(description="Of the latest decision.")]
    etag: Annotated[str, Field(description="Of the tree in force: the version of GET /budgets.")]
    now: Moment
    changesets: list[ChangesetKept]


# --- exceptions ------------------------------------------------------------------------------------------------------
class ExceptionWanted(Request):
    """An exception that somebody asks for. It always has an end: `end`, or `lasts` from its begin."""

    kind: Literal["longer-minimum", "guaranteed", "extra-share", "drain-pause", "reservation", "rollout"]
    account: AccountText
    reason: Sentence = ""
    begin: Annotated[AwareDatetime | None, Field(description="null = when it is granted.")] = None
    end: AwareDatetime | None = None
    lasts: DurationText | None = None
    cap: Annotated[DurationText, Field(description="longer-minimum: what the cap becomes.")] = "0"
    share: Annotated[ShareText, Field(description="extra-share: of the whole cluster.")] = "0%"
    donor: Annotated[AccountText, Field(description="extra-share: who gives it; '' = the unassigned rest.")] = ""
    nodes: Annotated[int, whole(0, 100_000)] = 0
    gpus_per_node: Annotated[int, whole(0, 1_024)] = 0
    pool: Name = ""
    node: Annotated[Name, Field(description="drain-pause: whose drain stops nothing meanwhile.")] = ""


class ExceptionKept(Reply):
    """An exception or a reservation, from its request to its end, with what it costs whom."""

    id: str
    kind: str
    account: str
    owner: str
    approver: str = ""
    reason: str
    state: Annotated[str, Field(examples=["asked", "in force", "to come", "refused", "revoked", "over", "lapsed"])]
    decided: str = ""
    asked_at: Moment
    begin: Moment
    end: Moment
    ends_soon: Annotated[bool, Field(description="Within a day, or the last fifth of a short one.")] = False
    terms: str = ""
    gpus: Annotated[float | None, Field(description="GPUs that it sets aside; null = none beforehand.")] = None
    gpu_hours: Annotated[float | None, Field(description="What it sets aside over its whole time.")] = None
    gpu_hours_so_far: float | None = None
    paid_by: Annotated[dict[str, float], Field(description="Account -> its part of `gpu_hours`, at most.")]
    cost: str = ""
    note: str = ""


class Exceptions(Reply):
    exceptions: list[ExceptionKept]


# --- what if ----------------------------------------------------------------------------------------------------------
Days = Annotated[int, whole(1, 90)]


class TrialWanted(Request):
    """A whole tree of budgets to try. One that leaves an account out is refused: what is to be closed is to be said."""

    budgets: Annotated[dict[Name, BudgetNode] | Text, Field(description="As in the cluster file, or its YAML.")] = ""
    exception: Annotated[Name, Field(description="In place of budgets: the exception of this id, asked for.")] = ""
    days: Days = 14


class Trial(Reply):
    """A division that is tried on the last days; ask for it again until it is done."""

    id: str
    state: Annotated[str, Field(examples=["running", "done", "failed"])]
    problem: str = ""
    sha256: Annotated[str, Field(description="Of `result` with its reports, as `?whole=true` gives it.")] = ""
    told: Annotated[list[str], Field(description="Who gains and who loses, in sentences.")] = []  # noqa: RUF012
    method: str = ""
    result: Annotated[dict[str, Any] | None, Field(description="As `mirab whatif --json`, without the reports.")] = None


# --- rollout ----------------------------------------------------------------------------------------------------------
class RolloutWanted(Request):
    """To enforce takes grounds: a kept gate report, or an exception. To observe takes none."""

    account: Annotated[AccountText, Field(description="As Slurm names it; * = all, the only one without Slurm.")]
    mode: Literal["observe", "enforce"]
    why: Sentence = ""
    report: Annotated[
        dict[str, Any] | None, Field(description="As `mirab gate --keep --sign` writes it.", max_length=100)
    ] = None
    exception: Annotated[Name, Field(description="Id of an exception of kind rollout that is in force.")] = ""


class RolloutLine(Reply):
    account: str
    mode: str
    by: str = ""
    at: Moment | None = None
    why: str = ""
    gates: Annotated[str, Field(description="Digest of the gate report that it rests on.")] = ""
    exception: str = ""
    until: Annotated[Moment | None, Field(description="When the exception that it rests on ends.")] = None


class Rollout(Reply):
    engine: Annotated[str, Field(examples=["local", "slurm"])]
    mode: Annotated[str, Field(description="Of the policy as a whole.")]
    accounts: list[RolloutLine]
