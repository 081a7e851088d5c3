"""Answers to why and when, as they go over the wire."""

# ruff: noqa: RUF012  # pydantic copies its defaults
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mirab.service.fields import Moment
from mirab.service.forms.base import Reply
from mirab.service.forms.jobs import JobState


class Blocker(Reply):
    """One thing that keeps a job waiting, the first one first."""

    code: Annotated[str, Field(description="squeue's short word.", examples=["Resources", "Share"])]
    fact: Annotated[str, Field(description="What is so, with its numbers.")]
    action: Annotated[str, Field(description="What would remove it.")] = ""
    reason: Annotated[dict[str, Any], Field(description="The recorded reason, typed, with its numbers.")] = {}
    about: Annotated[str, Field(description="The job that it was recorded of: the first of its queue.")] = ""
    removes: Annotated[
        list[str], Field(description="Jobs or accounts whose going would remove it, as far as that is known.")
    ] = []


class LedgerEntry(Reply):
    """A run that an account was charged for in the window."""

    run: str
    user: str
    gpu_h: Annotated[float, Field(description="GPU-hours in the window.")]
    running: bool


class Contender(Reply):
    """An account with waiting work, as it stands now."""

    account: str
    ratio: Annotated[float | None, Field(description="(used + par + committed) / entitled; null = it has no share.")]
    used_h: float
    par_h: Annotated[
        float, Field(description="The part of the window before the account's first day, counted as delivered.")
    ] = 0
    committed_h: float
    entitled_h: float
    waiting_jobs: int
    first_job: str = ""
    mine: bool = False
    runs: Annotated[int, Field(description="Runs in the window.")] = 0
    entries: Annotated[list[LedgerEntry], Field(description="Its largest runs in the window.")] = []


class WhatIf(Reply):
    """What a copy of the scheduler decided about a changed request; nothing was changed."""

    change: str
    decision: Literal["start", "wait", "reject"]
    sentence: str


class WhyAnswer(Reply):
    """Why a job waits, or its story."""

    id: str
    state: JobState
    at: Moment
    headline: str
    blockers: list[Blocker] = []
    charged_to: Annotated[
        str, Field(description="Whose share pays for it, where pools have shares of their own, as a sentence.")
    ] = ""
    ahead: Annotated[list[Contender], Field(description="Accounts that go before its own, and its own last.")] = []
    level_at: Annotated[
        Moment | None, Field(description="When its account stands as low as the first, at the present mix.")
    ] = None
    level: Annotated[str, Field(description="The same as a sentence; '' = it does not matter here.")] = ""
    whatif: Annotated[
        list[WhatIf], Field(description="Changes that help: rehearsed on a copy, neither recorded nor promised.")
    ] = []
    in_vain: Annotated[list[str], Field(description="Changes that were rehearsed and do not help now.")] = []
    story: Annotated[dict[str, Any] | None, Field(description="As `mirab explain --json`, in Unix seconds.")] = None
    text: Annotated[str, Field(description="The story for people.")] = ""


class Score(Reply):
    """How often forecasts held. Shares are null where nothing could be judged yet."""

    forecasts: int
    judged: Annotated[int, Field(description="Those of which p90 could be judged.")]
    p50_held: float | None = None
    p90_held: float | None = None
    p90_over_wait: Annotated[float | None, Field(description="Median of p90 over the actual wait.")] = None
    without_p90: Annotated[int, Field(description="Later than the runs looked.")] = 0
    wait_p50_s: float | None = None
    bounds: Annotated[int, Field(description="Waits with a bound by the contract: counted apart.")] = 0
    bounds_held: float | None = None


class WhenAnswer(Reply):
    """When a job will start."""

    id: Annotated[str, Field(description="'' = of a request that nobody has submitted.")] = ""
    state: JobState = "PENDING"
    kind: Annotated[str, Field(description="Its class, as in the report.")] = ""
    sentence: str
    stands_in: Annotated[
        str,
        Field(description="The job whose forecast this is, while there is none of its own yet: '' = it is its own."),
    ] = ""
    assumption: Annotated[
        Literal["", "contract", "arrivals", "run-lengths", "none"],
        Field(description="What it hangs on most; '' = there is no forecast."),
    ] = ""
    because: Annotated[str, Field(description="The same as a sentence.")] = ""
    p50: Annotated[Moment | None, Field(description="It starts by then in half of the runs; null = not known.")] = None
    p90: Annotated[Moment | None, Field(description="The same in nine of ten.")] = None
    after_50: Annotated[Moment | None, Field(description="p50 is not before.")] = None
    after_90: Annotated[Moment | None, Field(description="p90 is not before.")] = None
    later_than: Annotated[Moment | None, Field(description="`after_90` where p90 is not known.")] = None
    bound: Annotated[Moment | None, Field(description="The contract's own word: it starts by then.")] = None
    alone_p50: Annotated[Moment | None, Field(description="As p50, if nothing new came in.")] = None
    runs: int = 0
    started: Annotated[int, Field(description="In how many of them it started.")] = 0
    made_at: Moment | None = None
    age_s: Annotated[float, Field(description="How old the forecast is.")] = 0
    took_s: Annotated[float, Field(description="What its batch took.")] = 0
    sources: Annotated[dict[str, float], Field(description="Whose history run times were drawn from.")] = {}
    score: Score | None = None
    trust: str = ""


class Calibration(Reply):
    """How past forecasts held, by class, `all` among them."""

    classes: dict[str, Score]
    kept: int
    since: Moment | None = None
    note: str = ""
