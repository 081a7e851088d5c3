"""A real Slurm on this machine: one controller, several `slurmd -N`, pretend GPUs, and accounting where asked for.

Everything lives in one temporary folder, on loopback and free ports, and is stopped by process id. It needs root (munge
and slurmd want to change users) and Debian's packages; `missing()` says what is not there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mirab.backends.slurm.plugin import plugin_text
from tests.ports import free_port

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol", "sinfo")
ACCOUNTING = ("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db")
PATIENCE_S = 180.0
"""A net: what has not happened by then never will."""
LEAVE_S = 60.0
"""A daemon that is killed before it has written down what it knows has forgotten jobs."""
PROMPT = "bf_interval=2,sched_min_interval=100000,batch_sched_delay=0"
"""Slurm considers jobs as soon as something has changed, not three seconds later."""
WORKS = "exec sleep 600"
"""Of a shell that waits for its sleep, Slurm kills the one and waits seconds for the other."""
FRUGAL = ("--innodb-use-native-aio=0",)
"""Several at once on one machine may find none of the kernel's queues free."""
GPU_MAJOR = 1
GPU_MINOR = 3
"""Pretend GPUs are character devices with the numbers of /dev/null."""


class SlurmError(Exception):
    """A daemon did not come up, or a command failed; the message holds the end of its log."""


def missing(accounting: bool = False) -> str:
    """What keeps a real Slurm from being started here, as a clear word; "" = nothing."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    wanted = PROGRAMS + (ACCOUNTING if accounting else ())
    absent = [name for name in wanted if program(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


@dataclass
class SlurmCluster:
    """One Slurm cluster. `with SlurmCluster(folder, nodes=3) as slurm: slurm.run("sinfo")`.

    Attributes:
        folder: a fresh temporary folder; its path has to be short, since it holds sockets.
        nodes: how many `slurmd` are started, named n0, n1, ...
        gpus: pretend GPUs of type h100 on each.
        accounting: start MariaDB and slurmdbd too, so that accounts and `sacct` are real.
        extra: further lines of slurm.conf.
        scheduler: Slurm's SchedulerParameters.
        plugin: with mirab's `job_submit.lua`, which reads the governed accounts from `governed` in the folder.
    """

    folder: Path
    nodes: int = 2
    gpus: int = 8
    accounting: bool = False
    extra: str = ""
    scheduler: str = PROMPT
    plugin: bool = True
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    # --- life --------------------------------------------------------------------------------------------------------
    def __enter__(self) -> SlurmCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._lay_out()
        self._start_munge()
        if self.accounting:
            self._start_accounting()
        self.start_controller()
        for number in range(self.nodes):
            self.start_node(f"n{number}")
        self.wait_for(lambda: self._idle_nodes() == self.nodes, "the nodes to become idle")

    def stop(self) -> None:
        """Stop every daemon that was started, the last one first, by process id, and what those left behind."""
        for name in reversed(list(self.daemons)):
            self.end(name)
        for pid in self._left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left_behind(self) -> list[int]:
        """Jobs, and the steps that go on telling a controller that is gone: their errors go to a file of ours."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if Path(os.readlink(process / "fd" / "2")).is_relative_to(self.folder / "out"):
                    found.append(int(process.name))
        return found

    def end(self, name: str, how: int = signal.SIGTERM) -> None:
        daemon = self.daemons.pop(name)
        if daemon.poll() is None:
            daemon.send_signal(how)
            try:
                daemon.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(LEAVE_S)

    # --- use ---------------------------------------------------------------------------------------------------------
    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "SLURM_TIME_FORMAT": "%s"}

    def run(self, *command: str, check: bool = True, text: str | None = None, user: str | None = None) -> str:
        """Run one of Slurm's commands, as another user if asked, and return what it printed.

        Raises:
            SlurmError: it failed (unless `check` is False).
        """
        done = subprocess.run(
            [program(command[0]) or command[0], *command[1:]],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            user=user,
            extra_groups=None if user is None else [],
            cwd="/",
        )
        if check and done.returncode:
            raise SlurmError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def sbatch(self, *options: str, script: str = WORKS) -> str:
        """Submit a script and return the job's id."""
        output = str(self.folder / "out" / "%j.out")
        text = f"#!/bin/sh\n{script}\n"
        return self.run("sbatch", "--parsable", "-o", output, *options, text=text).strip().split(";")[0]

    def wait_for(self, condition: Callable[[], object], what: str, patience: float = PATIENCE_S) -> None:
        """Look again and again until `condition()` holds.

        Raises:
            SlurmError: it never did; the message ends with the logs.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if condition():
                return
            for name, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    raise SlurmError(
                        f"{name} ended with {daemon.returncode} while waiting for {what}:\n{self.log(name)}"
                    )
            time.sleep(0.1)
        raise SlurmError(f"waited {patience:g} s in vain for {what}:\n{self.log('slurmctld')}")

    def log(self, name: str) -> str:
        path = self.folder / "log" / f"{name}.log"
        return path.read_text(errors="replace")[-6000:] if path.exists() else "(no log)"

    def states(self) -> dict[str, str]:
        """State of each job that the controller knows, in Slurm's long words."""
        rows = self.run("squeue", "--noheader", "--states=all", "--format=%i %T").split("\n")
        return dict(row.split() for row in rows if row.strip())

    # --- parts -------------------------------------------------------------------------------------------------------
    def start_controller(self, *options: str) -> None:
        self._start("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"), *options)
        self.wait_for(lambda: "UP" in self.run("scontrol", "ping", check=False), "the controller")

    def start_node(self, name: str) -> None:
        self._start("slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf"), daemon=f"slurmd-{name}")

    def _idle_nodes(self) -> int:
        rows = self.run("sinfo", "--noheader", "--Node", "--format=%N %T", check=False).split("\n")
        return sum(row.endswith(" idle") for row in rows)

    def _start(self, name: str, *options: str, daemon: str | None = None) -> None:
        daemon = daemon or name
        log = (self.folder / "log" / f"{daemon}.log").open("ab")
        self.daemons[daemon] = subprocess.Popen(
            [str(program(name)), *options], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd=self.folder,
        )  # fmt: skip
        log.close()

    def _lay_out(self) -> None:
        self.folder.chmod(0o755)
        for name in ("log", "state", "spool", "out", "munge", "dev"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "out").chmod(0o777)
        for number in range(self.gpus):
            device = self.folder / "dev" / f"gpu{number}"
            if not device.exists():
                os.mknod(device, 0o666 | 0o020000, os.makedev(GPU_MAJOR, GPU_MINOR))
        names = ["slurmctld", *(f"n{number}" for number in range(self.nodes)), *(["dbd"] if self.accounting else [])]
        self.ports.update({name: free_port() for name in names})
        (self.folder / "slurm.conf").write_text(self._slurm_conf())
        (self.folder / "gres.conf").write_text(
            "".join(f"NodeName={node} Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{self.gpus - 1}]\n"
                    for node in self.node_names)
        )  # fmt: skip
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "job_submit.lua").write_text(plugin_text(self.governed))

    @property
    def governed(self) -> Path:
        return self.folder / "governed"

    @property
    def node_names(self) -> Sequence[str]:
        return [f"n{number}" for number in range(self.nodes)]

    def _slurm_conf(self) -> str:
        folder = self.folder
        lines = [
            "ClusterName=mirabtest",
            "SlurmctldHost=localhost(127.0.0.1)",
            "SlurmUser=root",
            "SlurmdUser=root",
            f"SlurmctldPort={self.ports['slurmctld']}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge/munge.socket",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "GresTypes=gpu",
            "SlurmdParameters=config_overrides",
            "ProctrackType=proctrack/pgid",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            "SchedulerType=sched/backfill",
            f"SchedulerParameters={self.scheduler}",
            "PriorityType=priority/basic",
            "SlurmctldTimeout=30",
            "LogTimeFormat=iso8601_ms",
            "SlurmdTimeout=20",
            "InactiveLimit=0",
            "MinJobAge=300",
            "KillWait=5",
            "Waittime=0",
            "MessageTimeout=20",
            "DefMemPerNode=1000",
            *self._accounting_lines(),
            *(["JobSubmitPlugins=lua"] if self.plugin else []),
            *(
                f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={self.ports[name]} CPUs=64 "
                f"RealMemory=500000 Gres=gpu:h100:{self.gpus} State=UNKNOWN"
                for name in self.node_names
            ),
            f"PartitionName=main Nodes={','.join(self.node_names)} Default=YES MaxTime=INFINITE State=UP",
            self.extra,
        ]
        return "\n".join(lines) + "\n"

    def _accounting_lines(self) -> list[str]:
        if not self.accounting:
            return ["AccountingStorageType=accounting_storage/none"]
        return [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self.ports['dbd']}",
            f"AccountingStoragePass={self.folder}/munge/munge.socket",
            "AccountingStorageTRES=gres/gpu,gres/gpu:h100",
            "AccountingStorageEnforce=associations",
        ]

    def _start_munge(self) -> None:
        """munged refuses keys and folders that are not its own user's."""
        home = self.folder / "munge"
        key = home / "munge.key"
        key.write_bytes(os.urandom(1024))
        user = pwd.getpwnam("munge")
        for path, mode in ((home, 0o755), (key, 0o400)):
            path.chmod(mode)
            os.chown(path, user.pw_uid, user.pw_gid)
        log = (self.folder / "log" / "munged.log").open("ab")
        self.daemons["munged"] = subprocess.Popen(
            [
                str(program("munged")), "--foreground", "--force", f"--socket={home}/munge.socket",
                f"--key-file={key}", f"--pid-file={home}/munged.pid", f"--seed-file={home}/munged.seed",
                f"--log-file={home}/munged.log",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        )  # fmt: skip
        log.close()
        self.wait_for((home / "munge.socket").exists, "munge")

    def _start_accounting(self) -> None:
        self._start_mariadb()
        config = self.folder / "slurmdbd.conf"
        config.write_text(
            "\n".join(
                [
                    "AuthType=auth/munge",
                    f"AuthInfo=socket={self.folder}/munge/munge.socket",
                    "DbdHost=localhost",
                    "DbdAddr=127.0.0.1",
                    f"DbdPort={self.ports['dbd']}",
                    "SlurmUser=root",
                    f"PidFile={self.folder}/slurmdbd.pid",
                    "StorageType=accounting_storage/mysql",
                    "StorageHost=127.0.0.1",
                    f"StoragePort={self.ports['mariadb']}",
                    "StorageUser=slurm",
                    "StoragePass=slurm",
                    "StorageLoc=slurm_acct",
                ]
            )
            + "\n"
        )
        config.chmod(0o600)
        self.daemons["slurmdbd"] = subprocess.Popen(
            [str(program("slurmdbd")), "-D"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=(log := (self.folder / "log" / "slurmdbd.log").open("ab")),
            stderr=log,
        )
        log.close()
        self.wait_for(lambda: self._listens(self.ports["dbd"]), "slurmdbd")
        self.wait_for(self._add_cluster, "the cluster to be known to slurmdbd")

    def _add_cluster(self) -> bool:
        self.run("sacctmgr", "--immediate", "add", "cluster", "mirabtest", check=False)
        return "mirabtest" in self.run("sacctmgr", "--noheader", "--parsable2", "show", "cluster", check=False)

    def _start_mariadb(self) -> None:
        self.ports["mariadb"] = free_port()
        data = self.folder / "mariadb"
        data.mkdir()
        user = pwd.getpwnam("mysql")
        os.chown(data, user.pw_uid, user.pw_gid)
        made = subprocess.run(
            [str(program("mariadb-install-db")), "--no-defaults", f"--datadir={data}", "--user=mysql",
             "--auth-root-authentication-method=normal", "--skip-test-db", *FRUGAL],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if made.returncode:
            raise SlurmError(f"MariaDB could not be laid out: {(made.stdout + made.stderr)[-2000:]}")
        init = data / "init.sql"
        init.write_text(
            "CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';\nGRANT ALL ON *.* TO 'slurm'@'127.0.0.1';\n"
            "CREATE DATABASE IF NOT EXISTS slurm_acct;\n"
        )
        os.chown(init, user.pw_uid, user.pw_gid)
        self._start(
            "mariadbd", "--no-defaults", f"--datadir={data}", "--user=mysql", "--bind-address=127.0.0.1",
            f"--port={self.ports['mariadb']}", f"--socket={data}/m.sock", f"--pid-file={data}/m.pid",
            f"--init-file={init}", "--innodb-buffer-pool-size=64M",
            "--innodb-lock-wait-timeout=900", "--skip-name-resolve", *FRUGAL,
        )  # fmt: skip
        self.wait_for(lambda: self._listens(self.ports["mariadb"]), "MariaDB")

    @staticmethod
    def _listens(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
