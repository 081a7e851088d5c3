"""Ports of daemons: each process of tests has its own, and none that a connection may get by chance."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import ports
from tests.ports import free_port

TAKES = "from tests import ports; print(*(ports._claimed(int(word)) for word in __import__('sys').argv[1:]))"


def test_no_connection_gets_one_by_chance() -> None:
    first, last = map(int, ports.GIVEN_OUT.read_text().split())
    assert not first <= free_port() <= last


def test_no_other_process_gets_one_that_is_taken() -> None:
    taken = [free_port() for _ in range(3)]
    assert len(set(taken)) == 3
    words = [sys.executable, "-c", TAKES, *map(str, taken)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == ["False"] * 3
