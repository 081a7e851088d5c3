"""The live service on a real Slurm: in this process, or in one of its own that can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirab.backends.slurm.governed import write_governed
from mirab.model.records import JobRow, JobState, RunRow
from mirab.model.units import WorkloadId
from mirab.service.config import load_config
from mirab.service.runtime import LiveEngine, Service, assemble
from mirab.store import Store, open_store
from tests.slurm.cluster import PATIENCE_S, WORKS, SlurmCluster

USERS = ("games", "news", "mail")
"""Users of every Debian, who own the jobs: what root owns, Slurm treats otherwise."""

CLUSTER = """
budgets:
  red: {share: 30%}
  blue: {share: 70%}
policy: {window: 2m, commitment_floor: 5s, guest_minimum: 1s, hold_review: 2s, review: 5s, cadence: 100ms}
"""


def sbatch(slurm: SlurmCluster, *options: str, user: str = USERS[0], script: str = WORKS) -> str:
    """Submit as an ordinary user."""
    return slurm.sbatch(f"--uid={user}", *options, script=script)


@dataclass(eq=False)
class House:
    """One state folder, and the service on it."""

    slurm: SlurmCluster
    folder: Path
    observe: bool = False
    cluster: str = CLUSTER
    settings: str = "interval: 1s\n"
    path: str = ""
    plugin: bool = True
    service: Service | None = None
    process: subprocess.Popen[bytes] | None = None
    flags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "cluster.yaml").write_text(self.cluster)
        (self.folder / "slurm.yaml").write_text(
            f"slurm_conf: {self.slurm.folder}/slurm.conf\ngoverned: {self.governed}\n{self.settings}"
        )
        self.flags = {
            "state_dir": str(self.folder),
            "backend": "slurm",
            "observe": "yes" if self.observe else "no",
            "cluster": str(self.folder / "cluster.yaml"),
            "slurm_config": str(self.folder / "slurm.yaml"),
        }

    @property
    def governed(self) -> Path:
        """Where the plugin reads them too, if it is to."""
        return self.slurm.governed if self.plugin else self.folder / "slurm-governed"

    def govern(self, *accounts: str) -> None:
        write_governed(self.governed, accounts)

    # --- in this process
    def start(self, wrap: Callable[[LiveEngine], LiveEngine] = lambda engine: engine) -> Service:
        self.service = assemble(load_config(self.flags, {}), wrap)
        self.service.start()
        return self.service

    def stop(self) -> None:
        if self.service is not None:
            service, self.service = self.service, None
            service.stop()
            assert not service.live.pulse.failed, service.live.pulse.failed
            service.live.state.check()

    # --- in one of its own
    def launch(self) -> None:
        words = [word for name, value in self.flags.items() for word in (f"--{name.replace('_', '-')}", value)]
        log = (self.folder / "serve.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mirab", "serve", "--listen=none", "--socket", str(self.folder / "m.sock"), *words],
            env=self.slurm.environment | ({"PATH": self.path} if self.path else {}),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()

    def kill(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            process.send_signal(how)
            process.wait(PATIENCE_S)

    # --- look
    def row(self, job: str) -> JobRow | None:
        assert self.service is not None
        return self.service.store.job(WorkloadId(job))

    def runs(self, job: str) -> list[RunRow]:
        assert self.service is not None
        return self.service.store.runs(WorkloadId(job))

    def state(self, job: str) -> str:
        """As people read it; STARTING = it has been given its nodes, and Slurm does not show it running yet."""
        row = self.row(job)
        if row is None:
            return ""
        return "STARTING" if row.state is JobState.RUNNING and row.started_at is None else row.state.value

    def nodes(self, job: str) -> tuple[str, ...]:
        row = self.row(job)
        return () if row is None else row.node_names

    def held(self, job: str) -> str:
        row = self.row(job)
        return "" if row is None else row.held

    def wait(self, condition: Callable[[], object], what: str, patience: float = PATIENCE_S) -> None:
        def told() -> object:
            assert self.service is None or not self.service.live.pulse.failed, self.service.live.pulse.failed
            return condition()

        self.slurm.wait_for(told, what, patience)

    def listed(self) -> dict[str, str]:
        """State of each job as Slurm shows it, tasks of arrays one by one."""
        rows = self.slurm.run("squeue", "--noheader", "--array", "--states=all", "--format=%i %T").split("\n")
        return dict(row.split() for row in rows if row.strip())

    def all_runs(self) -> list[RunRow]:
        """Every run of the ledger, also while the service is not up."""
        with self.stored() as store:
            return [run for row in _rows(store) for run in store.runs(row.id)]

    def rows(self) -> list[JobRow]:
        """Every job of the ledger, likewise."""
        with self.stored() as store:
            return _rows(store)

    @contextmanager
    def stored(self) -> Iterator[Store]:
        store = open_store(f"sqlite:///{self.folder / 'mirab.db'}")
        try:
            yield store
        finally:
            store.dispose()


def _rows(store: Store) -> list[JobRow]:
    rows: list[JobRow] = []
    cursor: str | None = None
    while True:
        page, cursor = store.jobs(after=cursor, limit=500)
        rows += page
        if cursor is None:
            return rows


@contextmanager
def house(slurm: SlurmCluster, folder: Path, **settings: Any) -> Iterator[House]:
    """A service that is stopped, and a Slurm that is empty, at the end."""
    made = House(slurm, folder, **settings)
    try:
        yield made
    finally:
        try:
            made.stop()
        finally:
            made.kill()
            slurm.governed.unlink(missing_ok=True)
            clear(slurm)


def clear(slurm: SlurmCluster) -> None:
    """No jobs, all nodes well."""
    jobs = [job for job, state in slurm.states().items() if state in ("PENDING", "RUNNING", "SUSPENDED")]
    if jobs:
        slurm.run("scancel", *[job.partition("_")[0] for job in jobs], check=False)
    for node in slurm.node_names:
        slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
    slurm.wait_for(lambda: slurm._idle_nodes() == slurm.nodes, "an empty cluster")
