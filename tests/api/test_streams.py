"""Server-sent events: nothing missed, nothing twice, whoever is slow has to come back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from mirab.model import plans
from mirab.model.codec import recorded_types
from mirab.model.events import BudgetsChanged, Event, RunStarted, WorkloadCancelled
from mirab.model.plans import Plan
from mirab.model.units import AccountPath, RunId, WorkloadId
from mirab.service.api.bus import Bus, TooManyStreamsError
from mirab.service.api.ports import ApiSettings
from mirab.service.api.stream import DROPPED, Filter, events
from mirab.service.api.told import Told, told
from mirab.service.views.moments import iso
from tests.api.stage import PATIENCE, Stage, stage
from tests.examples import examples
from tests.service.house import BUDGETS


@dataclass
class Heard:
    """An event as a browser would see it; `id` is the last one that was sent before or with it, `numbered`: with it."""

    kind: str
    data: dict[str, Any]
    id: int | None
    numbered: bool = False


def parse(lines: Iterator[str]) -> Iterator[Heard]:
    kind, data, number, numbered = "message", "", None, False
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            data += value
        elif name == "id":
            number, numbered = int(value), True
        elif not line and data:
            yield Heard(kind, json.loads(data), number, numbered)
            kind, data, numbered = "message", "", False


@contextmanager
def listening(service: Stage, after: int | None = None, **query: str) -> Iterator[Iterator[Heard]]:
    headers = {"Last-Event-ID": str(after)} if after is not None else {}
    with (
        service.client("eve") as client,
        client.stream("GET", "/api/v1/events", headers=headers, params=query) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield parse(answer.iter_lines())


def until(heard: Iterator[Heard], what: str, job: str) -> Heard:
    return next(each for each in heard if each.data.get("what") == what and each.data.get("job") == job)


def test_what_happens_is_heard_as_it_happens(service: Stage) -> None:
    with listening(service) as heard:
        made = service.submit()["id"]
        submitted = until(heard, "submitted", made)
        assert submitted.data["account"] == "vision/video"
        assert until(heard, "started", made).data["run"] == f"{made}.1"


def test_a_stream_resumes_after_the_record_that_was_seen_last(service: Stage) -> None:
    with listening(service) as heard:
        first = service.submit()["id"]
        seen = until(heard, "submitted", first)
        last = next(each.id for each in heard if each.kind == "decision")
    assert seen.data["job"] == first
    second = service.submit()["id"]
    with listening(service, after=last) as heard:
        story = [next(heard)]
        while story[-1].data.get("what") != "started" or story[-1].data.get("job") != second:
            story.append(next(heard))
    assert first not in [each.data.get("job") for each in story if each.data.get("what") == "submitted"]
    assert second in [each.data.get("job") for each in story if each.data.get("what") == "submitted"]


def test_the_journal_from_its_beginning_is_told_in_order_and_once(own_service: Stage) -> None:
    made = [own_service.submit(argv=["sleep", "0.01"])["id"] for _ in range(5)]
    with listening(own_service, after=0) as heard:
        story = []
        for each in heard:
            story.append(each)
            ended = {one.data["job"] for one in story if one.data.get("what") == "ended"}
            if ended >= set(made) and each.kind == "decision":
                break
    marks = [each.id or 0 for each in story if each.kind == "decision"]
    assert marks == sorted(set(marks))
    for job in made:
        mine = [each.data["what"] for each in story if each.data.get("job") == job]
        assert mine == ["submitted", "starting", "started", "ended"]


def test_news_that_stand_in_no_record_are_told_to_whom_they_concern(service: Stage) -> None:
    made = service.submit()["id"]
    news = Told("job", {"job": made, "what": "no-progress"}, made)
    with listening(service, account="vision") as heard, listening(service, account="llm") as elsewhere:
        service.parts.bus.say(news)
        assert not until(heard, "no-progress", made).numbered, "there is nothing to resume after"
        last = service.submit("eve", account="llm")["id"]
        first = next(elsewhere)
        assert (first.data["job"], first.data["what"]) == (last, "submitted")


def test_one_may_listen_to_one_job_or_one_account(service: Stage) -> None:
    foreign = service.submit("eve", account="llm")["id"]
    made = service.submit()["id"]
    last = service.store.last()[0]
    with listening(service, after=0, job=made) as heard:
        assert next(heard).data["job"] == made
    with listening(service, after=max(0, last - 50), account="llm") as heard:
        found = next(each for each in heard if each.data["job"] == foreign)
    assert found.kind == "job"


@pytest.mark.parametrize("header", ["x", "-1", "1" * 40, "1.5", ""])
def test_what_is_no_number_of_a_record_is_refused(service: Stage, header: str) -> None:
    with service.client("eve") as client:
        assert client.get("/api/v1/events", headers={"Last-Event-ID": header}).status_code == 422


def test_a_service_that_stops_ends_its_streams(tmp_path: Path) -> None:
    with stage(tmp_path) as service, listening(service) as heard:
        service.submit()
        next(heard)
        service.server.stop()
        assert [each for each in heard if each.kind == "error"] == []


def test_places_for_streams_are_bounded_and_given_back(tmp_path: Path) -> None:
    with stage(tmp_path, ApiSettings(streams_max=1)) as service, service.client("eve") as client:
        with listening(service) as heard:
            service.submit()
            next(heard)
            answer = client.get("/api/v1/events")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
            assert client.get("/api/v1/jobs/1/await").status_code == 503
        give_up = time.monotonic() + PATIENCE
        while client.get("/api/v1/jobs/1/await", params={"timeout": 0}).status_code != 200:
            assert time.monotonic() < give_up, "the place was not given back"


# --- the bus alone -------------------------------------------------------------------------------------------------
@dataclass
class Scheduler:
    """Tells records on demand."""

    stopping: Flag = field(default_factory=Flag)
    listeners: list[Any] = field(default_factory=list)

    def heirs(self) -> dict[AccountPath, AccountPath]:
        return {}

    def now(self) -> int:
        return 0

    def store_trouble(self) -> str:
        return ""

    def subscribe(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return lambda: None

    def tell(self, seq: int, *facts: Event) -> None:
        for listener in self.listeners:
            listener(seq, facts, Plan(seq, seq))


class Shelf:
    """A journal in memory."""

    def __init__(self, *records: tuple[int, tuple[Event, ...], Plan]) -> None:
        self.rows = list(records)

    def records(self, after: int = 0) -> Iterator[tuple[int, tuple[Event, ...], Plan]]:
        return iter([row for row in self.rows if row[0] > after])


def started(seq: int) -> RunStarted:
    return RunStarted(seq, RunId(f"{seq}.1"))


def row(seq: int) -> tuple[int, tuple[Event, ...], Plan]:
    return seq, (started(seq),), Plan(seq, seq)


async def collect(stream: AsyncIterator[bytes], count: int) -> list[int]:
    """Numbers of the first records that are told."""
    found: list[int] = []
    async for text in stream:
        found += [int(line.split(b" ")[1]) for line in text.split(b"\n") if line.startswith(b"id: ")]
        if len(found) >= count:
            break
    return found


def opened(scheduler: Scheduler, shelf: Shelf, after: int | None, **settings: Any) -> AsyncIterator[bytes]:
    limits = ApiSettings(**settings)
    bus = Bus(scheduler, limits)
    return events(bus, shelf, limits, Filter(shelf, None, None), after)  # type: ignore[arg-type]


def test_nothing_is_missed_between_the_journal_and_what_comes() -> None:
    """Records are made while the old ones are read, and while the stream begins to listen."""

    async def story() -> list[int]:
        scheduler, shelf = Scheduler(), Shelf(*(row(seq) for seq in range(1, 451)))
        stream = opened(scheduler, shelf, 0)
        found: list[int] = []
        async for text in stream:
            if text.startswith(b"retry"):
                continue
            found += [int(line.split(b" ")[1]) for line in text.split(b"\n") if line.startswith(b"id: ")]
            if len(shelf.rows) < 900:
                number = len(shelf.rows) + 1
                shelf.rows.append(row(number))
                scheduler.tell(number, started(number))
            elif found[-1] == 900:
                return found
        raise AssertionError("the stream ended")

    assert asyncio.run(asyncio.wait_for(story(), PATIENCE)) == list(range(1, 901))


def test_a_client_that_is_too_slow_is_told_to_come_back() -> None:
    async def story() -> list[bytes]:
        scheduler = Scheduler()
        stream = opened(scheduler, Shelf(), None, queue_max=3)
        texts = [await anext(stream)]
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        while not scheduler.listeners:
            await asyncio.sleep(0.001)
        for seq in range(1, 11):
            scheduler.tell(seq, started(seq))
        await asyncio.sleep(0.01)
        texts.append(await waiting)
        texts += [text async for text in stream]
        return texts

    texts = asyncio.run(asyncio.wait_for(story(), PATIENCE))
    assert texts[-1] == DROPPED
    told_of = [line for text in texts for line in text.split(b"\n") if line.startswith(b"id: ")]
    assert told_of == [b"id: 1", b"id: 2", b"id: 3"] or told_of == [b"id: 1", b"id: 2", b"id: 3", b"id: 4"]


def test_a_quiet_stream_shows_that_it_lives_and_where_it_is() -> None:
    async def story() -> bytes:
        scheduler = Scheduler()
        stream = opened(scheduler, Shelf(row(1)), 0, keep_alive=0.01)
        await collect(stream, 1)
        return await anext(opened(scheduler, Shelf(), 7, keep_alive=0.01))

    assert asyncio.run(asyncio.wait_for(story(), PATIENCE)).startswith(b"retry")


def test_a_closed_bus_wakes_all_who_wait() -> None:
    async def story() -> bool:
        bus = Bus(Scheduler(), ApiSettings())
        with bus.watching("7") as event, bus.listening() as listener:
            bus.close()
            await asyncio.wait_for(event.wait(), PATIENCE)
            return await asyncio.wait_for(listener.queue.get(), PATIENCE) is None

    assert asyncio.run(story())


def test_only_those_who_watch_a_job_are_woken_for_it() -> None:
    async def story() -> tuple[bool, bool]:
        scheduler = Scheduler()
        bus = Bus(scheduler, ApiSettings())
        with bus.watching("7") as seven, bus.watching("8") as eight:
            scheduler.tell(1, WorkloadCancelled(1, WorkloadId("7")))
            await asyncio.wait_for(seven.wait(), PATIENCE)
            return seven.is_set(), eight.is_set()

    assert asyncio.run(story()) == (True, False)


def test_places_are_counted() -> None:
    bus = Bus(Scheduler(), ApiSettings(streams_max=1))
    with bus.place():
        assert bus.full
        with pytest.raises(TooManyStreamsError), bus.place():
            pass
    assert not bus.full


# --- what is told --------------------------------------------------------------------------------------------------
def test_every_fact_and_every_action_can_be_told() -> None:
    """Types that are added later are told, or left out, but never break a stream."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    with_values_of_their_own = ("BudgetsChanged", "PolicyChanged", "ClusterChanged")
    kinds = [
        kind
        for kind in recorded_types()
        if kind.__module__ == "mirab.model.events" and kind.__name__ not in with_values_of_their_own
    ]
    actions = [getattr(plans, name) for name in ("Start", "Preempt", "Cancel", "Drain", "Repair", "Resume", "Reject")]

    @settings(max_examples=examples(150), deadline=None)
    @given(st.one_of([st.from_type(kind) for kind in kinds]), st.one_of([st.from_type(kind) for kind in actions]))
    def check(fact: Any, action: Any) -> None:
        for each in told(3, (fact, BudgetsChanged(0, BUDGETS, "mia", "why")), Plan(0, 0, (action,))):
            json.dumps(each.data, allow_nan=False)

    check()


@pytest.mark.parametrize(
    ("instant", "text"),
    [(0, "1970-01-01T00:00:00Z"), (1_700_000_000_250, "2023-11-14T22:13:20.250Z"), (1 << 62, "9999-12-31T23:59:59Z")],
)
def test_instants_are_iso_8601_in_utc(instant: int, text: str) -> None:
    assert iso(instant) == text
