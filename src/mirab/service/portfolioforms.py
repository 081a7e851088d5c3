"""What goes over the wire about changesets, exceptions, gates and the rollout."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from mirab.service.fields import AccountText, Moment, Name, Sentence, whole
from mirab.service.schemas import BudgetNode, Reply, Request

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
    changes: Annotated[list[dict[str, Any]], Field(description="Account, term, before and after.")]


class ChangesetKept(ChangesetMade):
    """The same with its edits in the form of the journal, from which the tree of any instant follows."""

    edits: Annotated[dict[str, Any], Field(description="As `mirab.model.codec` writes a Changeset.")]


class BudgetHistory(Reply):
    version: Annotated[int, Field(description="Of the latest decision.")]
    etag: Annotated[str, Field(description="Of the tree in force: the version of GET /budgets.")]
    now: Moment
    changesets: list[ChangesetKept]
