"""Who may what, what they did, and how the service is."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from mirab.service.fields import AccountText, DurationText, Moment, Sentence, UserText
from mirab.service.forms.base import Reply, Request

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
