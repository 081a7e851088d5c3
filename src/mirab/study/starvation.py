"""The longest time that a workload was first of an owed leaf and waited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mypy_extensions import mypyc_attr

from mirab.model.units import MINUTE, AccountPath, Duration, Instant, WorkloadId

SAMPLED_EVERY: Duration = 15 * MINUTE


class HasRatio(Protocol):
    def ratio(self, now: Instant) -> float:
        """(U + K) / E."""


class Books(Protocol):
    """What the measures may ask of a State: ratios and who is first in a leaf's queue."""

    @property
    def accounts(self) -> Mapping[AccountPath, HasRatio]: ...

    def first_waiting(self, account: AccountPath, now: Instant) -> WorkloadId | None:
        """The charged workload of a leaf whose turn is next."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Starvation:
    """Samples who is first of each owed leaf, at most once in `SAMPLED_EVERY`.

    A workload that is first at one sample and at the next is taken to have been first between them.

    Attributes:
        longest: the longest such wait so far; `whose`: the workload.
    """

    def __init__(self) -> None:
        self._first: dict[AccountPath, tuple[WorkloadId, Instant]] = {}
        self._next: Instant = 0
        self.sampled = False
        self.longest: Duration = 0
        self.whose: WorkloadId | None = None

    def due(self, now: Instant) -> bool:
        return now >= self._next

    def sample(self, books: Books, leaves: list[AccountPath], now: Instant) -> None:
        """Look at the leaves that have charged workloads waiting."""
        self._next = now + SAMPLED_EVERY
        self.sampled = True
        seen: dict[AccountPath, tuple[WorkloadId, Instant]] = {}
        for path in leaves:
            first = self._owed_first(books, path, now)
            if first is None:
                continue
            before = self._first.get(path)
            since = before[1] if before is not None and before[0] == first else now
            seen[path] = (first, since)
            self._note(first, now - since)
        self._first = seen

    def started(self, path: AccountPath, workload_id: WorkloadId, now: Instant) -> None:
        """A workload starts: if it was first of its leaf, its wait ends exactly here."""
        before = self._first.get(path)
        if before is not None and before[0] == workload_id:
            del self._first[path]
            self._note(workload_id, now - before[1])

    def _owed_first(self, books: Books, path: AccountPath, now: Instant) -> WorkloadId | None:
        account = books.accounts.get(path)
        if account is None or not account.ratio(now) < 1:
            return None
        return books.first_waiting(path, now)

    def _note(self, whose: WorkloadId, span: Duration) -> None:
        if span > self.longest:
            self.longest, self.whose = span, whose
