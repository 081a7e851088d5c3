"""One run from its command to its last word: what the shim does once it has taken the run over.

Standard library only: the shim imports this.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import time

from mirab.backends.local import child, endings, processes, rundir
from mirab.backends.local.child import Identity, Launch, LaunchError
from mirab.backends.local.progress import Progress
from mirab.backends.local.terminal import Terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BEAT_S = 2.0
"""Between two signs of life, and between two looks at the files that say what nobody rang for."""
WAIT_S = 0.02
"""Between the first two looks whether processes that were killed are gone; then longer and longer, up to a second."""
SHUTDOWN_S = 0.1
"""A run that dies of SIGTERM may have got it from a shutdown of the machine: ours comes within this time."""


def both_clocks() -> tuple[int, float]:
    """Unix milliseconds and the monotonic clock's seconds, as of one instant.

    A busy machine may be elsewhere between the two readings: then both are read again.
    """
    for _ in range(20):
        before, wall, mono = time.monotonic(), rundir.now_ms(), time.monotonic()
        if mono - before < 0.001:
            break
    return wall, mono


class Keeper:
    def __init__(self, directory: str, spec: dict[str, Any]) -> None:
        self.directory, self.spec = directory, spec
        self.who = Identity(None, None) if spec["impossible"] else Identity(spec["uid"], spec["gid"])
        self.selector = selectors.DefaultSelector()
        self.wall, self.mono = both_clocks()
        self.outputs: tuple[int, int] | None = None
        self.output_path = str(spec["output"])
        self.terminal: Terminal | None = None
        self.launch: Launch | None = None
        self.up = False
        self.checking = bool(spec["verify_resume"])
        self.code: int | None = None
        self.started_at: int | None = None
        self.started_mono = 0.0
        self.wish, self.why = "", ""
        self.kill_at = float("inf")
        self.shutting_down = False
        self.linger_until = 0.0
        self.killings = 0
        self.next_beat = 0.0
        self.stop_seen: tuple[int, int] | None = None
        self.progress = Progress(self.path(rundir.CHECKPOINT), str(spec["checkpoint_file"]), self.who, self.now)

    # --- the whole of it ---------------------------------------------------------------------------------------
    def run(self) -> None:
        self.hear()
        try:
            self.prepare()
            if not self.wish:
                self.begin()
            while self.launch is not None:
                self.turn()
        except LaunchError as error:
            self.give_up(error)
        self.finish()

    def now(self) -> int:
        """Unix milliseconds, from the clock as it was at the start: setting it back makes no run shorter.

        Never ahead of the wall clock, so that nothing is told before it has happened.
        """
        return self.wall + int((time.monotonic() - self.mono) * 1000)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def hear(self) -> None:
        """Signals and the bell wake the loop."""
        ear, mouth = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.machine_goes_down)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.selector.register(ear, selectors.EVENT_READ, lambda: os.read(ear, 4096))
        bell = rundir.listen_for_bell(self.path(rundir.BELL))
        self.who.give(self.path(rundir.BELL))
        self.selector.register(bell, selectors.EVENT_READ, lambda: self.rung(bell))

    def rung(self, bell: socket.socket) -> None:
        """Somebody has written an order, or touched a file: look at once."""
        rundir.heard(bell)
        self.next_beat = 0.0

    def machine_goes_down(self, *_: object) -> None:
        self.shutting_down = True

    # --- begin ---------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        self.touch_files()
        self.take_orders()
        if self.wish:
            return
        if self.spec["impossible"]:
            raise LaunchError(str(self.spec["impossible"]))
        output, error = str(self.spec["output"]), str(self.spec["error"])
        append = bool(self.spec["append"])
        child.check_folder(str(self.spec["cwd"]), (output, error), self.who)
        out = child.open_output(output, append, self.who)
        self.outputs = (out, out if error in ("", output) else child.open_output(error, append, self.who))
        if self.spec["interactive"]:
            self.terminal = Terminal(self.selector, self.path(rundir.ATTACH), output, out, self.spec, self.who)

    def touch_files(self) -> None:
        for name in (rundir.HEARTBEAT, rundir.CHECKPOINT):
            with open(self.path(name), "ab"):
                pass
        self.who.give(self.path(rundir.CHECKPOINT))
        self.progress.look(self.started_at)

    def begin(self) -> None:
        """Begin the check of what was saved, if there is one to do; else the command itself."""
        if self.checking:
            argv, cwd = ["/bin/sh", "-c", str(self.spec["verify_resume"])], str(self.spec["state_dir"])
        else:
            argv, cwd = list(self.spec["argv"]), str(self.spec["cwd"])
        self.code, self.up = None, False
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out, error = self.outputs or (2, 2)
        streams, terminal = (nothing, out, error), False
        if self.terminal is not None and not self.checking:
            slave = self.terminal.open()
            streams, terminal = (slave, slave, slave), True
        environment = dict(self.spec["environment"])
        until = self.now() + int(self.spec["min_runtime_ms"])
        environment["MIRAB_PROTECTED_UNTIL"] = str(until // 1000)
        launch = Launch(argv, cwd, environment, self.who, streams, terminal)
        os.close(nothing)
        if terminal:
            os.close(streams[0])
        self.launch = launch
        self.selector.register(launch.trouble, selectors.EVENT_READ, self.launched)

    def launched(self) -> None:
        """The command runs, or says why it does not."""
        assert self.launch is not None
        self.selector.unregister(self.launch.trouble)
        error = self.launch.verdict()
        if error is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.launch.pid, 0)
            raise error
        self.up = True
        if not self.checking:
            self.started_at, self.started_mono = self.now(), time.monotonic()
            if self.terminal is not None:
                self.terminal.started(self.started_mono)
        if self.wish:
            self.give_notice(max(0.0, self.kill_at - time.monotonic()))
        self.report()

    # --- one turn of the loop --------------------------------------------------------------------------------------
    def turn(self) -> None:
        for key, _ in self.selector.select(self.patience()):
            key.data()
        self.reap()
        if self.shutting_down and not self.wish:
            self.want(endings.NODE_FAIL, self.spec["grace_ms"] / 1000, "the machine is shutting down")
        now = time.monotonic()
        self.take_orders()
        self.keep_limit(now)
        if now >= self.next_beat:
            self.beat(now)
        if self.terminal is not None and self.started_at is not None:
            self.tend(self.terminal, now)
        self.judge(now)

    def patience(self) -> float:
        """Seconds until something has to be looked at although nobody rings."""
        if self.killings:
            return min(1.0, WAIT_S * (1 << min(self.killings, 8)))
        due = [self.next_beat, self.kill_at]
        if self.code is not None:
            due.append(max(self.linger_until, time.monotonic() + WAIT_S))
        elif self.terminal is not None and not self.terminal.hung_up:
            due.append(self.kill_at - self.terminal.hangup_s)
        if self.limited():
            due.append(self.started_mono + self.limits()[0])
        return max(0.0, min(due) - time.monotonic())

    def limited(self) -> bool:
        """Its time limit is still ahead of it."""
        running = self.started_at is not None and self.code is None and not self.wish
        return running and self.spec["time_limit_ms"] is not None

    def reap(self) -> None:
        for pid, status in processes.reap().items():
            if self.launch is not None and pid == self.launch.pid:
                self.code = processes.shell_code(status)
                if not self.up:
                    self.launched()
                if self.code == 128 + signal.SIGTERM and not self.wish:
                    self.linger_until = time.monotonic() + SHUTDOWN_S

    def limits(self) -> tuple[float, float]:
        limit, grace = self.spec["time_limit_ms"] / 1000, self.spec["grace_ms"] / 1000
        return endings.limit_instants(limit, grace, self.signal() != signal.SIGTERM)

    def signal(self) -> int:
        return processes.signal_number(self.spec["signal"])

    def keep_limit(self, now: float) -> None:
        if not self.limited():
            return
        notice, kill = self.limits()
        if now - self.started_mono >= notice:
            self.want(endings.TIMEOUT, max(0.0, self.started_mono + kill - now), "its time limit is reached")

    def beat(self, now: float) -> None:
        self.next_beat = now + BEAT_S
        with contextlib.suppress(OSError):
            os.utime(self.path(rundir.HEARTBEAT))
        if self.progress.look(self.started_at):
            self.report()

    def tend(self, terminal: Terminal, now: float) -> None:
        """Warn the person at the terminal; end a session that nobody uses any more."""
        if terminal.tend(now) and not self.wish:
            self.want(endings.CANCELLED, self.spec["grace_ms"] / 1000, "nobody has used it for longer than it said")

    # --- orders ------------------------------------------------------------------------------------------------------
    def take_orders(self) -> None:
        """Do what ``stop.json`` says, once for each time it is written. The bell may also mean a checkpoint."""
        try:
            stat = os.stat(self.path(rundir.STOP))
        except OSError:
            return
        version = (stat.st_mtime_ns, stat.st_ino)
        if version == self.stop_seen:
            return
        order = rundir.read_json(self.path(rundir.STOP))
        if order is not None:
            self.stop_seen = version
            self.want(str(order["outcome"]), max(0, int(order["grace_ms"])) / 1000, str(order["why"]))

    def want(self, outcome: str, grace_s: float, why: str) -> None:
        """It is to end: notice now, the kill after the grace. A later wish may be stronger, never later."""
        deadline = time.monotonic() + grace_s
        self.kill_at = min(self.kill_at, deadline)
        if self.wish:
            if endings.stronger(self.wish, outcome) != self.wish:
                self.wish, self.why = outcome, why
            return
        self.wish, self.why = outcome, why
        if self.up and self.code is None:
            self.give_notice(grace_s)

    def give_notice(self, grace_s: float) -> None:
        assert self.launch is not None
        self.note(f"run {self.spec['run_id']} is asked to stop ({self.wish}): {self.why}; killed in {grace_s:g} s")
        if self.terminal is not None and not self.checking:
            self.terminal.last_call(grace_s, self.why)
            if self.signal() != signal.SIGTERM:
                processes.signal_catchers(os.getpid(), self.signal())
        else:
            processes.signal_group(self.launch.pid, self.signal())

    def note(self, sentence: str) -> None:
        """A line of ours in the run's own output."""
        if self.terminal is not None:
            self.terminal.tell(sentence)
        elif self.outputs is not None:
            with contextlib.suppress(OSError):
                os.write(self.outputs[1], f"mirab: {sentence}\n".encode(errors="backslashreplace"))

    # --- the end -----------------------------------------------------------------------------------------------------
    def judge(self, now: float) -> None:
        """Is it over? Its own process has ended, and none of the others is left, by itself or by force."""
        if self.terminal is not None and self.code is None and now >= self.kill_at - self.terminal.hangup_s:
            self.terminal.hang_up(self.launch.pid if self.launch else 0)
        over = self.code is not None and now >= self.linger_until
        if processes.no_child_left():
            if over:
                self.command_ended()
        elif now >= self.kill_at or (over and not self.wish):
            processes.kill_family(os.getpid())
            self.killings += 1

    def command_ended(self) -> None:
        if not self.checking or self.wish:
            self.launch = None
        elif self.code == 0:
            self.checking, self.killings = False, 0
            self.begin()
        else:
            self.note(
                f"what was saved does not restore: {self.spec['verify_resume']!r} ended with exit code {self.code}; "
                f"the state is kept in {self.spec['state_dir']}"
            )
            self.launch, self.why = None, "the check of the saved state failed"

    def give_up(self, error: LaunchError) -> None:
        """It cannot be begun: FAILED, with the sentence where its owner looks first."""
        self.code, self.why, self.launch = error.code, str(error), None
        if self.outputs is None:
            self.output_path = self.path(rundir.OUTPUT)
            opened = os.open(self.output_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self.who.give(self.output_path)
            self.outputs = (opened, opened)
        self.note(str(error))

    def finish(self) -> None:
        """The last word, until it is on the disk; a folder that somebody has removed needs none."""
        if self.terminal is not None:
            self.terminal.drain()
        ended = max(self.now(), self.started_at or 0)
        self.progress.look(self.started_at)
        last_word = self.last_word(ended)
        while True:
            try:
                rundir.write_exit(self.directory, last_word)
                break
            except OSError:
                if not os.path.isdir(self.directory):
                    return
                rundir.print_trouble()
                time.sleep(1)
        if self.terminal is not None:
            self.terminal.close(str(last_word["outcome"]), self.code)
        rundir.ring(str(self.spec["doorbell"]), str(self.spec["run_id"]).encode())

    def last_word(self, ended: int) -> dict[str, Any]:
        code = self.code if self.code is not None else 0
        outcome = self.wish if self.code is None else endings.outcome(self.wish, code, self.progress.finished)
        lost = 0
        if self.started_at is not None and outcome != endings.COMPLETED:
            lost = ended - max(self.started_at, self.progress.checkpoint_at or 0)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "run_id": self.spec["run_id"],
            "outcome": outcome,
            "exit_code": self.code,
            "started_at": self.started_at,
            "ended_at": ended,
            "checkpoint_at": self.progress.checkpoint_at,
            "lost_ms": lost,
            "why": self.why[:512],
            "output": self.output_path[:1024],
            "cpu_ms": round((used.ru_utime + used.ru_stime) * 1000),
            "max_rss_kib": used.ru_maxrss,
        }

    # --- what it tells -----------------------------------------------------------------------------------------------
    def report(self) -> None:
        """Write the status and ring. A full disk hides it for a while, no more."""
        status = {
            "started_at": self.started_at,
            "pid": self.launch.pid if self.launch else None,
            "pid_start": rundir.start_ticks(self.launch.pid) if self.launch else None,
            "checkpoint_at": self.progress.checkpoint_at,
            "output": self.output_path,
        }
        with contextlib.suppress(OSError):
            rundir.write_json(self.path(rundir.STATUS), status)
        rundir.ring(str(self.spec["doorbell"]), str(self.spec["run_id"]).encode())
