"""The parts of the service put together, and taken apart again in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from mirab.backends.null import NullBackend
from mirab.control.recover import FILE
from mirab.core.state import State
from mirab.model.events import BudgetsChanged, ClusterChanged, Event
from mirab.model.plans import Plan
from mirab.model.records import AuditEntry
from mirab.model.resources import Cluster
from mirab.model.units import DAY, HOUR, SECOND, Instant, RunId
from mirab.service.clock import LiveClock
from mirab.service.config import ServeConfig
from mirab.service.garbage import Garbage
from mirab.service.inbox import Entry, Request
from mirab.service.live import Live
from mirab.service.logs import log_decision
from mirab.service.loop import Decider, Engine, Timing
from mirab.service.metrics import Metrics
from mirab.service.recover import (
    Recovered,
    RecoverError,
    crash_advice,
    crashing,
    keep_snapshot,
    note_crash,
    recover,
    take_snapshot,
)
from mirab.service.setup import approvals, defaults, wanted_of
from mirab.service.snapshot import freeze
from mirab.service.specs import patient
from mirab.store import LostLeadError, Store, StoreError, open_store
from mirab.study.copies import Copy, CopyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirab.model.plans import Start
    from mirab.service.desk.desk import Desk
    from mirab.service.views import Views

LEDGER = "ledger.cache"
SUBMIT_THERE = "this service decides for a Slurm cluster: submit with sbatch, and mirab takes it from there"
FIRST_CYCLE = 60.0
COPIES_END = 5.0
"""Seconds at most that copies of the process get to be gone: they are killed."""
SNAPSHOT_RECORDS = 5_000
SNAPSHOT_PAUSE = 600.0
"""A snapshot at most so often, in seconds, and only after so many records."""
SNAPSHOT_LONGEST = 120
"""Seconds that one may take."""
BRIEF = 2_000
"""Characters of a change that the audit log keeps; the whole of it is in the journal."""
REPLIES_KEPT = DAY
"""How long the answer to a request with an Idempotency-Key can be had again."""

log = structlog.get_logger("mirab.serve")


class LiveEngine(Engine, Protocol):
    """A backend as the service drives it, from its beginning to its end."""

    def adopt(self, expected: Mapping[RunId, Start], started: Iterable[RunId] = ()) -> None:
        """Once, before the first cycle: find the runs that the state believes in."""

    def close(self) -> None:
        """Stop watching; the runs go on."""

    def utilization(self) -> Mapping[RunId, float]:
        """Mean GPU activity of the runs for which something measures it."""

    def output_path(self, workload_id: Any, attempt: int | None = None, stream: str = "out") -> Path | None:
        """The file that an attempt writes."""

    def run_dir(self, workload_id: Any, attempt: int | None = None) -> Path | None:
        """The folder of an attempt (the last one, if not said) on this machine."""

    def prune(self, ended_before: Instant) -> int:
        """Forget runs that ended before; how many. May take its time."""


@dataclass(eq=False)
class Service:
    """Everything but the doors: a decider that decides, on a store that this process leads."""

    config: ServeConfig
    store: Store
    live: Live
    engine: LiveEngine
    decider: Decider
    metrics: Metrics
    keeper: Keeper
    recovered: Recovered
    desk: Desk
    views: Views

    def start(self) -> None:
        """Tell the engine what it has to know, take in what the settings changed, and begin to decide.

        Raises:
            RecoverError: the first decision failed; the message says why.
        """
        intents = self.live.intents
        self.engine.adopt(dict(intents.starts), tuple(intents.begun))
        for action in intents.outstanding():
            self.decider.feed.submit(action)
        changes = self.live.inbox.post(self._changes)
        self.decider.start()
        self._await(changes)

    def _changes(self, state: State, now: Instant) -> Entry:
        facts = tuple(replace(fact, at=now) for fact in self.recovered.changes)
        return Entry(facts, tuple(_audited(fact, state, now) for fact in facts))

    def _await(self, first: Request) -> None:
        try:
            first.answer.result(FIRST_CYCLE)
        except FutureTimeoutError:
            log.warning("start.slow", hint=self.live.pulse.store_trouble or "the first decision takes long")
        except Exception as error:
            raise RecoverError(str(error)) from error

    def stop(self, patience: float = 10.0) -> None:
        """Finish the cycle, answer what waits, let go of everything. Runs go on."""
        self.live.stopping.set()
        if not self.live.copies.end(COPIES_END):
            log.warning("stop.copies", hint="copies of this process are still ending; they hold nothing of it open")
        if self.decider.stop(patience) and not self.live.pulse.failed:
            self.keeper.last()
        self.engine.close()
        self.store.dispose()
        log.info("stopped", seq=self.live.pulse.seq, runs_going_on=len(self.live.state.runs))

    @property
    def exit_code(self) -> int:
        """0, or why it ended by itself: 5 = another service leads, 1 = a fault."""
        if not self.live.pulse.failed:
            return 0
        return 5 if isinstance(self.keeper.ended_by, LostLeadError) else 1


@dataclass(eq=False)
class Keeper:
    """What is done between two cycles: caches, forgetting old replies, and the last words of a decider.

    `seen`: the last record that the newest snapshot knows. `keep_ledger`: writes the cache of owed and delivered, if
    enough has happened or always.
    """

    live: Live
    folder: Path
    seen: int
    keep_ledger: Callable[[bool], object]
    told: Callable[[], None] = lambda: None
    prune: Callable[[Instant], object] = lambda _: None
    ended_by: BaseException | None = None

    def __post_init__(self) -> None:
        self._at = monotonic()
        self._forgot_at: Instant = 0
        self.garbage: Garbage | None = None

    def after(self, seq: int, facts: Sequence[Event], plan: Plan, timing: Timing) -> None:
        log_decision(seq, facts, plan, decide_ms=timing.decide * 1e3, append_ms=timing.append * 1e3)
        if self._snapshot_is_due(seq):
            self.snapshot()
        if plan.at - self._forgot_at >= HOUR:
            self._forgot_at = plan.at
            self._safely("ledger", lambda: self.keep_ledger(False))
            self._safely("replies", lambda: self.live.store.forget_replies(plan.at - REPLIES_KEPT))
            self._safely("runs", lambda: self.prune(plan.at))
        if self.garbage is not None:
            self.garbage.tidy(quiet=not self.live.inbox.depth)

    def _snapshot_is_due(self, seq: int) -> bool:
        return seq - self.seen >= SNAPSHOT_RECORDS and monotonic() - self._at >= SNAPSHOT_PAUSE

    def snapshot(self) -> None:
        """In the decider's thread. It takes a second where very much waits, so a copy of the process makes it: whoever
        waits for a decision waits for the copy of the page tables only.
        """
        seq = self._noted()
        state, intents = self.live.state, self.live.intents

        def begin() -> None:
            copy = self.live.copies.begin(lambda: freeze((state, intents)), SNAPSHOT_LONGEST)
            Thread(target=self._safely, args=("snapshot", lambda: self._kept(copy, seq)), daemon=True).start()

        self._safely("snapshot", begin)

    def _kept(self, copy: Copy, seq: int) -> None:
        """Not while the service stops: then `last` takes one that knows more."""
        try:
            data: bytes = copy.result()
        except CopyError:
            if self.live.stopping.is_set():
                return
            raise
        keep_snapshot(self.live.store, data, seq)

    def _noted(self) -> int:
        self.seen, self._at = self.live.pulse.seq, monotonic()
        return self.seen

    def last(self) -> None:
        """Before a graceful end: the next start is quick."""
        if self.live.pulse.seq > self.seen:
            seq, live = self._noted(), self.live
            self._safely("snapshot", lambda: take_snapshot(live.store, live.state, live.intents, seq))
        self._safely("ledger", lambda: self.keep_ledger(True))

    def _safely(self, what: str, work: Callable[[], object]) -> None:
        """Neither is worth a stop: a snapshot only saves time."""
        try:
            work()
        except Exception as error:
            log.warning("housekeeping.failed", what=what, error=f"{type(error).__name__}: {error}")

    def ended(self, error: BaseException | None) -> None:
        """The decider has ended; by itself if there is an error."""
        if error is not None and not isinstance(error, StoreError):
            seq, what = self.live.pulse.seq, f"{type(error).__name__}: {error}"
            advice = crash_advice(note_crash(self.folder, what, self.live.now()), seq, self.live.pulse.folding)
            if advice:
                log.critical("crashing.again_and_again", hint=advice)
        self.ended_by = error
        self.told()


def assemble(config: ServeConfig, wrap: Callable[[LiveEngine], LiveEngine] = lambda engine: engine) -> Service:
    """Open the store, take the lead, rebuild the state. Nothing decides yet, and no door is open.

    `wrap`: something to put between the loop and the engine, for tests that let the two lose sight of each other.

    Raises:
        ConfigError: a setting or a file cannot be used.
        StoreError: the store cannot be used, or another service decides on it.
        RecoverError: the state cannot be rebuilt, or not so as the settings want it.
    """
    wanted, file = wanted_of(config)
    config.state_dir.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    store = open_store(config.db)
    try:
        epoch = store.lead(config.wait)
        clock = LiveClock(floor=store.last()[1])
        begun = monotonic()
        _check_leftovers(config, store)
        there = _cluster_of_engine(config, store)
        doubted = crashing(config.state_dir, clock.now())
        if doubted:
            log.warning("snapshot.left_aside", hint="it has stopped again and again: the whole journal is read instead")
        found = recover(store, wanted, defaults(wanted, clock.now(), there), snapshot=not doubted)
        found.changes += approvals(file, found.state, clock.now())
        log.info(
            "recovered", epoch=epoch, seq=found.seq, replayed=found.replayed, jobs_waiting=len(found.state.pending),
            runs=len(found.state.runs), seconds=round(monotonic() - begun, 3), store=store.name,
        )  # fmt: skip
        return _put_together(config, store, clock, found, wrap)
    except BaseException:
        store.dispose()
        raise


def _check_leftovers(config: ServeConfig, store: Store) -> None:
    """Runs and folders of a ledger that is not this one: none is stopped unasked, and no number is given again.

    Raises:
        RecoverError: this ledger is new, and runs of another go on in the state folder.
    """
    if config.backend != "local":
        return
    from mirab.backends.local.leftovers import last_number, living

    alive = list(living(config.state_dir)) if store.meta("began_at") is None else []
    if alive:
        named = ", ".join(f"{run_id} (process {pid})" for run_id, pid in alive[:5]) + (", ..." if alive[5:] else "")
        raise RecoverError(
            f"{len(alive)} runs go on in {config.state_dir}, and {store.name}, which is new, knows nothing of them: "
            f"{named}. Name the store that they belong to (--db), or restore it from a backup (`mirab db restore`); "
            "or give them up: end these processes with `kill`, and start again"
        )
    store.skip_job_numbers(last_number(config.state_dir))


def _cluster_of_engine(config: ServeConfig, store: Store) -> Cluster | None:
    """What the engine itself says there is, where a ledger begins."""
    if config.backend != "slurm" or store.meta("began_at") is not None:
        return None
    from mirab.service.slurm import cluster_there

    return cluster_there(config)


def _put_together(
    config: ServeConfig, store: Store, clock: LiveClock, found: Recovered, wrap: Callable[[LiveEngine], LiveEngine]
) -> Service:
    from mirab.service.desk.desk import Desk
    from mirab.service.desk.identity import run_as, unix_user
    from mirab.service.views import Views

    live = Live(store, found.state, clock, found.intents)
    live.pulse.seq = found.seq
    store.on_trouble = lambda text: _store_trouble(live, text)
    engine = wrap(_engine(config, live, found))
    metrics = Metrics(live)
    stand_in = unix_user(config.run_as) if config.run_as else None
    desk = Desk(
        live,
        run_as=lambda who: run_as(who, stand_in),
        submit_there=SUBMIT_THERE if config.backend == "slurm" else "",
    )
    desk.portfolio.exceptions.longest = round(config.exception_longest * SECOND)
    if config.backend == "slurm":
        from mirab.service.slurm import read_slurm_settings

        desk.portfolio.rollout.governed = read_slurm_settings(config.slurm_config, config.state_dir).governed
    views = Views(
        live, desk, activity=lambda run_id: engine.utilization().get(RunId(run_id)), cache=config.state_dir / LEDGER
    )
    keeper = Keeper(
        live, config.state_dir, found.seq - found.replayed, views.ledger.keep,
        prune=lambda now: Thread(target=engine.prune, args=(now - config.keep_runs,), daemon=True).start(),
    )  # fmt: skip

    def after(seq: int, facts: Sequence[Event], plan: Plan, timing: Timing) -> None:
        metrics.after_cycle(seq, facts, plan, timing)
        keeper.after(seq, facts, plan, timing)

    decider = Decider(live, engine, coalesce=config.coalesce, on_end=keeper.ended, after=after)
    return Service(config, store, live, engine, decider, metrics, keeper, found, desk, views)


def _engine(config: ServeConfig, live: Live, found: Recovered) -> LiveEngine:
    if config.backend == "null":
        return NullBackend(live.store.spec, live.now, live.bell.ring)
    grown = [fact.cluster for fact in found.changes if isinstance(fact, ClusterChanged)]
    cluster = grown[-1] if grown else found.state.cluster
    if config.backend == "slurm":
        from mirab.service.slurm import slurm_engine

        return slurm_engine(config, live, cluster)
    from mirab.backends.local import LocalBackend
    from mirab.backends.local.care import Commands

    care = Commands(config.repair_command, config.health_check, config.health_every)
    return LocalBackend(config.state_dir, cluster, patient(live.store), live.now, live.bell.ring, commands=care)


def _store_trouble(live: Live, text: str) -> None:
    live.pulse.store_trouble = text
    if text:
        live.admit()
        log.error("store.trouble", error=text, hint="nothing is decided until it is over; runs go on")
    else:
        live.exclude()
        log.info("store.well_again")


def _audited(fact: Event, state: State, now: Instant) -> AuditEntry:
    """A change by the settings, as the audit log tells it."""
    before = repr(state.budgets) if isinstance(fact, BudgetsChanged) else ""
    what = type(fact).__name__
    return AuditEntry(now, FILE, "start of the service", "settings.change", what, before[:BRIEF], repr(fact)[:BRIEF])
