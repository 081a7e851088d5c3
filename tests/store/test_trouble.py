"""Locked, full, gone, or in doubt: an append goes on trying, says so once, and never writes twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from mirab.store import LostLeadError, Store, StoreClosedError, UnreachableStoreError
from mirab.store.audits import check
from mirab.store.database import open_database
from tests.live.postgres import PostgresServer
from tests.store.makers import plan, put_beginning, submitted
from tests.store.proxy import Break, BreakingWire


@pytest.fixture
def told(store: Store) -> list[str]:
    """What the store says of its troubles, in order."""
    said: list[str] = []
    store.on_trouble = said.append
    store.lead()
    return said


@pytest.fixture
def sqlite_store(sqlite_urls: Callable[[], str], opened: Callable[[str], Store]) -> Store:
    return put_beginning(opened(sqlite_urls()))


# --- SQLite -----------------------------------------------------------------------------------------------------------
def test_a_file_that_another_process_locks_is_waited_for(sqlite_store: Store) -> None:
    sqlite_store.lead()
    leading = sqlite_store._lead
    assert leading is not None
    assert leading._connection is not None
    leading._connection.exec_driver_sql("PRAGMA busy_timeout = 50")  # ten seconds else
    leading._connection.rollback()
    file = sqlite_store.url.removeprefix("sqlite:///")
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    said: list[str] = []

    def note(trouble: str) -> None:
        said.append(trouble)
        if trouble:
            other.execute("ROLLBACK")

    sqlite_store.on_trouble = note
    other.execute("BEGIN IMMEDIATE")
    assert sqlite_store.append((submitted("1"),), plan(0)) == 1
    other.close()
    assert len(said) == 2
    assert f"the file {file} is locked by another process" in said[0]
    assert said[1] == ""


FULL = """
import json, resource, sys
from mirab.model.codec import encode
from mirab.store import open_store
from mirab.store.audits import check
from mirab.store.database import open_database
from tests.store.makers import CLUSTER, plan, put_beginning, spec, submitted

store = put_beginning(open_store(sys.argv[1]))
store.lead()
said = []

def on_trouble(trouble):
    said.append(trouble)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

store.on_trouble = on_trouble
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
for number in range(20):
    store.append((submitted(str(number)),), plan(number), [spec(str(number), script="x" * 100_000)])
assert len(list(store.records())) == 20
print(json.dumps([said, check(store.database).wrong]))
"""


@pytest.mark.slow
def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The same as a full disk to SQLite; a real one is below, where this machine lets us have one."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, f"sqlite:///{tmp_path}/full.db"],
        capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    import json

    said, wrong = json.loads(done.stdout)
    assert len(said) == 2
    assert "full.db cannot be read or written" in said[0] or "cannot grow" in said[0]
    assert (said[1], wrong) == ("", [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if os.getuid() != 0 or made.returncode != 0:
        pytest.skip("this machine does not let us mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(small_disk: Path, opened: Callable[[str], Store]) -> None:
    store = put_beginning(opened(f"sqlite:///{small_disk}/mirab.db"))
    store.lead()
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (2**20 + 2**19))
    said: list[str] = []

    def note(trouble: str) -> None:
        said.append(trouble)
        ballast.unlink(missing_ok=True)

    store.on_trouble = note
    count = 0
    while not said and count < 200:
        count += 1
        assert store.append((submitted(str(count), label="x" * 20_000),), plan(count)) == count
    assert len(said) == 2
    assert "cannot grow: the disk is full, free some space" in said[0]
    assert said[1] == ""
    assert check(store.database).wrong == []
    store.dispose()


# --- both -------------------------------------------------------------------------------------------------------------
def test_closing_ends_an_append_that_keeps_trying(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.lead()
    tried = threading.Event()
    monkeypatch.setattr("mirab.store.leading.Lead._write", lambda *_: "it never works")
    store.on_trouble = lambda _: tried.set()
    failed: list[Exception] = []

    def append() -> None:
        try:
            store.append((), plan(0))
        except StoreClosedError as error:
            failed.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    assert tried.wait(60)
    store.dispose()
    thread.join(60)
    assert "it never works" in str(failed[0])


# --- PostgreSQL -------------------------------------------------------------------------------------------------------
@pytest.fixture
def own_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """The server, which is up again afterwards whatever the test did to it."""
    yield postgres_server
    if postgres_server.process is None:
        postgres_server.start()


@pytest.fixture
def postgres_store(own_server: PostgresServer, opened: Callable[[str], Store]) -> Store:
    return put_beginning(opened(own_server.new_database()))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_postgres_is_restarted_under_load(
    own_server: PostgresServer, postgres_store: Store, how: signal.Signals
) -> None:
    store = postgres_store
    store.lead()
    said: list[str] = []
    store.on_trouble = said.append
    wanted = 400
    half = threading.Event()

    def append() -> None:
        for number in range(1, wanted + 1):
            assert store.append((submitted(str(number)),), plan(number)) == number
            if number == 20:
                half.set()

    appending = threading.Thread(target=append)
    appending.start()
    assert half.wait(60)
    for _ in range(3):
        own_server.restart(how)
    appending.join(120)
    assert not appending.is_alive()
    assert [seq for seq, _, _ in store.records()] == list(range(1, wanted + 1))
    assert store.counts()["PENDING"] == wanted
    assert check(store.database).wrong == []
    assert len(said) % 2 == 0
    assert all("does not answer" in trouble for trouble in said[::2])
    assert not any(said[1::2])


@pytest.mark.slow
def test_reads_while_it_is_away_are_told_as_such_and_work_again(
    own_server: PostgresServer, postgres_store: Store
) -> None:
    assert postgres_store.last() == (0, 0)
    own_server.stop()
    with pytest.raises(UnreachableStoreError, match="does not answer"):
        postgres_store.jobs()
    with pytest.raises(UnreachableStoreError):
        postgres_store.write([])
    own_server.start()
    assert postgres_store.last() == (0, 0)


@pytest.fixture
def wire(own_server: PostgresServer) -> Iterator[BreakingWire]:
    wire = BreakingWire(own_server.port)
    yield wire
    wire.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", list(Break), ids=lambda how: how.name)
def test_a_commit_in_doubt_is_resolved_by_its_number(
    own_server: PostgresServer, wire: BreakingWire, opened: Callable[[str], Store], how: Break
) -> None:
    url = own_server.new_database().replace(str(own_server.port), str(wire.port)) + "?sslmode=disable"
    store = put_beginning(opened(url))
    store.lead()
    said: list[str] = []
    store.on_trouble = said.append
    for number in range(1, 6):
        wire.breaks = how if number in (2, 3) else None
        assert store.append((submitted(str(number)),), plan(number)) == number
    assert wire.broken == 2
    assert [seq for seq, _, _ in store.records()] == [1, 2, 3, 4, 5]
    assert check(store.database).wrong == []
    assert len(said) == 4


@pytest.mark.slow
def test_a_lead_that_was_taken_while_the_wire_was_broken(
    own_server: PostgresServer, wire: BreakingWire, opened: Callable[[str], Store]
) -> None:
    direct = own_server.new_database()
    store = put_beginning(opened(direct.replace(str(own_server.port), str(wire.port)) + "?sslmode=disable"))
    store.lead()
    other = opened(direct)

    def taken(_: str) -> None:
        other.lead(wait=60)
        other.append((submitted("theirs"),), plan(1))

    store.on_trouble = taken
    wire.breaks = Break.BEFORE_COMMIT
    with pytest.raises(LostLeadError):
        store.append((submitted("ours"),), plan(1))
    assert [job.id for job in other.jobs()[0]] == ["theirs"]


@pytest.mark.slow
def test_a_server_that_only_reads_for_a_while(own_server: PostgresServer, postgres_store: Store) -> None:
    store = postgres_store
    store.lead()
    said: list[str] = []
    name = store.url.rpartition("/")[2]

    def set_read_only(on: bool) -> None:
        import psycopg

        with psycopg.connect(own_server.url("postgres"), autocommit=True) as connection:
            connection.execute(
                f"ALTER DATABASE {name} SET default_transaction_read_only = {'on' if on else 'off'}".encode()
            )
            connection.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'".encode()
            )

    def note(trouble: str) -> None:
        said.append(trouble)
        if len(said) == 1:
            set_read_only(False)

    set_read_only(True)
    store.on_trouble = note
    assert store.append((submitted("1"),), plan(1)) == 1
    assert said[-1] == ""


@pytest.mark.slow
def test_a_commit_is_on_disk_whatever_the_server_says(postgres_store: Store) -> None:
    with postgres_store.database.writer.connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_or_replaced_while_in_use_takes_no_record_until_it_is_back(
    sqlite_store: Store, suffix: str, replaced: bool
) -> None:
    sqlite_store.lead()
    assert sqlite_store.append((submitted("1"),), plan(0)) == 1
    file = Path(sqlite_store.url.removeprefix("sqlite:///") + suffix)
    aside = file.with_name("aside")
    assert sqlite_store.database.out_of_place() == ""
    file.rename(aside)
    if replaced:
        file.write_bytes(b"")
    assert "removed or replaced" in sqlite_store.database.out_of_place(), "before anything is written"
    said: list[str] = []

    def put_back(trouble: str) -> None:
        said.append(trouble)
        if trouble:
            if not suffix:
                with pytest.raises(UnreachableStoreError, match="removed or replaced"):
                    sqlite_store.put_meta("note", "to nobody")
            aside.rename(file)

    sqlite_store.on_trouble = put_back
    assert sqlite_store.append((submitted("2"),), plan(1)) == 2
    assert sqlite_store.database.out_of_place() == ""
    assert "has been removed or replaced while it is in use" in said[0]
    assert said[1:] == [""]
    assert sqlite_store.meta("note") is None
    copy = said[0].partition("all that it held is in ")[2].partition(":")[0]
    with sqlite3.connect(copy) as rescued:
        assert rescued.execute("SELECT count(*) FROM journal").fetchone() == (1,)
    assert os.stat(copy).st_mode & 0o777 == 0o600
    sqlite_store.dispose()
    assert check(open_database(sqlite_store.url)).wrong == []
