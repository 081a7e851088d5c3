"""The form of the tables: made when there are none, moved up by `mirab db migrate`, refused when it is not ours."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from mirab.store.database import Database, told
from mirab.store.errors import StoreError
from mirab.store.leading import alone
from mirab.store.tables import metadata

FORMS = ("0001",)
"""Every released form, oldest first: the names of the revisions in `mirab.store.migrations.versions`."""
NEWEST = FORMS[-1]
VERSION_TABLE = "mirab_form"
SCRIPTS = "mirab.store:migrations"
"""Where alembic finds them."""


def form_of(connection: Connection, name: str = "the store") -> str | None:
    """The form that is there; None = there are no tables of ours.

    Raises:
        StoreError: tables with our names that mirab did not make.
    """
    there = inspect(connection).get_table_names()
    if VERSION_TABLE in there:
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        if found is not None:
            return str(found)
    foreign = sorted(name for name in there if name in metadata.tables)
    if foreign:
        raise StoreError(
            f"{name} holds tables that mirab did not make ({', '.join(foreign)}): name an empty database or schema"
        )
    return None


def require_newest(form: str | None, name: str) -> None:
    """Refuse a form that this version cannot serve.

    Raises:
        StoreError: older (what to do is said), or newer.
    """
    if form == NEWEST:
        return
    if form is None:
        raise StoreError(f"{name} is empty: 'mirab db migrate' makes the tables")
    if form not in FORMS:
        raise StoreError(
            f"{name} has form {form}, and this mirab knows forms up to {NEWEST}: a newer one wrote it; use that"
        )
    raise StoreError(
        f"{name} has form {form}, and this mirab needs form {NEWEST}: stop the service, make a backup with the mirab "
        "that wrote it, then run 'mirab db migrate'"
    )


def migrate(database: Database, to: str | None = None) -> tuple[str | None, str]:
    """Move the tables up to a form (None = the newest), in one transaction; returns the form before and after.

    Raises:
        StoreError: the form is newer than `to`, or the tables are not ours.
    """
    to = to or NEWEST
    with database.writer.begin() as connection:
        database.one_at_a_time(connection)
        before = form_of(connection, database.name)
        if before is not None and before not in FORMS:
            require_newest(before, database.name)
        if before is None or FORMS.index(before) < FORMS.index(to):
            _upgrade(connection, to)
            return before, to
    return before, before


def migrate_alone(database: Database) -> tuple[str | None, str]:
    """The same while nobody serves.

    Raises:
        StoreBusyError: a service runs on it.
    """
    with told(database):
        with database.reader.connect() as connection:
            there = form_of(connection, database.name)
        if there is None:
            return migrate(database)
        with alone(database):
            return migrate(database)


def _upgrade(connection: Connection, to: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.attributes["connection"] = connection
    command.upgrade(config, to)
