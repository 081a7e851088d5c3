"""Each test of the contract runs on both real engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirab.store import Store, open_store
from tests.live.postgres import PostgresServer, postgres_server  # noqa: F401
from tests.store.makers import put_beginning

NewUrl = Callable[[], str]


@pytest.fixture
def sqlite_urls(tmp_path: Path) -> NewUrl:
    numbers = iter(range(1_000))
    return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_url(request: pytest.FixtureRequest) -> NewUrl:
    """The URL of another empty place at each call."""
    if request.param == "sqlite":
        made: NewUrl = request.getfixturevalue("sqlite_urls")
        return made
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.new_database


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    """Opens stores, and closes them at the end."""
    stores: list[Store] = []

    def open_one(url: str) -> Store:
        stores.append(open_store(url))
        return stores[-1]

    yield open_one
    for store in stores:
        store.dispose()


@pytest.fixture
def store(new_url: NewUrl, opened: Callable[[str], Store]) -> Store:
    """An empty store that knows its cluster; nobody leads."""
    return put_beginning(opened(new_url()))
