"""Shares and budgets."""

# ruff: noqa: RUF012  # pydantic copies its defaults

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from mirab.service.fields import Moment, Name, Sentence, ShareText, whole
from mirab.service.forms.base import Reply, Request

GpuCap: TypeAlias = Annotated[int, whole(0, 1_000_000)]


class ShareUser(Reply):
    user: str
    used_h: float = 0
    committed_h: float = 0
    running_gpus: int = 0
    waiting_jobs: int = 0


class ShareAccount(Reply):
    """An account of the tree: what it is promised and what it got, in GPU-hours of the window."""

    path: Annotated[str, Field(description="With its pool before it where that has shares of its own: h100:vision.")]
    ledger: Annotated[str, Field(description="That pool; '' = the main tree.")] = ""
    share: Annotated[float, Field(description="Of all that its tree is about, 0 to 1: the cluster, or the pool.")]
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
    borrowed_gpus: Annotated[
        float, Field(description="Those of them beyond its share of the GPUs: lent by who does not use theirs.")
    ] = 0
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


class ShareLedger(Reply):
    """A tree of shares: the main one, or that of a pool that has shares of its own."""

    name: Annotated[str, Field(description="The pool's; '' = the main one.")]
    pools: list[str]
    gpus: Annotated[int, Field(description="Installed.")] = 0
    units: Annotated[float, Field(description="Installed, in GPUs of weight 1.")] = 0
    schedulable: Annotated[float, Field(description="Of these, what may be used now.")] = 0


class Shares(Reply):
    accounts: list[ShareAccount]
    ledgers: Annotated[list[ShareLedger], Field(description="Empty where no pool has shares of its own.")] = []


class BudgetNode(Request):
    """One account's budget, as in the cluster file."""

    share: Annotated[ShareText, Field(description="Of its parent.")]
    pool_shares: Annotated[
        dict[Name, ShareText],
        Field(max_length=100, description="Of single pools: pool -> share of what its parent has of that pool."),
    ] = {}
    children: Annotated[dict[Name, BudgetNode], Field(max_length=10_000)] = {}
    owner: Sentence = ""
    review: Sentence = ""
    hypothesis: Sentence = ""
    outcome: Sentence = ""
    closed: Sentence = ""
    formerly: Annotated[list[Name], Field(max_length=100, description="Names that it had before.")] = []
    save_for_gangs: Annotated[bool, Field(strict=True)] = False
    equal_users: Annotated[bool, Field(strict=True)] = True
    gpus_max: Annotated[GpuCap | None, Field(description="The most GPUs that it may use at once.")] = None
    min_runtime_cap: Annotated[str | None, Field(max_length=100, description="Its longest minimum, such as 4h.")] = None
    gang_gpus_max: Annotated[GpuCap | None, Field(description="The most GPUs of one of its jobs.")] = None


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
    pools: Annotated[list[str], Field(description="The cluster's, each of which may have shares of its own.")] = []
