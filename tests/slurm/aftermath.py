"""After a storm: is the ledger what Slurm's accounting says, and was every promise kept? Each fault is a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from mirab.backends.slurm.amounts import instant
from mirab.backends.slurm.listings import bookings
from mirab.backends.slurm.records import Booking
from mirab.backends.slurm.seen import job_of
from mirab.model.records import JobRow, RunRow
from mirab.model.units import SECOND


def faults(
    jobs: Iterable[str], rows: Sequence[JobRow], runs: Sequence[RunRow], listing: str, minimum_s: int
) -> list[str]:  # fmt: skip
    """What is not as it should be.

    Args:
        jobs: ids of what was submitted; rows, runs: of the ledger, those that began.
        listing: rows of `look_up` with a column of nodes behind. What had none was no run: Slurm books a start for what
            was cancelled while it waited and then requeued.
    """
    said = "\n".join(row for row in listing.splitlines() if not row.endswith("|None assigned"))
    books = [each for each in bookings(said) if each.ended_at is not None and each.ended_at > each.started_at]
    return [
        *_against_the_books(runs, books, beginless(said)),
        *_contracts(runs, minimum_s),
        *_twice(runs),
        *_lost(jobs, rows, runs),
    ]


def _against_the_books(
    runs: Sequence[RunRow], books: Iterable[Booking], ends: Mapping[str, Sequence[int]]
) -> list[str]:  # fmt: skip
    found: list[str] = []
    left = {run.id: run for run in runs}
    for book in books:
        assert book.ended_at is not None
        took = (book.ended_at - book.started_at) / SECOND
        match = next((run for run in left.values() if _same(run, book)), None)
        if match is None:
            found.append(f"{book.job} ran from {book.started_at} for {took} s ({book.state}): not in the ledger")
            continue
        del left[match.id]
        ours = ((match.ended_at or 0) - (match.started_at or 0)) / SECOND
        if abs(ours - took) > 1 and not _requeued_after_its_end(match, book):
            found.append(f"{match.id} ({match.outcome}): ledger {ours} s, accounting {took} s ({book.state})")
    return found + [
        f"{run.id} from {run.started_at} to {run.ended_at} ({run.outcome}) is in no book"
        for run in left.values()
        if (run.ended_at or 0) - (run.started_at or 0) > SECOND
        and not any(abs((run.ended_at or 0) - end) <= SECOND for end in ends.get(job_of(run.workload_id), ()))
    ]


def _contracts(runs: Iterable[RunRow], minimum_s: int) -> list[str]:
    """Slurm counts whole seconds."""
    return [
        f"{run.id} was stopped inside its minimum"
        for run in runs
        if run.outcome == "PREEMPTED" and (run.ended_at or 0) - (run.started_at or 0) < (minimum_s - 1) * SECOND
    ]


def _twice(runs: Iterable[RunRow]) -> list[str]:
    """Two runs at once, or another of what had completed."""
    found = []
    spans = sorted((job_of(run.workload_id), run.started_at or 0, run.ended_at or 0, run.id, run) for run in runs)
    for (job, _, ended, first, before), (other, started, _, second, after) in pairwise(spans):
        if job == other and started < ended - SECOND:
            found.append(f"{second} began before {first} had ended")
        if before.workload_id == after.workload_id and before.outcome == "COMPLETED":
            found.append(f"{second} began although {first} had completed")
    return found


def _lost(jobs: Iterable[str], rows: Sequence[JobRow], runs: Iterable[RunRow]) -> list[str]:
    known = {job_of(row.id).partition("_")[0] for row in rows}
    return [
        *(f"{job} was submitted and is not in the ledger" for job in jobs if job not in known),
        *(f"{row.id} has not ended: {row.state.value}" for row in rows if row.ended_at is None),
        *(f"{run.id} never ended" for run in runs if run.ended_at is None),
    ]


def beginless(listing: str) -> dict[str, list[int]]:
    """Ends, by job, that Slurm has booked without their begins: those were lost with its controller."""
    found: dict[str, list[int]] = {}
    for job, _, _, began, ended, *_ in (row.split("|") for row in listing.splitlines()):
        if instant(began) is None and (end := instant(ended)) is not None:
            found.setdefault(job, []).append(end)
    return found


def _requeued_after_its_end(run: RunRow, book: Booking) -> bool:
    """Slurm then writes the requeue over the end that it had booked: the accounting is wrong, not the ledger."""
    itself = run.outcome in ("COMPLETED", "FAILED", "CANCELLED")
    on_notice = run.outcome == "PREEMPTED" and (run.ended_at or 0) < (book.ended_at or 0)
    return book.state == "REQUEUED" and (itself or on_notice)


def _same(run: RunRow, book: Booking) -> bool:
    return job_of(run.workload_id) == book.job and abs((run.started_at or 0) - book.started_at) <= SECOND
