"""From the decider's thread to those who wait in the event loop: streams get each record, waiters a nudge."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import NamedTuple, TypeVar

from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.service.api.ports import ApiSettings, LivePort
from mirab.service.api.told import Told, touched

K = TypeVar("K")
V = TypeVar("V")


class Record(NamedTuple):
    """A record of the journal."""

    seq: int
    facts: tuple[Event, ...]
    plan: Plan


class TooManyStreamsError(Exception):
    """All places for streams and long polls are taken."""


class Listener:
    """A bounded queue for one stream of records, and of news that stand in none; None in it = the service stops.

    `behind`: it was too slow, and what followed is not in the queue.
    """

    def __init__(self, size: int) -> None:
        self.queue: asyncio.Queue[Record | Told | None] = asyncio.Queue(size)
        self.behind = False

    def put(self, record: Record | Told | None) -> None:
        try:
            self.queue.put_nowait(record)
        except asyncio.QueueFull:
            self.behind = True


class Bus:
    """Who listens, in which event loop. Costs the decider one call for each loop with listeners, of which there is one.

    A listener that falls behind is marked and left alone: the decider never waits for anybody.
    """

    def __init__(self, live: LivePort, settings: ApiSettings) -> None:
        self._live, self._settings = live, settings
        self._lock = Lock()
        self._listeners: dict[AbstractEventLoop, list[Listener]] = {}
        self._waiters: dict[AbstractEventLoop, dict[str, list[asyncio.Event]]] = {}
        self._places = settings.streams_max
        self._closed = False
        live.subscribe(self._tell)

    @property
    def stopping(self) -> bool:
        return self._closed or self._live.stopping.is_set()

    def close(self) -> None:
        """The service stops: every stream and long poll ends soon."""
        self._closed = True
        self._call(None)

    @property
    def full(self) -> bool:
        return self._places <= 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places for long answers.

        Raises:
            TooManyStreamsError: none is free.
        """
        with self._lock:
            if self._places == 0:
                raise TooManyStreamsError
            self._places -= 1
        try:
            yield
        finally:
            with self._lock:
                self._places += 1

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A queue of the records from now on."""
        loop, listener = asyncio.get_running_loop(), Listener(self._settings.queue_max)
        with self._lock:
            self._listeners.setdefault(loop, []).append(listener)
        try:
            yield listener
        finally:
            with self._lock:
                _drop(self._listeners, loop, listener)

    @contextmanager
    def watching(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever a record is about the job."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            jobs = self._waiters.setdefault(loop, {})
            jobs.setdefault(job_id, []).append(event)
        try:
            yield event
        finally:
            with self._lock:
                _drop(jobs, job_id, event)
                if not jobs and self._waiters.get(loop) is jobs:
                    del self._waiters[loop]

    def _tell(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """Called in the decider's thread."""
        self._call(Record(seq, tuple(facts), plan))

    def say(self, news: Told) -> None:
        """Tell those who listen now what no record says. From any thread."""
        self._call(news)

    def _call(self, record: Record | Told | None) -> None:
        with self._lock:
            loops = list(dict.fromkeys([*self._listeners, *self._waiters]))
        for loop in loops:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver, loop, record)

    def _deliver(self, loop: AbstractEventLoop, record: Record | Told | None) -> None:
        """Called in the event loop."""
        with self._lock:
            listeners = list(self._listeners.get(loop, ()))
            jobs = self._waiters.get(loop, {})
            about = list(jobs) if record is None else _about(record) if jobs else []
            woken = [event for job in about for event in jobs.get(job, ())]
        for listener in listeners:
            listener.put(record)
        for event in woken:
            event.set()


def _about(news: Record | Told) -> list[str]:
    """The jobs that waiters may want to look at again."""
    return [*touched(news.facts, news.plan)] if isinstance(news, Record) else []


def _drop(held: dict[K, list[V]], key: K, value: V) -> None:
    held[key].remove(value)
    if not held[key]:
        del held[key]
