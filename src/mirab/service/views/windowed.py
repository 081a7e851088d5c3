"""The measures of a replay, taken of a live service's journal over its last window.

The whole journal is read, so that who waited and ran when the window began is known; what is counted is what happened
in the window. That takes as long as a start without a snapshot, so the service has it done by a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import Any

from mirab.control.recover import take_in
from mirab.core.state import State
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.trace import Trace
from mirab.model.units import Duration, Instant
from mirab.store import Store, open_store
from mirab.store.beginning import beginning
from mirab.study.bycontract import ByContract
from mirab.study.excepted import Excepted
from mirab.study.livemeasures import LiveMeasures
from mirab.study.waits import Waits

LONGEST = 600.0
"""Seconds that reading a journal may take."""
FRESH = 60.0
"""Seconds for which a report is given again."""
STORE = "MIRAB_REPORT_STORE"


class ReportError(Exception):
    """The report could not be made; the message says why."""


class WindowMeasures(LiveMeasures):
    """Measures that hear a journal from its beginning and count from the trace's start on."""

    def __init__(self, trace: Trace, policy: Policy) -> None:
        super().__init__(trace, policy)
        self._counting = False
        self._excepted = Excepted()
        for kind, hear in self._excepted.hearers().items():
            self._hearers.setdefault(kind, []).append(hear)

    def finish(self, now: Instant) -> dict[str, Any]:
        """The report, at an instant not before the last record."""
        self._advance(now)
        self.trace = replace(
            self.trace,
            exemptions=tuple(each for each in self._in_period() if isinstance(each, Exemption)),
            reservations=tuple(each for each in self._in_period() if isinstance(each, Reservation)),
        )
        return self.report()

    def _in_period(self) -> list[Exemption | Reservation]:
        return self._excepted.after(self.period.starts_at)

    def _advance(self, now: Instant) -> None:
        if not self._counting and now >= self.period.starts_at:
            self._counting = True
            self._forget()
        super()._advance(now)

    def _forget(self) -> None:
        """What was counted before the window."""
        self.waits, self.first_progress, self.by_contract = Waits(), Waits(), ByContract()
        self.deadlines = self.deadlines_met = self.rejected = 0
        self.first_at = None
        self.audit.count = 0
        self.audit.violations.clear()
        self.starvation.longest, self.starvation.whose = 0, None
        for leaf in self.ledger.leaves.values():
            del leaf.waits[:], leaf.asked[:]


def window_report(store: Store, now: Instant, window: Duration) -> dict[str, Any]:
    """The report of a store's journal over the window that ends now, or since the ledger began."""
    began = beginning(store.meta)
    if began is None:
        raise ReportError(f"{store.name} has no journal yet: start the service on it first")
    state = State(began.cluster, began.budgets, began.policy, now=began.at)
    starts_at = max(began.at, now - window)
    trace = Trace(
        (), began.cluster, began.budgets, name="the live service", origin=0, starts_at=starts_at,
        ends_at=max(now, starts_at),
    )  # fmt: skip
    measures = WindowMeasures(trace, began.policy)
    measures.attach(state)
    for _, facts, plan in store.records():
        take_in(state, facts, plan)
        measures.append(facts, plan)
    return measures.finish(max(now, starts_at))


# --- in a process of its own ------------------------------------------------------------------------------------------
class Reports:
    """Makes reports, one at a time, and gives the same one again for a while."""

    def __init__(self, store_url: str) -> None:
        self._url = store_url
        self._lock = Lock()
        self._made: dict[Duration, tuple[float, dict[str, Any]]] = {}

    def last_window(self, now: Instant, window: Duration) -> dict[str, Any]:
        """The report of the window that ends now.

        Raises:
            ReportError: the journal could not be read in time, or at all.
        """
        with self._lock:
            at, made = self._made.get(window, (0.0, None))
            if made is None or monotonic() - at > FRESH:
                made = _in_a_process(self._url, now, window)
                self._made = {window: (monotonic(), made)}
            return made


def _in_a_process(url: str, now: Instant, window: Duration) -> dict[str, Any]:
    words = [sys.executable, "-m", "mirab.service.views.windowed", str(now), str(window)]
    environment = {**os.environ, STORE: url}
    try:
        done = subprocess.run(words, capture_output=True, env=environment, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired as error:
        raise ReportError(
            f"the journal was not read within {LONGEST:.0f} s: ask for it when less is going on"
        ) from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ReportError(f"the report could not be made: {''.join(last) or f'exit code {done.returncode}'}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(words: Sequence[str]) -> None:
    """``NOW WINDOW`` (milliseconds) -> the report as JSON on standard output."""
    store = open_store(os.environ[STORE])
    try:
        found = window_report(store, int(words[0]), int(words[1]))
    finally:
        store.dispose()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
