"""The service is killed again and again while real jobs run; then it is counted what was lost or ran twice.

    python -m bench.torture [--jobs 300] [--kills 50] [--crash 0.03] [--seed 1] [--db sqlite|postgres|URL]

A driver submits short jobs of two teams, requeues and cancels some, and sends SIGKILL to the service at random
instants; beside that the service kills itself between a record and its actions (see `bench.crashing`). Each job writes
a mark when it begins and when it is done into a file of its own. At the end:

* every submission is one job, and every job has ended;
* each attempt began at most once, and an attempt that the journal calls completed came to its end exactly once;
* the journal, folded from its beginning, gives the state that the service had, and `mirab db check` agrees;
* what was charged is what the shims' own records say;
* nobody was stopped for another before the end of its minimum.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

from tests.service.pictures import picture

from bench.load import database
from mirab.backends.local.usage import UsageRecord
from mirab.cli.client import new_key
from mirab.cli.exits import ConflictError, UnusableError
from mirab.cli.localservice import LocalService, end_runs
from mirab.core.state import State
from mirab.model.events import Outcome
from mirab.model.records import RunRow
from mirab.model.units import AccountPath
from mirab.service.recover import Recovered, Wanted, recover
from mirab.service.snapshot import fingerprint, thaw
from mirab.store import Store, open_store

CLUSTER = """
cluster:
  pools:
    gpu: {nodes: [a, b], gpus_per_node: 4}
budgets:
  red: {share: 50%}
  blue: {share: 50%}
policy: {checkpoint_grace: 1s, surplus_checkpoint_grace: 1s, urgent_minimum: 1s}
"""
PATIENCE = 300.0
"""Seconds that the rest of the jobs may take once nobody kills any more."""
SLACK_MS = 400
"""Per run: what was charged counts from the instant at which a fact was taken in, some cycles after the shim's own."""
CLOCKS_MS = 5
"""The two clocks are rounded each for itself, and a fact from ahead of the service's happens at its now."""


@dataclass
class Torture:
    """One service, its driver, and the marks of its jobs."""

    folder: Path
    url: str
    crash: float
    chance: Random
    submitted: list[str] = field(default_factory=list)
    kills: int = 0
    self_kills: int = 0
    service: LocalService | None = None

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    def begin(self) -> LocalService:
        """Start the service and wait until it answers; it may kill itself before."""
        for _ in range(20):
            self.service = self._start(self.crash)
            with suppress(UnusableError):
                self.service.wait_until_ready()
                return self.service
            self.self_kills += 1
        raise UnusableError(f"it does not start: {self._log()[-3_000:]}")

    def begin_in_peace(self) -> LocalService:
        """The same without suicides."""
        self.crash = 0.0
        return self.begin()

    def _start(self, crash: float) -> LocalService:
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        flags = ["--state-dir", str(state), "--listen", "none", "--cluster", str(self.folder / "cluster.yaml")]
        command = [sys.executable, "-m", "bench.crashing", "serve", *flags, *(["--db", self.url] if self.url else [])]
        with open(state / "serve.log", "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=Path(__file__).parents[1], env={**os.environ, "MIRAB_CRASH": str(crash)},
            )  # fmt: skip
        return LocalService(state, process)

    def _log(self) -> str:
        return (self.folder / "state" / "serve.log").read_text(errors="replace")

    def running(self) -> LocalService:
        """The service, started again if it has killed itself."""
        assert self.service is not None
        if self.service.process.poll() is not None:
            self.self_kills += 1
            return self.begin()
        return self.service

    def kill(self) -> None:
        self.running().kill()
        self.kills += 1
        time.sleep(self.chance.choice((0, 0, 0.2, 1.0)))
        self.begin()

    # --- jobs -------------------------------------------------------------------------------------------------------
    def submit(self, number: int) -> None:
        """One job, by the same key however often the service dies under it."""
        seconds = self.chance.choice((0.05, 0.2, 0.5, 1.0, 2.0))
        script = f'echo "begin $MIRAB_ATTEMPT" >> {self.marks}/$MIRAB_JOB_ID; sleep {seconds}; '
        script += f'echo "end $MIRAB_ATTEMPT" >> {self.marks}/$MIRAB_JOB_ID'
        body = {
            "account": self.chance.choice(("red", "blue")), "name": f"n{number}", "argv": ["/bin/sh", "-c", script],
            "cwd": str(self.marks), "output": "/dev/null", "gpus_per_node": self.chance.choice((1, 1, 2, 4)),
            "min_runtime": self.chance.choice(("0", "1s", "5s")), "grace": "1s",
            "environment": {"PATH": os.environ["PATH"]},
        }  # fmt: skip
        key = new_key()
        self.submitted += self._insist(lambda client: client.post("/jobs", body, key=key)["ids"])

    def disturb(self) -> None:
        """Somebody changes their mind about a job."""
        if self.submitted and self.chance.random() < 0.15:
            job, verb = self.chance.choice(self.submitted), self.chance.choice(("requeue", "requeue", "cancel"))
            with suppress(ConflictError):
                self._insist(lambda client: client.post(f"/jobs/{job}/{verb}", {"why": "torture"}, key=new_key()))

    def _insist(self, ask: Any) -> Any:
        """Ask until somebody answers: the service is started again if it is gone."""
        while True:
            with self.running().client() as client:
                client.patience = 2.0
                try:
                    return ask(client)
                except ConflictError:
                    raise
                except Exception as error:
                    if self.service is not None and self.service.process.poll() is None:
                        print(f"asking again: {type(error).__name__}: {error}", file=sys.stderr)

    def until_all_ended(self) -> dict[str, int]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            counts = Counter(job["state"] for job in self._jobs())
            if not counts.keys() & {"PENDING", "RUNNING", "COMPLETING"}:
                break
            time.sleep(0.5)
        return dict(counts)

    def _jobs(self) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            query = {"limit": 500, **({"cursor": cursor} if cursor else {})}
            page = self._insist(lambda client, query=query: client.get("/jobs", query))
            yield from page["jobs"]
            cursor = page["next"]
            if not cursor:
                return


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--crash", type=float, default=0.03, help="probability of a suicide at a record with actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--db", default="sqlite", help="sqlite, postgres (a server of its own), or a URL")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    with tempfile.TemporaryDirectory(prefix="mirab-torture-") as folder, database(options.db) as url:
        wrong = tortured(Path(folder), url, options.jobs, options.kills, options.crash, options.seed)
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return 1 if wrong else 0


def tortured(folder: Path, url: str, jobs: int, kills: int, crash: float, seed: int) -> list[str]:
    """Everything that went wrong, as sentences; none = nothing."""
    torture = Torture(folder, url, crash, Random(seed))
    torture.marks.mkdir()
    (folder / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    try:
        drive(torture, jobs, kills)
        ended = torture.until_all_ended()
        assert torture.service is not None
        torture.service.process.terminate()
        torture.service.process.wait(PATIENCE)
        print(f"{len(torture.submitted)} jobs, {torture.kills} kills, {torture.self_kills} more between record and "
              f"apply; {', '.join(f'{count} {state}' for state, count in sorted(ended.items()))}")  # fmt: skip
        return judged(torture, ended)
    finally:
        if torture.service is not None and torture.service.process.poll() is None:
            torture.service.kill()
        end_runs(folder / "state")


def drive(torture: Torture, jobs: int, kills: int) -> None:
    """Submit, disturb and kill in a random order; the last word is a service that lives."""
    torture.begin()
    steps = ["submit"] * jobs + ["kill"] * kills
    torture.chance.shuffle(steps)
    for number, step in enumerate(steps):
        if step == "kill":
            time.sleep(torture.chance.random() * 0.5)
            torture.kill()
        else:
            torture.submit(number)
            torture.disturb()
    torture.running().kill()
    torture.begin_in_peace()


# --- what is wrong ----------------------------------------------------------------------------------------------------
def judged(torture: Torture, ended: dict[str, int]) -> list[str]:
    store = open_store(torture.url or f"sqlite:///{torture.folder / 'state' / 'mirab.db'}")
    try:
        runs = {job: store.runs(job) for job in torture.submitted}
        return [
            *jobs_wrong(torture, ended, store),
            *marks_wrong(torture, runs),
            *contract_wrong(store, runs),
            *state_wrong(store),
            *usage_wrong(torture, store, [run for each in runs.values() for run in each]),
            *check_wrong(store.url),
        ]
    finally:
        store.dispose()


def jobs_wrong(torture: Torture, ended: dict[str, int], store: Store) -> Iterator[str]:
    left = {state: count for state, count in ended.items() if state in ("PENDING", "RUNNING", "COMPLETING")}
    if left:
        yield f"not at an end after {PATIENCE:.0f} s: {left}"
    if len(torture.submitted) != len(set(torture.submitted)) or sum(ended.values()) != len(torture.submitted):
        yield f"{len(torture.submitted)} submissions, {len(set(torture.submitted))} ids, {sum(ended.values())} jobs"
    strange = {
        state: count for state, count in store.counts().items() if count and state not in ("COMPLETED", "CANCELLED")
    }
    if strange:
        yield f"jobs ended otherwise than they should: {strange}"


def marks_wrong(torture: Torture, runs: dict[str, list[RunRow]]) -> Iterator[str]:
    """The jobs' own marks against the journal's attempts."""
    for job, attempts in runs.items():
        path = torture.marks / job
        marks = Counter(path.read_text().splitlines() if path.exists() else [])
        known = {f"{word} {run.attempt}" for run in attempts for word in ("begin", "end")}
        for mark in marks.keys() - known:
            yield f"job {job}: {mark!r} is the mark of an attempt that nobody decided"
        for run in attempts:
            begun, done = marks[f"begin {run.attempt}"], marks[f"end {run.attempt}"]
            completed = run.outcome == Outcome.COMPLETED.value
            if begun > 1 or done > 1:
                yield f"run {run.id} ran twice: {begun} begins, {done} ends"
            if completed and (begun, done) != (1, 1):
                yield f"run {run.id} is COMPLETED with {begun} begins and {done} ends"
            if not run.outcome:
                yield f"run {run.id} never ended"


def contract_wrong(store: Store, runs: dict[str, list[RunRow]]) -> Iterator[str]:
    """Nobody was stopped for another before the end of its minimum, in real time."""
    for job, attempts in runs.items():
        row = store.job(job)
        for run in attempts:
            preempted = run.outcome == Outcome.PREEMPTED.value and run.started_at is not None
            if row is not None and preempted and (run.ended_at or 0) - (run.started_at or 0) < row.min_runtime:
                yield f"run {run.id} was stopped within its minimum of {row.min_runtime} ms: {run}"


def state_wrong(store: Store) -> Iterator[str]:
    """The state at the end of the service against the whole journal."""
    whole = from_journal(store)
    whole.state.check()
    kept = store.snapshot(fingerprint())
    if kept is None or kept[0] != whole.seq:
        yield f"the graceful end left no snapshot of record {whole.seq}"
        return
    lived = cast(State, thaw(kept[1])[0])
    one, other = picture(lived), picture(whole.state)
    for part in one:
        if one[part] != other[part]:
            yield f"the journal gives another {part}: {other[part]} instead of {one[part]}"


class WithoutSnapshots:
    """A store that only has its journal."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def snapshot(self, _: str) -> None:
        return None


def from_journal(store: Store) -> Recovered:
    return recover(cast(Any, WithoutSnapshots(store)), Wanted(), cast(Any, None))


def same_instant(told: int | None, shims: int | None) -> bool:
    if told is None or shims is None:
        return told is shims
    return 0 <= shims - told <= CLOCKS_MS


def same_span(run: RunRow, shim: UsageRecord | None) -> bool:
    if shim is None:
        return run.started_at is None
    return same_instant(run.started_at, shim.started_at) and same_instant(run.ended_at, shim.ended_at)


def usage_wrong(torture: Torture, store: Store, runs: list[RunRow]) -> Iterator[str]:
    """The shims' files against the read models (to the clocks' rounding) and the charge (to some cycles a run)."""
    from mirab.backends.local import LocalBackend

    state = from_journal(store).state
    backend = LocalBackend(torture.folder / "state", state.cluster, store.spec, lambda: 0, lambda: None)
    try:
        shims = {record.run_id: record for record in backend.usage_records() if record.started_at is not None}
    finally:
        backend.close()
    charged: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for run in runs:
        shim = shims.pop(run.id, None)
        if not same_span(run, shim):
            yield f"run {run.id} ran {run.started_at}-{run.ended_at}, its shim says {shim}"
        row = store.job(run.workload_id)
        if shim is not None and row is not None and row.min_runtime:
            charged[row.account] += shim.ran * shim.slots
            count[row.account] += shim.slots
    if shims:
        yield f"runs that nobody decided: {sorted(shims)}"
    for account, slot_ms in charged.items():
        metered = state.accounts[AccountPath(account)].usage.between(0, state.now) / 1_000
        if abs(metered - slot_ms) > SLACK_MS * count[account]:
            yield f"{account} was charged {metered:,.0f} GPU-ms, its shims say {slot_ms:,}"
        print(f"{account}: charged {metered / 1e3:,.1f} GPU-s, shims {slot_ms / 1e3:,.1f}")


def check_wrong(url: str) -> Iterator[str]:
    done = subprocess.run(
        [sys.executable, "-m", "mirab", "db", "check", "--db", url], capture_output=True, text=True, check=False
    )
    if done.returncode:
        yield f"mirab db check: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    sys.exit(main())
