"""What can go wrong with a store, each as one sentence for a person."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot be used so; the message says what is wrong, where, and what to do."""


class StoreBusyError(StoreError):
    """Another service decides on this store; the message names it."""


class LostLeadError(StoreError):
    """Another service has taken over: this one may not write a decision any more, and has to stop."""


class StoreClosedError(StoreError):
    """The store was closed while something waited for it; nothing is known about what was being written."""


class CorruptStoreError(StoreError):
    """What is stored is damaged; the message says where, and how to get back."""


class NoRightError(StoreError):
    """The database does not let this user do what a store takes; the message says what would."""


class UnreachableStoreError(StoreError):
    """The database does not answer, or cannot write just now; the same may succeed later."""


def words_of(error: BaseException) -> str:
    """What the engine said, on one line."""
    return " ".join(str(getattr(error, "orig", error)).split())
