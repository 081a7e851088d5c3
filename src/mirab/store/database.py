"""The two engines behind one small face: how to connect, who holds the lead, and which errors pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from mirab.store.errors import StoreError, UnreachableStoreError

FORMS_OF_URL = "sqlite:////path/to/mirab.db, or postgresql://user@host/database"


class Database(Protocol):
    """Where the tables are.

    Attributes:
        kind: ``sqlite`` or ``postgresql``.
        name: the place, for sentences, without a password.
        reader, writer: pools of connections; a transaction of the writer excludes others from writing from its begin on
            SQLite, and takes the locks it needs on PostgreSQL.
    """

    kind: str
    name: str
    reader: Engine
    writer: Engine

    def snapshot(self) -> Connection:
        """A connection on which everything that is read is of one instant, while others go on writing."""

    def one_at_a_time(self, connection: Connection) -> None:
        """Inside a transaction: nobody else changes the form of the tables meanwhile."""

    def hold(self, connection: Connection) -> bool:
        """Hold the lead while this process (SQLite) or this connection (PostgreSQL) lives; False = another has it."""

    def release(self) -> None:
        """Give up the lead, where closing the connection does not do it."""

    def astray(self, connection: Connection | None) -> str:
        """What is wrong where the names no longer lead to what is open, so that writing would be writing to nobody; ""
        = nothing. `connection`: through which what is left can be copied.
        """

    def out_of_place(self) -> str:
        """The same for one who only asks, at the cost of two looks at the folder, from any thread."""

    def passing(self, error: DBAPIError) -> bool:
        """Whether the same may succeed later: locked, full, disconnected."""

    def told(self, error: BaseException) -> StoreError:
        """The error as a sentence."""

    def has_changed_by_hand(self, connection: Connection) -> list[str]:
        """What the engine itself finds wrong with its files, in its own words."""

    def after_load(self, connection: Connection) -> None:
        """Rows came in with their numbers: the engine's own counters go on behind them."""

    def close(self) -> None: ...


def open_database(url: str, make: bool = True) -> Database:
    """The engine that a URL names; `make`: a file of SQLite that is not there is made.

    Raises:
        StoreError: no such kind of URL, a place that SQLite cannot use, or the driver is missing.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(f"{url!r} is not the address of a store: write {FORMS_OF_URL}") from None
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite":
        from mirab.store.sqlite import Sqlite

        return Sqlite(parsed, make)
    if kind in ("postgresql", "postgres"):
        from mirab.store.postgres import Postgres

        return Postgres(parsed)
    raise StoreError(f"a store cannot be kept in {kind!r}: write {FORMS_OF_URL}")


@contextmanager
def told(database: Database) -> Iterator[None]:
    """Errors of the engine come out as sentences; faults of the code stay what they are."""
    try:
        yield
    except DBAPIError as error:
        sentence = database.told(error)
        if type(sentence) is StoreError:
            raise
        raise sentence from error
    except PoolTimeoutError as error:
        raise UnreachableStoreError(f"all connections to {database.name} are in use: ask again in a moment") from error
