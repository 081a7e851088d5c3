"""A division of the budgets, tried on the last days of the journal: two replays of the same arrivals, set apart.

A process of its own reads the journal and replays it under the present and the proposed tree, at a low priority; the
answer is that of `mirab whatif`, and is kept by its hash so that a changeset can name it as its evidence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from mirab.logs.proposal import placed
from mirab.model.accounts import Budgets
from mirab.model.codec import decode, encode
from mirab.model.policy import Exemption, Policy, Reservation
from mirab.model.resources import Cluster
from mirab.model.trace import Trace
from mirab.model.units import HOUR, SECOND, Duration, Instant
from mirab.store import open_store
from mirab.store.beginning import beginning
from mirab.study.budgetedits import term_changes
from mirab.study.budgettext import change_json
from mirab.study.closing import closed_told
from mirab.study.copies import end_with
from mirab.study.days import days_of
from mirab.study.exceptions import exceptions_part
from mirab.study.formats import Names, span
from mirab.study.pastwork import past_trace
from mirab.study.replays import measure
from mirab.study.whatif import Question, Side, whatif
from mirab.study.whatiftext import lede

Json = dict[str, Any]

STORE = "MIRAB_TRIAL_STORE"
LONGEST = 1_800.0
"""Seconds that one trial may take."""
REMEMBERED = 50
"""So many trials are kept; the oldest go first."""
WAITING_MOST = 4
NAME = re.compile(r"w[0-9a-f]{16}")
NAMED = re.compile(r"what-if (w[0-9a-f]{16}) sha256:([0-9a-f]{64})")
"""A trial as the evidence of a changeset."""
RUNNING, DONE, FAILED = "running", "done", "failed"


class TooManyError(Exception):
    """So many trials wait already that another would have to wait too long."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One trial. `id`: the same for the same proposal, tree, length and day."""

    id: str
    state: str
    found: Json | None = None
    problem: str = ""

    @property
    def data(self) -> bytes:
        """The answer as it is kept."""
        return json.dumps(self.found, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    @property
    def sha256(self) -> str:
        return sha256(self.data).hexdigest()

    @property
    def named(self) -> str:
        """As the evidence of a changeset names it."""
        return f"what-if {self.id} sha256:{self.sha256}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is tried, on the journal's last `length`, or on all of it since `since` where it is shorter.

    `held`: an exception or a reservation that is tried besides those in force.
    """

    present: Budgets
    proposed: Budgets
    policy: Policy
    cluster: Cluster
    length: Duration
    since: Instant
    held: Exemption | Reservation | None = None

    def told(self) -> Json:
        """As the process reads it; the instant of now comes to it."""
        plain = {name: encode(getattr(self, name)) for name in ("present", "proposed", "policy", "cluster")}
        held = None if self.held is None else encode(self.held)
        return {**plain, "length": self.length, "since": self.since, "held": held}


class Trials:
    """Runs trials one after the other; what is done is kept in `folder` (None = in memory only)."""

    def __init__(self, store_url: str, folder: Path | None = None) -> None:
        self._url, self.folder = store_url, folder
        self._lock = Lock()
        self._turn = Lock()
        self._known: dict[str, Tried] = {}
        self._begun: dict[str, tuple[str, Instant]] = {}

    def begin(self, asked: Asked, now: Instant) -> Tried:
        """Begin a trial, or find it: a question that was asked within the hour is the same, while time goes on.

        Raises:
            TooManyError: others wait already.
        """
        question = _digest(asked.told())
        with self._lock:
            name, at = self._begun.get(question, ("", now))
            known = self._known.get(name)
            if known is not None and known.state != FAILED and now - at < HOUR:
                return known
            if sum(each.state == RUNNING for each in self._known.values()) >= WAITING_MOST:
                raise TooManyError
            told = {**asked.told(), "now": now}
            name = "w" + _digest(told)[:16]
            self._begun[question] = name, now
            self._known[name] = Tried(name, RUNNING)
            self._forget()
        Thread(target=self._work, args=(name, told), daemon=True, name="mirab-trial").start()
        return Tried(name, RUNNING)

    def find(self, name: str) -> Tried | None:
        """The trial of that name; one of an earlier start is read from the folder."""
        with self._lock:
            known = self._known.get(name)
        return known or self._kept(name)

    def _kept(self, name: str) -> Tried | None:
        """What stands in the folder under that name now."""
        if self.folder is None or NAME.fullmatch(name) is None:
            return None
        try:
            return Tried(name, DONE, json.loads((self.folder / f"{name}.json").read_text("utf-8")))
        except (OSError, ValueError):
            return None

    def sentences(self, evidence: str) -> list[str]:
        """What the trial says that the evidence of a changeset names; nothing if it names none.

        One that is gone, or is not what it was, is told as that.
        """
        named = NAMED.fullmatch(evidence)
        if named is None:
            return []
        kept = self.find(named[1]) if self.folder is None else self._kept(named[1])
        if kept is None or kept.found is None:
            return ["The service does not keep this what-if any more."]
        if kept.sha256 != named[2]:
            return ["What the service keeps under this name is not what was decided on: its hash differs."]
        return lede(kept.found)

    def _forget(self) -> None:
        ended = [name for name, each in self._known.items() if each.state != RUNNING]
        for name in ended[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[name]
        self._begun = {question: begun for question, begun in self._begun.items() if begun[0] in self._known}

    def _work(self, name: str, asked: Json) -> None:
        with self._turn:
            made = _in_a_process(self._url, name, asked)
        if made.found is not None and self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{name}.json").write_bytes(made.data)
        with self._lock:
            self._known[name] = made


def _digest(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _in_a_process(url: str, name: str, asked: Json) -> Tried:
    words = [sys.executable, "-m", "mirab.service.trials", str(os.getpid())]
    environment = {**os.environ, STORE: url}
    try:
        done = subprocess.run(words, input=json.dumps(asked).encode(), capture_output=True, env=environment,
                              timeout=LONGEST, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return Tried(name, FAILED, problem=f"it took more than {LONGEST / 60:.0f} minutes: try fewer days")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Tried(name, FAILED, problem="".join(last) or f"its process ended with exit code {done.returncode}")
    return Tried(name, DONE, json.loads(done.stdout))


def tried(url: str, asked: Json) -> Json:
    """The answer of the what-if, read from a store's journal."""
    present, wanted, policy, cluster = (decode(asked[key]) for key in ("present", "proposed", "policy", "cluster"))
    now = asked["now"]
    begin = min(max(asked["since"], now - asked["length"]), now - HOUR)
    store = open_store(url)
    try:
        began = beginning(store.meta)
        records = ((facts, plan) for _, facts, plan in store.records())
        before = past_trace(records, cluster, present, begin, now, policy if began is None else began.policy)
    finally:
        store.dispose()
    after, exceptions = _with_held(_under(before, wanted), asked.get("held"))
    policy = replace(policy, mode="enforce")
    sides = [Side(seen.report(cost), days_of(seen)) for seen, cost in (measure(before, policy), measure(after, policy))]
    heirs = {old: new for old, new in wanted.heirs().items() if present.find(old) is not None}
    changes = [change_json(each) for each in term_changes(present, wanted)]
    length = span((now - begin) / SECOND)
    notes = closed_told(present, wanted, after.arrivals)
    notes += [*before.notes, f"The last {length} of the journal, under the policy of now."]
    question = Question(heirs=heirs, changes=changes, exceptions=exceptions, notes=notes)
    return whatif(sides[0], sides[1], question)


def _with_held(trace: Trace, told: Any) -> tuple[Trace, list[Json]]:
    """The same with what is tried besides, moved into the period, and the record of it."""
    if told is None:
        return trace, []
    wanted: Exemption | Reservation = decode(told)
    held, moved = placed(wanted, trace)
    if held.id in [*(each.id for each in trace.exemptions), *(each.id for each in trace.reservations)]:
        held = replace(held, id=f"{held.id}-tried")
    if isinstance(held, Reservation):
        trace = replace(trace, reservations=[*trace.reservations, held])
    else:
        trace = replace(trace, exemptions=[*trace.exemptions, held])
    record = next(each for each in exceptions_part(trace) if each["id"] == held.id)
    names = Names(trace.origin, trace.cluster.unit)
    return trace, [record | {"placed": f"from {names.at(held.begin)} to {names.at(held.end)}" if moved else ""}]


def _under(trace: Trace, budgets: Budgets) -> Trace:
    """The same arrivals under other budgets; work of renamed accounts is their heirs'."""
    heirs = budgets.heirs()
    arrivals = [
        replace(each, workload=replace(each.workload, account=heirs[each.workload.account]))
        if each.workload.account in heirs
        else each
        for each in trace.arrivals
    ]
    return replace(trace, budgets=budgets, arrivals=arrivals)


def main(maker: int) -> None:
    """The question as JSON on standard input -> the answer as JSON on standard output. `maker`: the service."""
    end_with(maker)
    os.nice(10)
    json.dump(tried(os.environ[STORE], json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
