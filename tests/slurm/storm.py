"""Everything that can go wrong on a Slurm cluster, in random order; and then: is the ledger what the accounting says?

`python -m tests.slurm.storm --seconds 600 --seed 7` runs the long form (`make soak`).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from mirab.backends.slurm.amounts import instant
from mirab.backends.slurm.commands import look_up
from mirab.backends.slurm.listings import bookings
from mirab.backends.slurm.records import Booking
from mirab.backends.slurm.seen import job_of
from mirab.model.records import RunRow
from mirab.model.units import WorkloadId
from tests.slurm.cluster import SlurmCluster, SlurmError, missing, program
from tests.slurm.house import CLUSTER, USERS, House, sbatch

MINIMUM_S = 4
WRAPPER = '#!/bin/sh\n[ -e {flag} ] && sleep 8\nexec {real} "$@"\n'
SETTLE_S = 300.0
BACKLOG = 20
"""Nothing is submitted while so many jobs wait: else a long storm leaves more than can end in the time after it."""
HEAL_S = 40.0
"""So often it is looked after a cluster on which something is left."""
STATE_S = 8.0
"""Slurm writes its state down within so many seconds of a change."""
WORK = "trap '' TERM\nsleep $(({seconds} / (1 + ${{SLURM_RESTART_COUNT:-0}})))"
"""Ignores its notice, and has less to do each time: work that never saves anything need never end."""


@dataclass(eq=False)
class Storm:
    """Throws things at a cluster with accounting on which the service runs in a process of its own."""

    slurm: SlurmCluster
    house: House
    seed: int
    jobs: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.hang = self.house.folder / "hang"
        guard = self.house.folder / "bin"
        guard.mkdir()
        for name in ("squeue", "sinfo", "scontrol", "scancel", "sacct"):
            (guard / name).write_text(WRAPPER.format(flag=self.hang, real=program(name)))
            (guard / name).chmod(0o755)
        self.house.path = f"{guard}:{self.slurm.environment['PATH']}"

    def prepare(self) -> None:
        add = ("sacctmgr", "--immediate", "add")
        for account in ("red", "blue"):
            self.slurm.run(*add, "account", account, check=False)
            for user in USERS:
                self.slurm.run(*add, "user", user, f"account={account}", check=False)
        self.house.govern("red", "blue")
        self.house.launch()

    def blow(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        moves: list[tuple[Callable[[], None], int]] = [
            (self.submit, 10), (self.submit_gang, 3), (self.submit_array, 1), (self.cancel, 3), (self.hold, 2),
            (self.release, 2), (self.requeue, 3), (self.kill_controller, 1), (self.kill_node_daemon, 1),
            (self.kill_service, 2), (self.stall, 1),
        ]  # fmt: skip
        while time.monotonic() < deadline:
            (move,) = self.dice.choices([move for move, _ in moves], [weight for _, weight in moves])
            self.done.append(move.__name__)
            move()
            time.sleep(self.dice.uniform(0.1, 1.2))

    # --- moves
    def submit(self, *options: str, gpus: str = "") -> None:
        red_has_a_day = len(self.done) // 15 % 2 == 0
        (account,) = self.dice.choices(("red", "blue"), (5, 1) if red_has_a_day else (1, 5))
        gpus = gpus or self.dice.choice(("2", "4", "8", "8"))
        with contextlib.suppress(SlurmError):
            if list(self.house.listed().values()).count("PENDING") >= BACKLOG:
                return
            self.jobs.append(
                sbatch(
                    self.slurm, *(options or ("-N1",)), f"--gpus-per-node={gpus}", "-A", account,
                    f"--comment=mirab:min={MINIMUM_S}s,grace=1s", user=self.dice.choice(USERS),
                    script=WORK.format(seconds=self.dice.randint(2, 12)),
                )
            )  # fmt: skip

    def submit_gang(self) -> None:
        self.submit(f"-N{self.dice.randint(2, 3)}", gpus="8")

    def submit_array(self) -> None:
        self.submit("-N1", "--array=0-3%2")

    def _told(self, *words: str) -> None:
        if self.jobs:
            self.slurm.run(*words, self.dice.choice(self.jobs[-12:]), check=False)

    def cancel(self) -> None:
        self._told("scancel")

    def hold(self) -> None:
        if self.jobs:
            for user in USERS:
                self.slurm.run("scontrol", "hold", self.jobs[-1], check=False, user=user)

    def release(self) -> None:
        for job in self.jobs[-6:]:
            for user in USERS:
                self.slurm.run("scontrol", "release", job, check=False, user=user)

    def requeue(self) -> None:
        self._told("scontrol", "requeue")

    def kill_controller(self) -> None:
        """Right after it has written its state down. A start that it forgets it makes again, and marks the node."""
        how = self.dice.choice((signal.SIGTERM, signal.SIGKILL))
        if how is signal.SIGKILL:
            self._await_state()
        self.slurm.end("slurmctld", how)
        time.sleep(self.dice.uniform(0, 3))
        self.slurm.start_controller()

    def _await_state(self) -> None:
        file = self.slurm.folder / "state" / "job_state"
        before, deadline = file.stat().st_ino, time.monotonic() + STATE_S
        while file.stat().st_ino == before and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill_node_daemon(self) -> None:
        name = self.dice.choice(self.slurm.node_names)
        self.slurm.end(f"slurmd-{name}", signal.SIGKILL)
        time.sleep(self.dice.uniform(0, 2))
        self.slurm.start_node(name)

    def kill_service(self) -> None:
        self.house.kill()
        time.sleep(self.dice.uniform(0, 3))
        self.house.launch()

    def stall(self) -> None:
        self.hang.touch()
        time.sleep(self.dice.uniform(1, 5))
        self.hang.unlink()

    # --- after it
    def settle(self) -> None:
        """Let everything end by itself; what users hold, they let go."""
        for job in self.jobs:
            for user in USERS:
                self.slurm.run("scontrol", "release", job, check=False, user=user)

        def over() -> bool:
            assert self.house.process is not None and self.house.process.poll() is None, self.words()
            states = self.house.listed()
            return all(state not in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED") for state in states.values())

        deadline = time.monotonic() + SETTLE_S
        while True:
            self.heal()
            try:
                self.slurm.wait_for(over, "all jobs to end", HEAL_S)
                break
            except SlurmError as error:
                if time.monotonic() > deadline:
                    raise SlurmError(f"{self.stuck()}\n{self.words()}") from error
        time.sleep(4)
        self.house.kill(signal.SIGTERM)

    def heal(self) -> None:
        """What an operator does. Slurm 22.05 by itself does not get over these:

        GPUs of a job that was completing when the controller was killed stay in use, of no job, until the controller
        starts anew while none completes (`job_res_rm_job: plugin still initializing`); a node on which a forgotten job
        was begun again is drained for good (`Duplicate jobid`); and of a job whose node's daemon died while it was
        launched it is asked only when the nodes register, minutes later or at the controller's start.
        """
        with contextlib.suppress(SlurmError):
            self.slurm.wait_for(lambda: "COMPLETING" not in self.house.listed().values(), "none to complete", 10)
        self.slurm.end("slurmctld")
        self.slurm.start_controller()
        for row in self.slurm.run("sinfo", "--noheader", "--Node", "--format=%N %T %E").splitlines():
            name, state, reason = row.split(maxsplit=2)
            if state.startswith(("drain", "down")) and not reason.startswith("mirab:"):
                self.slurm.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)

    def stuck(self) -> str:
        """Jobs that have not ended, as Slurm and as mirab see them."""
        shown = self.slurm.run("squeue", "--array", "--noheader", "--format=%i %T %r %S %k")
        nodes = self.slurm.run("scontrol", "show", "nodes", "--details", "--oneliner")
        rows = [row for row in self.house.rows() if row.ended_at is None]
        said = [f"{row.id} {row.state.value} {row.held}" for row in rows]
        for row in rows[:2]:
            job = job_of(row.id)
            said += [self.slurm.run("scontrol", "show", "job", job, check=False), *self._told_of(row.id, job)]
        return "\n".join(["not ended:", shown, nodes, *said])

    def words(self) -> str:
        log = self.house.folder / "serve.log"
        return f"seed {self.seed}; {' '.join(self.done)}\n{log.read_text()[-3000:]}"

    def faults(self) -> list[str]:
        """What is not as it should be; each a sentence.

        What had no nodes was no run: Slurm books a start for what was cancelled while it waited and then requeued.
        """
        runs = [run for run in self.house.all_runs() if run.started_at is not None]
        *command, columns = look_up(self.jobs)
        rows = self.slurm.run(*command, f"{columns},NodeList").splitlines()
        listing = "\n".join(row for row in rows if not row.endswith("|None assigned"))
        books = [each for each in bookings(listing) if each.ended_at is not None and each.ended_at > each.started_at]
        ends = beginless(listing)
        found = [*self._against_the_books(runs, books, ends), *self._contracts(runs), *self._twice(runs)]
        self.counted = Counter(run.outcome or "" for run in runs)
        told = [fault.partition(" ")[0].partition(".")[0] for fault in [*found[:2], *found[-2:]]]
        return found + [line for name in told for line in self._told_of(name, job_of(WorkloadId(name)))]

    def _told_of(self, workload: str, job: str) -> list[str]:
        """What the journal says of a job, and the accounting."""
        with self.house.stored() as store:
            said = [f"{seq} {facts} {plan}" for seq, facts, plan in store.decisions(limit=50, mentioning=workload)]
        return [*said, self.slurm.run(*look_up([job]))]

    def _against_the_books(
        self, runs: list[RunRow], books: list[Booking], ends: Mapping[str, Sequence[int]]
    ) -> list[str]:
        found: list[str] = []
        left = {run.id: run for run in runs}
        for book in books:
            assert book.ended_at is not None
            took = (book.ended_at - book.started_at) / 1000
            match = next((run for run in left.values() if _same(run, book)), None)
            if match is None:
                found.append(f"{book.job} ran from {book.started_at} for {took} s ({book.state}): not in the ledger")
                continue
            del left[match.id]
            ours = ((match.ended_at or 0) - (match.started_at or 0)) / 1000
            if abs(ours - took) > 1 and not _requeued_after_its_end(match, book):
                found.append(f"{match.id} ({match.outcome}): ledger {ours} s, accounting {took} s ({book.state})")
        return found + [
            f"{run.id} from {run.started_at} to {run.ended_at} ({run.outcome}) is in no book"
            for run in left.values()
            if (run.ended_at or 0) - (run.started_at or 0) > 1000
            and not any(abs((run.ended_at or 0) - end) <= 1000 for end in ends.get(job_of(run.workload_id), ()))
        ]

    @staticmethod
    def _contracts(runs: list[RunRow]) -> list[str]:
        return [
            f"{run.id} was stopped inside its minimum"
            for run in runs
            if run.outcome == "PREEMPTED" and (run.ended_at or 0) - (run.started_at or 0) < MINIMUM_S * 1000 - 1000
        ]

    @staticmethod
    def _twice(runs: list[RunRow]) -> list[str]:
        found = []
        spans = sorted((job_of(run.workload_id), run.started_at or 0, run.ended_at or 0, run.id) for run in runs)
        for (job, _, ended, first), (other, started, _, second) in pairwise(spans):
            if job == other and started < ended - 1000:
                found.append(f"{second} began before {first} had ended")
        return found + [f"{run.id} never ended" for run in runs if run.ended_at is None]


def beginless(listing: str) -> dict[str, list[int]]:
    """Ends, by job, that Slurm has booked without their begins: those were lost with its controller."""
    found: dict[str, list[int]] = {}
    for job, _, _, began, ended, *_ in (row.split("|") for row in listing.splitlines()):
        if instant(began) is None and (end := instant(ended)) is not None:
            found.setdefault(job, []).append(end)
    return found


def _requeued_after_its_end(run: RunRow, book: Booking) -> bool:
    """Slurm then writes the requeue over the end that it had booked: the accounting is wrong, not the ledger."""
    itself = run.outcome in ("COMPLETED", "FAILED", "CANCELLED")
    on_notice = run.outcome == "PREEMPTED" and (run.ended_at or 0) < (book.ended_at or 0)
    return book.state == "REQUEUED" and (itself or on_notice)


def _same(run: RunRow, book: Booking) -> bool:
    return job_of(run.workload_id) == book.job and abs((run.started_at or 0) - book.started_at) <= 1000


def storm(slurm: SlurmCluster, folder: Path, seed: int, seconds: float) -> list[str]:
    """Blow so long, let it settle, and say what is wrong then."""
    quick = CLUSTER.replace("window: 10m", "window: 2m")
    house = House(slurm, folder, settings="interval: 2s\ntimeout: 5s\n", cluster=quick)
    made = Storm(slurm, house, seed)
    try:
        made.prepare()
        made.blow(seconds)
        made.settle()
        time.sleep(2)
        faults = made.faults()
        ends = ", ".join(f"{count} {outcome}" for outcome, count in sorted(made.counted.items()))
        print(f"{sum(made.counted.values())} runs in the ledger: {ends}")
        return [*faults, made.words()] if faults else []
    finally:
        house.kill()
        slurm.governed.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Copy the logs and mirab's folder there in the end.")
    asked = parser.parse_args()
    absent = missing(accounting=True)
    if absent:
        print(f"skipped: {absent}")
        return 0
    print(f"seed {asked.seed}")
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    try:
        with SlurmCluster(folder, nodes=3, accounting=True) as slurm:
            faults = storm(slurm, folder / "mirab", asked.seed, asked.seconds)
    finally:
        for name in ("log", "mirab") if asked.keep else ():
            shutil.copytree(
                folder / name, asked.keep / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
            )
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(faults) or "no faults: no job lost, none run twice, none stopped early, the ledger is sacct's")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
