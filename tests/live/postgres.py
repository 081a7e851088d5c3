"""A real PostgreSQL for tests: of its own, on a free port of loopback, in a temporary folder, stopped at the end.

Import the fixture into a conftest: ``from tests.live.postgres import postgres_server  # noqa: F401``.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.ports import free_port

PATIENCE_S = 180
_LIBC = ctypes.CDLL(None)
SETTINGS = ("listen_addresses=127.0.0.1", "max_connections=120", "shared_buffers=32MB", "log_min_messages=warning")
FAST = ("fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0", "max_wal_size=128MB")
"""For tests that do not pull the plug: this machine goes on, so nothing is lost."""


def binaries() -> Path | None:
    """The folder of the newest PostgreSQL that is installed."""
    named = shutil.which("postgres")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    there = [folder for folder in folders if (folder / "postgres").exists()]
    return there[-1] if there else Path(named).resolve().parent if named else None


class PostgresServer:
    """One server process; databases are made in it as they are asked for."""

    def __init__(self, folder: Path, programs: Path, *settings: str) -> None:
        self.folder = folder
        self.programs = programs
        self.settings = settings
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    def prepare(self) -> None:
        """Make the cluster of databases."""
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-D", str(self.data), "-U", "mirab", "--auth=trust", "--encoding=UTF8", "--no-sync",
                  "--locale=C.UTF-8")  # fmt: skip

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.folder, user=owner(), capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} failed: {done.stderr}"

    def start(self) -> None:
        settings = [part for setting in (*SETTINGS, *self.settings) for part in ("-c", setting)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k", str(self.folder),
                 *settings],
                cwd=self.folder, user=owner(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=end_with_parent,  # noqa: PLW1509
            )  # fmt: skip
        self._await_answer()

    def _await_answer(self) -> None:
        import psycopg

        until = monotonic() + PATIENCE_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert self.process is not None
                assert self.process.poll() is None, f"postgres ended: {(self.folder / 'log').read_text()[-2000:]}"
                assert monotonic() < until, "postgres does not answer"
                sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: connections are cut and all is written; SIGQUIT: at once, as in a crash."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(PATIENCE_S)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def url(self, database: str) -> str:
        return f"postgresql://mirab@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a new empty database."""
        import psycopg

        name = f"mirab_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)


def owner() -> str | None:
    """The user that runs the server: initdb and postgres refuse root."""
    return "postgres" if os.getuid() == 0 else None


def end_with_parent() -> None:
    """A server must not outlive tests that were killed: PR_SET_PDEATHSIG."""
    _LIBC.prctl(1, signal.SIGQUIT)


def serve(*settings: str) -> Iterator[PostgresServer]:
    """A running server, and its end."""
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed here and could not be: see .ci/daemons")
    folder = Path(tempfile.mkdtemp(prefix="mirab-postgres-", dir=_in_memory() if set(FAST) <= {*settings} else None))
    server = PostgresServer(folder, programs, *settings)
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> str | None:
    """A folder without a disk behind it, if it is large: dozens of small databases cost nothing there."""
    place = Path("/dev/shm")
    return str(place) if place.is_dir() and shutil.disk_usage(place).free > 4 * 2**30 else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a worker; whoever stops it starts it again."""
    yield from serve(*FAST)
