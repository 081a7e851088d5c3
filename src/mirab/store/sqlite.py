"""SQLite: one file beside the service, written ahead, synced at each commit."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from mirab.store.errors import CorruptStoreError, StoreError, UnreachableStoreError, words_of
from mirab.store.filesystems import unsafe_kind

BUSY_MS = 10_000
"""How long a connection waits for another that writes."""
WAL_LIMIT = 64 * 2**20
"""The write-ahead file is cut back to so many bytes when it has been carried over."""

PASSING = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another connection",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full, free some space",
    sqlite3.SQLITE_IOERR: "cannot be read or written: see the disk and the kernel's messages",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: see that its folder is there, and whose it is",
    sqlite3.SQLITE_READONLY: "cannot be written: see whose the file is, and that its disk is not mounted read-only",
    sqlite3.SQLITE_PROTOCOL: "is locked by many processes at once",
    sqlite3.SQLITE_NOMEM: "needs more memory than there is",
    sqlite3.SQLITE_PERM: "may not be opened by this user",
}
"""Errors that may pass, each with what to say."""
_NAME_IT = "name the one that the service uses (--db, --state-dir)"
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Sqlite:
    """A file of SQLite; see `mirab.store.database.Database`."""

    kind = "sqlite"

    def __init__(self, url: URL, make: bool = True) -> None:
        self.path = _usable(url.database, make)
        self.name = f"the file {self.path}"
        self._wal = Path(f"{self.path}-wal")
        self._place = _identity(self.path)
        self._ahead: tuple[int, int] | None = None
        self._rescued = ""
        self.reader = self._engine("BEGIN", "PRAGMA query_only = ON")
        self.writer = self._engine("BEGIN IMMEDIATE", "PRAGMA synchronous = FULL")
        self._lead: int | None = None

    def _engine(self, begin: str, *pragmas: str) -> Engine:
        engine = create_engine(
            URL.create("sqlite+pysqlite", database=str(self.path)),
            creator=self._connect,
            pool_size=8,
            max_overflow=56,
        )

        @event.listens_for(engine, "connect")
        def prepare(connection: sqlite3.Connection, _: object) -> None:
            connection.isolation_level = None  # this module begins its transactions itself
            _prepare(connection, pragmas)

        @event.listens_for(engine, "begin")
        def start(connection: Connection) -> None:
            connection.exec_driver_sql(begin)

        return engine

    def _connect(self) -> sqlite3.Connection:
        """A connection to the file that was there at the beginning; one that has been removed is not made anew."""
        address = f"file:{quote(str(self.path))}?mode=rw"
        return sqlite3.connect(address, uri=True, timeout=BUSY_MS / 1000, check_same_thread=False)

    def astray(self, connection: Connection | None) -> str:
        if self._in_place(connection is not None):
            self._rescued = ""
            return ""
        if connection is not None and not self._rescued:
            self._rescued = self._rescue(connection)
        return self._told_astray()

    def out_of_place(self) -> str:
        ahead = self._ahead
        if _identity(self.path) == self._place and ahead in (None, _identity(self._wal)):
            return ""
        return self._told_astray()

    def _told_astray(self) -> str:
        kept = f"; all that it held is in {self._rescued}" if self._rescued else ""
        return (
            f"{self.name}, or the -wal beside it, has been removed or replaced while it is in use, and nothing more is "
            f"written{kept}: put the file back, or stop the service and put a copy or a backup in its place"
        )

    def _in_place(self, connected: bool) -> bool:
        """Whether the names lead to the files that are open; to the -wal only while a connection keeps it there."""
        if _identity(self.path) != self._place:
            return False
        ahead = _identity(self._wal) if connected else None
        self._ahead = self._ahead or ahead
        return not connected or ahead == self._ahead

    def _rescue(self, connection: Connection) -> str:
        """A copy, through the connection, of what has lost its name; "" = there is no room for it."""
        copy = f"{self.path}.rescued.{int(time())}"
        raw: Any = connection.connection.dbapi_connection
        with suppress(OSError, sqlite3.Error):
            os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(copy)) as target:
                raw.backup(target)
            return copy
        return ""

    def snapshot(self) -> Connection:
        return self.reader.connect()

    def one_at_a_time(self, connection: Connection) -> None:
        """A transaction that began IMMEDIATE is alone already."""

    def hold(self, connection: Connection) -> bool:
        self._ahead = None  # SQLite removes it with the last connection, and makes it again with the next
        if self._lead is None:
            place = os.open(f"{self.path}.lead", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(place)
                return False
            self._lead = place
        return True

    def release(self) -> None:
        if self._lead is not None:
            os.close(self._lead)
            self._lead = None

    def passing(self, error: DBAPIError) -> bool:
        return _code(error) in PASSING

    def told(self, error: BaseException) -> StoreError:
        code = _code(error)
        if code in DAMAGED:
            return CorruptStoreError(
                f"{self.name} is damaged ({words_of(error)}): put it aside and restore the last backup with "
                "'mirab db restore'"
            )
        if code in PASSING:
            return UnreachableStoreError(f"{self.name} {PASSING[code]} ({words_of(error)})")
        return StoreError(f"{self.name} cannot be used: {words_of(error)}")

    def has_changed_by_hand(self, connection: Connection) -> list[str]:
        found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def after_load(self, connection: Connection) -> None:
        """SQLite counts on from the largest number by itself."""

    def close(self) -> None:
        self.reader.dispose()
        self.writer.dispose()
        self.release()


def _usable(path: str | None, make: bool) -> Path:
    """The file that a URL names, made if need be, so that only its owner can read it.

    Raises:
        StoreError: no file, no folder, or a file system that SQLite cannot use.
    """
    if not path or path == ":memory:":
        raise StoreError("a store in memory would forget everything: write sqlite:////path/to/mirab.db")
    file = Path(os.path.realpath(path))
    if not file.parent.is_dir():
        advice = "make it, or name another for the store" if make else _NAME_IT
        raise StoreError(f"the folder {file.parent} is not there: {advice}")
    if not make and not file.exists():
        raise StoreError(f"there is no store at {file}: {_NAME_IT}")
    kind = unsafe_kind(file.parent)
    if kind is not None:
        raise StoreError(
            f"{file.parent} is on a file system of kind {kind}, on which SQLite's locks fail and data get lost: put "
            "the store on a local disk (--state-dir), or use PostgreSQL (--db postgresql://...)"
        )
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"the file {file} cannot be used: {(error.strerror or str(error)).lower()}") from error
    return file


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a name leads to; None = to none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _prepare(connection: sqlite3.Connection, pragmas: tuple[str, ...]) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    for pragma in (*pragmas, f"PRAGMA journal_size_limit = {WAL_LIMIT}", "PRAGMA cache_size = -16000"):
        connection.execute(pragma)


def _code(error: BaseException) -> int | None:
    """SQLite's primary error code."""
    code: Any = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
