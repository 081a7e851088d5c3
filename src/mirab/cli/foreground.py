"""A job in the foreground: its output here, a word when it starts or is stopped, and what Ctrl-C does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from types import FrameType

from mirab.cli.await_ import how_it_ended
from mirab.cli.client import Client, at
from mirab.cli.clock import near
from mirab.cli.columns import nodelist, protection
from mirab.cli.following import await_end, changes, output, write_out
from mirab.cli.jobs import Job, exit_code
from mirab.cli.output import say

TWICE_S = 2.0
"""Within this time a second Ctrl-C counts as one of a pair."""
PATIENT_S = 0.5
"""A job that starts within this time is not said to wait."""
LAST_WORDS_S = 5.0
"""How long the end waits for what is still to be said."""
GOING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Foreground:
    """Follows one job. The signals that would end this program ask for the job's end instead."""

    def __init__(self, client: Client, job_id: str, *, quiet: bool) -> None:
        self.client, self.job_id, self.quiet = client, job_id, quiet
        self.notices = Notices(job_id)
        self.pressed = float("-inf")
        self.told_to_go: int | None = None

    def follow(self, *, show: bool) -> tuple[Job, int]:
        """The ended job, and the code to exit with: its own, or 128 + the signal that made this program cancel it."""
        watch = Thread(target=self._watch, daemon=True)
        watch.start()
        with self._signals():
            try:
                if show:
                    write_out(output(self.client, self.job_id, attempt=None, stream="out", follow=True))
            except BrokenPipeError:
                self._cancel()
                raise
            job = await_end(self.client, self.job_id)
        watch.join(LAST_WORDS_S)
        if not self.quiet and job["state"] != "COMPLETED":
            say(how_it_ended(job))
        return job, exit_code(job) if self.told_to_go is None else 128 + self.told_to_go

    def _watch(self) -> None:
        """In a thread of its own, with connections of its own; little more than talk depends on it."""
        with self._twin() as events, self._twin() as asker, suppress(Exception):
            begin = time.monotonic()
            for job in changes(events, asker, self.job_id):
                if job["state"] == "PENDING" and time.monotonic() - begin < PATIENT_S:
                    time.sleep(PATIENT_S)
                    job = asker.get(at("jobs", self.job_id))
                text = self.notices.about(job)
                if text and not self.quiet:
                    say(text)

    def _twin(self) -> Client:
        return Client(self.client.address, self.client.token)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in GOING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.told_to_go is not None:
            _write(f"Job {self.job_id} was asked to end; this program does not wait for it.")
            raise SystemExit(128 + number)
        if number == signal.SIGINT and self.notices.running and time.monotonic() - self.pressed > TWICE_S:
            self.pressed = time.monotonic()
            _write(f"Job {self.job_id} runs. Ctrl-C again within {TWICE_S:.0f} s cancels it.")
            return
        self.told_to_go = number
        _write(f"Cancelling job {self.job_id}; it gets its notice first. Ctrl-C again does not wait for that.")
        Thread(target=self._cancel, daemon=True).start()

    def _cancel(self) -> None:
        with self._twin() as client, suppress(Exception):
            client.post(at("jobs", self.job_id, "cancel"), {"why": "its foreground command was told to go"})


def _write(text: str) -> None:
    """From a signal handler: past the buffers that it may have interrupted."""
    os.write(2, f"\n{text}\n".encode())


class Notices:
    """What there is to say when a job is seen in a new state."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.seen: tuple[str, int, int] = ("", 0, 0)

    @property
    def running(self) -> bool:
        return self.seen[0] in ("RUNNING", "COMPLETING")

    def about(self, job: Job) -> str:
        """A sentence; "" = nothing new."""
        if job["state"] == "RUNNING" and not job["started_at"]:
            return ""
        before, self.seen = self.seen, (job["state"], job["attempt"], job["preemptions"])
        if self.seen == before:
            return ""
        if job["state"] == "PENDING":
            return self._waits(job, again=before[1] > 0 or job["attempt"] > 0)
        if job["state"] == "RUNNING":
            return self._runs(job)
        if job["state"] == "COMPLETING":
            return f"Job {self.job_id} was told to stop."
        return f"Job {self.job_id} ran again on {nodelist(job)}." if job["attempt"] > before[1] > 0 else ""

    def _waits(self, job: Job, *, again: bool) -> str:
        why = f": {job['why'].rstrip('.')}" if job["why"] else ""
        return f"Job {self.job_id} was stopped and waits again{why}." if again else f"Job {self.job_id} waits{why}."

    def _runs(self, job: Job) -> str:
        until = protection(job)
        promise = f", protected until {near(job['protected_until'])}" if until not in ("", "over") else ""
        again = "again " if job["attempt"] > 1 else ""
        return f"Job {self.job_id} runs {again}on {nodelist(job)}{promise}."
