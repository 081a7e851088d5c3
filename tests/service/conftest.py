"""A service whose every step a test takes itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.postgres import postgres_server  # noqa: F401
from tests.service.house import Bench


@pytest.fixture(autouse=True)
def looks_are_not_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the process get all the time that they need, and so does who reads while a disk is slow."""
    for name, seconds in (("lookahead.BUDGET", 800), ("lookahead.DEADLINE", 3_600), ("lookahead.LONGEST_COPY", 3_600),
                          ("forecaster.LONGEST_BATCH", 3_600), ("desk.sandbox.PATIENCE", 900),
                          ("live.READ_PATIENCE", 180)):  # fmt: skip
        monkeypatch.setattr(f"mirab.service.{name}", seconds)
    monkeypatch.setattr("mirab.service.lookahead.os.nice", lambda _: 0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()
