"""Forecasts kept fresh beside the service: the state is copied by `fork`, and the scheduler run forward in the copy.

One batch (`lookahead`) serves everybody who waits. It is made at a low priority, and a pause of several times what it
took follows: deciding waits for nothing but the copy of the page tables.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import structlog

from mirab.core.state import State
from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.units import DAY, AccountPath, Duration, Instant, WorkloadId
from mirab.model.workloads import Workload
from mirab.service.desk.errors import DeskError
from mirab.service.desk.sandbox import Sandbox
from mirab.service.inbox import UnavailableError
from mirab.service.lookahead import NOTHING, Batch, Lookahead, Looked
from mirab.store.predictions import Prediction, Predictions
from mirab.study.entries import Entries, Entry
from mirab.study.forecast import Forecast
from mirab.study.history import History

if TYPE_CHECKING:
    from mirab.service.live import Live

ASKED = 0.25
"""For one request that somebody waits for: this part of what a batch may take."""
LONGEST_BATCH = 60
"""Seconds after which the copy that makes a batch ends itself, whatever happens."""
REST = 4
"""A batch is followed by a pause of so many times what it took, in which everybody else has the core."""
FRESH = 3.0
"""Seconds between two batches at least while somebody asks; `LAZY` = while nobody does."""
LAZY = 60.0
QUIET = 60.0
"""How long the thread sleeps where nobody waits and nothing happens; `BREATH` = after it was woken."""
BREATH = 0.2
ASKING = 120.0
"""Somebody who asked so many seconds ago still looks."""
LOOK_BACK: Duration = 14 * DAY
"""How much of the journal is read to learn from."""

log = structlog.get_logger("mirab.forecast")


class Forecaster:
    """Made once, before the first decision. `latest`: the newest batch."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._predictions = Predictions(live.store)
        self._lock = Lock()
        self._history = History(live.cluster)
        self._entries = Entries(live.cluster, live.policy.window)
        self._seq = 0
        self._heard = 0
        self._said: set[str] | None = None
        self._bell = Flag()
        self._asked_at = -ASKING
        self._done_at = 0.0
        self._working = Lock()
        self.threads: list[Thread] = []
        self.latest = NOTHING
        self._own: dict[WorkloadId, Batch] = {}
        live.subscribe(self._hear)

    # --- learning ---------------------------------------------------------------------------------------------------
    def _hear(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """In the decider's thread."""
        with self._lock:
            self._heard = seq
            if seq == self._seq + 1:
                self._take_in(seq, facts, plan)
        self._bell.set()

    def _take_in(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        self._history.append(facts, plan)
        self._entries.append(facts, plan)
        self._seq = seq

    def entries(
        self, account: AccountPath, now: Instant, most: int, pools: Collection[int] | None = None
    ) -> tuple[int, list[tuple[Entry, float]]]:
        """How many runs an account was charged for in the window, and the largest with their GPU-hours.

        `pools`: only those in these; None = in all.
        """
        with self._lock:
            return self._entries.of(account, now, most, pools)

    def learn(self) -> None:
        """Catch up with the journal."""
        store = self._live.store
        if not self._seq:
            self._seq = self._first_record(store.last()[0])
        for seq, facts, plan in store.records(after=self._seq):
            if self._live.stopping.is_set():
                return
            with self._lock:
                if seq == self._seq + 1:
                    self._take_in(seq, facts, plan)

    def _first_record(self, last: int) -> int:
        """The last record that is too old to learn from."""
        wanted = self._live.now() - LOOK_BACK
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            record = next(iter(self._live.store.records(after=middle)), None)
            if record is not None and record[2].at < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    # --- the thread -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        thread = Thread(target=self._run, name="forecasts", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run(self) -> None:
        self._heard = max(self._heard, self._live.pulse.seq)
        while not self._live.stopping.is_set():
            try:
                if self._seq < self._heard:
                    self.learn()
                if self._is_due():
                    self.refresh()
            except Exception as error:
                if self._live.stopping.is_set():
                    return
                log.warning("forecast.failed", error=f"{type(error).__name__}: {error}", hint="tried again later")
                self._live.stopping.wait(FRESH)
            self._bell.wait(FRESH if self._live.state.pending and self._live.pulse.ready else QUIET)
            self._bell.clear()
            self._live.stopping.wait(BREATH)

    def _is_due(self) -> bool:
        since = monotonic() - self._done_at
        asked = monotonic() - self._asked_at < ASKING
        if since < max(REST * self.latest.took, FRESH if asked else LAZY) and self.latest is not NOTHING:
            return False
        return bool(self._live.state.pending) and self._live.pulse.ready

    # --- forecasts --------------------------------------------------------------------------------------------------
    def refresh(self) -> Batch:
        """A new batch for everybody who waits.

        Raises:
            DeskError: too much is being worked out at the moment.
            UnavailableError: the state may not be seen.
        """
        with self._working:
            begun = perf_counter()
            found, seq, at = self._look()
            batch = found.batch(seq, at, perf_counter() - begun)
            self._done_at = monotonic()
            self.latest = batch
        self._keep(batch)
        return batch

    def _look(self) -> tuple[Looked, int, Instant]:
        """In a copy of the process: what was found, the record that the copy knows, and the instant it begins at."""
        with self._live.reading() as state, self._lock:
            at, seq, history = max(state.now, self._live.now()), self._live.pulse.seq, self._history
            work = Lookahead(state, history, list(state.pending), (), at, str(seq))
            copy = self._live.copies.begin(work, LONGEST_BATCH)
        found: Looked = copy.result()
        return found, seq, at

    def suppose(self, workload: WorkloadId, facts: Sequence[Event]) -> Batch | None:
        """When a workload would start that comes in by these facts: a batch of its own.

        None = it does not queue after them: something holds it back.

        Raises:
            DeskError: too much is being worked out at the moment.
        """
        begun = perf_counter()
        with Sandbox(self._live.copies) as box:
            with self._live.reading() as state, self._lock:
                at, seq = max(state.now, self._live.now()), self._live.pulse.seq
                box.begin(Lookahead(state, self._history, [workload], facts, at, str(seq), ASKED))
            found: Looked = box.result()
        return found.batch(seq, at, perf_counter() - begun) if workload in found.kinds else None

    def of(self, workload: WorkloadId, patience: float = 0) -> tuple[Forecast | None, Batch]:
        """The newest forecast for one that waits, with its batch; None = it came in since.

        `patience`: seconds to wait for the next batch if there is none, and none of its own could be made.
        """
        self._asked_at = monotonic()
        self._bell.set()
        if workload not in self.latest.kinds:
            own = self._own_batch(workload) if patience else self._kept(workload)
            if own is not None:
                return own.of(workload), own
        until = monotonic() + patience
        while workload not in self.latest.kinds and monotonic() < until and not self._live.stopping.is_set():
            self._live.stopping.wait(0.05)
        latest = self.latest
        return latest.of(workload), latest

    def _own_batch(self, workload: WorkloadId) -> Batch | None:
        """A look forward for one that came in since the newest batch; kept until the next. None = not now."""
        if kept := self._kept(workload):
            return kept
        try:
            own = self.suppose(workload, ())
        except (DeskError, UnavailableError):
            return None
        if own is not None:
            kept_on = {each: batch for each, batch in self._own.items() if batch.seq > self.latest.seq}
            self._own = kept_on | {workload: own}
        return own

    def _kept(self, workload: WorkloadId) -> Batch | None:
        own = self._own.get(workload)
        return own if own is not None and own.seq > self.latest.seq else None

    def like(self, workload: WorkloadId) -> tuple[Forecast, Batch] | None:
        """For one that came in since the newest batch, the forecast that is nearest to its own: that of the last job in
        the batch of its account and class, else of its class. None = there is none like it.
        """
        with self._live.reading() as state:
            pending = state.pending.get(workload)
            return None if pending is None else self.alike(state, pending.workload)

    def alike(self, state: State, workload: Workload) -> tuple[Forecast, Batch] | None:
        """The same for one that nobody has submitted, while the state is held."""
        batch = self.latest
        with self._lock:
            found = _like(state, batch, workload, self._history)
        told = None if found is None or workload.id in batch.kinds else batch.of(found)
        return None if told is None else (told, batch)

    # --- predictions ------------------------------------------------------------------------------------------------
    def _keep(self, batch: Batch) -> None:
        """The first word about each wait is kept, if it is one."""
        if self._said is None:
            self._said = {each.key for each in self._predictions.all()}
        with self._live.reading() as state:
            attempts = {each: state.pending[each].attempt for each in batch.forecasts if each in state.pending}
        new = [
            Prediction(
                told.workload, attempt, batch.kinds[each], batch.at, told.p50, told.p90, told.bound, told.after_90
            )
            for each, attempt in attempts.items()
            if (told := batch.forecasts[each]).p50 is not None or told.bound is not None
        ]
        new = [each for each in new if each.key not in self._said]
        if new:
            self._predictions.keep(new)
            self._said.update(each.key for each in new)


def _like(state: State, batch: Batch, one: Workload, history: History) -> WorkloadId | None:
    """The last of the account and class of `one` in the batch that still waits, else the last of its class; none for
    which nodes are kept or cleared (that is theirs alone), and none that waits for GPUs where `one` does not.
    """
    kind, distant = history.kind_of(one), None
    for each in reversed(batch.kinds):
        told, pending = batch.forecasts.get(each), state.pending.get(each)
        if pending is None or batch.kinds[each] != kind or (told is not None and told.bound is not None):
            continue
        other = pending.workload
        if bool(other.shape.gpus_per_node) == bool(one.shape.gpus_per_node):
            if other.account == one.account:
                return each
            distant = distant or each
    return distant
