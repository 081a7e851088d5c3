"""The live part of `mirab demo`: what it shows, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PATIENCE_S = 400
LIVE = """
import signal, sys
from mirab.cli.demolive import show_live
from mirab.cli.exits import report

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
try:
    show_live()
except KeyboardInterrupt as error:
    sys.exit(report(error))
"""
"""The live part alone, with the signals as `mirab` takes them: the replay before it takes its time."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: the name of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mirab-t-") as name:
        yield Path(name)


def processes_of(folder: Path) -> list[str]:
    """Command lines and environments of all processes that speak of a folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        if os.fsencode(folder) in text and int(pid) != os.getpid():
            found.append(text.decode(errors="replace")[:200])
    return found


def test_the_demo_shows_a_preemption_and_its_resume_and_leaves_nothing(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIVE], env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("$ mirab ls", "$ mirab share", "PREEMPTED", "told to stop: step", "attempt 2 on GPUs", "done"):
        assert line in done.stdout, done.stdout
    saved = done.stdout.split("told to stop: step ")[1].split()[0]
    assert f"begins at step {saved} of" in done.stdout
    assert os.listdir(folder) == []
    assert processes_of(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_leaves_in_the_middle_leaves_nothing(folder: Path, number: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LIVE], env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.startswith("$ mirab ls"):
                break
        child.send_signal(number)
        child.communicate(timeout=PATIENCE_S)
    finally:
        child.kill()
    assert child.returncode == 128 + number
    assert os.listdir(folder) == []
    assert processes_of(folder) == []
