"""Why a job is kept out of the queue, as it is recorded: a typed reason as JSON text."""

from __future__ import annotations

import json

from mirab.model.codec import decode, encode
from mirab.model.reasons import (
    ArrayLimitReached,
    HeldByOperator,
    HeldByUser,
    HoldReason,
    LaunchesFailed,
    Reason,
    UnmetDependency,
)

HOLDS = (HeldByUser, HeldByOperator, UnmetDependency, ArrayLimitReached, LaunchesFailed)


def written(reason: Reason) -> str:
    """The text that stands in a fact's `why` or `by`."""
    return json.dumps(encode(reason), separators=(",", ":"))


def read(text: str) -> Reason | None:
    """The reason of a text that `written` made; None = somebody wrote words."""
    if not text.startswith("{"):
        return None
    try:
        found: Reason = decode(json.loads(text))
    except ValueError:
        return None
    return found


def hold_of(why: str) -> HoldReason | None:
    """The reason of a hold; None = of a kind that the desk did not make."""
    found = read(why)
    return found if isinstance(found, HOLDS) else None
