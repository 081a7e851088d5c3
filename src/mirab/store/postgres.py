"""PostgreSQL: through psycopg 3, reconnecting by itself."""

from __future__ import annotations

from sqlalchemy import URL, Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from mirab.store.errors import CorruptStoreError, NoRightError, StoreError, UnreachableStoreError, words_of

LOCK_CLASS = 0x6D697261
"""The first half of mirab's advisory locks; the second is made from the schema and the purpose."""

PASSING = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that may pass: disconnected, overtaken, out of resources, not ready, stopped, disk trouble."""
PASSING_STATES = ("25006", "25P03")
"""A standby or a server that only reads for now; a transaction that was ended for being idle."""
DAMAGED = ("XX001", "XX002")
NO_RIGHT = "42501"
"""Most often `createdb` without --owner: from PostgreSQL 15 on only its owner may make tables in a database."""

CONNECT_ARGUMENTS = {
    "connect_timeout": 5,
    "application_name": "mirab",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
SESSION = (
    "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c synchronous_commit=on "
    "-c default_transaction_isolation=read\\ committed"
)
"""Both sides notice within half a minute that the other machine is gone, so that a lead does not outlive its holder
long; a commit is on disk when it is confirmed, whatever the server's own setting."""

READERS, WRITERS = 12, 6
"""Connections at most for reading, and for writing beside the decider. The API has more threads, but a read takes a
millisecond, most of it Python's: who comes meanwhile waits for less than a further connection would cost. All stay open
once they were needed.
"""

_KEY = "hashtext(current_schema() || :purpose)"
_TAKE = text(f"SELECT pg_try_advisory_lock(:class, {_KEY}), pg_backend_pid()")
_WAIT = text(f"SELECT pg_advisory_xact_lock(:class, {_KEY})")
_HOLDER = text(
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = :class "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    f"AND objid = ({_KEY}::bigint & 4294967295)::oid"
)


class Postgres:
    """A database of a PostgreSQL server; see `mirab.store.database.Database`."""

    kind = "postgresql"

    def __init__(self, url: URL) -> None:
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise StoreError("a store in PostgreSQL needs the library psycopg: pip install 'mirab[postgres]'") from None
        self.url = url.set(drivername="postgresql+psycopg")
        self.name = f"the database {_shown(url)}"
        self.reader = self._engine("-c default_transaction_read_only=on", isolation="AUTOCOMMIT", most=READERS)
        self.writer = self._engine(most=WRITERS)
        self._backend: int | None = None

    def _engine(self, *session: str, isolation: str = "READ COMMITTED", most: int) -> Engine:
        own = self.url.query.get("options", ())
        options = " ".join((SESSION, *session, *((own,) if isinstance(own, str) else own)))
        return create_engine(
            self.url,
            connect_args={**CONNECT_ARGUMENTS, "options": options},
            isolation_level=isolation,
            pool_pre_ping=True,
            pool_use_lifo=True,
            pool_size=most,
            max_overflow=0,
        )

    def snapshot(self) -> Connection:
        return self.reader.connect().execution_options(isolation_level="REPEATABLE READ")

    def one_at_a_time(self, connection: Connection) -> None:
        connection.execute(_WAIT, {"class": LOCK_CLASS, "purpose": "/form"})

    def hold(self, connection: Connection) -> bool:
        """An advisory lock of the session: it ends with the connection, however that ends."""
        key = {"class": LOCK_CLASS, "purpose": "/lead"}
        held, backend = connection.execute(_TAKE, key).one()
        if not held and self._backend is not None and self._end_own_remains(connection, key):
            held, backend = connection.execute(_TAKE, key).one()
        if held:
            self._backend = backend
        return bool(held)

    def _end_own_remains(self, connection: Connection, key: dict[str, object]) -> bool:
        """After a broken connection the server may not know yet that nobody is there: its session is ended."""
        if connection.execute(_HOLDER, key).scalar() != self._backend:
            return False
        return bool(
            connection.execute(text("SELECT pg_terminate_backend(:pid, 2000)"), {"pid": self._backend}).scalar()
        )

    def release(self) -> None:
        """The lock goes with the connection."""
        self._backend = None

    def astray(self, connection: Connection | None) -> str:
        """A server's files are its own to watch."""
        return ""

    def out_of_place(self) -> str:
        return ""

    def passing(self, error: DBAPIError) -> bool:
        state = _state(error)
        if state is None:
            return error.connection_invalidated or type(error.orig).__name__ in ("OperationalError", "InterfaceError")
        return state[:2] in PASSING or state in PASSING_STATES

    def told(self, error: BaseException) -> StoreError:
        state = _state(error)
        if state in DAMAGED:
            return CorruptStoreError(
                f"{self.name} is damaged ({words_of(error)}): restore the last backup into an empty database with "
                "'mirab db restore'"
            )
        if state == NO_RIGHT:
            what = words_of(error).partition(" LINE ")[0]
            return NoRightError(
                f"{self.name} does not let {self.url.username or 'you'} do this ({what}): make that user the owner of "
                "the database, or name a schema of its own with ?options=-csearch_path=mirab"
            )
        if isinstance(error, DBAPIError) and self.passing(error):
            return UnreachableStoreError(f"{self.name} does not answer, or cannot write now ({words_of(error)})")
        return StoreError(f"{self.name} cannot be used: {words_of(error)}")

    def has_changed_by_hand(self, connection: Connection) -> list[str]:
        """PostgreSQL checks its pages itself when it reads them."""
        return []

    def after_load(self, connection: Connection) -> None:
        for table, column in (("jobs", "ordinal"), ("audit", "id")):
            connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), greatest(max({column}), 1), "
                    f"max({column}) IS NOT NULL) FROM {table}"
                )
            )

    def close(self) -> None:
        self.reader.dispose()
        self.writer.dispose()


def _shown(url: URL) -> str:
    return url.set(password=None, query={}).render_as_string(hide_password=True)


def _state(error: BaseException) -> str | None:
    """The SQLSTATE; None = the server said none, as when there is no connection."""
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return None if state is None else str(state)
