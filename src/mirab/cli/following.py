"""Waiting on a server that may be restarted meanwhile: long polls and streams that are taken up again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from mirab.cli.client import ANSWER_S, Client, LostError, at
from mirab.cli.exits import TimedOutError, UnreachableError
from mirab.cli.jobs import Job, has_ended
from mirab.cli.output import say

T = TypeVar("T")

POLL_S = 50
"""A long poll; the server allows a minute."""
GIVE_UP_S = 300.0
"""How long a server may be away while somebody waits for a job, which goes on meanwhile."""
PAUSE_S = 1.0


def steadily(client: Client, ask: Callable[[], T], give_up: float | None = None) -> T:
    """The answer, although the server may be away for a while.

    Raises:
        UnreachableError: it was away for `GIVE_UP_S`, or still is at `give_up` (monotonic seconds).
    """
    since = time.monotonic()
    told = False
    while True:
        try:
            return ask()
        except (UnreachableError, LostError) as error:
            left = min(since + GIVE_UP_S, give_up or float("inf")) - time.monotonic()
            if left <= 0:
                raise UnreachableError(f"{client.address} has been away for too long: {error}") from error
            if not told:
                say(f"{client.address} is away; the job goes on, and so does this command when it is back.")
            told = True
            time.sleep(min(PAUSE_S, left))


def await_end(client: Client, job_id: str, give_up: float | None = None) -> Job:
    """The job when it has ended.

    Raises:
        TimedOutError: it has not at `give_up` (monotonic seconds).
    """
    while True:
        left = POLL_S if give_up is None else min(POLL_S, max(0.0, give_up - time.monotonic()))
        job = steadily(client, lambda left=left: _poll(client, job_id, left), give_up)  # type: ignore[misc]
        if has_ended(job):
            return job
        if give_up is not None and time.monotonic() >= give_up:
            raise TimedOutError(f"job {job_id} is still {job['state']}: wait longer, or look with `mirab ls {job_id}`.")


def _poll(client: Client, job_id: str, seconds: float) -> Job:
    query = {"timeout": f"{seconds:.3f}"}
    return client.get(at("jobs", job_id, "await"), query, timeout=seconds + ANSWER_S)  # type: ignore[no-any-return]


def changes(events: Client, asker: Client, job_id: str) -> Iterator[Job]:
    """The job now, and again whenever something happened to it, until it has ended.

    `events` listens, `asker` asks: two connections.
    """
    while True:
        try:
            for _ in _blocks(events.stream("/events", {"job": job_id})):
                job = asker.get(at("jobs", job_id))
                yield job
                if has_ended(job):
                    return
        except (LostError, UnreachableError):
            time.sleep(PAUSE_S)
        steadily(asker, lambda: asker.get(at("jobs", job_id)))


def _blocks(chunks: Iterator[bytes]) -> Iterator[None]:
    """A sign for each batch of server-sent events; the greeting and signs of life count too."""
    rest = b""
    for chunk in chunks:
        _, end, rest = (rest + chunk).rpartition(b"\n\n")
        if end:
            yield None


def output(client: Client, job_id: str, *, attempt: int | None, stream: str, follow: bool) -> Iterator[bytes]:
    """What an attempt has written; with `follow` until its job has ended, across restarts of the server.

    A server that is told to stop ends its answers in good order, so a stream that ends says nothing about the job.
    """
    offset = 0
    while True:
        query = {"attempt": attempt, "stream": stream, "follow": int(follow), "offset": offset}
        try:
            for chunk in client.stream(at("jobs", job_id, "output"), query):
                offset += len(chunk)
                yield chunk
            if not follow or has_ended(client.get(at("jobs", job_id))):
                return
        except (LostError, UnreachableError):
            if not follow:
                raise
        time.sleep(PAUSE_S)
        steadily(client, lambda: client.get(at("jobs", job_id)))


def write_out(chunks: Iterator[bytes]) -> None:
    """Bytes to standard output as they come."""
    sys.stdout.flush()
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
