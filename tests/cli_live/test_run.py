"""`mirab run`: output, words about what happens, Ctrl-C, and restarts of the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mirab.cli.following import changes
from mirab.cli.foreground import Notices
from tests.cli.conftest import Mirab
from tests.cli.signals import HEARING, PATIENT, hear
from tests.cli_live.double import Answer, Asked, Double, job

PATIENCE_S = 180


class Playing:
    """A job that waits, runs, and ends when it is told to or cancelled."""

    def __init__(self, double: Double, *, state: str = "RUNNING", code: int = 0) -> None:
        self.double, self.code = double, code
        self.over = threading.Event()
        self.state = state
        self.cancelled = False
        double.special = self.answer

    @property
    def job(self) -> dict[str, Any]:
        ended = "CANCELLED" if self.cancelled else "FAILED" if self.code else "COMPLETED"
        state = ended if self.over.is_set() else self.state
        running = {"started_at": "2026-03-01T12:00:00Z", "node_names": ["n0"], "attempt": 1}
        return job("7", state=state, exit_code=self.code if self.over.is_set() else None,
                   **(running if state != "PENDING" else {}))  # fmt: skip

    def answer(self, asked: Asked) -> Answer | None:
        if asked.path == "/events":
            return Answer(pieces=self.events())
        if asked.path.endswith("/cancel"):
            self.cancelled = True
            self.over.set()
            return Answer(self.job)
        if asked.path.endswith("/output"):
            return Answer(pieces=self.output())
        if asked.path.endswith("/await"):
            self.over.wait(1)
            return Answer(self.job)
        if asked.path == "/jobs/7":
            return Answer(self.job)
        return None

    def events(self) -> Iterator[bytes]:
        yield b"retry: 2000\n\n"
        self.over.wait(PATIENCE_S)
        yield b"event: job\ndata: {}\n\n"

    def output(self) -> Iterator[bytes]:
        yield b"hello\n"
        self.over.wait(PATIENCE_S)
        yield b"bye\n"


def test_output_comes_here_and_the_code_is_the_jobs(mirab: Mirab, double: Double) -> None:
    playing = Playing(double, code=3)
    playing.over.set()
    said = mirab("run", "-A", "red", "--", "train", "-v")
    assert (said.code, said.out) == (3, "hello\nbye\n")
    assert said.err.splitlines()[0] == "Job 7 is submitted."
    assert said.err.splitlines()[-1].startswith("Job 7 ended: FAILED, exit code 3")
    body = double.requests("POST", "/jobs")[0].body
    assert (body["argv"], body["name"]) == (["train", "-v"], "train")


def test_quiet_and_json(mirab: Mirab, double: Double) -> None:
    Playing(double).over.set()
    assert mirab("run", "-Q", "true").err == ""
    said = mirab("run", "-Q", "--json", "true")
    assert json.loads(said.out)["state"] == "COMPLETED"


def test_arrays_and_nothing_are_refused(mirab: Mirab, double: Double) -> None:
    assert mirab("run", "-a", "0-3", "--", "true").code == 2
    assert mirab("run").code == 2
    assert double.asked == []


@contextmanager
def foreground(double: Double, playing: Playing, program: list[str] = HEARING) -> Iterator[subprocess.Popen[str]]:
    """`mirab run` in a terminal's place; it has shown the first output, so it hears signals."""
    child = subprocess.Popen(
        [*program, "run", "--", "train"], env={**os.environ, "MIRAB_SERVER": double.url},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "hello\n"
        yield child
    finally:
        child.kill()
        playing.over.set()
        child.communicate()


def left(child: subprocess.Popen[str]) -> str:
    """The rest of what it says, when it has ended."""
    return child.communicate(timeout=PATIENCE_S)[1]


@pytest.mark.slow
def test_one_ctrl_c_while_it_runs_only_says_what_two_would_do(double: Double) -> None:
    playing = Playing(double)
    with foreground(double, playing) as child:
        hear(child, "Job 7 runs on n0")
        child.send_signal(signal.SIGINT)
        hear(child, "Ctrl-C again within 2 s cancels it")
        playing.over.set()
        left(child)
    assert (child.returncode, playing.cancelled) == (0, False)


@pytest.mark.slow
def test_two_cancel_it(double: Double) -> None:
    playing = Playing(double, code=143)
    with foreground(double, playing, PATIENT) as child:
        hear(child, "Job 7 runs on n0")
        child.send_signal(signal.SIGINT)
        hear(child, "Ctrl-C again")
        child.send_signal(signal.SIGINT)
        talk = left(child)
    assert (child.returncode, playing.cancelled) == (130, True)
    assert "Job 7 ended: CANCELLED" in talk


@pytest.mark.slow
def test_one_is_enough_while_it_waits(double: Double) -> None:
    playing = Playing(double, state="PENDING")
    with foreground(double, playing) as child:
        child.send_signal(signal.SIGINT)
        talk = left(child)
    assert (child.returncode, playing.cancelled) == (130, True)
    assert "Cancelling job 7" in talk


@pytest.mark.slow
def test_being_told_to_go_cancels_it(double: Double) -> None:
    playing = Playing(double)
    with foreground(double, playing) as child:
        child.send_signal(signal.SIGTERM)
        left(child)
    assert (child.returncode, playing.cancelled) == (128 + signal.SIGTERM, True)


def test_what_is_said_when_a_job_changes() -> None:
    notices = Notices("7")
    waiting = job("7", why="8 GPUs are not free.")
    running = job("7", state="RUNNING", attempt=1, node_names=["n0"], started_at="2026-03-01T12:00:00Z",
                  protected_until="2036-01-01T00:00:00Z")  # fmt: skip
    again = job("7", attempt=1, preemptions=1, why="red goes first")
    assert notices.about(waiting) == "Job 7 waits: 8 GPUs are not free."
    assert notices.about(waiting) == ""
    assert notices.about(running).startswith("Job 7 runs on n0, protected until 2036-01-01 ")
    assert notices.running
    assert notices.about({**running, "state": "COMPLETING"}) == "Job 7 was told to stop."
    assert notices.about(again) == "Job 7 was stopped and waits again: red goes first."
    assert not notices.running
    assert notices.about({**running, "attempt": 2, "protected_until": None}) == "Job 7 runs again on n0."
    assert notices.about({**running, "attempt": 3, "state": "COMPLETED"}) == "Job 7 ran again on n0."


def test_changes_are_told_until_the_end_across_a_broken_stream(double: Double) -> None:
    from mirab.cli.address import parse_address
    from mirab.cli.client import Client

    states = iter(["PENDING", "RUNNING", "RUNNING", "COMPLETED"])
    streams = iter([Answer(pieces=[b"retry: 1\n\n"], break_off=True), Answer(pieces=[b"retry: 1\n\n", b": alive\n\n"])])

    def answer(asked: Asked) -> Answer:
        return next(streams) if asked.path == "/events" else Answer(job("7", state=next(states)))

    double.special = answer
    address = parse_address(double.url)
    with Client(address) as events, Client(address) as asker:
        assert [each["state"] for each in changes(events, asker, "7")] == ["PENDING", "RUNNING", "COMPLETED"]
