"""The engine that is a Slurm cluster: one thread lists and writes; everything else only asks it.

The thread sleeps until the next look is due, an action comes in, or a run's notice is over. Facts come from listings
alone: what was written is true when Slurm shows it. Between two listings of everything it glances at what runs, and
asks in full only about jobs for which that has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mirab.backends.slurm import commands
from mirab.backends.slurm.errands import Errands
from mirab.backends.slurm.lister import Lister
from mirab.backends.slurm.listings import ListingError, bookings
from mirab.backends.slurm.records import Booking, SlurmJob, SlurmNode
from mirab.backends.slurm.runner import ReadOnlyRunner, Runner, SlurmCommandError
from mirab.backends.slurm.tracker import Known, Rules, Tracker
from mirab.model.events import Event
from mirab.model.plans import Action
from mirab.model.resources import Cluster
from mirab.model.units import SECOND, Instant, NodeName, RunId, WorkloadId

INTERVAL_S = 5.0
"""Between two listings of everything."""
GLANCE_S = 1.0
"""Between two glances at what runs."""
MOST_ASKED = 200
"""Of so many jobs at once it is asked by their ids; of more by another listing of everything."""

log = logging.getLogger("mirab.slurm")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two listings, and between two glances."""

    interval: float = INTERVAL_S
    glance: float = GLANCE_S


class SlurmBackend:
    """Implements `control.ports.Backend` on Slurm's own tools. Safe to call from any thread.

    Args:
        known: what the state believes at this start.
        wake: called from the backend's thread when there are facts to observe.
        repair: a command that is told the name of a node that is empty and sick; none = a person looks.
    """

    def __init__(
        self,
        runner: Runner,
        cluster: Cluster,
        rules: Rules,
        clock: Callable[[], Instant],
        wake: Callable[[], None] = lambda: None,
        *,
        known: Known | None = None,
        pace: Pace | None = None,
        repair: Sequence[str] = (),
    ) -> None:
        self.runner = runner
        self._lister = Lister(runner)
        self.tracker = Tracker(cluster, rules, known)
        self.errands = Errands(runner, self.tracker, clock, self._tell, tuple(repair))
        self.trouble = ""
        self.looks = 0
        self._clock, self._wake = clock, wake
        self._pace = pace or Pace()
        self._observing = isinstance(runner, ReadOnlyRunner)
        self._books = True
        self._bell = threading.Condition()
        self._facts: list[Event] = []
        self._actions: list[Action] = []
        self._said: list[Event] = []
        self._closed = False
        self._list_at = self._glance_at = 0.0
        self._glanced = ""
        self._jobs: dict[str, SlurmJob] = {}
        self._nodes: list[SlurmNode] = []
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    # --- what the loop asks -------------------------------------------------------------------------------------------
    def observe(self) -> list[Event]:
        now = self._clock()
        with self._bell:
            facts, self._facts = self._facts, []
        return [fact if fact.at <= now else replace(fact, at=now) for fact in facts]

    def submit(self, action: Action) -> None:
        """Begin an action and return at once. A refusal comes back as a fact."""
        with self._bell:
            self._actions.append(action)
            self._bell.notify()

    def heard(self, facts: Iterable[Event]) -> None:
        """Facts that have been recorded: what people told mirab has to be true of Slurm too."""
        told = [fact for fact in facts if Errands.concerns(fact)]
        if told and not self._observing:
            with self._bell:
                self._said += told
                self._bell.notify()

    def adopt(self, expected: Mapping[RunId, Any], started: Iterable[RunId] = ()) -> None:
        """Once, before the first cycle: look, so that the first decision knows what there is."""
        self._look()
        self._thread.start()

    def next_due(self) -> Instant | None:
        """Nothing is ever due: what happens wakes the loop."""
        return None

    def close(self) -> None:
        """Stop looking. The jobs go on, and are found again."""
        with self._bell:
            self._closed = True
            self._bell.notify()
        if self._thread.is_alive():
            self._thread.join(60)

    def utilization(self) -> Mapping[RunId, float]:
        """Slurm measures nothing of the kind."""
        return {}

    def prune(self, ended_before: Instant) -> int:
        """Slurm keeps what it keeps."""
        return 0

    def output_path(self, workload_id: WorkloadId, attempt: int | None = None, stream: str = "out") -> Path | None:
        """Slurm writes the output where the job says; mirab does not serve it."""
        return None

    def run_dir(self, workload_id: WorkloadId, attempt: int | None = None) -> Path | None:
        """Slurm's jobs have no folder of mirab's."""
        return None

    # --- the thread ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._bell:
                while not (self._closed or self._actions or self._said) and (pause := self._pause()) > 0:
                    self._bell.wait(pause)
                if self._closed:
                    return
                actions, self._actions = self._actions, []
                said, self._said = self._said, []
            try:
                self._turn(actions, said)
            except Exception:
                log.exception("the Slurm thread failed; it looks again")
                self._list_at = time.monotonic() + self._pace.interval

    def _turn(self, actions: Sequence[Action], said: Sequence[Event]) -> None:
        if not self._observing:
            self.errands.hear(said)
            self.errands.do(actions)
        if time.monotonic() >= self._list_at:
            self._look()
        elif time.monotonic() >= self._glance_at:
            self._glance()

    def _pause(self) -> float:
        """Seconds until there is something to do."""
        pause = min(self._list_at, self._glance_at) - time.monotonic()
        due = None if self._observing else self.errands.next_due()
        return pause if due is None else min(pause, (due - self._clock()) / SECOND)

    def _look(self) -> None:
        """One listing of everything, and what it changes."""
        self.looks += 1
        try:
            listed = self._lister.jobs()
            self._nodes = self._lister.nodes()
        except (SlurmCommandError, ListingError) as error:
            self._troubled(str(error))
        else:
            self._troubled("")
            self._jobs = {job.id: job for job in listed}
            self._take_in()
        self._list_at = time.monotonic() + self._pace.interval
        self._glance_at = time.monotonic() + self._pace.glance

    def _glance(self) -> None:
        """Only what runs, in a few words a job; then those that this says something new of.

        Before the first listing of everything it would say of all nodes and jobs that they are gone.
        """
        self._glance_at = time.monotonic() + self._pace.glance
        if not self._nodes:
            self._look()
            return
        try:
            shown = self.runner.read(commands.GLANCE)
            before, now = set(self._glanced.splitlines()), set(shown.splitlines())
            expected = {seen.job.id for seen in self.tracker.expected()}
            changed = sorted({line.partition(" ")[0] for line in before ^ now} | expected)
            self._glanced = shown
            if not changed:
                self.tracker.fresh_at = self._clock()
                return
            if len(changed) > MOST_ASKED:
                self._look()
                return
            self._jobs |= {job.id: job for job in self._lister.jobs(changed)}
        except (SlurmCommandError, ListingError):
            self._list_at = 0.0
        else:
            self._take_in()

    def _take_in(self) -> None:
        """What the listing says, as facts; and what has to be written because of it."""
        listed = list(self._jobs.values())
        now = self._clock()
        facts = self.tracker.take_in(listed, self._nodes, now, self._booked(listed))
        self._tell(facts)
        if not self._observing:
            self.errands.tidy(listed)

    def _booked(self, listed: Sequence[SlurmJob]) -> list[Booking] | None:
        """What the accounting knows of runs whose end the listing does not show; None = there is none."""
        wanted = self.tracker.to_look_up(listed) if self._books else None
        if wanted is None:
            return None
        if not wanted:
            return []
        try:
            return bookings(self.runner.read(commands.look_up(wanted)))
        except SlurmCommandError as error:
            self._books = "disabled" not in str(error)
            if self._books:
                log.warning("%s; ends are told as they are seen", error)
                return []
            return None

    def _troubled(self, what: str) -> None:
        if what and what != self.trouble:
            log.warning("%s; what runs goes on, and mirab asks again", what)
        self.trouble = what

    def _tell(self, facts: Sequence[Event]) -> None:
        if facts:
            with self._bell:
                self._facts += facts
            self._wake()

    # --- for people ---------------------------------------------------------------------------------------------------
    def node(self, name: NodeName) -> SlurmNode | None:
        """As it was listed last."""
        return self.tracker.nodes.listed.get(name)
