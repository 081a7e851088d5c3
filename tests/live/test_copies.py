"""Forecasts are worked out in copies of the service: they end with it, and keep nothing of it meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from mirab.cli.localservice import LocalService, begin, end, local_service
from tests.live.test_serve import PATIENCE, submit, until
from tests.ports import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    """So much waits that a look forward takes seconds. Its address is one that nobody takes while it is away."""
    address = f"127.0.0.1:{free_port()}"
    with local_service(tmp_path / "state", "--pretend-gpus", "1", "--listen", address) as running:
        submit(running, "sleep 600", array="0-999")
        yield running


def descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def command(pid: int) -> bytes:
    """Empty: it is gone, or only its end has not been asked for."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def open_files(pid: int) -> list[str]:
    """What it keeps open, but for the three that every process has."""
    found = []
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if int(number) > 2:
                    found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def copies(service: LocalService) -> list[int]:
    own = command(service.process.pid)
    return [pid for pid in descendants(service.process.pid) if command(pid) == own]


def held_copies(service: LocalService) -> list[int]:
    """Copies at work, a look forward and its run, stopped so that they would stay for ever if nobody ended them."""
    found: list[int] = []

    def caught() -> bool:
        found[:] = copies(service)
        if len(found) < 2 or not all(map(is_apart, found)):
            return False
        signal_all(found, signal.SIGSTOP)
        if all(map(command, found)) and len(copies(service)) == len(found):
            return True
        signal_all(found, signal.SIGCONT)
        return False

    until(caught)
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def is_apart(pid: int) -> bool:
    """It has come so far as to keep nothing but its own pipe, and its maker's or that of its own copy."""
    kept = open_files(pid)
    return len(kept) == 2 and all(each.startswith("pipe:") for each in kept)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_copies_end_with_the_service_and_keep_nothing_of_it(service: LocalService, number: signal.Signals) -> None:
    at_work = held_copies(service)
    try:
        ended_with(service, number, at_work)
    finally:
        signal_all([pid for pid in at_work if command(pid)], signal.SIGKILL)


def ended_with(service: LocalService, number: signal.Signals, at_work: list[int]) -> None:
    lock, *_ = [each for each in open_files(service.process.pid) if each.endswith("mirab.db.lead")]
    assert not any(lock in open_files(pid) for pid in at_work)
    service.process.send_signal(number)
    service.process.wait(PATIENCE)
    if number is signal.SIGTERM:
        assert not any(map(command, at_work)), "it has waited for the end of its copies"
    again = begin(service.folder, "--wait", "0")
    try:
        again.wait_until_ready()
        until(lambda: not any(map(command, at_work)))
    finally:
        end(again)


def test_a_service_that_is_killed_while_it_looks_forward_starts_again_at_once(service: LocalService) -> None:
    """Neither the lead nor the address is kept by what it leaves; again and again, at whatever instant it comes."""
    address = next(line.split()[3] for line in service.log.read_text().splitlines() if "serves on http" in line)
    there = service
    for _ in range(4):
        until(partial(copies, there))
        there.kill()
        there = begin(service.folder, "--wait", "0", "--listen", address.removeprefix("http://"))
        try:
            there.wait_until_ready()
        except BaseException:
            end(there)
            raise
    end(there)
