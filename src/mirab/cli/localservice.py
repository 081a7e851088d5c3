"""A service in a folder of its own, for the demonstration, benchmarks and tests; it leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mirab.cli.address import Address
from mirab.cli.client import Client
from mirab.cli.exits import UnreachableError, UnusableError

READY_S = 180.0
"""A net: one that does not start says so, or ends."""
STOP_S = 15.0
NOTICE_S = 10.0
LOOK_S = 0.05


@dataclass
class LocalService:
    """A running `mirab serve`.

    Attributes:
        folder: its state folder; the socket and the log are in it.
    """

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> Address:
        return Address("unix", str(self.folder / "mirab.sock"))

    @property
    def log(self) -> Path:
        return self.folder / "serve.log"

    def client(self, token: str = "") -> Client:
        return Client(self.address, token)

    def kill(self) -> None:
        """As a crash does it; runs go on."""
        self.process.kill()
        self.process.wait()

    def wait_until_ready(self) -> None:
        """Raises UnusableError with the end of its log if it ends or does not answer in time."""
        give_up = time.monotonic() + READY_S
        while time.monotonic() < give_up and self.process.poll() is None:
            with suppress(UnreachableError), self.client() as client:
                client.get("/version")
                return
            time.sleep(LOOK_S)
        raise UnusableError(f"the service did not start: {self.log.read_text(errors='replace')[-2_000:]}")


def begin(folder: Path, *flags: str, environment: dict[str, str] | None = None) -> LocalService:
    """Start `mirab serve` on a state folder; nothing outside of it is used. It is not waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIRAB_")}
    command = [sys.executable, "-m", "mirab", "serve", "--state-dir", str(folder), "--listen", "none", *flags]
    with open(folder / "serve.log", "ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**kept, **(environment or {})},
            start_new_session=True,
        )  # fmt: skip
    return LocalService(folder, process)


@contextmanager
def local_service(folder: Path, *flags: str) -> Iterator[LocalService]:
    """A service that answers, for the length of a block; then it ends, and every run that it began.

    Raises:
        UnusableError: it does not start.
    """
    service = begin(folder, *flags)
    try:
        service.wait_until_ready()
        yield service
    finally:
        end(service)


def end(service: LocalService) -> None:
    """Stop the service, then whatever still runs in its folder."""
    if service.process.poll() is None:
        service.process.terminate()
        try:
            service.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            service.kill()
    end_runs(service.folder)


def end_runs(folder: Path) -> None:
    """End every run that lives in a state folder, with its notice first; nobody comes after them."""
    from mirab.backends.local import processes, rundir
    from mirab.backends.local.watching import shim_pidfd

    alive = {}
    for directory in sorted(folder.glob("runs/*/*")):
        if (pidfd := shim_pidfd(str(directory))) is not None:
            alive[pidfd] = directory
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    give_up = time.monotonic() + NOTICE_S
    for pidfd, directory in alive.items():
        select.select([pidfd], [], [], max(0.0, give_up - time.monotonic()))
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
        spec = rundir.read_json(str(directory / rundir.SPEC)) or {"environment": {"MIRAB_RUN_DIR": directory}}
        processes.kill_marked(f"MIRAB_RUN_DIR={spec['environment']['MIRAB_RUN_DIR']}", [], 1.0)
