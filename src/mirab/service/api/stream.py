"""Server-sent events: the journal as it grows, resumed after the record that a client saw last."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice

from anyio.to_thread import run_sync

from mirab.model.accounts import covers
from mirab.model.units import AccountPath, Instant
from mirab.service.api.bus import Bus, Listener, Record
from mirab.service.api.ports import ApiSettings, StorePort
from mirab.service.api.told import Told, told

AT_ONCE = 200
"""Records that are read from the journal in one go."""
ACCOUNTS_KEPT = 10_000
HELLO = b"retry: 2000\n\n"
ALIVE = b": still here\n\n"
DROPPED = b": too slow, come back with Last-Event-ID\n\n"


class Filter:
    """What a client wants to hear: one job, or the jobs of a subtree; without either, everything.

    `heirs`: account that is no more -> the one that goes on for it, as the budgets in force say. `advice`: whether what
    was decided at an instant is only advised.
    """

    def __init__(
        self,
        store: StorePort,
        job: str | None,
        account: str | None,
        heirs: Callable[[], Mapping[AccountPath, AccountPath]] = dict,
        advice: Callable[[Instant], bool] = lambda _: False,
    ) -> None:
        self._store, self._job, self._account, self._heirs, self._advice = store, job, account, heirs, advice
        self._accounts: OrderedDict[str, str] = OrderedDict()

    def wanted(self, record: Record) -> list[Told]:
        """May look jobs up in the store: not for the event loop."""
        news = told(record.seq, record.facts, record.plan, self._advice(record.plan.at))
        return [each for each in news if self.wants(each)]

    def wants(self, news: Told) -> bool:
        """May look a job up in the store."""
        if self._job is None and self._account is None:
            return True
        return news.job is not None and self._of_interest(news.job)

    def _of_interest(self, job: str) -> bool:
        if self._job is not None and job != self._job:
            return False
        if self._account is None:
            return True
        heirs = self._heirs()
        mine, asked = (AccountPath(each) for each in (self._account_of(job), self._account))
        return covers(heirs.get(asked, asked), heirs.get(mine, mine))

    def _account_of(self, job: str) -> str:
        """The account on record for a job, which never changes."""
        if job not in self._accounts:
            row = self._store.job(job)
            self._accounts[job] = row.account if row is not None else ""
            if len(self._accounts) > ACCOUNTS_KEPT:
                self._accounts.popitem(last=False)
        return self._accounts[job]


async def events(
    bus: Bus, store: StorePort, settings: ApiSettings, wanted: Filter, after: int | None
) -> AsyncIterator[bytes]:
    """The stream: what the journal has after the record `after`, then what comes. None = only what comes."""
    with bus.place():
        yield HELLO
        sent = after or 0
        if after is not None:
            async for record in _recorded(bus, store, sent, AT_ONCE):
                yield await run_sync(_written, wanted, record)
                sent = record.seq
        with bus.listening() as listener:
            if after is not None:
                async for record in _recorded(bus, store, sent, 1):
                    yield await run_sync(_written, wanted, record)
                    sent = record.seq
            async for text in _coming(bus, settings, wanted, listener, sent):
                yield text


async def _recorded(bus: Bus, store: StorePort, after: int, worth: int) -> AsyncIterator[Record]:
    """Records of the journal after one, until fewer than `worth` are left, which are read while listening."""
    while not bus.stopping and len(records := await run_sync(_read, store, after)) >= worth:
        for record in records:
            yield record
        after = records[-1].seq


async def _coming(
    bus: Bus, settings: ApiSettings, wanted: Filter, listener: Listener, sent: int
) -> AsyncIterator[bytes]:
    """Records as they are made, and signs of life; ends when the service stops, or when the client was too slow."""
    while not bus.stopping:
        if listener.behind and listener.queue.empty():
            yield DROPPED
            return
        try:
            record = await asyncio.wait_for(listener.queue.get(), settings.keep_alive)
        except TimeoutError:
            yield ALIVE + (b"id: %d\n\n" % sent if sent else b"")
            continue
        if record is None:
            return
        if isinstance(record, Told):
            yield await run_sync(_said, wanted, record)
        elif record.seq > sent:
            sent = record.seq
            yield await run_sync(_written, wanted, record)


def _read(store: StorePort, after: int) -> list[Record]:
    return [Record(seq, facts, plan) for seq, facts, plan in islice(store.records(after), AT_ONCE)]


def _written(wanted: Filter, record: Record) -> bytes:
    """The events of a record; the last carries its number, so that nobody resumes in the middle of it."""
    return b"".join(_lines(wanted.wanted(record), record.seq))


def _said(wanted: Filter, news: Told) -> bytes:
    """News that stand in no record, and so have no number to resume after."""
    return _event(news) if wanted.wants(news) else b""


def _lines(found: list[Told], seq: int) -> Iterator[bytes]:
    for number, each in enumerate(found, 1):
        yield _event(each, f"id: {seq}\n" if number == len(found) else "")


def _event(news: Told, mark: str = "") -> bytes:
    data = json.dumps(news.data, ensure_ascii=True, allow_nan=False)
    return f"{mark}event: {news.kind}\ndata: {data}\n\n".encode("ascii")
