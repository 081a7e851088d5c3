"""Plays docs/howto/slurm.md on a real Slurm, as root, and prints what each command printed.

`python -m tests.slurm.howto`. Where the cluster keeps its settings is written /etc/slurm; nothing else is changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm.cluster import PATIENCE_S, SlurmCluster, missing, program
from tests.slurm.house import USERS, sbatch

POLICY = """policy:
  window: 5m
  commitment_floor: 30s
  review: 10s
  hold_review: 10s
"""
"""Five minutes of looking are no week: see the how-to."""
GATES = """gates:
  contracts: {at_most: 0, because: a minimum is a promise}
  lost-work: {at_most: 3%, worse_by_at_most: 1%}
  occupancy: {worse_by_at_most: 2%}
"""
WORK = ("-N1", "--gpus-per-node=8", "--comment=mirab:min=1m,grace=5s")


class Terminal:
    """A folder in which commands are said."""

    def __init__(self, slurm: SlurmCluster, here: Path) -> None:
        self.slurm, self.here = slurm, here
        self.environment = slurm.environment | {
            "MIRAB_STATE_DIR_ROOT": str(here / "state"),
            "MIRAB_SOCKET": str(here / "state" / "mirab.sock"),
            "MIRAB_SLURM_CONFIG": str(slurm.folder / "mirab.yaml"),
            "COLUMNS": "118",
        }
        self.environment.pop("SLURM_TIME_FORMAT")
        self.service: subprocess.Popen[bytes] | None = None

    def say(self, line: str, show: str = "") -> str:
        """Run a line of a shell, and print it as in the how-to (or as `show`), with all that it prints."""
        words = line.replace("mirab ", f"{sys.executable} -m mirab ", 1) if line.startswith("mirab ") else line
        done = subprocess.run(
            ["bash", "-c", words], cwd=self.here, env=self.environment, stdout=-1, stderr=-2, text=True, check=False
        )
        said = done.stdout.replace(str(self.slurm.folder), "/etc/slurm").replace(str(self.here) + "/", "")
        print(f"$ {show or line}\n{said}", flush=True)
        return done.stdout

    def serve(self, *words: str) -> None:
        print(f"$ mirab serve --backend slurm {' '.join(words)} --slurm-config /etc/slurm/mirab.yaml\n", flush=True)
        with (self.here / "serve.log").open("ab") as log:
            self.service = subprocess.Popen(
                [sys.executable, "-m", "mirab", "serve", "--listen=none", "--backend", "slurm", "--state-dir",
                 str(self.here / "state"), "--slurm-config", str(self.slurm.folder / "mirab.yaml"), *words],
                cwd=self.here, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.slurm.wait_for((self.here / "state" / "mirab.sock").exists, "the service")

    def leave(self) -> None:
        if self.service is not None:
            self.service.send_signal(signal.SIGTERM)
            self.service.wait(PATIENCE_S)
            self.service = None


def associations(slurm: SlurmCluster) -> None:
    add = ("sacctmgr", "--immediate", "add")
    slurm.run(*add, "account", "research", "Fairshare=60")
    slurm.run(*add, "account", "vlm", "parent=research", "Fairshare=40")
    slurm.run(*add, "account", "speech", "parent=research", "Fairshare=20")
    slurm.run(*add, "account", "product", "Fairshare=40")
    for user in USERS:
        slurm.run(*add, "user", user, "account=vlm,speech,product")


def a_month(slurm: SlurmCluster) -> None:
    jobs = [
        sbatch(slurm, "-N1", f"--gpus-per-node={gpus}", "-A", account, script=f"sleep {seconds}")
        for account, gpus, seconds in (
            ("vlm", 8, 20), ("vlm", 8, 15), ("speech", 2, 9), ("product", 4, 12), ("product", 8, 6),
        )
    ]  # fmt: skip
    slurm.wait_for(lambda: [slurm.states()[job] for job in jobs] == ["COMPLETED"] * 5, "the past")
    time.sleep(3)


def play(slurm: SlurmCluster, here: Path) -> None:
    terminal = Terminal(slurm, here)
    (slurm.folder / "mirab.yaml").write_text(f"governed: {slurm.folder}/mirab-governed\n")
    associations(slurm)
    a_month(slurm)
    terminal.say("mirab slurm import")
    terminal.say(
        f"{program('sacctmgr')} -P show associations format=Account,ParentName,User,Share",
        "sacctmgr -P show associations format=Account,ParentName,User,Share",
    )
    terminal.say("cat slurm-import/budgets.yaml")
    replay = "slurm-import/jobs.txt --cluster slurm-import/cluster.yaml --policies fair-tree,budget"
    terminal.say(f"mirab compare {replay} --json report.json")
    (here / "gates.yaml").write_text(GATES)
    terminal.say("cat gates.yaml")
    terminal.say("mirab gate report.json --gates gates.yaml")
    with (here / "slurm-import" / "budgets.yaml").open("a") as budgets:
        budgets.write(POLICY)
    try:
        look_and_decide(slurm, terminal)
    finally:
        terminal.leave()


def look_and_decide(slurm: SlurmCluster, terminal: Terminal) -> None:
    for _ in range(4):
        sbatch(slurm, *WORK, "-A", "vlm", user="games")
    time.sleep(15)
    sbatch(slurm, "-N2", *WORK[1:], "-A", "product", user="mail")
    terminal.serve("--observe", "yes", "--cluster", "slurm-import/budgets.yaml")
    time.sleep(90)
    terminal.say("mirab ls")
    terminal.say("mirab share")
    terminal.say("mirab show 10")
    terminal.say("mirab slurm advice")
    terminal.leave()
    terminal.say(f"mirab slurm lua > {slurm.folder}/job_submit.lua", "mirab slurm lua > /etc/slurm/job_submit.lua")
    slurm.run("scontrol", "reconfigure")
    time.sleep(2)
    terminal.serve("--cluster", "slurm-import/budgets.yaml")
    terminal.say("mirab slurm govern vlm product")
    time.sleep(30)
    terminal.say("mirab slurm status")
    terminal.say("mirab ls")
    terminal.say("squeue -o '%.5i %.8u %.8a %.3t %.6M %.5D %R'", "squeue -o '%.5i %.8u %.8a %.3t %.6M %.5D %R'")
    sbatch(slurm, *WORK, "-A", "vlm", user="games")
    time.sleep(35)
    terminal.say("mirab node report n2 --xid 79")
    time.sleep(25)
    terminal.say("mirab node ls")
    terminal.say('sinfo -N -o "%N %T %E"')
    terminal.say("mirab node resume n2")
    time.sleep(12)
    terminal.say(f"mirab report --week {time.strftime('%Y-%m-%d')} | grep -A4 '| node |'", "mirab report")
    terminal.say("mirab slurm release-all")
    terminal.say("mirab slurm status")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    absent = missing(accounting=True)
    if absent:
        raise SystemExit(f"skipped: {absent}")
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    here = folder / "here"
    here.mkdir()
    try:
        with SlurmCluster(folder, nodes=3, accounting=True) as slurm:
            play(slurm, here)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
