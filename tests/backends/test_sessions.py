"""A person at a terminal: what is shown, kept and said; who may attach; when it ends by itself."""

from __future__ import annotations

import os
import pty
import re
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mirab.backends.local import frames, rundir
from mirab.backends.local.attach import AttachError, End, Typing, attach
from mirab.backends.local.terminal import Life
from mirab.model.events import Outcome
from mirab.model.units import RunId, WorkloadId
from tests.backends.rig import Rig, wait_for

SHELL = ("bash", "--norc", "--noprofile", "-i")
QUIET = (("PS1", "READY> "), ("HISTFILE", "/dev/null"), ("TERM", "dumb"))


def session(rig: Rig, workload: str = "1", *argv: str, attempt: int = 1, **fields: Any) -> RunId:
    run_id = rig.start(
        workload,
        *(argv or SHELL),
        attempt=attempt,
        interactive=True,
        **{"environment": QUIET, "grace": 2_000, **fields},
    )
    rig.started(run_id)
    return run_id


class Person:
    """Somebody who has attached from a pty of their own."""

    def __init__(self, socket_path: str, rows: int = 30, columns: int = 90) -> None:
        self.master, self.slave = pty.openpty()
        set_size(self.slave, rows, columns)
        self.seen = b""
        self.end: End | None = None
        self.error: AttachError | None = None
        self.last = ""
        self.thread = threading.Thread(target=self._attach, args=(socket_path,), daemon=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        self.reader.start()

    def _attach(self, socket_path: str) -> None:
        try:
            self.end = attach(socket_path, self.slave, self.slave)
        except AttachError as error:
            self.error = error

    def _read(self) -> None:
        while True:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError as error:
                self.last = repr(error)
                return

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def sees(self, text: str) -> str:
        wait_for(
            lambda: text.encode() in self.seen, f"{text!r}; seen {self.seen!r}; {self.error!r}, {self.end}, {self.last}"
        )
        return self.seen.decode(errors="replace")

    def leaves(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        os.close(self.slave)
        self.reader.join(60)
        os.close(self.master)


def set_size(slave: int, rows: int, columns: int) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def door(rig: Rig, run_id: RunId) -> str:
    folder = rig.backend.run_dir(rig.starts[run_id].workload_id)
    assert folder is not None
    return str(folder / rundir.ATTACH)


@contextmanager
def person(rig: Rig, run_id: RunId) -> Iterator[Person]:
    someone = Person(door(rig, run_id))
    try:
        yield someone
    finally:
        if someone.thread.is_alive():
            someone.types("\x1d")
        someone.leaves()


# --- typing and seeing ---------------------------------------------------------------------------------------------


def test_a_shell_at_a_terminal(rig: Rig) -> None:
    run_id = session(rig)
    with person(rig, run_id) as ada:
        ada.sees("READY> ")
        ada.types("tty && stty size && echo gpu=$CUDA_VISIBLE_DEVICES\r")
        said = ada.sees("gpu=0")
        assert "/dev/pts/" in said and "30 90" in said
        ada.types("exit 7\r")
        ada.thread.join(60)
        assert ada.end is not None and (ada.end.outcome, ada.end.exit_code) == ("FAILED", 7)
    assert rig.ended(run_id).exit_code == 7


def test_it_goes_on_when_nobody_looks_and_several_may_look(rig: Rig) -> None:
    run_id = session(rig)
    with person(rig, run_id) as ada, person(rig, run_id) as bob:
        ada.sees("READY> ")
        ada.types("echo $((40 + 2))\r")
        bob.sees("42")
        ada.types("\x1d")
        ada.thread.join(60)
        assert ada.end is None, "detached"
        bob.types("echo $((50 + 3))\r")
        bob.sees("53")
    with person(rig, run_id) as later:
        assert "42" in later.sees("53"), "what was shown before comes first"


def test_a_window_that_changes_is_told_to_the_program(rig: Rig) -> None:
    run_id = session(rig)
    connection = socket.socket(socket.AF_UNIX)
    with rundir.socket_address(door(rig, run_id)) as address:
        connection.connect(address)
    with connection:
        for rows in (24, 50):
            connection.sendall(frames.pack(frames.WINDOW, frames.SIZE.pack(rows, 132)))
            connection.sendall(frames.pack(frames.DATA, b"stty size\r"))
            rig.says("1", f"{rows} 132")


def test_who_speaks_another_language_is_cut_off_and_the_session_goes_on(rig: Rig) -> None:
    run_id = session(rig)
    connection = socket.socket(socket.AF_UNIX)
    with rundir.socket_address(door(rig, run_id)) as address:
        connection.connect(address)
    with connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.settimeout(60)
        wait_for(lambda: not connection.recv(4096), "the end of the connection")
    with person(rig, run_id) as ada:
        ada.types("echo $((40 + 2))\r")
        ada.sees("42")


def test_only_its_owner_may_attach(rig: Rig) -> None:
    run_id = session(rig)
    assert stat.S_IMODE(os.stat(door(rig, run_id)).st_mode) == 0o600
    rig.cancel(run_id)
    rig.ended(run_id)
    no_session = rig.start("2", "true")
    rig.ended(no_session)
    for path in (rig.root / "none", door(rig, run_id), door(rig, no_session)):
        with pytest.raises(AttachError, match="no session can be reached"):
            attach(path, 0, 1)


def test_the_key_that_detaches() -> None:
    typing = Typing()
    assert typing.feed(b"a\x1d\x1db\x1d\x1d\x1d\x1dc") == b"a\x1db\x1d\x1dc" and not typing.detached
    assert typing.feed(b"z\x1d") == b"z" and typing.escaped and not typing.detached
    assert typing.feed(b"lost") == b"" and typing.detached


def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut() -> None:
    stream = frames.pack(frames.DATA, b"one") + frames.pack(frames.WINDOW, b"") + frames.pack(frames.DATA, b"x" * 3000)
    for size in (1, 2, 7, 1000):
        unpacker, found = frames.Unpacker(), []
        for begin in range(0, len(stream), size):
            found += unpacker.feed(stream[begin : begin + size])
        assert found == [(b"d", b"one"), (b"w", b""), (b"d", b"x" * 3000)]


# --- kept ----------------------------------------------------------------------------------------------------------


def test_scrollback_and_state_come_back_with_the_next_attempt(rig: Rig) -> None:
    run_id = session(rig)
    with person(rig, run_id) as ada:
        ada.sees("READY> ")
        ada.types("echo $((40 + 2)); echo kept > $MIRAB_STATE_DIR/file\r")
        ada.sees("42")
        wait_for((rig.backend.state_dir(WorkloadId("1")) / "file").exists, "file")
        rig.preempt(run_id, grace=1_500)
        said = ada.sees("SAVE NOW")
        assert "is stopped in 1.5 s: it did not start in time" in said
        ada.thread.join(60)
        assert ada.end is not None and ada.end.outcome == "PREEMPTED"
    assert rig.ended(run_id).outcome is Outcome.PREEMPTED
    again = session(rig, attempt=2)
    with person(rig, again) as ada:
        said = ada.sees("attempt 2 of this session begins")
        assert said.index("42") < said.index("SAVE NOW") < said.index("attempt 2")
        ada.types("cat $MIRAB_STATE_DIR/file\r")
        ada.sees("kept")


def test_a_notice_of_ones_own_reaches_the_program_that_saves_and_not_its_shell(rig: Rig) -> None:
    saves = "import os, signal, time; signal.signal(signal.SIGUSR1, lambda *_: print('sav' + 'ed', flush=True))"
    run_id = session(
        rig, signal="USR1", environment=(*QUIET, ("PROGRAM", f"{saves}; print('rea' + 'dy'); time.sleep(1000)"))
    )
    with person(rig, run_id) as ada:
        ada.types(f'{sys.executable} -c "$PROGRAM"; true\r')
        ada.sees("ready")
        rig.preempt(run_id, grace=600_000)
        ada.sees("saved")
        rig.cancel(run_id, grace=0)
        ada.thread.join(60)
        assert ada.end is not None and ada.end.exit_code in (129, 137), "hung up or killed, not ended by USR1"


def test_a_shell_gets_a_hang_up_before_the_kill(rig: Rig) -> None:
    """Shells write their history on it, editors what was not saved."""
    run_id = session(
        rig, "1", "bash", "-c", "trap 'echo hung up; exit 3' HUP; trap '' TERM; echo ready; sleep 1000 & wait"
    )
    rig.says("1", "ready")
    rig.preempt(run_id, grace=2_000)
    end = rig.ended(run_id)
    assert (end.outcome, end.exit_code) == (Outcome.PREEMPTED, 3)
    assert "hung up" in rig.output("1")


@pytest.mark.slow
def test_the_scrollback_is_bounded(rig: Rig) -> None:
    run_id = session(rig, "1", "sh", "-c", "yes 0123456789 | head -c 12000000; echo; echo the end")
    rig.ended(run_id)
    path = rig.backend.output_path(WorkloadId("1"))
    assert path is not None and 3_000_000 < path.stat().st_size < 9_000_000
    assert "the end" in rig.output("1")


# --- said, and ended -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_idle_session_is_warned_and_ended(rig: Rig) -> None:
    run_id = session(rig, idle_timeout=5_000)
    rig.says("1", "nothing has happened here")
    end = rig.ended(run_id)
    assert end.outcome is Outcome.CANCELLED
    assert end.at - rig.started(run_id).at >= 5_000
    assert "nobody has used it" in rig.output("1")


def life(**known: int) -> Life:
    made = Life({"idle_timeout_ms": 0, "min_runtime_ms": 0, **known})
    made.begin(1000.0)
    return made


def test_a_sign_of_life_takes_the_warning_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirab.backends.local.processes.cpu_ticks", lambda _: 0)
    someone = life(idle_timeout_ms=1_200_000)
    assert someone.look(1000 + 899, 1000.0) == ("", False)
    warning, over = someone.look(1000 + 901, 1000.0)
    assert "ends in 299 s" in warning and not over
    assert someone.look(1000 + 902, 1901.0) == ("", False)
    assert someone.look(1901 + 901, 1901.0)[0]
    assert someone.look(1901 + 1201, 1901.0)[1]


def test_work_without_a_word_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter(range(0, 100_000, 100))
    monkeypatch.setattr("mirab.backends.local.processes.cpu_ticks", lambda _: next(used))
    someone = life(idle_timeout_ms=60_000)
    assert not any(someone.look(1000.0 + 16 * turn, 1000.0)[1] for turn in range(1, 20))


def test_nobody_is_ended_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long sleep of the machine the first look finds the time over already."""
    monkeypatch.setattr("mirab.backends.local.processes.cpu_ticks", lambda _: 0)
    someone = life(idle_timeout_ms=60_000)
    assert not someone.look(1000.0 + 3600, 1000.0)[1]


@pytest.mark.parametrize(("minimum", "at"), [(3_600_000, 3300), (60_000, 30)])
def test_the_end_of_the_minimum_is_announced_once(minimum: int, at: int) -> None:
    someone = life(min_runtime_ms=minimum)
    assert someone.look(1000.0 + at - 1, 0.0)[0] == ""
    assert re.search("protected for another \\d+ s", someone.look(1000.0 + at, 0.0)[0])
    assert someone.look(1000.0 + at + 1, 0.0)[0] == ""


@pytest.mark.slow
def test_a_client_that_does_not_read_stops_nobody(rig: Rig) -> None:
    run_id = session(
        rig, "1", "sh", "-c", "sleep 0.3; yes 0123456789 | head -c 9000000; echo; echo the end; sleep 1000"
    )
    connection = socket.socket(socket.AF_UNIX)
    with connection, rundir.socket_address(door(rig, run_id)) as address:
        connection.connect(address)
        rig.says("1", "the end")


def test_what_is_in_the_shims_terminal_ends_with_its_last_words(rig: Rig) -> None:
    for number in range(5):
        run_id = session(rig, str(number), "sh", "-c", f"printf 'last words {number}'")
        rig.ended(run_id)
        assert rig.output(str(number)) == f"last words {number}"


def test_a_session_without_a_command_is_the_users_shell(rig: Rig) -> None:
    run_id = rig.start("1", interactive=True, environment=(("SHELL", "/bin/sh"), ("PS1", "here> ")))
    rig.started(run_id)
    with person(rig, run_id) as ada:
        ada.types("echo $0; exit\r")
        ada.sees("/bin/sh")
    assert rig.ended(run_id).outcome is Outcome.COMPLETED
