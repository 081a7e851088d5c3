"""What a job has written: only its own files, opened so that no link leads elsewhere, and followed while it runs."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio.to_thread import run_sync

from mirab.model.records import JobState
from mirab.service.api.parts import Parts
from mirab.service.api.problems import ProblemError, not_found

CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which output: `attempt` None = the present one, and when followed, those that come after it."""

    job: str
    attempt: int | None
    stream: str
    offset: int
    follow: bool


class File:
    """An open output file, read from a position on. Emptied by its writer, it is read from its beginning again."""

    def __init__(self, descriptor: int, position: int) -> None:
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self.position = position
        found = os.fstat(descriptor)
        self.identity = found.st_dev, found.st_ino

    def read(self) -> bytes:
        descriptor = self._file.fileno()
        if os.fstat(descriptor).st_size < self.position:
            self.position = 0
        data = os.pread(descriptor, CHUNK, self.position)
        self.position += len(data)
        return data


def open_output(path: Path, owner: int) -> int:
    """A descriptor of a regular file that belongs to the job's user; what else it may be is looked at before opening.

    The user names the file and may put anything in its place while the job runs: a link to somebody else's file, a
    pipe, a device. The service may be root, so the file's owner, and not the service's rights, decides.

    Raises:
        ProblemError: it is not there (yet), or is not such a file.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise not_found(f"there is no output yet, or the service cannot reach it ({error.strerror})") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
            raise not_found("the output is not a regular file that belongs to the job's user: it is not shown")
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise not_found(f"the service cannot read the output ({error.strerror})") from error
    finally:
        os.close(handle)


def find_file(parts: Parts, wanted: Wanted, attempt: int, position: int) -> File:
    """The file of one attempt.

    Raises:
        ProblemError: there is none.
    """
    if attempt == 0:
        raise not_found(f"job {wanted.job} has not started yet, so it has no output")
    path = parts.outputs.path(wanted.job, attempt, wanted.stream)
    if path is None:
        raise not_found(f"attempt {attempt} of job {wanted.job} has no such output")
    return File(open_output(path, parts.outputs.owner(wanted.job)), position)


async def contents(parts: Parts, file: File) -> AsyncIterator[bytes]:
    """What is in the file now."""
    with parts.bus.place():
        async for data in _rest(file):
            yield data


async def follow(parts: Parts, wanted: Wanted) -> AsyncIterator[bytes]:
    """The bytes from a position on, as they are written, until the job has ended and all is read.

    Without a named attempt it goes on with the files of later attempts, each from its beginning.
    """
    file: File | None = None
    with parts.bus.place(), parts.bus.watching(wanted.job) as changed:
        while True:
            changed.clear()
            state, attempt = await run_sync(_progress, parts, wanted.job)
            quiet = True
            while quiet:
                newer = await run_sync(_newer, parts, wanted, attempt, file)
                if file is not None:
                    async for data in _rest(file):
                        yield data
                file = newer or file
                if newer is None and (state is None or state.ended or parts.bus.stopping):
                    return
                quiet = newer is not None or not await _within(changed, parts.settings.follow_every)


async def _rest(file: File) -> AsyncIterator[bytes]:
    while data := await run_sync(file.read):
        yield data


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it happens within a time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _progress(parts: Parts, job: str) -> tuple[JobState | None, int]:
    """State and attempt of a job; looked at before the file is read, so that what is written last is not missed."""
    row = parts.store.job(job)
    return (row.state, row.attempt) if row is not None else (None, 0)


def _newer(parts: Parts, wanted: Wanted, attempt: int, file: File | None) -> File | None:
    """The file of the present attempt, where it is not the one that is open."""
    try:
        found = find_file(parts, wanted, wanted.attempt or attempt, 0 if file else wanted.offset)
    except ProblemError:
        return None
    return None if file is not None and file.identity == found.identity else found
