"""One portable file with everything but snapshots: made while the service goes on, put back into either engine.

A gzip of lines of JSON: what it is; then for each table its columns, and a line for each row; at the end how many rows
there are and a SHA-256 of all before, so that a file that was cut off is not taken for a whole one.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from io import BufferedWriter
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, MetaData, Table, column, delete, func, insert, inspect, select, table, update

from mirab.store import forms
from mirab.store.database import Database, told
from mirab.store.errors import StoreError
from mirab.store.leading import alone
from mirab.store.tables import counters, jobs, journal, lead, meta, metadata, tokens

VERSION = 1
LEFT_OUT = ("snapshots", forms.VERSION_TABLE)
"""Snapshots are made anew from the journal, and are executable in the wrong hands."""
BATCH = 500
SKIPPED_NUMBERS = 1_000
"""Job numbers that are left out after a restore: those given after the backup was made must not be given again."""


class BackupError(StoreError):
    """A file that is no backup, or not a whole one, or of a form that cannot be used."""


class NotEmptyError(StoreError):
    """The store holds something already: nothing is overwritten."""


@dataclass(slots=True)
class Contents:
    """What a backup says about itself."""

    form: str
    made_at: str
    made_from: str
    rows: dict[str, int] = field(default_factory=dict)


# --- making one -----------------------------------------------------------------------------------------------------
def backup(database: Database, path: Path) -> Contents:
    """Write a new file, readable by its owner only; a service may go on meanwhile.

    Raises:
        FileExistsError: there is such a file.
        OSError: it cannot be written; nothing is left behind.
        StoreError: the store is empty, or cannot be read.
    """
    with (
        _new_file(path) as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, filename="", mtime=0) as packed,
    ):
        lines = _Lines(packed)
        with told(database), database.snapshot() as connection, connection.begin():
            form = forms.form_of(connection, database.name)
            if form is None:
                raise BackupError(f"{database.name} is empty: there is nothing to keep")
            contents = Contents(form, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), database.kind)
            lines.put({"mirab_backup": VERSION, "form": form, "made_at": contents.made_at, "from": database.kind})
            for name in _names(connection):
                contents.rows[name] = _dump(connection, name, lines)
        lines.put({"rows": contents.rows, "sha256": lines.digest.hexdigest()})
    return contents


def _names(connection: Connection) -> list[str]:
    """The tables that are ours in any form, in a fixed order."""
    return [
        name
        for name in sorted(inspect(connection).get_table_names())
        if name in metadata.tables and name not in LEFT_OUT
    ]


def _dump(connection: Connection, name: str, lines: _Lines) -> int:
    held = Table(name, MetaData(), autoload_with=connection)
    lines.put({"table": name, "columns": [each.name for each in held.columns]})
    query = select(held).order_by(*held.primary_key.columns).execution_options(yield_per=BATCH)
    count = 0
    for row in connection.execute(query):
        lines.put(list(row))
        count += 1
    return count


class _Lines:
    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self.digest = sha256()

    def put(self, value: object) -> None:
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        self.digest.update(line)
        self._file.write(line)


@contextmanager
def _new_file(path: Path) -> Iterator[BufferedWriter]:
    """A file that takes its name when it is whole and on disk; the name is reserved, and given back on failure."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    partial = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        for left in (partial, path):
            left.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


# --- putting one back -----------------------------------------------------------------------------------------------
def restore(database: Database, path: Path) -> Contents:
    """Fill an empty store with a backup, of whatever engine, and move it up to the newest form.

    Job numbers go on `SKIPPED_NUMBERS` higher.

    Raises:
        BackupError: the file is damaged, or of a newer form.
        NotEmptyError: the store holds something already.
        StoreBusyError: a service runs on it.
    """
    contents = inspected(path)
    with told(database):
        _prepare(database, contents.form)
        with alone(database) as leading, database.writer.begin() as connection:
            _require_empty(connection, database.name)
            for held in (lead, counters):
                connection.execute(delete(held))
            _load(connection, path)
            connection.execute(update(counters).values(value=counters.c.value + SKIPPED_NUMBERS))
            connection.execute(update(lead).values(epoch=lead.c.epoch + leading.epoch, holder="", since=0))
            database.after_load(connection)
        forms.migrate(database)
    return contents


def _prepare(database: Database, form: str) -> None:
    if form not in forms.FORMS:
        raise BackupError(
            f"the backup has form {form}, and this mirab knows forms up to {forms.NEWEST}: use a newer one"
        )
    _, there = forms.migrate(database, form)
    if there != form:
        raise BackupError(
            f"{database.name} has tables of form {there}, and the backup is of form {form}: name an empty database"
        )


def _require_empty(connection: Connection, name: str) -> None:
    for held in (journal, jobs, tokens, meta):
        count = connection.execute(select(func.count()).select_from(held)).scalar_one()
        if count:
            raise NotEmptyError(
                f"{name} is not empty ({count} rows in table {held.name}): a backup is put into an empty store; move "
                "the old one aside, or name another with --db"
            )


def _load(connection: Connection, path: Path) -> None:
    target: Any = None
    names: list[str] = []
    batch: list[dict[str, Any]] = []
    for line in _lines_of(path):
        value = json.loads(line)
        if isinstance(value, list):
            batch.append(dict(zip(names, value, strict=True)))
        if batch and (len(batch) >= BATCH or not isinstance(value, list)):
            connection.execute(target, batch)
            batch = []
        if isinstance(value, dict) and "table" in value:
            names = value["columns"]
            target = insert(table(value["table"], *(column(name) for name in names)))


def inspected(path: Path) -> Contents:
    """What a backup says about itself, after it has been read to its end and found whole.

    Raises:
        BackupError: it is no backup, or is damaged.
        OSError: it cannot be read.
    """
    contents: Contents | None = None
    digest, name = sha256(), ""
    for line in _lines_of(path):
        value = _parsed(line, path)
        if contents is None:
            contents = _header(value, path)
        elif isinstance(value, list):
            contents.rows[name] += 1
        elif "table" in value:
            name = value["table"]
            contents.rows[name] = 0
        elif value.get("sha256") == digest.hexdigest() and value.get("rows") == contents.rows:
            return contents
        else:
            raise BackupError(f"{path} is damaged: what it holds is not what it says at its end; use another backup")
        digest.update(line)
    raise BackupError(f"{path} is not whole: it was cut off; use another backup")


def _header(value: Any, path: Path) -> Contents:
    if not isinstance(value, dict) or "mirab_backup" not in value:
        raise BackupError(f"{path} is no backup of mirab: name a file that 'mirab db backup' has made")
    if value["mirab_backup"] != VERSION:
        raise BackupError(f"{path} was made by a newer mirab: use that one")
    return Contents(value["form"], value["made_at"], value["from"])


def _parsed(line: bytes, path: Path) -> Any:
    try:
        value = json.loads(line)
    except ValueError:
        raise BackupError(f"{path} is damaged: a line of it is not JSON; use another backup") from None
    return value


def _lines_of(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        if file.read(2) != b"\x1f\x8b":
            raise BackupError(f"{path} is no backup of mirab: name a file that 'mirab db backup' has made")
        file.seek(0)
        yield from _unpacked(file, path)


def _unpacked(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            yield from packed
    except EOFError:
        raise BackupError(f"{path} is not whole: it was cut off; use another backup") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BackupError(f"{path} is damaged ({error}); use another backup") from None
