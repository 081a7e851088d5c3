"""Everything that can go wrong on a Slurm cluster, in random order; and then: is the ledger what the accounting says?

`python -m tests.slurm.storm --seconds 600 --seed 7` runs the long form (`make soak`).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mirab.backends.slurm.commands import look_up
from mirab.backends.slurm.seen import job_of
from mirab.model.units import WorkloadId
from tests.slurm.aftermath import faults
from tests.slurm.cluster import SlurmCluster, SlurmError, missing, program
from tests.slurm.house import USERS, House, sbatch

MINIMUM_S = 4
TOWN = """
budgets:
  red: {share: 20%}
  blue: {share: 20%}
  green: {share: 60%}
policy: {window: 20s, margin: 2%, commitment_floor: 4s, guest_minimum: 1s, hold_review: 2s, review: 2s, cadence: 100ms}
"""
"""Green never comes, so that the others have more than their shares, and are stopped for whoever of them has less."""
WRAPPER = '#!/bin/sh\n[ -e {flag} ] && sleep 8\nexec {real} "$@"\n'
SETTLE_S = 300.0
BACKLOG = 4
"""An account submits nothing while so many of its jobs wait: what there is ends, and it is owed when it comes again."""
HEAL_S = 40.0
"""So often it is looked after a cluster on which something is left."""
STATE_S = 8.0
"""Slurm writes its state down within so many seconds of a change."""
DEAF = "trap '' TERM USR1\nsleep {seconds}"
"""Heeds neither its notice nor Slurm's first word: it is killed, after some eight seconds."""
STUBBORN = "trap '' USR1\nexec sleep {seconds}"
"""Does not heed its notice, and goes when it is stopped."""
HEEDFUL = "trap 'exit 0' USR1\nsleep {seconds} & wait"
"""Goes on its notice."""
LESS = "$(({seconds} / (1 + 2 * ${{SLURM_RESTART_COUNT:-0}})))"
"""It has less to do each time: work that never saves anything need never end."""
CALM_S = 7.0
"""So long after one thing was broken nothing else is: where nothing gets to run, nothing can be stopped."""
PREEMPTIONS_A_MINUTE = 3
"""At the least, so that the minimum is really tried."""
LONGER = 3
"""How many times as long it may blow for that."""
LONG_ONES = 0.5
"""So many of the jobs run long enough to be stopped for others."""


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
        self.slurm.wait_for((self.house.folder / "m.sock").exists, "the service")

    def blow(self, seconds: float) -> None:
        """For so long; on a slow machine longer, until enough runs have been stopped for others."""
        began = time.monotonic()
        breaks = [self.kill_controller, self.kill_node_daemon, self.kill_service, self.stall]
        moves: list[tuple[Callable[[], None], int]] = [
            (self.submit, 10), (self.submit_gang, 2), (self.submit_array, 1), (self.burst, 8), (self.cancel, 2),
            (self.hold, 1), (self.release, 3), (self.requeue, 3), *((move, 2) for move in breaks),
        ]  # fmt: skip
        calm_until = 0.0
        while (blown := time.monotonic() - began) < seconds or (blown < LONGER * seconds and self.lacks(seconds)):
            (move,) = self.dice.choices([move for move, _ in moves], [weight for _, weight in moves])
            if move in breaks and time.monotonic() < calm_until:
                continue
            self.done.append(move.__name__)
            move()
            if move in breaks:
                calm_until = time.monotonic() + CALM_S
            time.sleep(self.dice.uniform(0.1, 1.2))

    def lacks(self, seconds: float) -> str:
        """The sentence about too few runs that were stopped for others, as the ledger knows them; "" = enough."""
        least = round(seconds * PREEMPTIONS_A_MINUTE / 60)
        stopped = sum(run.outcome == "PREEMPTED" for run in self.house.all_runs())
        return f"{stopped} runs were stopped for others: less than {least} is no test" if stopped < least else ""

    # --- moves
    def submit(self, *options: str, gpus: str = "", account: str = "", seconds: int = 0) -> None:
        red_has_a_day = len(self.done) // 12 % 2 == 0
        account = account or self.dice.choices(("red", "blue"), (9, 1) if red_has_a_day else (1, 9))[0]
        gpus = gpus or self.dice.choice(("2", "4", "8", "8"))
        longer = self.dice.random() < LONG_ONES
        seconds = seconds or (self.dice.randint(20, 45) if longer else self.dice.randint(2, 12))
        (work,) = self.dice.choices((DEAF, STUBBORN, HEEDFUL), (1, 3, 2))
        with contextlib.suppress(SlurmError):
            if self._queue("PENDING")[account] >= BACKLOG:
                return
            self.jobs.append(
                sbatch(
                    self.slurm, *(options or ("-N1",)), f"--gpus-per-node={gpus}", "-A", account,
                    f"--comment=mirab:min={MINIMUM_S}s,grace=1s,signal=USR1", user=self.dice.choice(USERS),
                    script=work.format(seconds=LESS.format(seconds=seconds)),
                )
            )  # fmt: skip

    def burst(self) -> None:
        """A whole cluster's worth of short work at once, of the account that runs less now."""
        with contextlib.suppress(SlurmError):
            running = self._queue("RUNNING")
            less = min(("red", "blue"), key=lambda account: running[account])
            for _ in self.slurm.node_names:
                self.submit(gpus="8", account=less, seconds=self.dice.randint(5, 10))

    def _queue(self, state: str) -> Counter[str]:
        """Nodes that jobs in this state have or ask for, by account."""
        shown = self.slurm.run("squeue", "--noheader", "--array", f"--states={state}", "--format=%a %D")
        found = Counter[str]()
        for account, nodes in (row.split() for row in shown.splitlines()):
            found[account] += int(nodes)
        return found

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
        before, deadline = self._state(), time.monotonic() + STATE_S
        while self._state() in (before, 0) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _state(self) -> int:
        """Which file of its state the controller wrote last; 0 = none, as while it replaces it."""
        try:
            return (self.slurm.folder / "state" / "job_state").stat().st_ino
        except FileNotFoundError:
            return 0

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
        """Users give up half of what waits, and let go what they hold; then everything is to end by itself."""
        waiting = [job for job, state in self.house.listed().items() if state == "PENDING"]
        if waiting:
            self.slurm.run("scancel", *self.dice.sample(waiting, (len(waiting) + 1) // 2), check=False)
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
        was begun again is drained for good (`Duplicate jobid`); of a job whose node's daemon died while it was
        launched it is asked only when the nodes register, minutes later or at the controller's start; and of a job for
        whose number it had asked the accounting when it was killed it takes no change any more (`the DB index is being
        set`): that has to be submitted anew.
        """
        with contextlib.suppress(SlurmError):
            self.slurm.wait_for(lambda: "COMPLETING" not in self.house.listed().values(), "none to complete", 10)
        self.slurm.end("slurmctld")
        self.slurm.start_controller()
        for row in self.slurm.run("sinfo", "--noheader", "--Node", "--format=%N %T %E").splitlines():
            name, state, reason = row.split(maxsplit=2)
            if state.startswith(("drain", "down")) and not reason.startswith("mirab:"):
                self.slurm.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        for job, state in self.house.listed().items():
            if state == "PENDING" and self._is_numb(job):
                self.slurm.run("scancel", job, check=False)

    def _is_numb(self, job: str) -> bool:
        """Whether Slurm takes no change of it, not even one that changes nothing."""
        try:
            self.slurm.run("scontrol", "update", f"JobId={job}", f"MailUser={USERS[0]}")
        except SlurmError as error:
            return "DB index" in str(error) or "not available right now" in str(error)
        return False

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
        """What is not as it should be; each a sentence, and what the journal says of the first ones."""
        rows = self.house.rows()
        runs = [run for run in self.house.all_runs() if run.started_at is not None]
        *command, columns = look_up(self.jobs)
        listing = self.slurm.run(*command, f"{columns},NodeList")
        found = faults(self.jobs, rows, runs, listing, MINIMUM_S)
        self.counted = Counter(run.outcome or "" for run in runs)
        told = [fault.partition(" ")[0].partition(".")[0] for fault in [*found[:2], *found[-2:]]]
        return found + [line for name in told for line in self._told_of(name, job_of(WorkloadId(name)))]

    def account(self) -> str:
        """What there was, for people."""
        ends = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counted.items()))
        moves = Counter(self.done)
        timeouts = (self.house.folder / "serve.log").read_text().count("did not answer within")
        return (
            f"{len(self.jobs)} jobs and arrays, {sum(self.counted.values())} runs in the ledger: {ends}\n"
            f"slurmctld killed {moves['kill_controller']} times, slurmd {moves['kill_node_daemon']}, "
            f"mirab {moves['kill_service']}; commands that timed out: {timeouts} (stalled {moves['stall']} times); "
            f"users: {moves['cancel']} scancel, {moves['hold']} hold, {moves['requeue']} requeue"
        )

    def _told_of(self, workload: str, job: str) -> list[str]:
        """What the journal says of a job, and the accounting."""
        with self.house.stored() as store:
            said = [f"{seq} {facts} {plan}" for seq, facts, plan in store.decisions(limit=50, mentioning=workload)]
        return [*said, self.slurm.run(*look_up([job]))]


def storm(slurm: SlurmCluster, folder: Path, seed: int, seconds: float) -> list[str]:
    """Blow so long, let it settle, and say what is wrong then."""
    house = House(slurm, folder, settings="interval: 2s\ntimeout: 7s\n", cluster=TOWN)
    made = Storm(slurm, house, seed)
    try:
        made.prepare()
        made.blow(seconds)
        made.settle()
        found = made.faults()
        print(made.account())
        found += [lacks] if (lacks := made.lacks(seconds)) else []
        return [*found, made.words()] if found else []
    finally:
        house.kill()
        slurm.governed.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Copy the logs and mirab's folder there in the end.")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
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
        for name in [each for each in ("log", "mirab") if asked.keep and (folder / each).exists()]:
            shutil.copytree(
                folder / name, asked.keep / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
            )
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(faults) or "no faults: no job lost, none run twice, none stopped early, the ledger is sacct's")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
