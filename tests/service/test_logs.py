"""Logs: one line per decision that acted, and never a secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from mirab.model.plans import Drain, Plan, Repair
from mirab.model.units import NodeName
from mirab.service.logs import configure, log_decision, without_secrets

TOKEN = "mirab_" + "x" * 43


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure("json", "info", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_decision_that_acted_is_one_line(lines: io.StringIO) -> None:
    log_decision(7, (), Plan(1, 1, (Drain(NodeName("n3"), None), Repair(NodeName("n4")))))
    log_decision(8, (), Plan(2, 1))
    (line,) = lines.getvalue().splitlines()
    told = json.loads(line)
    assert (told["seq"], told["actions"], told["what"]) == (7, 2, ["Drain n3", "Repair n4"])
    assert told["level"] == "info" and told["timestamp"].endswith("Z")


def test_a_decision_with_many_actions_names_some_and_counts_all(lines: io.StringIO) -> None:
    log_decision(1, (), Plan(1, 1, tuple(Repair(NodeName(f"n{number}")) for number in range(500))))
    told = json.loads(lines.getvalue())
    assert told["actions"] == 500
    assert len(told["what"]) < 50


def test_secrets_do_not_get_into_logs(lines: io.StringIO) -> None:
    log = structlog.get_logger("any")
    log.warning("asked", token="abc", Authorization="Bearer abc", url=f"postgresql://mirab:hunter2@db/x?{TOKEN}")
    logging.getLogger("other.library").error("failed for %s", TOKEN)
    text = lines.getvalue()
    assert "abc" not in text and "hunter2" not in text and TOKEN not in text
    assert "postgresql://mirab:***@db" in text
    assert len(text.splitlines()) == 2, "libraries write the same form"


@pytest.mark.parametrize("text", ["unix:///run/mirab.sock", "a job named mirab_x", "http://127.0.0.1:7077"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
