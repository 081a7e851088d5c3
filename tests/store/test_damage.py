"""Files that were cut, overwritten or never ours: one sentence, and no half truth."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from mirab.store import Store, StoreError, open_store
from mirab.store.audits import check
from mirab.store.database import open_database
from mirab.store.filesystems import filesystem_kind, unsafe_kind
from tests.store.makers import fill, plan, put_beginning, submitted


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store's file with a few records, closed."""
    store = open_store(f"sqlite:///{tmp_path}/mirab.db")
    fill(store)
    store.dispose()
    return tmp_path / "mirab.db"


def broken(file: Path) -> str:
    """The sentence that somebody gets who opens the file, reads all of it, and checks it."""
    with pytest.raises(StoreError) as caught:
        store = open_store(f"sqlite:///{file}")
        try:
            list(store.records())
            wrong = check(store.database).wrong
            if wrong:
                raise StoreError(wrong[0])
        finally:
            store.dispose()
    return str(caught.value)


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_bytes(b"# a YAML file\n" * 1_000)
    assert "is damaged (file is not a database): put it aside and restore the last backup" in broken(file)


def test_a_file_that_was_cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)
    assert "damaged" in broken(file) or "malformed" in broken(file)


def test_a_file_with_a_page_of_rubbish(file: Path) -> None:
    size = file.stat().st_size
    with open(file, "r+b") as opened_file:
        for place in range(4096 * 3, size, 4096 * 5):
            opened_file.seek(place)
            opened_file.write(b"\xde\xad" * 1_000)
    assert broken(file)


@pytest.mark.parametrize("share", [0.15, 0.4, 0.7, 0.95])
def test_a_write_ahead_file_that_was_cut_in_the_middle_of_a_record(tmp_path: Path, share: float) -> None:
    """As after a power cut on a disk that had not written all: what is left is whole, and the service goes on there."""
    url = f"sqlite:///{tmp_path}/mirab.db"
    store = put_beginning(open_store(url))
    store.lead()
    for number in range(1, 41):
        store.append((submitted(str(number)),), plan(number))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("mirab.db", "mirab.db-wal"):
        shutil.copy(tmp_path / name, copy / name)
    store.dispose()
    log = copy / "mirab.db-wal"
    os.truncate(log, int(log.stat().st_size * share) + 13)
    again = open_store(f"sqlite:///{copy}/mirab.db")
    seq, _ = again.last()
    assert 0 <= seq < 41
    assert check(again.database).wrong == []
    assert again.counts()["PENDING"] == seq
    again.lead() if again.meta("cluster") else put_beginning(again).lead()
    assert again.append((submitted("next"),), plan(99)) == seq + 1
    again.dispose()


def test_tables_that_are_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match=r"holds tables that mirab did not make \(jobs\): name an empty database"):
        open_store(f"sqlite:///{file}")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "is not the address of a store: write sqlite:"),
        ("mysql://host/db", "cannot be kept in 'mysql'"),
        ("sqlite://", "in memory would forget everything"),
        ("sqlite:///:memory:", "in memory would forget everything"),
        ("sqlite:////nowhere/at/all/mirab.db", "the folder /nowhere/at/all is not there: make it"),
        ("sqlite:////proc/mirab.db", "the file /proc/mirab.db cannot be used"),
        ("postgresql://mirab@127.0.0.1:1/db", "postgresql://mirab@127.0.0.1:1/db does not answer"),
    ],
)
def test_places_that_cannot_be_used(url: str, told: str) -> None:
    with pytest.raises(StoreError, match=told):
        open_store(url)


def test_a_store_that_is_only_looked_at_is_not_to_be_made() -> None:
    with pytest.raises(StoreError, match=r"/nowhere/at/all is not there: name the one that the service uses \(--db"):
        open_database("sqlite:////nowhere/at/all/mirab.db", make=False)


def test_a_password_is_not_told() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://mirab:geheim@127.0.0.1:1/db?password=geheim")
    assert "geheim" not in str(caught.value)


def test_the_file_is_for_its_owner_only(sqlite_urls: Callable[[], str], opened: Callable[[str], Store]) -> None:
    store = opened(sqlite_urls())
    store.lead()
    file = Path(store.url.removeprefix("sqlite:///"))
    for name in (file, file.with_name(file.name + "-wal"), file.with_name(file.name + ".lead")):
        assert name.stat().st_mode & 0o777 == 0o600


def test_each_commit_is_synced_and_readers_cannot_write(
    sqlite_urls: Callable[[], str], opened: Callable[[str], Store]
) -> None:
    store = opened(sqlite_urls())
    with store.database.writer.connect() as connection:
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    with store.database.reader.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(text("DELETE FROM jobs"))


# --- file systems -----------------------------------------------------------------------------------------------------
MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:40 / /home rw,relatime shared:1 - nfs4 server:/home rw,vers=4.2
24 23 0:41 / /home/local\\040disk rw,relatime - xfs /dev/vdb rw
25 22 0:42 / /mnt/share rw - cifs //server/share rw
26 22 0:43 / /mnt/ssh rw - fuse.sshfs me@host:/ rw
27 22 0:44 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw
28 22 0:45 / /scratch rw - lustre mds@tcp:/scratch rw
29 22 0:46 / /over rw - ext4 /dev/vdc rw
30 29 0:47 / /over rw - nfs server:/over rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/mirab", None),
        ("/home/eve", "nfs4"),
        ("/home", "nfs4"),
        ("/home/local disk/eve", None),
        ("/homes", None),
        ("/mnt/share/x", "cifs"),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/mnt/ntfs/x", None),
        ("/scratch/eve", "lustre"),
        ("/over/x", "nfs"),
    ],
)
def test_file_systems_that_are_refused(folder: str, kind: str | None) -> None:
    assert unsafe_kind(Path(folder), MOUNTS) == kind


def test_what_the_kernel_says_here() -> None:
    assert filesystem_kind(Path("/proc/self"), Path("/proc/self/mountinfo").read_text()) == "proc"
    assert filesystem_kind(Path("/"), "") == ""
    assert unsafe_kind(Path("/"), "rubbish\n\n - \n1 2 3 - nfs\n") is None


def test_a_store_on_such_a_file_system_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirab.store.filesystems._mounts", lambda: f"1 0 0:1 / {tmp_path} rw - nfs4 server:/ rw\n")
    with pytest.raises(StoreError, match=r"of kind nfs4, on which SQLite's locks fail .* or use PostgreSQL"):
        open_store(f"sqlite:///{tmp_path}/mirab.db")
    assert not (tmp_path / "mirab.db").exists()
