"""Migrations: the form that is made is the one that the code speaks; older and newer forms are told apart."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

import mirab.store.migrations as migrations
from mirab.store import Store, StoreBusyError, StoreError, forms, open_store
from mirab.store.audits import check
from mirab.store.backup import BackupError, backup, inspected, restore
from mirab.store.database import open_database
from mirab.store.tables import metadata
from tests.store.conftest import NewUrl
from tests.store.makers import fill

SECOND = """
from alembic import op
from sqlalchemy import Column, Text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("jobs", Column("mood", Text, nullable=False, server_default="fine"))
"""


def test_the_tables_are_those_that_the_code_speaks_of(new_url: NewUrl, opened: Callable[[str], Store]) -> None:
    store = opened(new_url())
    with store.database.writer.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": forms.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_every_migration_is_a_known_form() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(forms.FORMS)


def test_a_store_of_a_newer_mirab_is_refused(new_url: NewUrl, opened: Callable[[str], Store]) -> None:
    url = new_url()
    store = opened(url)
    with store.database.writer.begin() as connection:
        connection.execute(text(f"UPDATE {forms.VERSION_TABLE} SET version_num = '0999'"))
    for attempt in (lambda: opened(url), lambda: forms.migrate_alone(store.database)):
        with pytest.raises(
            StoreError, match=r"has form 0999, and this mirab knows forms up to \d{4}: a newer one wrote it"
        ):
            attempt()


@pytest.fixture
def a_later_mirab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """This one with one more form; call `forget` to be this one again."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    (folder / "versions" / "form_0002.py").write_text(SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(forms, "FORMS", ("0001", "0002"))
        patch.setattr(forms, "NEWEST", "0002")
        patch.setattr(forms, "SCRIPTS", str(folder))
        yield forms


def test_an_older_form_is_refused_and_moved_up_by_command(new_url: NewUrl, request: pytest.FixtureRequest) -> None:
    url = new_url()
    store = open_store(url)
    count = fill(store, 2)
    store.dispose()
    request.getfixturevalue("a_later_mirab")
    with pytest.raises(StoreError, match=r"has form 0001, and this mirab needs form 0002: stop .* 'mirab db migrate'"):
        open_store(url)
    database = open_database(url)
    assert forms.migrate_alone(database) == ("0001", "0002")
    assert forms.migrate_alone(database) == ("0002", "0002")
    with database.reader.connect() as connection:
        assert connection.execute(text("SELECT DISTINCT mood FROM jobs")).scalar() == "fine"
    found = check(database)
    database.close()
    assert (found.wrong, found.records) == ([], count)


def test_nothing_is_migrated_under_a_service(
    new_url: NewUrl, opened: Callable[[str], Store], request: pytest.FixtureRequest
) -> None:
    store = opened(new_url())
    store.lead()
    request.getfixturevalue("a_later_mirab")
    other = open_database(store.url)
    with pytest.raises(StoreBusyError):
        forms.migrate_alone(other)
    other.close()


def test_a_migration_that_fails_changes_nothing(
    new_url: NewUrl, opened: Callable[[str], Store], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = new_url()
    store = opened(url)
    request.getfixturevalue("a_later_mirab")
    broken = tmp_path / "migrations" / "versions" / "form_0002.py"
    broken.write_text(SECOND + "    raise RuntimeError('half way')\n")
    with pytest.raises(RuntimeError):
        forms.migrate_alone(store.database)
    with store.database.reader.connect() as connection:
        assert forms.form_of(connection) == "0001"
        assert "mood" not in connection.execute(text("SELECT * FROM jobs")).keys()  # noqa: SIM118


def test_a_backup_of_an_older_form_is_put_back_and_moved_up(
    new_url: NewUrl, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = open_store(new_url())
    fill(store, 2)
    backup(store.database, tmp_path / "old.gz")
    store.dispose()
    request.getfixturevalue("a_later_mirab")
    database = open_database(new_url())
    assert restore(database, tmp_path / "old.gz").form == "0001"
    with database.reader.connect() as connection:
        assert forms.form_of(connection) == "0002"
    assert check(database).wrong == []
    backup(database, tmp_path / "new.gz")
    database.close()
    assert inspected(tmp_path / "new.gz").form == "0002"


def test_a_backup_of_a_newer_form_is_refused(
    new_url: NewUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], Store]
) -> None:
    store = opened(new_url())
    with store.database.writer.begin() as connection:
        connection.execute(text(f"UPDATE {forms.VERSION_TABLE} SET version_num = '0999'"))
    backup(store.database, tmp_path / "new.gz")
    database = open_database(new_url())
    with pytest.raises(BackupError, match="has form 0999"):
        restore(database, tmp_path / "new.gz")
    database.close()


def test_two_that_open_an_empty_place_at_once_make_the_tables_once(new_url: NewUrl) -> None:
    from concurrent.futures import ThreadPoolExecutor

    url = new_url()
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(open_store, [url] * 4))
    assert [store.last() for store in stores] == [(0, 0)] * 4
    for store in stores:
        store.dispose()
