"""What all forms have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from mirab.service.fields import Sentence


class Request(BaseModel):
    """What is sent to the service: an unknown key is an error, since it is most likely a typing error."""

    model_config = ConfigDict(extra="forbid")


class Reply(BaseModel):
    """What the service answers: keys may be added in later versions, so readers ignore those they do not know."""

    model_config = ConfigDict(extra="ignore")


class Why(Request):
    """Why something is done, for the audit log and for whom it concerns."""

    why: Sentence = ""
