"""The engine that is this machine: one thread that begins, stops and watches runs; everything else only asks it.

All that matters is in files (see `rundir`), so this object holds nothing that a restart would miss. It sleeps until a
shim rings the doorbell, a shim ends (its pidfd), or an action comes in; a scan every few seconds is the safety net.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from mirab.backends.local import burial, endings, rundir
from mirab.backends.local.folders import Folders, open_own
from mirab.backends.local.gpus import GpuTable
from mirab.backends.local.launching import Launcher, RefusedError, spawn
from mirab.backends.local.translate import why_stopped
from mirab.backends.local.usage import UsageRecord, usage_record
from mirab.backends.local.watching import Watched, shim_pidfd
from mirab.model.events import ActionRefused, Event, Outcome, RunEnded
from mirab.model.plans import Action, Cancel, Preempt, Start
from mirab.model.records import JobSpec
from mirab.model.resources import Cluster
from mirab.model.units import Instant, RunId, WorkloadId

SCAN_S = 10.0
"""Between two looks at everything, whether or not somebody rang."""
HANDOVER_S = 20.0
"""A folder whose shim nobody has seen for so long is given another one; the lock sees to it that one of them acts."""
RETRY_S = 1.0
"""Between two attempts to end what a dead shim has left behind."""

log = logging.getLogger("mirab.local")


class LocalBackend:
    """Implements `control.ports.Backend` with real processes. Safe to call from any thread."""

    def __init__(
        self,
        root: Path,
        cluster: Cluster,
        spec_of: Callable[[WorkloadId], JobSpec | None],
        clock: Callable[[], Instant],
        wake: Callable[[], None],
    ) -> None:
        self.folders = Folders(root)
        self.clock, self.wake = clock, wake
        self.gpus = GpuTable(cluster)
        self.launcher = Launcher(self.folders, cluster, self.gpus, spec_of)
        self.watched: dict[RunId, Watched] = {}
        self.facts: list[Event] = []
        self.facts_lock = threading.Lock()
        self.todo: deque[Callable[[], None]] = deque()
        self.closing = False
        self.lost: dict[RunId, Watched] = {}
        self.selector = selectors.DefaultSelector()
        self.doorbell = rundir.listen_for_bell(self.folders.doorbell)
        self.ear, self.mouth = socket.socketpair()
        for end in (self.ear, self.mouth):
            end.setblocking(False)
        self.selector.register(self.doorbell, selectors.EVENT_READ, self._answer_bell)
        self.selector.register(self.ear, selectors.EVENT_READ, lambda: self.ear.recv(4096))
        self.thread = threading.Thread(target=self._keep_watch, name="mirab-local", daemon=True)

    # --- what the loop asks ----------------------------------------------------------------------------------------
    def observe(self) -> Iterable[Event]:
        """The facts since the last call, in order of time, none in the future."""
        with self.facts_lock:
            facts, self.facts = self.facts, []
        now = self.clock()
        return sorted((fact if fact.at <= now else replace(fact, at=now) for fact in facts), key=lambda fact: fact.at)

    def submit(self, action: Action) -> None:
        """Begin an action and return at once. Idempotent; a refusal comes back as a fact."""
        if isinstance(action, Start):
            self._do(lambda: self._start(action))
        elif isinstance(action, Preempt):
            why = why_stopped(action.reason)
            self._do(lambda: self._stop(action.run_id, endings.PREEMPTED, action.grace, why))
        elif isinstance(action, Cancel):
            outcome = endings.REQUEUED if action.requeue else endings.CANCELLED
            self._do(lambda: self._stop(action.run_id, outcome, action.grace, "its user asked for it"))

    def adopt(self, expected: Mapping[RunId, Start], started: Iterable[RunId] = ()) -> None:
        """Once at boot, before the first cycle: find again what is expected, and stop what is not.

        Args:
            expected: the runs that the state believes to exist.
            started: those of them that have started. One of these without a folder is lost (NODE_FAIL); one that
                has not started and has no folder is begun now.
        """
        known = frozenset(started)
        for start in expected.values():
            self._adopt(start, start.run_id in known)
        for run_id, directory in self.folders.all_runs():
            if run_id not in expected and not os.path.exists(os.path.join(directory, rundir.EXIT)):
                self._stop_stray(run_id, directory)
        self._ensure_thread()

    def next_due(self) -> Instant | None:
        """Nothing is ever due: what happens wakes the loop."""
        return None

    def close(self) -> None:
        """Stop watching. The runs go on, and are found again by `adopt`."""
        if self.closing:
            return
        self.closing = True
        self._ring()
        if self.thread.is_alive():
            self.thread.join(timeout=10)
        for run in self.watched.values():
            if run.pidfd is not None:
                os.close(run.pidfd)
        self.watched.clear()
        self.selector.close()
        for ear in (self.doorbell, self.ear, self.mouth):
            ear.close()

    # --- what people ask ---------------------------------------------------------------------------------------------
    def state_dir(self, workload_id: WorkloadId) -> Path:
        return self.folders.state(workload_id)

    def output_path(self, workload_id: WorkloadId, attempt: int | None = None, stream: str = "out") -> Path | None:
        """Where an attempt (the last one, if not said) writes. None: it has not begun. `stream`: ``out``, ``err``."""
        spec = self._spec(workload_id, attempt)
        if spec is None:
            return None
        directory = self.folders.run(RunId(spec["run_id"]))
        last_word = rundir.read_json(os.path.join(directory, rundir.EXIT)) or {}
        if stream == "err" and spec["error"]:
            return Path(spec["error"])
        return Path(last_word.get("output") or spec["output"])

    def open_output(self, workload_id: WorkloadId, attempt: int | None = None, stream: str = "out") -> IO[bytes] | None:
        """The same, opened for reading. None also if it is no plain file of the run's own user: see `open_own`."""
        path, spec = self.output_path(workload_id, attempt, stream), self._spec(workload_id, attempt)
        return None if path is None or spec is None else open_own(str(path), spec["uid"])

    def run_dir(self, workload_id: WorkloadId, attempt: int | None = None) -> Path | None:
        """The folder of an attempt (the last one, if not said)."""
        attempts = self.folders.attempts(workload_id)
        if not attempts or (attempt is not None and attempt not in attempts):
            return None
        return Path(self.folders.run(RunId(f"{workload_id}.{attempt or attempts[-1]}")))

    def usage_records(self) -> list[UsageRecord]:
        """What the shims have written of each run, for audits. Reads every folder."""
        found = (usage_record(run_id, directory) for run_id, directory in self.folders.all_runs())
        return [record for record in found if record is not None]

    def _spec(self, workload_id: WorkloadId, attempt: int | None) -> dict[str, Any] | None:
        directory = self.run_dir(workload_id, attempt)
        return None if directory is None else rundir.read_json(str(directory / rundir.SPEC))

    # --- the thread --------------------------------------------------------------------------------------------------
    def _do(self, work: Callable[[], None]) -> None:
        self.todo.append(work)
        self._ensure_thread()
        self._ring()

    def _ensure_thread(self) -> None:
        if not self.thread.is_alive() and not self.closing:
            self.thread.start()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self.mouth.send(b".")

    def _keep_watch(self) -> None:
        scan_at = time.monotonic() + SCAN_S
        while not self.closing:
            ready = self.selector.select(self._patience(scan_at))
            for work in [key.data for key, _ in ready] + self._taken():
                self._safely(work)
            for run in list(self.lost.values()):
                self._safely(partial(self._bury, run))
            if time.monotonic() >= scan_at:
                self._safely(self._scan)
                scan_at = time.monotonic() + SCAN_S

    def _patience(self, scan_at: float) -> float:
        wait = max(0.0, scan_at - time.monotonic())
        return min(wait, RETRY_S) if self.lost else wait

    def _taken(self) -> list[Callable[[], None]]:
        return [self.todo.popleft() for _ in range(len(self.todo))]

    def _safely(self, work: Callable[[], None]) -> None:
        """One run's trouble is not the others'."""
        try:
            work()
        except Exception:
            log.exception("the local backend met something that it did not expect, and goes on")

    def _tell(self, facts: Iterable[Event]) -> None:
        news = list(facts)
        if news:
            with self.facts_lock:
                self.facts.extend(news)
            self.wake()

    # --- starting ----------------------------------------------------------------------------------------------------
    def _start(self, start: Start) -> None:
        if start.run_id in self.watched:
            return
        try:
            directory = self.folders.run(start.run_id)
            run = Watched(start.run_id, directory, self.launcher.spec_for(start, directory))
        except (RefusedError, ValueError) as error:
            self._tell([ActionRefused(self.clock(), start.run_id, "start", str(error))])
            return
        self._watch(run)

    def _watch(self, run: Watched) -> None:
        """Look after a run from now on; begin it if it has not begun."""
        self.watched[run.run_id] = run
        if not os.path.exists(run.path(rundir.EXIT)):
            self.gpus.claim(run.run_id, run.spec["gpus"])
            if not os.path.exists(run.path(rundir.SHIM)):
                self._launch(run)
        self._look(run)

    def _launch(self, run: Watched) -> None:
        run.launched_at = time.monotonic()
        try:
            process = spawn(run.directory)
        except RefusedError as error:
            self._refuse(run, str(error))
            return
        pidfd = os.pidfd_open(process.pid)
        self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._launched(run, process, pidfd))

    def _launched(self, run: Watched, process: subprocess.Popen[bytes], pidfd: int) -> None:
        self.selector.unregister(pidfd)
        os.close(pidfd)
        if process.wait() != 0:
            self._refuse(run, f"its shim could not begin: {last_line(run.path(rundir.TALK))}")
        else:
            self._look(run)

    def _refuse(self, run: Watched, why: str) -> None:
        """It will not be begun, now or by anybody later: the folder says so."""
        with contextlib.suppress(OSError):
            burial.stillborn(run.directory, run.spec, why)
        self._forget(run)
        self._tell([ActionRefused(self.clock(), run.run_id, "start", why)])

    # --- stopping ----------------------------------------------------------------------------------------------------
    def _stop(self, run_id: RunId, outcome: str, grace: int, why: str) -> None:
        run = self.watched.get(run_id)
        if run is None:
            run = self._found(run_id)
        if run is None:
            self._tell([ActionRefused(self.clock(), run_id, "preempt", f"there is no run {run_id} on this machine")])
            return
        try:
            order_stop(run.directory, outcome, grace, why)
        except OSError as error:
            self._tell(
                [ActionRefused(self.clock(), run_id, "preempt", f"run {run_id} cannot be told to stop: {error}")]
            )
        self._look(run)

    def _found(self, run_id: RunId) -> Watched | None:
        """A run that nobody watches: one that is over tells its end once more."""
        try:
            directory = self.folders.run(run_id)
        except ValueError:
            return None
        spec = rundir.read_json(os.path.join(directory, rundir.SPEC))
        if spec is None:
            return None
        run = Watched(run_id, directory, spec)
        self._watch(run)
        return run

    # --- watching ----------------------------------------------------------------------------------------------------
    def _answer_bell(self) -> None:
        words = {RunId(word.decode(errors="replace")) for word in rundir.heard(self.doorbell)}
        for run_id in sorted(words):
            if run_id in self.watched:
                self._safely(partial(self._look, self.watched[run_id]))

    def _scan(self) -> None:
        for run in list(self.watched.values()):
            self._safely(partial(self._look, run))
            waiting = run.pidfd is None and not run.ended and run.run_id not in self.lost and run.run_id in self.watched
            if waiting and time.monotonic() - run.launched_at > HANDOVER_S:
                self._launch(run)

    def _look(self, run: Watched) -> None:
        """Take in what its files say; find its shim, or that it has none any more."""
        news = list(run.news())
        if run.ended:
            self._forget(run)
        elif run.pidfd is None and os.path.exists(run.path(rundir.SHIM)):
            self._find_shim(run)
        if not run.stray:
            self._tell(news)

    def _find_shim(self, run: Watched) -> None:
        run.pidfd = shim_pidfd(run.directory)
        if run.pidfd is None:
            self.lost[run.run_id] = run
        else:
            self.selector.register(run.pidfd, selectors.EVENT_READ, lambda: self._shim_gone(run))

    def _shim_gone(self, run: Watched) -> None:
        if run.pidfd is not None:
            self.selector.unregister(run.pidfd)
            os.close(run.pidfd)
            run.pidfd = None
        self._look(run)

    def _bury(self, run: Watched) -> None:
        """Its shim is gone without a last word: end what is left, and say the word for it."""
        if run.ended or burial.bury(run.directory, run.spec, "the process that kept this run was killed"):
            self.lost.pop(run.run_id, None)
            self._look(run)

    def _forget(self, run: Watched) -> None:
        if run.pidfd is not None:
            self.selector.unregister(run.pidfd)
            os.close(run.pidfd)
            run.pidfd = None
        self.gpus.release(run.run_id)
        if self.watched.get(run.run_id) is run:
            del self.watched[run.run_id]
        self.lost.pop(run.run_id, None)

    # --- after a restart ---------------------------------------------------------------------------------------------
    def _adopt(self, start: Start, started: bool) -> None:
        run = self._found(start.run_id)
        if run is None and started:
            log.error("run %s is expected on this machine, and its folder is gone", start.run_id)
            self._tell([RunEnded(self.clock(), start.run_id, Outcome.NODE_FAIL)])
        elif run is None:
            self._start(start)

    def _stop_stray(self, run_id: RunId, directory: str) -> None:
        """Nobody knows of it (a journal that has lost its end): it is stopped, and said."""
        log.error("run %s is on this machine and in nobody's journal: it is stopped", run_id)
        spec = rundir.read_json(os.path.join(directory, rundir.SPEC))
        if spec is None:
            return
        run = Watched(run_id, directory, spec, stray=True)
        self.watched[run_id] = run
        self.gpus.claim(run_id, spec["gpus"])
        if os.path.exists(run.path(rundir.SHIM)):
            order_stop(directory, endings.CANCELLED, int(spec["grace_ms"]), "it is in nobody's journal")
            self._look(run)
        else:
            self.lost[run_id] = run


def order_stop(directory: str, outcome: str, grace: int, why: str) -> None:
    """Write how the run is to end, unless that or more is written already; ring in any case.

    Raises:
        OSError: it cannot be written.
    """
    path = os.path.join(directory, rundir.STOP)
    before = rundir.read_json(path)
    if before is None or endings.stronger(str(before["outcome"]), outcome) != before["outcome"]:
        rundir.write_json(path, {"outcome": outcome, "grace_ms": grace, "why": why}, durable=True)
    rundir.ring(os.path.join(directory, rundir.BELL))


def last_line(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        lines = file.read()[-2000:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
    return "it said nothing"
