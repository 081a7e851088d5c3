"""`mirab db`: what it says, where, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from mirab.cli.main import run
from mirab.store import open_store
from tests.live.postgres import PostgresServer
from tests.store.makers import fill


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mirab.db"


@pytest.fixture
def filled(url: str) -> str:
    store = open_store(url)
    fill(store, 1)
    store.dispose()
    return url


def test_migrate(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "migrate", "--db", url]) == 0
    assert "made form 0001." in capsys.readouterr().err
    assert run(["db", "migrate", "--db", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["before"] == "0001"


def test_the_store_is_found_as_the_service_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "check", "--state-dir", str(tmp_path)]) == 1
    assert f"mirab: there is no store at {tmp_path}/mirab.db: name the one" in capsys.readouterr().err
    assert not (tmp_path / "mirab.db").exists()
    monkeypatch.setenv("MIRAB_DB", f"sqlite:///{tmp_path}/other.db")
    assert run(["db", "migrate"]) == 0
    assert (tmp_path / "other.db").exists()


def test_backup_restore_check(filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = str(tmp_path / "b.gz"), f"sqlite:///{tmp_path}/again.db"
    assert run(["db", "backup", file, "--db", filled, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows["journal"] > 50
    assert run(["db", "backup", file, "--db", filled]) == 5
    assert "exists already" in capsys.readouterr().err
    assert run(["db", "backup", str(tmp_path / "disk" / "b.gz"), "--db", filled]) == 3
    assert "the folder" in capsys.readouterr().err
    assert not (tmp_path / "disk").exists(), "it may be a disk that is not mounted"
    assert run(["db", "restore", file, "--db", target]) == 0
    assert f"{rows['journal']:,} records" in capsys.readouterr().err
    assert run(["db", "restore", file, "--db", target]) == 5
    assert "is not empty" in capsys.readouterr().err
    assert run(["db", "restore", str(tmp_path / "none.gz"), "--db", target]) == 3
    assert run(["db", "check", "--db", target]) == 0
    assert capsys.readouterr().out.startswith(f"ok: {rows['journal']:,} records")


def test_check_says_what_is_wrong_and_repairs_it(filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(filled)
    with store.database.writer.begin() as connection:
        connection.execute(text("UPDATE jobs SET preemptions = 99"))
    store.dispose()
    assert run(["db", "check", "--db", filled]) == 1
    out = capsys.readouterr()
    assert out.out.count("WRONG  job ") == 10
    assert "more jobs" in out.out
    assert "--repair" in out.err
    assert run(["db", "check", "--repair", "--db", filled, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_a_store_in_use(filled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(filled)
    store.lead()
    try:
        assert run(["db", "check", "--repair", "--db", filled]) == 5
        told = capsys.readouterr().err
        assert "is served by process" in told
        assert told.endswith("stop that service first.\n"), "there is no --wait here"
        assert run(["db", "check", "--db", filled]) == 0
        assert run(["db", "backup", str(tmp_path / "b.gz"), "--db", filled]) == 0
    finally:
        store.dispose()


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("mysql://x/y", 2, "--db cannot be 'mysql://...': write sqlite:////path/to/mirab.db, or postgresql:"),
        ("postgresql://mirab@127.0.0.1:1/x", 8, "does not answer"),
        ("sqlite:////nowhere/x.db", 1, "the folder /nowhere is not there"),
    ],
)
def test_places_that_do_not_work(url: str, code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "check", "--db", url]) == code
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_database_of_another_owner(postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]) -> None:
    """As after `createdb mirab` without --owner: from PostgreSQL 15 on others may make no tables in it."""
    import psycopg

    url = postgres_server.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute("CREATE ROLE guest LOGIN")
    assert run(["db", "migrate", "--db", url.replace("mirab@", "guest@")]) == 1
    told = capsys.readouterr().err
    assert "does not let guest do this (permission denied for schema public): make that user the owner of" in told
    assert told.count("\n") == 1
