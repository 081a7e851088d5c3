"""Backups: one file for both engines, whole or refused, and nothing is ever overwritten."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from mirab.model.records import AuditEntry, Grant, IdempotentReply, TokenRow
from mirab.store import Store, StoreBusyError, StoreError, open_store
from mirab.store.audits import check
from mirab.store.backup import SKIPPED_NUMBERS, BackupError, NotEmptyError, backup, inspected, restore
from mirab.store.database import open_database
from mirab.store.tables import metadata
from tests.store.conftest import NewUrl
from tests.store.makers import fill, plan, submitted

NOT_KEPT = {"snapshots", "lead", "counters"}


def contents(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """All that is stored, table by table."""
    with store.database.reader.connect() as connection:
        return {
            name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for name, table in metadata.tables.items()
            if name not in NOT_KEPT
        }


def furnished(store: Store) -> Store:
    fill(store, 1)
    store.write(
        [
            TokenRow("t", "d", "eve", (Grant("admin"),), 5, "root"),  # type: ignore[arg-type]
            AuditEntry(1, "eve", "here", "submit", "1", why="\u00e4 \U0001f600"),
            IdempotentReply("k", "eve", 1, "d", "r"),
        ]
    )
    store.put_snapshot(3, "f", b"bytes")
    return store


WAYS = [("sqlite", "sqlite"), *(pytest.param(*way, marks=pytest.mark.slow) for way in (
    ("sqlite", "postgresql"), ("postgresql", "sqlite"), ("postgresql", "postgresql"),
))]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_there_and_back_between_all_engines(
    source: str, target: str, request: pytest.FixtureRequest, opened: Callable[[str], Store], tmp_path: Path
) -> None:
    def new_url(kind: str) -> str:
        made: str = (
            request.getfixturevalue("sqlite_urls")()
            if kind == "sqlite"
            else request.getfixturevalue("postgres_server").new_database()
        )
        return made

    store = furnished(opened(new_url(source)))
    number = store.next_job_number()
    made = backup(store.database, tmp_path / "backup.gz")
    assert inspected(tmp_path / "backup.gz").rows == made.rows
    url = new_url(target)
    database = open_database(url)
    restore(database, tmp_path / "backup.gz")
    database.close()
    again = opened(url)
    assert contents(again) == contents(store)
    assert check(again.database).wrong == []
    assert again.snapshot("f") is None
    assert again.next_job_number() >= number + SKIPPED_NUMBERS
    assert again.lead() > 1
    seq = again.last()[0]
    assert again.append((submitted("new"),), plan(1)) == seq + 1
    again.write([AuditEntry(2, "eve", "here", "cancel", "1")])
    assert check(again.database).wrong == []


@pytest.mark.slow
def test_while_a_service_writes(store: Store, tmp_path: Path, opened: Callable[[str], Store], new_url: NewUrl) -> None:
    store.lead()
    stop = threading.Event()
    written = 0

    def serve() -> None:
        nonlocal written
        while not stop.is_set() and written < 3_000:
            written += 1
            store.append((submitted(str(written)),), plan(written))

    serving = threading.Thread(target=serve)
    serving.start()
    other = open_database(store.url)
    for number in range(3):
        backup(other, tmp_path / f"{number}.gz")
    assert check(other).wrong == []
    stop.set()
    serving.join(60)
    other.close()
    rows = [inspected(tmp_path / f"{number}.gz").rows for number in range(3)]
    assert all(each["journal"] == each["jobs"] for each in rows)
    assert rows[2]["journal"] <= written
    target = open_database(new_url())
    restore(target, tmp_path / "2.gz")
    assert check(target).wrong == []
    target.close()


def test_a_file_that_is_there_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "backup.gz"
    file.write_text("precious")
    with pytest.raises(FileExistsError):
        backup(store.database, file)
    assert file.read_text() == "precious"
    assert list(tmp_path.glob("*part*")) == []


def test_a_backup_that_fails_leaves_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mirab.store.backup._dump", full)
    with pytest.raises(OSError, match="No space"):
        backup(store.database, tmp_path / "backup.gz")
    assert list(tmp_path.glob("backup*")) == []


def test_a_backup_is_for_its_owner_only(store: Store, tmp_path: Path) -> None:
    backup(store.database, tmp_path / "backup.gz")
    assert (tmp_path / "backup.gz").stat().st_mode & 0o777 == 0o600


def test_a_store_that_holds_something_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    backup(store.database, tmp_path / "backup.gz")
    before = contents(store)
    with pytest.raises(NotEmptyError, match=r"is not empty \(2 rows in table meta\): .* into an empty store"):
        restore(store.database, tmp_path / "backup.gz")
    assert contents(store) == before


def test_nothing_is_put_under_a_service(
    store: Store, new_url: NewUrl, opened: Callable[[str], Store], tmp_path: Path
) -> None:
    backup(store.database, tmp_path / "backup.gz")
    serving = opened(new_url())
    serving.lead()
    database = open_database(serving.url)
    with pytest.raises(StoreBusyError):
        restore(database, tmp_path / "backup.gz")
    database.close()


@pytest.fixture
def kept(sqlite_urls: NewUrl, tmp_path: Path) -> Path:
    store = open_store(sqlite_urls())
    furnished(store)
    backup(store.database, tmp_path / "backup.gz")
    store.dispose()
    return tmp_path / "backup.gz"


def damaged(kept: Path, how: str) -> None:
    whole = kept.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    if how == "cut":
        kept.write_bytes(whole[: len(whole) // 2])
    elif how == "cut behind a line":
        kept.write_bytes(gzip.compress(b"".join(lines[:-1])))
    elif how == "a line is missing":
        kept.write_bytes(gzip.compress(b"".join(lines[:5] + lines[6:])))
    elif how == "a letter is another":
        kept.write_bytes(gzip.compress(b"".join(lines).replace(b"COMPLETED", b"COMPLETEd", 1)))
    elif how == "bits":
        kept.write_bytes(whole[:200] + b"\0\0\0\0" + whole[204:])
    elif how == "no JSON":
        kept.write_bytes(gzip.compress(lines[0] + b"nonsense\n"))
    elif how == "another gzip":
        kept.write_bytes(gzip.compress(b"hello\n"))
    elif how == "newer":
        kept.write_bytes(gzip.compress(json.dumps({"mirab_backup": 9}).encode()))
    else:
        kept.write_bytes(b"" if how == "empty" else b"hello")


HOWS = {
    "cut": "was cut off",
    "cut behind a line": "was cut off",
    "a line is missing": "is damaged: what it holds is not what it says",
    "a letter is another": "is damaged: what it holds is not what it says",
    "bits": "is damaged",
    "no JSON": "is damaged: a line of it is not JSON",
    "another gzip": "is damaged: a line of it is not JSON",
    "newer": "was made by a newer mirab",
    "empty": "is no backup of mirab",
    "text": "is no backup of mirab",
}


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_backup_is_refused_before_anything_is_touched(kept: Path, how: str, sqlite_urls: NewUrl) -> None:
    damaged(kept, how)
    url = sqlite_urls()
    database = open_database(url)
    with pytest.raises(StoreError, match=HOWS[how]) as caught:
        restore(database, kept)
    assert isinstance(caught.value, BackupError)
    database.close()
    store = open_store(url)
    assert store.last() == (0, 0)
    store.dispose()
