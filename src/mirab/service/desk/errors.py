"""The one exception of the desk."""

from __future__ import annotations

from typing import Any

KINDS = ("invalid", "not-found", "denied", "conflict", "unavailable", "precondition")


class DeskError(Exception):
    """A command that is refused: nothing of it was done.

    Attributes:
        kind: one of `KINDS`; the edge maps it to its own codes.
        detail: a sentence for the person: what is wrong, where, and what to do.
        extra: what programs may want to know, as JSON values.
    """

    def __init__(self, kind: str, detail: str, **extra: Any) -> None:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of refusal: {', '.join(KINDS)}")
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.extra = extra


def invalid(detail: str, **extra: Any) -> DeskError:
    return DeskError("invalid", detail, **extra)


def not_found(detail: str, **extra: Any) -> DeskError:
    return DeskError("not-found", detail, **extra)


def denied(detail: str, **extra: Any) -> DeskError:
    return DeskError("denied", detail, **extra)


def conflict(detail: str, **extra: Any) -> DeskError:
    return DeskError("conflict", detail, **extra)
