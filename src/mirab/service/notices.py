"""What people are told unasked: stops and resumptions, reviews, ends of exceptions, shortfalls, calls for a human.

Stops, resumptions and calls come from the journal's records as they are written; the rest is looked at every minute
by a thread of its own, and what was told once is remembered in the state folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

import structlog

from mirab.model.accounts import ledger_path, plain
from mirab.model.events import Event
from mirab.model.plans import CallHuman, Plan, Preempt, Start
from mirab.model.units import DAY, SECOND, Instant, WorkloadId, workload_of
from mirab.service.courier import Courier, Notice
from mirab.study import words
from mirab.study.formats import Names, percent

if TYPE_CHECKING:
    from mirab.service.desk.desk import Desk
    from mirab.service.live import Live
    from mirab.service.views import Views

LOOK_EVERY = 60.0
"""Seconds."""
SERVED = 0.9
"""An account that got less than this part of what it was owed over a day was under-served."""
LEAST_OWED = 1.0
"""GPU-hours in a day below which nobody is told."""
REMEMBERED: Instant = 400 * DAY
TOLD = "notices.json"

log = structlog.get_logger("mirab.notices")


class Notices:
    """Made before the first decision. `couriers`: one for each receiver; `folder`: where what was told is kept."""

    def __init__(self, live: Live, desk: Desk, views: Views, couriers: Sequence[Courier], folder: Path) -> None:
        self._live, self._desk, self._views = live, desk, views
        self.couriers = couriers
        self._file = folder / TOLD
        self._told: dict[str, Instant] = self._read()
        self._stop = Flag()
        self._thread = Thread(target=self._watch, daemon=True, name="mirab-notices")
        live.subscribe(self._hear)

    def start(self) -> None:
        for courier in self.couriers:
            courier.start()
        self._thread.start()

    def stop(self) -> None:
        """End; what waits is sent once."""
        self._stop.set()
        self._thread.join(5)
        for courier in self.couriers:
            courier.stop()

    def _tell(self, notice: Notice) -> None:
        for courier in self.couriers:
            courier.take(notice)

    # --- from the records, in the decider's thread -------------------------------------------------------------------
    def _hear(self, seq: int, facts: Sequence[Event], plan: Plan) -> None:
        if self._live.state.policy.observing:
            return
        for action in plan.actions:
            told = _HEARD.get(type(action))
            if told is not None and not (isinstance(action, Start) and not action.resumed):
                self._tell(told(self, action, plan.at))

    def _preempted(self, action: Preempt, at: Instant) -> Notice:
        job = workload_of(action.run_id)
        account, user, name = self._whose(job)
        why = words.fact(action.reason, Names(0, zone=UTC))
        text = f"Job {job}{name} of {user} for {account} is being stopped and goes back to the queue: {why}."
        return Notice(at, "preempted", job, text, account, user)

    def _resumed(self, action: Start, at: Instant) -> Notice:
        job = str(action.workload_id)
        account, user, name = self._whose(job)
        text = f"Job {job}{name} of {user} for {account} runs again, as attempt {action.run_id.rpartition('.')[2]}."
        return Notice(at, "resumed", job, text, account, user)

    def _human(self, action: CallHuman, at: Instant) -> Notice:
        job = workload_of(action.run_id)
        account, user, name = self._whose(job)
        text = f"Node {action.node} needs a human: {action.why} (job {job}{name} of {user}, run {action.run_id})."
        return Notice(at, "needs-human", str(action.node), text, account, user)

    def _whose(self, job: str) -> tuple[str, str, str]:
        """Account, user, and the name in brackets."""
        run = self._live.state.running.get(WorkloadId(job))
        if run is None:
            return "", "somebody", ""
        label = run.workload.label
        account = self._live.state.heirs.get(run.workload.account, run.workload.account)
        return str(account), str(run.workload.user), f" ({label})" if label else ""

    # --- looked at every minute --------------------------------------------------------------------------------------
    def _watch(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                log.exception("notices.look_failed")
            if self._stop.wait(LOOK_EVERY):
                return

    def look(self) -> None:
        """Tell what has come due and was not told yet."""
        now = self._live.now()
        new = [(key, notice) for key, notice in self._due(now) if key not in self._told]
        for key, notice in new:
            self._tell(notice)
            self._told[key] = now
        if new:
            self._told = {key: at for key, at in self._told.items() if at > now - REMEMBERED}
            self._write()

    def _due(self, now: Instant) -> Iterator[tuple[str, Notice]]:
        yield from self._reviews(now)
        yield from self._endings(now)
        yield from self._shortfalls(now)

    def _reviews(self, now: Instant) -> Iterator[tuple[str, Notice]]:
        with self._live.reading() as state:
            budgets = [(str(path), budget) for path, budget, _ in state.budgets.walk()]
        today = datetime.fromtimestamp(now / SECOND, UTC).date()
        for path, budget in budgets:
            due = _date(budget.review)
            if due is None or due > today or budget.closed:
                continue
            hope = f" What was hoped: {budget.hypothesis}." if budget.hypothesis else ""
            who = budget.owner or "its owner"
            how = f"mirab budget review {path} --outcome ... --next ..."
            text = f"The budget of {path} is due for review since {due}: {who} says what came of it (`{how}`).{hope}"
            yield f"review {path} {due}", Notice(now, "review-due", path, text, path, budget.owner)

    def _endings(self, now: Instant) -> Iterator[tuple[str, Notice]]:
        for case in self._desk.portfolio.exceptions.all():
            if case["ends_soon"]:
                text = (f"Exception {case['id']}, {case['kind']} for {case['account']}, ends at {case['end']}: "
                        f"{case['owner']} should be done by then. It was for: {case['reason']}.")  # fmt: skip
                key = f"ending {case['id']} {case['end']}"
                yield key, Notice(now, "exception-ending", case["id"], text, case["account"], case["owner"])

    def _shortfalls(self, now: Instant) -> Iterator[tuple[str, Notice]]:
        """Of each leaf once a day at most."""
        with self._live.reading() as state:
            leaves = [
                (str(ledger_path(ledger.name, path)), budget.owner)
                for ledger in state.budgets.ledgers(state.cluster.pool_names)
                for path, budget, _ in ledger.budgets.walk()
                if not budget.children
            ]
        today = datetime.fromtimestamp(now / SECOND, UTC).date()
        for path, owner in leaves:
            key = f"short {path} {today}"
            if key in self._told or f"short {path} {date.fromordinal(today.toordinal() - 1)}" in self._told:
                continue
            owed, got = last_day(self._views.trend(path), now)
            if owed >= LEAST_OWED and got < SERVED * owed:
                text = (
                    f"{path} was owed {owed:,.0f} GPU-hours in the last day and got {got:,.0f} of them "
                    f"({percent(got / owed)}): `mirab share {path}` and `mirab why` say what stands in its way."
                )
                yield key, Notice(now, "under-served", path, text, plain(path), owner)

    # --- what was told ------------------------------------------------------------------------------------------------
    def _read(self) -> dict[str, Instant]:
        with suppress(OSError, ValueError):
            found = json.loads(self._file.read_text("utf-8"))
            if isinstance(found, dict):
                return {str(key): int(at) for key, at in found.items()}
        return {}

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self._told, ensure_ascii=False), "utf-8")
        fresh.replace(self._file)


_HEARD: dict[type, Callable[[Notices, Any, Instant], Notice]] = {
    Preempt: Notices._preempted,
    Start: Notices._resumed,
    CallHuman: Notices._human,
}


def last_day(trend: dict[str, Any] | None, now: Instant) -> tuple[float, float]:
    """GPU-hours owed and delivered in the 24 hours before; nothing while less than a day is known."""
    if trend is None or not trend.get("ready"):
        return 0.0, 0.0
    steps = [step for step in trend["steps"] if datetime.fromisoformat(step["at"]).timestamp() * SECOND >= now - DAY]
    if sum(step["hours"] for step in steps) < 23:
        return 0.0, 0.0
    owed = sum(step["owed"] * step["hours"] for step in steps)
    return owed, min(owed, sum(step["charged"] * step["hours"] for step in steps))


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None
