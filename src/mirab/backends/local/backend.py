"""The engine that is this machine: one thread that begins, stops and watches runs; everything else only asks it.

All that matters is in files (see `rundir`), so this object holds nothing that a restart would miss. It sleeps until a
shim rings the doorbell, a shim ends (its pidfd), or an action comes in; a scan every few seconds is the safety net.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from mirab.backends.local import burial, endings, rundir, sampler
from mirab.backends.local.care import Commands, NodeCare
from mirab.backends.local.folders import Folders, open_own
from mirab.backends.local.gpus import GpuTable
from mirab.backends.local.launching import Launcher, RefusedError, spawn
from mirab.backends.local.translate import why_stopped
from mirab.backends.local.usage import UsageRecord, usage_record
from mirab.backends.local.watching import Watched, last_line, order_stop, shim_pidfd
from mirab.backends.local.worker import Worker
from mirab.model.events import ActionRefused, Event, Outcome, RunEnded
from mirab.model.plans import Action, CallHuman, Cancel, Preempt, Repair, Start
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
    """Implements `control.ports.Backend` with real processes. Safe to call from any thread.

    Args:
        root: folder of the runs and of what they save.
        spec_of: what a workload is to execute; asked once for each run, in the backend's own thread.
        clock: Unix milliseconds.
        wake: called from the backend's thread when there are facts to observe.
        commands: the operator's own commands that check and repair nodes.
        activity: tells how busy each GPU is; None = NVML where there are real GPUs and a driver, else nobody.
    """

    def __init__(
        self,
        root: Path,
        cluster: Cluster,
        spec_of: Callable[[WorkloadId], JobSpec | None],
        clock: Callable[[], Instant],
        wake: Callable[[], None],
        *,
        commands: Commands | None = None,
        activity: sampler.Source | None = None,
        sample_s: float = sampler.SAMPLE_S,
    ) -> None:
        self.folders = Folders(root)
        self.clock, self.wake = clock, wake
        self.gpus = GpuTable(cluster)
        self.launcher = Launcher(self.folders, cluster, self.gpus, spec_of)
        self.watched: dict[RunId, Watched] = {}
        self.facts: list[Event] = []
        self.facts_lock = threading.Lock()
        self.closed = False
        self.doorbell = rundir.listen_for_bell(self.folders.doorbell)
        self.worker = Worker("mirab-local")
        self.worker.listen(self.doorbell, self._answer_bell)
        self.worker.after(SCAN_S, self._scan)
        nodes = [node for pool in cluster.pools for node in pool.nodes]
        self.care = NodeCare(str(self.folders.root), nodes, commands or Commands(), self.worker, clock, self._tell)
        self.activity = sampler.Activity()
        source = activity or sampler.nvml_source(cluster)
        self.sampler = None if source is None else sampler.Sampler(source, self._sampled, sample_s)

    # --- what the loop asks ----------------------------------------------------------------------------------------
    def observe(self) -> Iterable[Event]:
        """The facts since the last call, in order of time, none in the future."""
        with self.facts_lock:
            facts, self.facts = self.facts, []
        now = self.clock()
        return sorted((fact if fact.at <= now else replace(fact, at=now) for fact in facts), key=lambda fact: fact.at)

    def submit(self, action: Action) -> None:
        """Begin an action and return at once. Idempotent; a refusal comes back as a fact."""
        match action:
            case Start():
                self._do(lambda: self._start(action))
            case Preempt():
                why = why_stopped(action.reason)
                self._do(lambda: self._stop(action.run_id, endings.PREEMPTED, action.grace, why))
            case Cancel():
                outcome = endings.REQUEUED if action.requeue else endings.CANCELLED
                self._do(lambda: self._stop(action.run_id, outcome, action.grace, "its user asked for it"))
            case Repair():
                self._do(lambda: self.care.repair(action.node))
            case CallHuman():
                log.error("node %s, run %s: %s: a person has to look", action.node, action.run_id, action.why)
            case _:
                pass  # Drain, Resume, Reject: nothing to do on a machine where mirab alone starts runs

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
        self.worker.do(self.care.begin)
        self._ensure_thread()

    def next_due(self) -> Instant | None:
        """Nothing is ever due: what happens wakes the loop."""
        return None

    def close(self) -> None:
        """Stop watching. The runs go on, and are found again by `adopt`."""
        if self.closed:
            return
        self.closed = True
        if self.sampler is not None:
            self.sampler.close()
        self.worker.close()
        self.care.close()
        for run in self.watched.values():
            if run.pidfd is not None:
                os.close(run.pidfd)
        self.watched.clear()
        self.doorbell.close()

    # --- what people ask ---------------------------------------------------------------------------------------------
    def state_dir(self, workload_id: WorkloadId) -> Path:
        return self.folders.state(workload_id)

    def run_dir(self, workload_id: WorkloadId, attempt: int | None = None) -> Path | None:
        """The folder of an attempt (the last one, if not said); `rundir` says what is in it."""
        return self.folders.find(workload_id, attempt)

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

    def prune(self, ended_before: Instant) -> int:
        """Remove the folders of runs that ended before an instant (not what they saved). Returns how many.

        Only for runs whose end is in the journal, so not before the first cycle, and with a generous instant.
        """
        return self.folders.prune(ended_before)

    def usage_records(self) -> list[UsageRecord]:
        """What the shims have written of each run, for audits. Reads every folder."""
        found = (usage_record(run_id, directory) for run_id, directory in self.folders.all_runs())
        return [record for record in found if record is not None]

    def utilization(self) -> dict[RunId, float]:
        """Mean GPU activity so far, 0 to 1, of the running runs that a source tells of. Empty without a source."""
        return dict(self.activity.means)

    def _spec(self, workload_id: WorkloadId, attempt: int | None) -> dict[str, Any] | None:
        directory = self.run_dir(workload_id, attempt)
        return None if directory is None else rundir.read_json(str(directory / rundir.SPEC))

    # --- the thread --------------------------------------------------------------------------------------------------
    def _do(self, work: Callable[[], None]) -> None:
        self.worker.do(work)
        self._ensure_thread()

    def _ensure_thread(self) -> None:
        if self.worker.thread.ident is None and not self.closed:
            self.worker.start()

    def _tell(self, facts: Iterable[Event]) -> None:
        news = list(facts)
        if news:
            with self.facts_lock:
                self.facts.extend(news)
            self.wake()

    def _sampled(self, sample: Sequence[int | None]) -> None:
        self.worker.do(lambda: self.activity.take_in(sample, self._holders()))

    def _holders(self) -> dict[RunId, tuple[str, list[int]]]:
        held = ((run_id, [gpu for gpus in given.values() for gpu in gpus]) for run_id, given in self.gpus.given.items())
        return {run_id: (self.watched[run_id].directory, gpus) for run_id, gpus in held if run_id in self.watched}

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
        self.worker.when_ended(process, lambda code: self._launched(run, code))

    def _launched(self, run: Watched, code: int) -> None:
        if code:
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
        run = self.watched.get(run_id) or self._found(run_id)
        if run is None:
            self._tell([ActionRefused(self.clock(), run_id, "preempt", f"there is no run {run_id} on this machine")])
            return
        try:
            order_stop(run.directory, outcome, grace, why)
        except OSError as error:
            why_not = f"run {run_id} cannot be told to stop: {error}"
            self._tell([ActionRefused(self.clock(), run_id, "preempt", why_not)])
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
                self.worker.do(partial(self._look, self.watched[run_id]))

    def _scan(self) -> None:
        self.worker.after(SCAN_S, self._scan)
        for run in list(self.watched.values()):
            self.worker.do(partial(self._look_again, run))

    def _look_again(self, run: Watched) -> None:
        self._look(run)
        waiting = run.pidfd is None and not (run.ended or run.lost or run.stray)
        if waiting and time.monotonic() - run.launched_at > HANDOVER_S:
            self._launch(run)

    def _look(self, run: Watched) -> None:
        """Take in what its files say; find its shim, or that it has none any more."""
        news = list(run.news())
        if run.ended:
            self._forget(run)
        elif run.pidfd is None and not run.lost and os.path.exists(run.path(rundir.SHIM)):
            self._find_shim(run)
        if not run.stray:
            self._tell(news)

    def _find_shim(self, run: Watched) -> None:
        pidfd = run.pidfd = shim_pidfd(run.directory)
        if pidfd is None:
            run.lost = True
            self._bury(run)
        else:
            self.worker.listen(pidfd, lambda: self._shim_gone(run))

    def _shim_gone(self, run: Watched) -> None:
        self._close_pidfd(run)
        self._look(run)

    def _bury(self, run: Watched) -> None:
        """Its shim is gone without a last word: end what is left, and say the word for it. Again, until it is done."""
        done = run.ended
        try:
            done = done or burial.bury(run.directory, run.spec, "the process that kept this run was killed")
        finally:
            if not done:
                self.worker.after(RETRY_S, lambda: self._bury(run))
        if done:
            self._look(run)

    def _forget(self, run: Watched) -> None:
        self._close_pidfd(run)
        self.gpus.release(run.run_id)
        if self.watched.get(run.run_id) is run:
            del self.watched[run.run_id]

    def _close_pidfd(self, run: Watched) -> None:
        if run.pidfd is not None:
            self.worker.unlisten(run.pidfd)
            run.pidfd = None

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
            run.lost = True
            self._bury(run)
