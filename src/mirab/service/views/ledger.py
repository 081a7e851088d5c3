"""The accruals beside a running service: caught up with the journal in the background, then told each record."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import structlog

from mirab.model.events import Event
from mirab.model.plans import Plan
from mirab.model.units import AccountPath, Instant
from mirab.service.views import trend
from mirab.service.views.accruals import Accruals, Got
from mirab.store.beginning import beginning

if TYPE_CHECKING:
    from mirab.service.live import Live

KEEP_EVERY = 20_000
"""Records after which the cache is written anew."""

log = structlog.get_logger("mirab.ledger")


class LiveLedger:
    """Owed and delivered for the share view. `ready`: it knows all that is recorded.

    `cache`: a file of the service's own that only saves time: without it, or with one of another version, the whole
    journal is read again.
    """

    def __init__(self, live: Live, cache: Path | None = None) -> None:
        self._live = live
        self._cache = cache
        self._lock = Lock()
        self._heard = 0
        self._kept = 0
        self._reading: Thread | None = None
        fingerprint()  # now, of what this process has loaded: an upgrade replaces the files while it runs
        self.ready = False
        self.accruals = self._cached() or _first_page(live)
        live.subscribe(self._hear)

    def start(self) -> None:
        """Catch up with the journal, in a thread of its own."""
        self._heard = max(self._heard, self._live.store.last()[0])
        with self._lock:
            self._follow()

    def catch_up(self) -> None:
        """Read what is recorded and not taken in yet. Called in the background, or by tests."""
        self._heard = max(self._heard, self._live.store.last()[0])
        while not self._read_on():
            pass

    def _follow(self) -> None:
        if self._reading is None and self.accruals is not None:
            self._reading = Thread(target=self._run, name="ledger", daemon=True)
            self._reading.start()

    def _run(self) -> None:
        try:
            self.catch_up()
        except Exception as error:
            if not self._live.stopping.is_set():
                log.error(
                    "ledger.failed", error=f"{type(error).__name__}: {error}", hint="owed and delivered are absent"
                )

    def _read_on(self) -> bool:
        """Whether all that has been heard of is in; from then on records are taken in as they are heard."""
        accruals = self.accruals
        if accruals is None:
            return True
        for seq, facts, plan in self._live.store.records(after=accruals.seq):
            if self._live.stopping.is_set():
                return True
            with self._lock:
                accruals.append(seq, facts, plan)
        with self._lock:
            self.ready = accruals.seq >= self._heard
            if self.ready:
                self._reading = None
            return self.ready

    def _hear(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        """In the decider's thread."""
        with self._lock:
            self._heard = seq
            accruals = self.accruals
            if accruals is None or not self.ready:
                return
            if seq == accruals.seq + 1:
                accruals.append(seq, facts, plan)
            elif seq > accruals.seq:
                self.ready = False
                self._follow()

    # --- read -------------------------------------------------------------------------------------------------------
    def got(self, now: Instant) -> dict[AccountPath, Got] | None:
        """Owed and delivered of each leaf over the window; None = not known yet."""
        with self._lock:
            if self.accruals is None or not self.ready:
                return None
            return self.accruals.got(now)

    def trend(self, path: str | None, now: Instant) -> dict[str, Any]:
        """Of an account and all below it (None = of all): see `trend.series`; and the ages of all debts."""
        with self._lock:
            if self.accruals is None or not self.ready:
                return {"ready": False, "steps": [], "debts": {}}
            steps, debts = trend.series(self.accruals, path, now), trend.ages(self.accruals, now)
        return {"ready": True, "steps": steps, "debts": debts}

    def debts(self, now: Instant) -> dict[str, dict[str, Any]]:
        """See `trend.ages`; nothing while the books are still being read."""
        with self._lock:
            return trend.ages(self.accruals, now) if self.accruals is not None and self.ready else {}

    def observed_at(self, at: Instant) -> bool:
        """Whether what was decided at that instant is advice; while the books are being read, as the policy is now."""
        with self._lock:
            if self.accruals is None or not self.ready:
                return self._live.policy.observing
            return self.accruals.deeds.observed_at(at)

    # --- the cache --------------------------------------------------------------------------------------------------
    def keep(self, always: bool = False) -> bool:
        """Write the cache, if enough has happened since; whether it did. For quiet moments, and the end."""
        if self._cache is None or self.accruals is None:
            return False
        with self._lock:
            if self.accruals.seq == self._kept or not (always or self.accruals.seq - self._kept >= KEEP_EVERY):
                return False
            data = pickle.dumps((fingerprint(), self.accruals), pickle.HIGHEST_PROTOCOL)
            self._kept = self.accruals.seq
        part = self._cache.with_suffix(".part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        part.replace(self._cache)
        return True

    def _cached(self) -> Accruals | None:
        """What the file holds, if this version wrote it, about this ledger, and not about a later state of it."""
        if self._cache is None:
            return None
        try:
            data = self._cache.read_bytes()
        except OSError:
            return None
        try:
            mark, accruals = pickle.loads(data)
        except Exception as error:
            log.warning("ledger.cache_unusable", error=f"{type(error).__name__}: {error}", hint="the journal is read")
            return None
        began = self._live.store.meta("began_at")
        fits = mark == fingerprint() and isinstance(accruals, Accruals) and str(accruals.began_at) == began
        if not fits or accruals.seq > self._live.store.last()[0]:
            return None
        self._kept = accruals.seq
        return accruals  # type: ignore[no-any-return]


def _first_page(live: Live) -> Accruals | None:
    """The books when the ledger began; None = the store does not say what with."""
    began = beginning(live.store.meta)
    return None if began is None else Accruals(began.cluster, began.budgets, began.policy, began.at)


@cache
def fingerprint() -> str:
    """Of the source of all that the cache holds."""
    digest = sha256()
    for folder in (files("mirab") / "model", files("mirab") / "study", files("mirab") / "service" / "views"):
        for path in sorted(
            (each for each in folder.iterdir() if each.name.endswith(".py")), key=lambda each: each.name
        ):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
