"""Never two deciders: a second waits or is refused with a name, and one that lost the lead writes nothing more."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import text

from mirab.store import LostLeadError, Store, StoreBusyError, StoreClosedError
from tests.store.makers import plan, submitted

LEADER = """
import sys
from mirab.store import open_store
store = open_store(sys.argv[1])
print(store.lead(), flush=True)
sys.stdin.read()
"""


def test_each_lead_has_a_higher_epoch(store: Store, opened: Callable[[str], Store]) -> None:
    assert store.lead() == 1
    store.dispose()
    again = opened(store.url)
    assert again.lead() == 2
    assert again.lead() == 3


def test_a_second_one_is_told_who_leads(store: Store, opened: Callable[[str], Store]) -> None:
    store.lead()
    second = opened(store.url)
    with pytest.raises(StoreBusyError, match=r"is served by process \d+ on .* \(since .* UTC\): stop that service"):
        second.lead()
    with pytest.raises(LostLeadError):
        second.append((), plan(0))
    assert store.append((), plan(0)) == 1


def test_a_second_one_can_wait(store: Store, opened: Callable[[str], Store]) -> None:
    store.lead()
    second = opened(store.url)
    epochs: list[int] = []
    waiting = threading.Thread(target=lambda: epochs.append(second.lead(wait=60)))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    store.dispose()
    waiting.join(60)
    assert epochs == [2]
    assert second.append((), plan(0)) == 1


def test_waiting_ends_when_the_store_is_closed(store: Store, opened: Callable[[str], Store]) -> None:
    store.lead()
    second = opened(store.url)
    failed: list[Exception] = []

    def wait() -> None:
        try:
            second.lead(wait=60)
        except StoreClosedError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    second.dispose()
    waiting.join(60)
    assert len(failed) == 1


def test_the_lead_ends_with_a_process_that_is_killed(store: Store) -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert leader.stdout is not None
        assert leader.stdout.readline().strip() == "1"
        with pytest.raises(StoreBusyError, match=f"process {leader.pid} on"):
            store.lead()
        leader.send_signal(signal.SIGKILL)
        leader.wait()
        assert store.lead(wait=60) == 2
    finally:
        leader.kill()
        leader.communicate()


def test_one_that_has_lost_the_lead_writes_nothing(store: Store, opened: Callable[[str], Store]) -> None:
    """As when its lock was taken away behind its back: the file was deleted, the connection cut for a while."""
    store.lead()
    store.append((submitted("1"),), plan(0))
    with store.database.writer.begin() as connection:
        connection.execute(text("UPDATE lead SET epoch = epoch + 1, holder = 'the other one'"))
    with pytest.raises(LostLeadError, match="the other one leads"):
        store.append((submitted("2"),), plan(1))
    assert store.job("2") is None
    assert store.last() == (1, 0)
    with pytest.raises(LostLeadError):
        store.append((), plan(2))


@pytest.mark.slow
def test_two_ledgers_in_two_schemas_of_one_database_have_leads_of_their_own(
    postgres_server: object, opened: Callable[[str], Store]
) -> None:
    from sqlalchemy import create_engine

    from tests.live.postgres import PostgresServer

    assert isinstance(postgres_server, PostgresServer)
    url = postgres_server.new_database()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA one"))
        connection.execute(text("CREATE SCHEMA two"))
    engine.dispose()
    one, two = (opened(f"{url}?options=-c%20search_path%3D{name}") for name in ("one", "two"))
    assert (one.lead(), two.lead()) == (1, 1)
