"""Nodes, who squats on their GPUs, and what was decided."""

# ruff: noqa: RUF012  # pydantic copies its defaults

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mirab.service.fields import Moment, Sentence, whole
from mirab.service.forms.base import Reply, Request


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
    advice: Annotated[
        bool, Field(description="The service only observed: nobody acted on the plan's actions and holds.")
    ] = False


class Decisions(Reply):
    decisions: list[Decision]
    before: Annotated[int | None, Field(description="Ask with this for older ones; null = there are none.")] = None
