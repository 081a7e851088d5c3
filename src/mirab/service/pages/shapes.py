"""What the pages are told, as it goes over the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mirab.service.fields import Moment
from mirab.service.forms.people import WhoAmI


class Told(BaseModel):
    """What the service answers: keys may be added in later versions."""

    model_config = ConfigDict(extra="ignore")


class Session(Told):
    """Who is logged in to the pages."""

    me: WhoAmI | None = None


class Level(Told):
    """One of the four measures at this moment."""

    name: str
    part: float
    whole: float
    unit: str
    ratio: Annotated[float | None, Field(description="null = there is nothing to measure it by.")] = None
    wanted: Annotated[float | None, Field(description="Occupancy: what could be busy, by what is asked for.")] = None
    window_s: Annotated[float | None, Field(description="Impact: over which time.")] = None
    ready: Annotated[bool, Field(description="false = the books are still being read.")] = True
    running: Annotated[float | None, Field(description="Utilization: GPUs that run something.")] = None


class PoolNow(Told):
    """A pool of nodes. Slots are GPUs, or cores where it has none."""

    name: str
    gpu_type: str = ""
    unit: str
    counted: Annotated[bool, Field(description="Whether the four measures are about it.")]
    per_node: int
    installed: int
    schedulable: Annotated[int, Field(description="Of nodes that take work, and what still runs on others.")]
    busy: int
    leaving: Annotated[int, Field(description="Of these, still busy on nodes that take no new work.")] = 0
    free: int
    whole_free: Annotated[int, Field(description="Nodes that are free as a whole.")] = 0
    stranded: Annotated[int, Field(description="Free on nodes that are partly used.")] = 0
    kept_out: Annotated[int, Field(description="Jobs for which enough is free, but not together.")] = 0
    nodes: Annotated[
        list[tuple[str, str, int, list[str]]],
        Field(description="Name; i idle, m mixed, a allocated, g degraded, d draining, r in repair, x down; used; "
              "jobs."),
    ] = []  # fmt: skip


class HoldNow(Told):
    """Nodes that are kept for a job or a reservation."""

    job: str | None = None
    reservation: str | None = None
    account: str = ""
    user: str = ""
    nodes: list[str] = []
    gpus_per_node: int
    granted_at: Moment
    until: Moment
    due: bool = False


class CrowdNow(Told):
    """What one user has of one account."""

    account: str = ""
    user: str = ""
    lines: int = 1
    gpus: int = 0
    runs: int = 0
    waiting_jobs: int = 0
    waiting_gpus: int = 0


class Now(Told):
    """The cluster at this moment."""

    at: Moment
    pyramid: list[Level]
    pools: list[PoolNow]
    holds: list[HoldNow] = []
    people: list[CrowdNow] = []
    people_more: CrowdNow
    total: CrowdNow
    held_jobs: int = 0
    silent_runs: int = 0


class Step(Told):
    """GPUs (of weight 1) on average over a stretch of time."""

    at: Moment
    hours: float
    owed: float
    charged: float


class Debt(Told):
    """What is still owed, and when it will have left the window if nothing is paid."""

    debt_h: float
    leaves_from: Moment
    gone_by: Moment


class Trend(Told):
    ready: Annotated[bool, Field(description="false = the books are still being read.")] = True
    steps: list[Step] = []
    debts: Annotated[dict[str, Debt], Field(description="By account.")] = {}


class ChronicleLine(Told):
    topic: str
    what: str
    text: str
    job: str = ""
    node: str = ""
    account: str = ""


class ChronicleEntry(Told):
    """A record of the journal in sentences."""

    seq: int
    at: Moment
    lines: list[ChronicleLine]
    more: Annotated[int, Field(description="Lines left out.")] = 0


class Chronicle(Told):
    entries: list[ChronicleEntry]
    before: Annotated[int | None, Field(description="Ask with this for older ones; null = there are none.")] = None


class Replay(Told):
    """A report of `mirab sim --json` that is kept."""

    name: str
    log: str = ""
    policies: list[str] = []
    kept_at: Moment
    bytes: int
    problem: Annotated[str, Field(description="Why it cannot be shown; '' = it can.")] = ""


class Replays(Told):
    replays: list[Replay]
    folder: str = ""


class Comparison(Told):
    """Replays side by side, as they are written for people."""

    labels: list[str]
    title: str
    lede: str
    groups: list[dict[str, Any]]
