"""Being the only decider: a lock that says who may, and an epoch that stops one who has not noticed that it may not."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Event as Signal
from time import monotonic, time
from typing import Any

from sqlalchemy import Connection, Select, select, update
from sqlalchemy.exc import DBAPIError

from mirab.model.units import Instant
from mirab.store.database import Database, told
from mirab.store.errors import LostLeadError, StoreBusyError, StoreClosedError
from mirab.store.tables import journal, lead

LOOK_AGAIN_S = 0.2
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class Lead:
    """The right to decide, and the one connection on which decisions are written.

    Attributes:
        epoch: how often the lead has been taken; every record carries it.
        seq, at: number and instant of the last record.
        on_trouble: told a sentence when writing does not succeed for now, and "" when it does again.
    """

    def __init__(self, database: Database, closing: Signal, on_trouble: Callable[[str], None]) -> None:
        self.database = database
        self.closing = closing
        self.on_trouble = on_trouble
        self.epoch = 0
        self.seq = 0
        self.at: Instant = 0
        self._connection: Connection | None = None

    def take(self, wait: float) -> None:
        """Become the only decider.

        Raises:
            StoreBusyError: another still leads after `wait` seconds; the message names it.
        """
        until = monotonic() + wait
        while not self._try():
            if monotonic() >= until:
                raise StoreBusyError(self._who_leads())
            if self.closing.wait(LOOK_AGAIN_S):
                raise StoreClosedError("the store was closed while waiting for its lead")

    def _try(self) -> bool:
        with told(self.database):
            connection = self._open()
            if connection is None:
                return False
            with connection.begin():
                raised = (
                    update(lead)
                    .values(epoch=lead.c.epoch + 1, holder=_self(), since=int(time() * 1000))
                    .returning(lead.c.epoch)
                )
                self.epoch = connection.execute(raised).scalar_one()
            with connection.begin():
                self.seq, self.at = last_record(connection)
        return True

    def _open(self) -> Connection | None:
        """The connection of the lead, with the lead's lock; None = another has it."""
        if self._connection is None:
            connection = self.database.writer.connect()
            connection.detach()  # closing it really closes it, and with it the lock
            try:
                with connection.begin():
                    held = self.database.hold(connection)
            except BaseException:
                connection.close()
                raise
            if not held:
                connection.close()
                return None
            self._connection = connection
        return self._connection

    def _who_leads(self) -> str:
        with told(self.database), self.database.reader.connect() as connection:
            holder, since = connection.execute(select(lead.c.holder, lead.c.since)).one()
        return (
            f"{self.database.name} is served by {holder or 'another process'} (since {_clock(since)}): stop that "
            "service first, or wait for it with --wait"
        )

    def write(self, work: Callable[[Connection], None], seq: int) -> None:
        """Do `work`, which writes the record `seq`, in one transaction; keep trying while the trouble may pass.

        Where a commit is in doubt, the number decides: only this lead can have written that record in its epoch.

        Raises:
            LostLeadError: another leads.
            StoreClosedError: the store was closed meanwhile.
            CorruptStoreError: what is stored is damaged.
        """
        pause, trouble = FIRST_PAUSE_S, ""
        while found := self._attempt(work, seq, doubtful=bool(trouble)):
            if not trouble:
                self.on_trouble(found)
            trouble = found
            if self.closing.wait(pause):
                raise StoreClosedError(f"the store was closed while it could not be written: {trouble}")
            pause = min(2 * pause, LONGEST_PAUSE_S)
        if trouble:
            self.on_trouble("")

    def _attempt(self, work: Callable[[Connection], None], seq: int, doubtful: bool) -> str:
        """Try once; "" = it is written, else why it is not for now."""
        try:
            return self._write(work, seq, doubtful)
        except DBAPIError as error:
            self.drop()
            with told(self.database):
                if not self.database.passing(error):
                    raise
            return str(self.database.told(error))

    def _write(self, work: Callable[[Connection], None], seq: int, doubtful: bool) -> str:
        if astray := self.database.astray(self._connection):
            return astray
        connection = self._open()
        if connection is None:
            with self.database.reader.connect() as reader:
                self._fence(reader, _LEADER)
            return f"{self.database.name} still keeps the lock of a connection that broke"
        with connection.begin():
            self._fence(connection, _LEADER.with_for_update())
            if not (doubtful and self._is_there(connection, seq)):
                work(connection)
        return ""

    def _fence(self, connection: Connection, leader: Select[Any]) -> None:
        epoch, holder, since = connection.execute(leader).one()
        if epoch != self.epoch:
            raise LostLeadError(
                f"{holder} leads on {self.database.name} since {_clock(since)}: this service may not decide any more"
            )

    def _is_there(self, connection: Connection, seq: int) -> bool:
        return connection.execute(select(journal.c.epoch).where(journal.c.seq == seq)).scalar() == self.epoch

    def drop(self) -> None:
        """Close the connection, whatever state it is in; the next write opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                raw = connection.connection.dbapi_connection  # it belongs to no pool that would close it
                if raw is not None:
                    raw.close()
            with suppress(Exception):
                connection.invalidate()
            with suppress(Exception):
                connection.close()


@contextmanager
def alone(database: Database) -> Iterator[Lead]:
    """Nobody serves meanwhile.

    Raises:
        StoreBusyError: somebody does.
    """
    leading = Lead(database, Signal(), lambda _: None)
    leading.take(0)
    try:
        yield leading
    finally:
        leading.drop()
        database.release()


_LEADER: Select[Any] = select(lead.c.epoch, lead.c.holder, lead.c.since)


def last_record(connection: Connection) -> tuple[int, Instant]:
    """Number and instant of the last record; (0, 0) = there is none."""
    found = connection.execute(select(journal.c.seq, journal.c.at).order_by(journal.c.seq.desc()).limit(1)).first()
    return (0, 0) if found is None else (found[0], found[1])


def _self() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _clock(instant: Instant) -> str:
    return datetime.fromtimestamp(instant / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
